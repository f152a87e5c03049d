package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// Control steers a running pipeline and shows what it is at. It is made by its user,
// given to Run in Options, and safe for concurrent use. It works across restarts
// in the process.
type Control struct {
	mu     sync.Mutex
	status Status
	plan   *Plan // nil before Run
	run    *running
	past   checkpoint.Stats // of the runs of the tasks before this one
	stop   *ending
	cancel *ending
	over   *Taken // what the job has ended with
	// asked is closed while a stop waits for being taken up, cancelled once a cancel is
	// asked for.
	asked, cancelled chan struct{}

	waiting outage                           // of the step of a start that is tried again
	local   atomic.Pointer[checkpoint.Local] // nil without local copies of state

	failures failureRing
	commits  commitTally
	taps     *tapBoard // of plan

	// moves is closed once positions are moved, or will not be; nil while nobody asks.
	moves   chan struct{}
	moved   []Moved
	unmoved bool
}

// running is one run of the tasks, for what is asked of it from outside.
type running struct {
	a    *attempt
	work sync.WaitGroup // what was asked for and is under way
	over chan struct{}  // closed when that is to end too, after why is set
	why  error
}

// Taken is a checkpoint or savepoint, and what a job ended with.
type Taken struct {
	Pipeline string `json:"pipeline"`
	Job      string `json:"job"`
	Number   uint64 `json:"number,omitempty"`
	// Path is where it lies, as -s takes it; empty where there is nothing to go on from.
	Path string `json:"path,omitempty"`
	// Drained says that event time was driven to its end.
	Drained bool `json:"drained,omitempty"`
	// Warning is what did not work beside.
	Warning string `json:"warning,omitempty"`
}

// StopOptions say how a job is stopped.
type StopOptions struct {
	// Savepoint takes a savepoint into Dir, or into the folder of the file where that
	// is empty; otherwise the job ends with a checkpoint.
	Savepoint bool
	Dir       string
	// Drain drives event time to its end before it, so that every window and timer fires.
	Drain bool
}

// PhaseError says that a pipeline cannot do what it was asked for in its present phase.
type PhaseError struct {
	Phase Phase
	Text  string
}

func (e *PhaseError) Error() string { return e.Text }

// ErrNoSavepointDir says that nothing tells where savepoints go.
var ErrNoSavepointDir = errors.New("there is no folder for savepoints")

// errGone is the cause where who asked has left.
var errGone = errors.New("nobody waits for it any more")

// Checkpoint takes a checkpoint now and returns once it is published. It waits for
// its turn by max_concurrent, not for the interval.
func (c *Control) Checkpoint(ctx context.Context) (*Taken, error) {
	return c.beside(ctx, "a checkpoint", func(ctx context.Context, run *running) (*Taken, error) {
		m, err := run.a.coord.Trigger(ctx, checkpoint.Order{Kind: checkpoint.Periodic})
		if err != nil {
			return nil, err
		}
		return run.a.taken(m), nil
	})
}

// Savepoint takes a savepoint into a new folder below dir, by default that of the
// file, and returns once it is whole. One that fails, or that ctx ends before it is
// whole, leaves nothing behind, and the pipeline goes on.
func (c *Control) Savepoint(ctx context.Context, dir string) (*Taken, error) {
	dir, err := c.savepointDir(dir)
	if err != nil {
		return nil, err
	}
	return c.beside(ctx, "a savepoint", func(ctx context.Context, run *running) (*Taken, error) {
		return run.a.savepoint(ctx, dir, func() (*checkpoint.Metadata, error) {
			return run.a.coord.Trigger(ctx, checkpoint.Order{Kind: checkpoint.Savepoint})
		})
	})
}

// Stop ends the job with a savepoint or checkpoint, from which the next run goes on
// as a new job, and returns once it has ended. Where that does not work within
// checkpoint.timeout the pipeline goes on; a drained one goes on from the
// checkpoint before. A pipeline that is restarting ends with its newest checkpoint.
func (c *Control) Stop(ctx context.Context, o StopOptions) (*Taken, error) {
	if o.Savepoint {
		dir, err := c.savepointDir(o.Dir)
		if err != nil {
			return nil, err
		}
		o.Dir = dir
	}
	return c.end(ctx, &ending{StopOptions: o, what: "stop"})
}

// Cancel ends the tasks at once, without a checkpoint, and then the job: the next run
// has to be told from where to go on. It returns once the job has ended.
func (c *Control) Cancel(ctx context.Context) (*Taken, error) {
	return c.end(ctx, &ending{cancel: true, what: "cancel"})
}

// beside runs what is asked of the running tasks.
func (c *Control) beside(ctx context.Context, what string, f func(context.Context, *running) (*Taken, error)) (*Taken, error) {
	run, err := c.enter(what)
	if err != nil {
		return nil, err
	}
	type answer struct {
		taken *Taken
		err   error
	}
	answers := make(chan answer, 1)
	working, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-run.over:
			cancel(run.why)
		case <-working.Done():
		}
	}()
	go func() {
		defer run.work.Done()
		defer cancel(nil)
		var got answer
		defer func() { answers <- got }()
		defer connectors.Recovered(&got.err)
		got.taken, got.err = f(working, run)
		if cause := context.Cause(working); got.err != nil && cause != nil && !errors.Is(got.err, cause) {
			got.err = fmt.Errorf("%w: %w", cause, got.err) // a store says no more than that it was called off
		}
	}()
	name := run.a.plan.Spec.Name
	select {
	case got := <-answers:
		if got.err != nil {
			got.err = fmt.Errorf("%s of pipeline %s: %w", what, name, got.err)
		}
		return got.taken, got.err
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		return nil, fmt.Errorf("%s of pipeline %s: given up: %w", what, name, context.Cause(ctx))
	}
}

// enter is the run of the tasks, kept from closing until its work is done.
func (c *Control) enter(what string) (*running, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil || c.stop != nil && c.stop.taken || c.cancel != nil {
		return nil, c.cannot("take " + what)
	}
	c.run.work.Add(1)
	return c.run, nil
}

// cannot says why the pipeline cannot do something now. The caller holds the lock.
func (c *Control) cannot(do string) error {
	s := c.shown()
	text := fmt.Sprintf("pipeline %s cannot %s: it ", s.Pipeline, do)
	switch s.Phase {
	case Starting, "":
		text += "is starting; try again when it runs"
	case Restarting:
		text += "is restarting from its last checkpoint, since it failed: " + s.Failure + "; try again when it runs"
	case Stopping:
		text += "is being ended already"
	case Ended:
		text += fmt.Sprintf("has ended: %s", s.Outcome)
		if s.Failure != "" {
			text += ": " + s.Failure
		}
	default:
		text += "is " + string(s.Phase)
	}
	return &PhaseError{Phase: s.Phase, Text: text}
}

// Checkpoints describes the pipeline's checkpoints since Run.
func (c *Control) Checkpoints() checkpoint.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return c.past
	}
	return joinStats(c.past, c.run.a.coord.Stats())
}

// joinStats is what two runs of the tasks come to, one after the other. The later one
// remembers the checkpoints of the one before.
func joinStats(past, now checkpoint.Stats) checkpoint.Stats {
	now.Triggered += past.Triggered
	now.Completed += past.Completed
	now.Failed += past.Failed
	now.Subsumed += past.Subsumed
	now.LateAcks += past.LateAcks
	now.UnknownAcks += past.UnknownAcks
	now.CleanFailures += past.CleanFailures
	if now.Last == nil {
		now.Last = past.Last
	}
	return now
}

// begin ties the control to a Run. After that is over it can serve another one.
func (c *Control) begin(p *Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan, c.past, c.over, c.asked, c.cancelled = p, checkpoint.Stats{}, nil, nil, nil
	c.waiting = outage{}
	c.taps = newTapBoard(p)
	if c.moves != nil && isClosed(c.moves) {
		c.moves, c.moved, c.unmoved = nil, nil, false
	}
	c.status = Status{Pipeline: p.Spec.Name, Storage: p.Spec.Checkpoint.Storage, Phase: Starting, Since: time.Now()}
}

// runs tells that the tasks of an attempt are about to begin.
func (c *Control) runs(a *attempt, restored *Restored) *running {
	run := &running{a: a, over: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = run
	c.setPhase(Running)
	c.status.Failure = ""
	if restored != nil {
		c.status.Restored = restored
	}
	return run
}

// left tells that the tasks have ended. What was asked of them and is under way ends
// too, unless they have finished and the program is not asked to end.
func (c *Control) left(run *running, err error, stop <-chan struct{}) {
	stats := run.a.coord.Stats()
	phase := Restarting
	if err == nil || errors.Is(err, errStopped) || errors.Is(err, errOver) {
		phase = Stopping
	}
	c.mu.Lock()
	c.past, c.run = joinStats(c.past, stats), nil
	c.setPhase(phase)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		run.work.Wait()
		close(done)
	}()
	if err == nil {
		select {
		case <-done:
		case <-stop:
			err = errStopped
		}
	}
	if err != nil {
		run.why = fmt.Errorf("the tasks of the pipeline have ended: %w", err)
		close(run.over)
	}
	<-done
}

// failed tells that the pipeline will start again.
func (c *Control) failed(err error, restarts int) {
	c.mu.Lock()
	c.setPhase(Restarting)
	c.status.Failure, c.status.Restarts = err.Error(), restarts
	c.over = nil // a record of the end that something else overtook is void by the next start
	stop := c.stop
	c.mu.Unlock()
	if stop != nil && stop.taken && !stop.begun() {
		c.refuse(stop, fmt.Errorf("the pipeline failed while it was being stopped, and goes on from its last checkpoint: %w", err))
	}
}

// ended tells that Run is over, and returns what the job ended with, if it did.
func (c *Control) ended(outcome Outcome, err error) *Taken {
	defer c.settleMoves(nil, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setPhase(Ended)
	c.status.Outcome = outcome
	if err != nil {
		c.status.Failure = err.Error()
	}
	for _, e := range []*ending{c.stop, c.cancel} {
		if e == nil {
			continue
		}
		if e.result == nil && e.err == nil {
			e.err = c.cannot(e.verb())
		}
		close(e.done)
	}
	c.stop, c.cancel = nil, nil
	if c.taps != nil { // a run that could not begin has none
		c.taps.endAll()
	}
	return c.over
}

func (c *Control) setPhase(p Phase) {
	if c.status.Phase != p {
		c.status.Phase, c.status.Since = p, time.Now()
	}
}
