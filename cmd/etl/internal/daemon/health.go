package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
)

// health tells how the pipeline is: what its state says, and what was found while it
// runs. The caller holds the lock.
func (u *unit) health() api.Health {
	h := api.Health{OK: true, Problems: []api.Problem{}}
	add := func(p ...api.Problem) {
		for _, one := range p {
			h.Problems = append(h.Problems, one)
			h.OK = h.OK && one.Level != levelError
		}
	}
	state, since := u.state()
	switch state {
	case api.Invalid:
		add(api.Problem{Kind: "definition", Level: levelError, Text: u.def.failure(), Help: mend(u.def.file), Since: since})
	case api.Failed:
		add(u.failed(since))
	case api.Restarting:
		failure := u.run.control.Status().Failure
		kind, help := "restart", "it starts again by itself; its log has the whole failure"
		if k, h := cause(failure); k != "" {
			kind, help = k, h
		}
		add(api.Problem{Kind: kind, Level: levelError, Text: "it failed, and starts again: " + firstLine(failure), Help: help, Since: since})
	case api.Starting:
		h.OK = false
	default:
	}
	if u.run != nil {
		add(u.watch.problems...)
	}
	if u.pending != "" && state != api.Invalid {
		add(api.Problem{Kind: "reload", Level: levelWarning, Text: u.pending, Help: mend(u.file.file), Since: u.pendingSince})
	}
	return h
}

func mend(file string) string { return "mend " + file + ": it is read again when it changes" }

// failed is the problem of a pipeline that has failed.
func (u *unit) failed(since time.Time) api.Problem {
	p := api.Problem{Kind: "restart", Level: levelError, Text: "it has failed: " + firstLine(u.failure), Help: u.help, Since: since}
	if u.last == nil {
		return p
	}
	var record *connectors.RecordError
	switch {
	case errors.As(u.last.err, &record) && record.Origin != nil:
		p.Kind, p.Step = "record", record.Step
		p.Help = "mend the step or the record, or have it left out by on_error: skip or dead_letter; then etl start " + u.name
		if u.def.moves() {
			at := fmt.Sprintf("%s/%d@%d", record.Origin.Topic, record.Origin.Partition, record.Offset)
			p.Help = fmt.Sprintf("mend the step, or leave the record out: etl skip %s %s; on_error: skip or dead_letter lets the next one not stop it", u.name, at)
		}
	case deniesAccess(u.failure):
		p.Kind, p.Help = "credentials", renew+"; then etl start "+u.name
	}
	return p
}
