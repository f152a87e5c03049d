package daemon

import (
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// health tells how the pipeline is. The caller holds the lock.
func (u *unit) health() api.Health {
	h := api.Health{OK: true, Problems: []api.Problem{}}
	state, since := u.state()
	add := func(kind, level, text, help string, since time.Time) {
		h.Problems = append(h.Problems, api.Problem{Kind: kind, Level: level, Text: text, Help: help, Since: since})
		h.OK = h.OK && level != levelError
	}
	switch state {
	case api.Invalid:
		add("definition", levelError, u.def.failure(), "mend "+u.def.file+": it is read again when it changes", since)
	case api.Failed:
		add("restart", levelError, "it has failed: "+firstLine(u.failure), u.help, since)
	case api.Restarting:
		add("restart", levelError, "it failed and starts again: "+firstLine(u.run.control.Status().Failure), "see its log", since)
	case api.Starting:
		add("restart", levelError, "nothing flows yet: it is starting", "", since)
	default:
	}
	if u.pending != "" && state != api.Invalid {
		add("reload", levelWarning, u.pending, "mend "+u.file.file, u.since)
	}
	return h
}
