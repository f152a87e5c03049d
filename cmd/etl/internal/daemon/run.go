package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// run is one run of a pipeline, from a start to its end, restarts of its own included.
type run struct {
	def     *definition
	control *pipeline.Control
	began   time.Time
	stop    chan struct{} // closed to end it with a last checkpoint
	once    sync.Once
	kill    context.CancelCauseFunc // ends it without one
	flows   chan struct{}           // closed when records flow for the first time
	over    chan struct{}           // closed once it has ended and its unit knows
	asked   time.Time               // when stop was closed
	// rest is the state that a stop leaves the unit in; empty where another run follows,
	// or the daemon ends.
	rest api.State

	// told are the checkpoints that the history has, and completes says that the newest of
	// them has completed. The history's lock guards them.
	told      map[checkpoint.ID]bool
	completes bool

	// These are set when over is closed.
	summary *pipeline.Summary
	err     error
}

// errReplaced is why a run is ended whose definition has not come to run.
var errReplaced = errors.New("its definition is taken back")

// launch starts a run. The caller holds the unit's turn.
func (u *unit) launch(def *definition, o pipeline.Options) *run {
	r := &run{
		def: def, control: &pipeline.Control{}, began: time.Now(),
		stop: make(chan struct{}), flows: make(chan struct{}), over: make(chan struct{}), told: map[checkpoint.ID]bool{},
	}
	var ctx context.Context
	ctx, r.kill = context.WithCancelCause(context.Background())
	o.Plan, o.Log, o.Control, o.Stop = def.plan, u.d.log, r.control, r.stop
	o.Budget, o.Grace, o.Failpoint = u.d.budget, u.d.opts.Settings.ShutdownTimeout, u.d.opts.Failpoint
	flowing := sync.OnceFunc(func() { close(r.flows) })
	running := o.Running
	o.Running = func() {
		flowing()
		if running != nil {
			running()
		}
		u.tell("running", levelInfo, "records flow"+fromText(r.control.Status()), "")
	}
	u.began(r)
	if u.d.isEnding() { // whoever ends the runs may not have seen this one
		r.once.Do(r.end)
	}
	work := func() {
		defer close(r.over)
		defer r.kill(nil)
		r.summary, r.err = guarded(ctx, o)
		stats := r.control.Checkpoints()
		u.remember(r, &stats)
		u.ended(r)
	}
	u.d.spawnOr(work)
	return r
}

// launchForGood is launch of a run that the next daemon goes on with: what the pipeline
// was put into before counts no more. A start that was told from where to go on counts
// once it runs: after a crash before that it has to be told again.
func (u *unit) launchForGood(def *definition, o pipeline.Options) *run {
	told := o.From != "" || o.AcceptDuplicates || o.AllowNonRestoredState || o.AllowDrained || len(o.SetOffsets)+len(o.Skip) > 0
	if told {
		o.Running = u.forget
	} else {
		u.forget()
	}
	return u.launch(def, o)
}

// end asks for the end with a last checkpoint.
func (r *run) end() {
	r.asked = time.Now()
	close(r.stop)
}

// guarded keeps a panic of one pipeline from the others.
func guarded(ctx context.Context, o pipeline.Options) (s *pipeline.Summary, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = &pipeline.Summary{Outcome: pipeline.Failed}, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return pipeline.Run(ctx, o)
}

// fromText says what a run went on from.
func fromText(s pipeline.Status) string {
	if s.Restored == nil {
		return ", from the beginning"
	}
	return fmt.Sprintf(", from checkpoint %d", s.Restored.Number)
}

// leave ends the run as SIGTERM does, with a last checkpoint from which the next run of
// the same job goes on, and waits for that or until ctx ends. Its warning says that there
// was none.
func (r *run) leave(ctx context.Context) *pipeline.Taken {
	r.once.Do(r.end)
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	s := r.control.Status()
	t := &pipeline.Taken{Pipeline: s.Pipeline, Job: s.Job, Path: s.Last}
	last := r.control.Checkpoints().Last
	if last != nil {
		t.Number = last.ID.Number
	}
	if last == nil || last.Triggered.Before(r.asked.Add(-time.Millisecond)) {
		t.Warning = "no last checkpoint could be taken: it goes on from the one before"
		if t.Path == "" && s.Restored != nil {
			t.Path, t.Number = s.Restored.Path, s.Restored.Number
		}
	}
	return t
}

// hasEnded reports whether the run is over.
func (r *run) hasEnded() bool { return closed(r.over) }
