// Package pipeline runs one pipeline: it cuts the graph into chains, runs their
// tasks, takes checkpoints, commits, restores and restarts. DESIGN.md at the root
// shows the way of a record, of a barrier, and of a restore.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// Defaults of Options.
const (
	defaultMemory = 512 << 20
	defaultGrace  = 30 * time.Second
)

// Options say how a pipeline is run.
type Options struct {
	Plan *Plan
	Log  *slog.Logger
	// From is what to restore: empty for the newest checkpoint of the current job,
	// "none" for a fresh start, or the path of a checkpoint.
	From string
	// AcceptDuplicates lets a start go on from a checkpoint older than what a sink
	// has published.
	AcceptDuplicates bool
	// Claim makes the checkpoint or savepoint that From names the new job's own, which
	// removes it once it is not needed any more. The file's checkpoint.claim does so too.
	Claim bool
	// AllowNonRestoredState lets a start leave out state whose operator is gone.
	AllowNonRestoredState bool
	// AllowDrained lets a start go on from a checkpoint taken after the end of the
	// input, which event time has passed.
	AllowDrained bool
	// SetOffsets moves positions on purpose, state kept: a split such as topic/partition,
	// or source:topic/partition where several sources read it, to an offset, Earliest or
	// Latest. The first checkpoint holds them, before a record is read.
	SetOffsets map[string]int64
	// Skip are records to leave out when their turn comes. Checkpoints hold them until then.
	Skip []Coordinates
	// Memory bounds, in bytes, what fetch buffers, queues and sinks hold.
	Memory int64
	// Budget takes the place of Memory where pipelines share the memory of a process.
	Budget *Budget
	// Stop asks for a last checkpoint and the end of the run, when closed. The job has
	// not ended: the next run goes on with it.
	Stop <-chan struct{}
	// Grace is how long the last checkpoint may take.
	Grace time.Duration
	// Failpoint is called with the names of steps that a crash must survive.
	Failpoint func(name string)
	// Running is called each time records begin to flow.
	Running func()
	// Control steers the pipeline and shows what it is at; it may be nil.
	Control *Control
}

func (o *Options) memory() int64 {
	if o.Memory > 0 {
		return o.Memory
	}
	return defaultMemory
}

// A third each goes to what is fetched, to queues between tasks, and to sinks.
func (o *Options) sourceBudget(n int) int64 { return o.memory() / 3 / int64(max(n, 1)) }
func (o *Options) sinkBudget(n int) int64   { return o.memory() / 3 / int64(max(n, 1)) }

func (o *Options) grace() time.Duration {
	if o.Grace > 0 {
		return o.Grace
	}
	return defaultGrace
}

// Outcome is how a run ended.
type Outcome string

// The outcomes of Run.
const (
	Finished        Outcome = "finished"         // the bounded input was read to its end
	AlreadyFinished Outcome = "already_finished" // an earlier run had done so
	Stopped         Outcome = "stopped"          // asked to
	Cancelled       Outcome = "cancelled"        // asked to, at once
	Failed          Outcome = "failed"
)

// Summary tells what a run did.
type Summary struct {
	Pipeline string
	Job      string
	Outcome  Outcome
	// Ended is what the job ended with, nil where it goes on with the next run.
	Ended       *Taken
	Counts      Counts
	Failures    map[string]int64 // records that failed, by step and kind
	Checkpoints int64            // proven ones
	Moved       []Moved          // by Options.SetOffsets and Skip
	Restarts    int
	Elapsed     time.Duration
}

// Run runs a pipeline until its bounded input ends, Options.Stop is closed, or it
// fails for good. It restarts it by its restart strategy. Errors match
// connectors.ErrFenced when a newer process took over, are marked
// connectors.Permanent when a person has to act, and are others when the restart
// strategy gave up.
func Run(ctx context.Context, opts Options) (*Summary, error) {
	r, err := newRunner(opts)
	if err != nil {
		if opts.Control != nil {
			opts.Control.ended(Failed, err)
		}
		return &Summary{Pipeline: opts.Plan.Spec.Name, Outcome: Failed}, err
	}
	r.share = opts.Budget.join()
	defer r.share.leave()
	began := time.Now()
	outcome, err := r.loop(ctx)
	s := r.summary(outcome)
	s.Elapsed = time.Since(began)
	s.Ended = r.opts.Control.ended(outcome, err)
	return s, err
}

// runner is one Run.
type runner struct {
	opts       Options
	log        *slog.Logger
	fs         storage.FS // of the checkpoints
	store      *checkpoint.Store
	generation uint64                  // 0 until one was taken
	unsure     bool                    // a later one may have been taken too: the outcome is unknown
	chosen     bool                    // what the user asked for is restored, and recorded
	lost       map[checkpoint.ID]error // checkpoints whose output is lost, until another is chosen
	job        string
	history    []checkpoint.AttemptStats // of the job, from the run of the tasks before
	began      time.Time                 // the present try to start
	moves      moves
	share      *share
	settling   bool // the job is cancelled, and only to be brought to order
	restarts   restarts
	restarted  int
	tally      tally
}

// tally is what all attempts of a run count.
type tally struct {
	total       Counts
	checkpoints atomic.Int64
	failures    failureCounts

	lostCommits, lostRecords atomic.Int64 // given up by on_lost_commit: accept_loss
}

// unstored counts the runs without storage in this process: each has a place of its own in memory.
var unstored atomic.Int64

func newRunner(opts Options) (*runner, error) {
	if opts.Failpoint == nil {
		opts.Failpoint = func(string) {}
	}
	if opts.Running == nil {
		opts.Running = func() {}
	}
	if opts.Control == nil {
		opts.Control = &Control{}
	}
	opts.Control.begin(opts.Plan)
	spec := opts.Plan.Spec
	log := opts.Log.With("pipeline", spec.Name)
	address := spec.Checkpoint.Storage
	if address == "" {
		address = fmt.Sprintf("mem://%s-unstored-%d", spec.Name, unstored.Add(1))
	}
	fs, err := storage.Open(address)
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	store, err := checkpoint.NewStore(fs, spec.Name, checkpoint.StoreOptions{
		// State of checkpoints under way can be in files of as many complete ones.
		Retained: max(spec.Checkpoint.Retained, spec.Checkpoint.MaxConcurrent), Log: log, Failpoint: opts.Failpoint,
		Local: opts.Control.copiesOf(spec, fs, log),
	})
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	return &runner{opts: opts, log: log, fs: fs, store: store, restarts: restarts{rule: spec.Restart}, moves: moves{offsets: opts.SetOffsets, skip: opts.Skip}}, nil
}

// loop starts attempts until one ends for good.
func (r *runner) loop(ctx context.Context) (Outcome, error) {
	for {
		r.began = time.Now()
		outcome, err := r.guarded(ctx)
		err = r.settleLoss(ctx, err)
		switch {
		case err == nil:
			return outcome, nil
		case ctx.Err() != nil:
			return Failed, context.Cause(ctx)
		case errors.Is(err, errStopped):
			return Stopped, nil
		case errors.Is(err, connectors.ErrFenced):
			return Failed, err
		}
		if _, cancel := r.opts.Control.pending(); cancel != nil && !r.settling {
			r.settling = true
			continue // the next attempt finishes commits and ends the job
		}
		if over, done := r.cancelAnyway(ctx, err); done {
			return over, nil
		}
		if connectors.IsPermanent(err) {
			return Failed, r.unlessSuperseded(ctx, err)
		}
		if r.opts.stopping() {
			r.log.Warn("stopped while it had failed: the next start goes on from the last checkpoint", "err", err)
			return Stopped, nil
		}
		if err := r.awaitRestart(ctx, err); err != nil {
			return Failed, err
		}
	}
}

// awaitRestart waits as long as the restart strategy says after a failure, which it
// returns where the strategy gives up.
func (r *runner) awaitRestart(ctx context.Context, err error) error {
	var drain *drainFailedError
	var lost *LostCommitError
	delay, again := time.Duration(0), true
	if errors.As(err, &lost) {
		delay = rewindPause // the next attempt goes back
	} else if !errors.As(err, &drain) { // that is no fault: it has to start again
		delay, again = r.restarts.next(time.Now(), time.Since(r.began))
	}
	if !again {
		return fmt.Errorf("the restart strategy gives up after %d restarts: %w", r.restarted, err)
	}
	r.restarted++
	r.opts.Control.failed(err, r.restarted)
	r.log.Warn("pipeline failed, restarting from the last checkpoint", "err", err, "in", delay.Round(time.Millisecond), "restarts", r.restarted)
	return r.pause(ctx, delay)
}

// pause waits for the next attempt, or until the pipeline is asked to end.
func (r *runner) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	stop, cancel := r.opts.Control.hurry()
	select {
	case <-t.C:
	case <-r.opts.Stop:
	case <-stop:
		r.opts.Control.hurried()
	case <-cancel:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (o *Options) stopping() bool {
	select {
	case <-o.Stop:
		return true
	default:
		return false
	}
}

// guarded turns a panic of the attempt's own goroutine into a failure. Tasks guard
// themselves.
func (r *runner) guarded(ctx context.Context) (outcome Outcome, err error) {
	defer connectors.Recovered(&err)
	if r.opts.stopping() {
		return Stopped, nil
	}
	return r.attempt(ctx)
}

func (r *runner) summary(outcome Outcome) *Summary {
	r.tally.total.addLost(&r.tally)
	var moved []Moved
	if r.moves.settled {
		moved = r.moves.moved
	}
	return &Summary{
		Pipeline: r.opts.Plan.Spec.Name, Job: r.job, Outcome: outcome, Counts: r.tally.total,
		Failures: r.tally.failures.snapshot(), Checkpoints: r.tally.checkpoints.Load(), Restarts: r.restarted, Moved: moved,
	}
}

// newAttempt makes an attempt of the next run of the tasks.
func (r *runner) newAttempt() *attempt {
	n := r.opts.Plan.Spec.Parallelism
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if r.share != nil {
		r.opts.Memory = r.share.buffers()
	}
	return &attempt{
		share:   r.share,
		uploads: newUploads(),
		plan:    r.opts.Plan, opts: &r.opts, log: r.log, parallelism: n, counts: &r.tally, clocks: newClockGroup(),
		ended: make(chan struct{}), failed: make(chan error, 1),
	}
}
