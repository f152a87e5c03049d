package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// unit is one of the daemon's pipelines: what its file says, what runs of it, and what it
// was put into.
type unit struct {
	d    *Daemon
	name string
	// turn is held by who starts or stops it: one at a time.
	turn chan struct{}
	// removed is closed once it is gone; namesake is that of the unit which had its name
	// before, nil for none.
	removed  chan struct{}
	namesake <-chan struct{}

	mu    sync.Mutex
	gone  bool        // it was removed
	def   *definition // what runs, or would run; of an invalid one its only file
	file  *definition // what the file says now; def, unless that was not taken over
	run   *run        // nil while nothing runs
	last  *run        // the newest that is over
	rest  api.State   // while nothing runs
	since time.Time   // of rest
	// cancelled says that the next start has to be told from where to go on.
	cancelled bool
	left      string // what the job has ended with
	failure   string
	help      string
	pending   string    // a change that was not taken over, in words
	switching bool      // one definition is being replaced by another
	next      time.Time // when a change that could not be planned is tried again
	// pendingSince is when pending was found.
	pendingSince time.Time
	sample       sample
	watch        runWatch

	past pastCheckpoints
}

func newUnit(d *Daemon, name string, def *definition) *unit {
	u := &unit{d: d, name: name, turn: make(chan struct{}, 1), removed: make(chan struct{}), def: def, file: def, rest: api.Starting, since: time.Now()}
	var err error
	if u.past.history, err = d.store.historyOf(name); err != nil {
		d.log.Warn("the history of checkpoints begins anew", pipelineKey, name, "err", err)
	}
	return u
}

// tell notes an event of the pipeline.
func (u *unit) tell(kind, level, text, actor string) {
	u.d.Tell(api.Event{Pipeline: u.name, Kind: kind, Level: level, Text: text, Actor: actor})
}

// take waits for the unit's turn.
func (u *unit) take(ctx context.Context) error {
	select {
	case u.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return conflict("pipeline %s is being started, stopped or changed; try again when that is done", u.name)
	}
}

func (u *unit) giveBack() { <-u.turn }

// running is the run that is under way, nil for none.
func (u *unit) running() *run {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.run
}

// began notes a run that begins.
func (u *unit) began(r *run) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.run, u.def = r, r.def
	u.failure, u.help, u.cancelled, u.left = "", "", false, ""
	u.watch = runWatch{}
}

// ended notes how a run has ended. It is called once, before run.over is closed.
func (u *unit) ended(r *run) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sample.end(r)
	u.watch.close(r)
	u.run, u.last, u.since = nil, r, time.Now()
	switch {
	case errors.Is(r.err, errReplaced):
		u.rest = api.Starting // its switch says what comes next
	case r.err != nil:
		u.rest, u.failure = api.Failed, r.err.Error()
		u.help = helpFor(u.name, r.err)
	case r.summary.Outcome == pipeline.Finished, r.summary.Outcome == pipeline.AlreadyFinished:
		u.rest = api.Finished
	case r.summary.Outcome == pipeline.Cancelled:
		u.rest, u.cancelled = api.Stopped, true
	case r.summary.Ended != nil:
		u.rest = api.Stopped
	default:
		u.rest = api.Starting // another run follows, or the daemon ends
		if r.rest != "" {
			u.rest = r.rest
		}
	}
	if r.err == nil && r.summary.Ended != nil {
		u.left = r.summary.Ended.Path
	}
	u.keep()
	u.tellEnd(r)
}

// tellEnd notes the event of an end. The caller holds the lock.
func (u *unit) tellEnd(r *run) {
	switch {
	case u.switching: // the switch tells
	case u.rest == api.Failed:
		u.tell("failed", levelError, "failed: "+firstLine(u.failure)+"; "+u.help, "")
	case u.rest == api.Finished:
		u.tell("finished", levelInfo, "its input is read to the end", "")
	case u.cancelled:
		u.tell("cancelled", levelInfo, "cancelled; left "+orNothing(u.left), "")
	case u.rest == api.Stopped:
		u.tell("stopped", levelInfo, "stopped for good; left "+orNothing(u.left), "")
	}
}

func orNothing(path string) string {
	if path == "" {
		return "nothing to go on from"
	}
	return path
}

// keep makes the state outlive the daemon. The caller holds the lock.
func (u *unit) keep() {
	var k *kept
	switch u.rest {
	case api.Paused, api.Stopped, api.Finished:
		k = &kept{State: u.rest, Since: u.since, Cancelled: u.cancelled, Fingerprint: u.def.fingerprint, Left: u.left}
	default: // it is to run, or to be mended
	}
	if err := u.d.store.save(u.name, k); err != nil {
		u.d.log.Error("the state of a pipeline could not be kept: a restart of the daemon will not know it", pipelineKey, u.name, "state", u.rest, "err", err)
	}
}

// forget has the next daemon start the pipeline.
func (u *unit) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.d.store.save(u.name, nil); err != nil {
		u.d.log.Error("the state of a pipeline could not be removed: a restart of the daemon takes it for the one from before", pipelineKey, u.name, "err", err)
	}
}

// recall takes over what an earlier daemon kept; it reports whether the pipeline is to run.
func (u *unit) recall() (start bool) {
	k, err := u.d.store.load(u.name)
	if err != nil {
		u.d.log.Error("the state of a pipeline is lost, and it is left stopped", pipelineKey, u.name, "err", err)
		k = &kept{State: api.Stopped, Since: time.Now(), Fingerprint: u.def.fingerprint}
	}
	if k == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if k.State != api.Paused && !k.Cancelled && k.Fingerprint != u.def.fingerprint {
		return true // its file was changed since
	}
	u.rest, u.since, u.cancelled, u.left = k.State, k.Since, k.Cancelled, k.Left
	return false
}

// state is what the pipeline is at, and since when. The caller holds the lock.
func (u *unit) state() (api.State, time.Time) {
	if u.run == nil {
		if !u.def.valid() {
			return api.Invalid, u.since
		}
		return u.rest, u.since
	}
	s := u.run.control.Status()
	since := s.Since
	if since.IsZero() {
		since = u.run.began
	}
	switch s.Phase {
	case pipeline.Running:
		if u.run.leaving() {
			return api.Stopping, since
		}
		return api.Running, since
	case pipeline.Restarting:
		return api.Restarting, since
	case pipeline.Stopping, pipeline.Ended:
		return api.Stopping, since
	default:
		return api.Starting, since
	}
}

// leaving reports whether the run was asked to end.
func (r *run) leaving() bool { return closed(r.stop) }

// helpFor says what to do about an error that has ended a pipeline.
func helpFor(name string, err error) string {
	switch {
	case errors.Is(err, connectors.ErrFenced):
		return "a newer process has taken over: find out which one, see its owner in `etl plan --from ''`, and delete the pipeline here or start it again with etl start " + name
	case connectors.IsPermanent(err):
		return "mend what it says, then etl start " + name
	default:
		return "the restart strategy has given up; look what it says, then etl start " + name
	}
}

// conflict is an error for what a pipeline cannot do in its state.
func conflict(format string, args ...any) error {
	return &stateError{text: fmt.Sprintf(format, args...), kind: api.ErrConflict}
}

// invalid is an error for a request that is wrong.
func invalid(format string, args ...any) error {
	return &stateError{text: fmt.Sprintf(format, args...), kind: api.ErrInvalid}
}

// stateError is one of the API's errors, in words of its own.
type stateError struct {
	text string
	kind error
}

func (e *stateError) Error() string { return e.text }
func (e *stateError) Unwrap() error { return e.kind }
