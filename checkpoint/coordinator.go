package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Log is where checkpoints of one job are kept. An error that matches
// connectors.ErrFenced says that a newer process has the pipeline; one marked by
// connectors.Permanent is not tried again. All others are.
type Log interface {
	// Claim takes a number for good. false says that it is taken, also by a claim of
	// its own whose outcome was unknown.
	Claim(ctx context.Context, n uint64) (bool, error)
	// Complete makes the metadata durable, in one atomic step. It can be repeated
	// with the same metadata. ErrNotWritten says that it is certainly not there;
	// after any other error it may be.
	Complete(ctx context.Context, m *Metadata) error
	// CheckOwner returns an error matching connectors.ErrFenced when a newer
	// generation exists.
	CheckOwner(ctx context.Context) error
	// Proven marks checkpoint n as published by every sink.
	Proven(ctx context.Context, n uint64) error
	// Retain removes what no retained checkpoint needs.
	Retain(ctx context.Context) error
	// Abort removes what the failed attempt n left and no complete checkpoint refers
	// to. It is called once a later checkpoint is proven: until then sinks may still
	// hand over what n prepared.
	Abort(ctx context.Context, n uint64) error
	// Abandon removes the state files of the failed attempt n, also those that are still
	// being written: nothing refers to them any more, unlike to what sinks prepared.
	Abandon(ctx context.Context, n uint64) error
	// Remember keeps what was measured of checkpoint n, which is proven, the first of
	// list, and of those before it.
	Remember(ctx context.Context, n uint64, list []AttemptStats) error
}

// Tasks is the running pipeline, as the coordinator sees it.
type Tasks interface {
	// Trigger hands the barrier to every source task and returns at once.
	Trigger(b Barrier)
	// Commit publishes the committables in order, what can expire first, and returns
	// nil only when all of them are proven. It tries again by itself until ctx ends;
	// an error is final, such as connectors.ErrLost, ErrAmbiguous or ErrFenced.
	Commit(ctx context.Context, m *Metadata) error
	// Completed tells that m is proven. The next checkpoint waits for its return.
	Completed(m *Metadata)
	// Abandon tells that checkpoint n failed, so that tasks stop writing state for it.
	// What sinks prepared for it is handed over again with a later one. It returns at once.
	Abandon(n ID)
}

// Order is a wish for a checkpoint.
type Order struct {
	Kind Kind
	// Drained says that event time is driven to its end before the barrier.
	Drained bool
	// Stop tells sources to wait behind the barrier. No other checkpoint is triggered
	// after it before Resume.
	Stop bool
}

// Barrier is what sources put between their records.
type Barrier struct {
	ID        ID
	Kind      Kind
	Triggered time.Time
	// Drained says that event time is driven to its end before it.
	Drained bool
	// Stop tells sources to wait behind it.
	Stop bool
}

// Roll reports whether sinks must leave nothing that a later checkpoint would publish.
func (b Barrier) Roll() bool { return b.Kind == Final || b.Kind == Savepoint }

// Config is what a Coordinator is told about its pipeline and when to act.
type Config struct {
	Pipeline       string
	Job            string
	Generation     uint64
	Definition     string // digest of the pipeline's definition
	Mode           string
	MaxParallelism int
	Restored       *ID    // nil for a new job
	First          uint64 // the number to begin with; 0 means 1
	// Tasks must all acknowledge. The order is that of operators in the metadata.
	Tasks []TaskID

	Interval time.Duration // between periodic checkpoints; 0 for none
	// Timeout fails a checkpoint that is not acknowledged by all so long after its
	// trigger; 0 means 10 minutes. It also bounds how long writing the metadata is
	// tried before the job has to be restarted.
	Timeout       time.Duration
	MinPause      time.Duration // from a proof to the next periodic trigger; above 0 sets MaxConcurrent to 1
	MaxConcurrent int           // triggered and not proven; 0 means 1
	// TolerableFailures in a row are survived; -1 for any number.
	TolerableFailures int
	History           int // checkpoints that Stats remembers; 0 means 50
	// Past are the job's checkpoints before this run, the newest first, as Job.Past or
	// the Stats of the run before say. Stats goes on from them.
	Past []AttemptStats

	// Failpoint is called with a name of Failpoints; nil outside of tests.
	Failpoint func(name string)
}

// Failpoints are the steps that a crash must survive, before and after each.
var Failpoints = []string{
	"before-claim", "after-claim", "before-metadata", "after-metadata",
	"before-commit", "after-commit", "before-proven", "after-proven",
}

// Errors of the coordinator, for errors.Is.
var (
	// ErrTooManyFailures ends Run when more checkpoints in a row failed than is tolerable.
	ErrTooManyFailures = errors.New("too many checkpoints failed in a row")
	// ErrNotWritten is returned by Log.Complete when the metadata is certainly not
	// there and will not appear.
	ErrNotWritten = errors.New("the checkpoint was not written")
	// ErrUnknownOutcome ends Run when it could not be found out whether a checkpoint
	// was written. A restart finds out.
	ErrUnknownOutcome = errors.New("it is unknown whether the checkpoint was written")
	// ErrStopped says that Run has ended and no checkpoint will be taken.
	ErrStopped = errors.New("checkpoints have stopped")
	// ErrTimeout is why a checkpoint failed that was not acknowledged in time.
	ErrTimeout = errors.New("not acknowledged by all tasks in time")
	// ErrNotProven is why a savepoint or a stop failed whose checkpoint was acknowledged
	// and not published in time.
	ErrNotProven = errors.New("acknowledged by all tasks, its commits are not proven")

	errQueueFull = errors.New("too many checkpoints are asked for already")
	errSubsumed  = errors.New("a later checkpoint completed first")
)

// Coordinator takes the checkpoints of one run of a pipeline. It knows ids,
// acknowledgements and handles, and no operator. One goroutine, that of Run, owns
// all of its state; everything that may take time runs beside it and reports
// back: at most one claim, one completion and one cleaning at a time, and the removal
// of what failed attempts left.
type Coordinator struct {
	cfg   Config
	log   Log
	tasks Tasks
	slog  *slog.Logger
	stats *tracker
	index map[TaskID]int // position in cfg.Tasks

	mu    sync.Mutex
	inbox []func()
	wake  chan struct{}
	done  chan struct{} // closed when Run has ended
	cause error         // why Run ended, set before done is closed

	// What follows belongs to the goroutine of Run.
	ctx        context.Context // of what runs beside
	beside     sync.WaitGroup
	fatal      error
	decider    decider
	next       uint64     // the next number to claim
	attempts   []*attempt // in flight, numbers rising
	claiming   bool
	completing *attempt
	failures   int      // in a row
	late       []uint64 // the last failed and subsumed numbers
	// published is what was proven while attempts were in flight that may list it
	// too: by committable, the highest number that had been triggered by then.
	published map[string]uint64
	cleaner   cleaner
	slow      time.Time // when it was said last that they take longer than the interval; zero while they do not
}

// rememberedLate is how many numbers tell a late acknowledgement from an unknown one.
const rememberedLate = 16

// maxClaims bounds the taken numbers that one attempt skips.
const maxClaims = 1024

// NewCoordinator makes a coordinator. It does nothing before Run or WriteInitial.
func NewCoordinator(cfg Config, log Log, tasks Tasks, logger *slog.Logger) *Coordinator {
	cfg.First = max(cfg.First, 1)
	cfg.MaxConcurrent = max(cfg.MaxConcurrent, 1)
	if cfg.MinPause > 0 {
		cfg.MaxConcurrent = 1
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Minute
	}
	if cfg.History <= 0 {
		cfg.History = 50
	}
	if cfg.Failpoint == nil {
		cfg.Failpoint = func(string) {}
	}
	c := &Coordinator{
		cfg: cfg, log: log, tasks: tasks, slog: logger,
		stats:   newTracker(cfg.Tasks, cfg.History, settled(cfg.Past, cfg.Restored)),
		index:   map[TaskID]int{},
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		next:    cfg.First,
		decider: decider{interval: cfg.Interval, minPause: cfg.MinPause, maxConcurrent: cfg.MaxConcurrent},
	}
	for i, t := range cfg.Tasks {
		c.index[t] = i
	}
	return c
}

// Run takes checkpoints until ctx ends, when it returns nil, or until the job
// cannot go on: an error matching connectors.ErrFenced, ErrLost or ErrAmbiguous,
// ErrTooManyFailures, ErrUnknownOutcome, or one of a commit. It may be called once.
func (c *Coordinator) Run(ctx context.Context) error {
	beside, cancel := context.WithCancel(ctx)
	c.ctx = beside
	c.decider.start(time.Now())
	if c.cfg.Restored != nil {
		c.cleaner.behind = 1 // what the run before has left
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for c.fatal == nil && ctx.Err() == nil {
		c.drain()
		at := c.step(time.Now())
		if c.fatal != nil {
			break
		}
		if at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
	cancel()
	c.beside.Wait()
	c.drain() // a proof that has just come still reaches who waits for it
	if !isFenced(c.fatal) {
		c.remember(ctx, c.cleaner.unremembered)
	}
	c.cause = c.fatal
	if c.cause == nil {
		c.cause = context.Cause(ctx)
	}
	close(c.done)
	return c.fatal
}

// Ack hands over what a task has for a checkpoint. It never blocks.
func (c *Coordinator) Ack(a Ack) { c.post(func() { c.onAck(&a) }) }

// Decline tells that a task cannot take part in checkpoint n. It never blocks.
func (c *Coordinator) Decline(task TaskID, n ID, err error) {
	c.post(func() { c.onDecline(task, n, err) })
}

// Trigger takes a checkpoint now and returns it once every commit is proven. It
// waits for its turn by the number of concurrent ones, not for the interval. A
// Final one waits for all others and is tried again until it succeeds. If ctx ends
// first, what has been started goes on. Run must be running or about to.
func (c *Coordinator) Trigger(ctx context.Context, o Order) (*Metadata, error) {
	if o.Kind == Initial {
		return nil, errors.New("trigger a checkpoint: the initial one is written by WriteInitial")
	}
	r := &request{Order: o, result: make(chan outcome, 1)}
	c.post(func() {
		if !c.decider.add(r) {
			r.finish(nil, errQueueFull)
		}
	})
	select {
	case o := <-r.result:
		return o.meta, o.err
	case <-ctx.Done():
		c.post(func() {
			r.orphan = true
			c.decider.remove(r)
		})
		return nil, fmt.Errorf("wait for a %s: %w", o.Kind, context.Cause(ctx))
	case <-c.done:
	}
	select {
	case o := <-r.result:
		return o.meta, o.err
	default:
		return nil, fmt.Errorf("take a %s: %w: %w", o.Kind, ErrStopped, c.cause)
	}
}

// Resume takes checkpoints again after one with Order.Stop. From its trigger on no
// other is taken: what the job ends with must be the last thing that it published.
func (c *Coordinator) Resume() { c.post(func() { c.decider.held = false }) }

// Stats describes the checkpoints so far.
func (c *Coordinator) Stats() Stats { return c.stats.snapshot(time.Now()) }

// post has f run by the goroutine of Run.
func (c *Coordinator) post(f func()) {
	select {
	case <-c.done:
		return
	default:
	}
	c.mu.Lock()
	c.inbox = append(c.inbox, f)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// drain runs what was posted.
func (c *Coordinator) drain() {
	c.mu.Lock()
	todo := c.inbox
	c.inbox = nil
	c.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// goBeside runs f beside the loop, which waits for it before Run returns. A panic of it ends Run.
func (c *Coordinator) goBeside(f func(ctx context.Context)) {
	c.beside.Go(func() {
		var broken error
		defer func() {
			if broken != nil {
				c.post(func() { c.stop(broken) })
			}
		}()
		defer connectors.Recovered(&broken)
		f(c.ctx)
	})
}

// stop makes Run return err, unless it is ending already.
func (c *Coordinator) stop(err error) {
	if c.fatal == nil && c.ctx.Err() == nil {
		c.fatal = err
	}
}

func isFenced(err error) bool { return errors.Is(err, connectors.ErrFenced) }
