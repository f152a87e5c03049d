package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// attempt is one run of the tasks of a pipeline, from a checkpoint to the next
// failure or the end. Everything in it is made anew for each.
type attempt struct {
	plan        *Plan
	opts        *Options
	log         *slog.Logger
	parallelism int
	generation  atomic.Uint64
	origin      atomic.Value // string, see connectors.SinkEnv
	restored    atomic.Value // connectors.CheckpointFiles, see connectors.SinkEnv

	sources  []*sourceRun
	sinks    map[string]*sinkRun
	commits  *committers
	shared   sharedObjects
	tasks    []*task
	coord    *checkpoint.Coordinator
	job      *checkpoint.Job
	savers   savers
	order    atomic.Pointer[stopOrder] // the latest stop
	clocks   *clockGroup
	workdir  *workdir // of the disk backend; nil for memory
	uploads  *uploads
	share    *share // of the process's memory; nil where it has no budget
	limits   limits
	counts   *tally
	failures failureCounts // since the attempt began
	late     atomic.Int64  // rows refused at a commit that were handed to on_error
	ending   atomic.Bool   // the input is at its end, so that nothing is kept for later

	ended  chan struct{} // closed when every source is read to its end
	left   atomic.Int32  // source tasks that are not at their end
	failed chan error    // what a prepare failed with
	beside sync.WaitGroup
}

// sourceRun is a source at work.
type sourceRun struct {
	node     *sourceNode
	chain    *chain
	source   connectors.Source
	splits   []connectors.Split // known so far
	subtasks int
	tasks    []*task
	telling  atomic.Bool // offsets are being committed for lag tools
}

// sinkRun is a sink at work.
type sinkRun struct {
	node       *sinkNode
	sink       connectors.Sink
	nextWriter int
}

// sharedObjects are what sinks of a pipeline have in common, by key.
type sharedObjects struct {
	mu    sync.Mutex
	byKey map[string]any
}

func (s *sharedObjects) get(key string, create func() any) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey == nil {
		s.byKey = map[string]any{}
	}
	if _, ok := s.byKey[key]; !ok {
		s.byKey[key] = create()
	}
	return s.byKey[key]
}

// run works until ctx ends, a task or the coordinator fails, the pipeline is ended by
// somebody, or, with bounded sources, until the last checkpoint is proven, which is nil.
func (a *attempt) run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	done := errors.New("finished")
	start := func(f func(context.Context) error) {
		g.Go(func() (err error) {
			defer connectors.Recovered(&err)
			return f(gctx)
		})
	}
	for _, t := range a.tasks {
		start(t.run)
	}
	start(a.coord.Run)
	start(a.watchFailures)
	start(a.watchState)
	start(a.sampleTime)
	start(a.discover)
	start(a.awaitCancel)
	start(a.takeSavepoints)
	start(func(ctx context.Context) error {
		if err := a.awaitEnd(ctx); err != nil {
			return err
		}
		return done
	})
	err := g.Wait()
	a.beside.Wait()
	if errors.Is(err, done) {
		return nil
	}
	return err
}

// sourceEnded is told by a source's task that all its splits are read.
func (a *attempt) sourceEnded(t *task) {
	if a.left.Add(-1) == 0 {
		close(a.ended)
	}
}

func (a *attempt) watchFailures(ctx context.Context) error {
	select {
	case err := <-a.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// discoverEvery is how often sources are asked for new splits. Those that have to
// ask a server do so by their own settings.
const discoverEvery = time.Second

// discover looks for new splits from time to time and gives them to the subtask
// with the fewest.
func (a *attempt) discover(ctx context.Context) error {
	for {
		if err := sleep(ctx, discoverEvery); err != nil {
			return err
		}
		for _, s := range a.sources {
			added, err := s.source.Discover(ctx, s.splits)
			if connectors.IsPermanent(err) {
				return fmt.Errorf("source %s: %w", s.node.spec.Name, err)
			}
			if err != nil {
				a.log.Warn("looking for new splits", "source", s.node.spec.Name, "err", err)
			}
			for _, sp := range sortSplits(added) {
				a.log.Info("reading a new split", "source", s.node.spec.Name, "split", sp.ID, "offset", sp.Offset)
				s.tasks[len(s.splits)%len(s.tasks)].addSplits([]connectors.Split{sp})
				s.splits = append(s.splits, sp)
			}
		}
	}
}

// Trigger implements checkpoint.Tasks.
func (a *attempt) Trigger(b checkpoint.Barrier) {
	// Without storage no later process can publish what stays behind.
	// And who stops a pipeline wants to see what it wrote.
	roll := b.Roll() || b.Stop || a.ending.Load() || a.plan.Spec.Checkpoint.Storage == ""
	bar := &barrier{id: b.ID, roll: roll, neutral: b.Kind == checkpoint.Savepoint, triggered: b.Triggered}
	if b.Stop {
		// A barrier that comes late, after its stop was withdrawn, meets the order of the next.
		if o := a.order.Load(); o.binding == b.Drained && o.send() {
			bar.stop, bar.drained = o, b.Drained
		} else if b.Drained {
			// It would say that event time has run out.
			a.coord.Decline(a.tasks[0].id, b.ID, errWithdrawn)
			return
		}
	}
	for _, t := range a.tasks {
		if t.reader != nil {
			t.trigger(bar)
		}
	}
}

var errWithdrawn = errors.New("the stop that it was for is withdrawn")

// Commit implements checkpoint.Tasks.
func (a *attempt) Commit(ctx context.Context, m *checkpoint.Metadata) (err error) {
	defer connectors.Recovered(&err)
	return a.commits.commit(ctx, m, false)
}

// Completed implements checkpoint.Tasks: offsets go to the group, for lag tools.
func (a *attempt) Completed(m *checkpoint.Metadata) {
	a.counts.checkpoints.Add(1)
	a.opts.Control.proven(a.job.Path(m.Number))
	if m.Kind == checkpoint.Savepoint {
		a.savers.keep(func() func() { return a.job.Pin(m.Number) })
	}
	for _, t := range a.tasks {
		if t.keyed != nil {
			t.keyed.store.Complete(m.Number)
		}
	}
	for _, s := range a.sources {
		op := findOperator(m, s.node.spec.UID)
		if op == nil {
			continue
		}
		if !s.telling.CompareAndSwap(false, true) {
			continue // the next checkpoint tells
		}
		a.beside.Go(func() {
			defer s.telling.Store(false)
			if err := tellCommitted(s.source, op.Splits); err != nil {
				a.log.Warn("committing offsets for lag tools failed", "source", s.node.spec.Name, "err", err)
			}
		})
	}
}

// Abandon implements checkpoint.Tasks: state is not written for it any more, and no input
// is held for its barrier. What sinks prepare for it goes on.
func (a *attempt) Abandon(n checkpoint.ID) {
	a.uploads.abandon(n.Number)
	for _, t := range a.tasks {
		if t.inbox != nil {
			t.inbox.waive(n.Number)
		}
	}
}

func tellCommitted(s connectors.Source, splits []connectors.Split) (err error) {
	defer connectors.Recovered(&err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Committed(ctx, splits)
}

// fail ends the attempt; the first failure counts.
func (a *attempt) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// close frees everything. What checkpoints may refer to stays.
func (a *attempt) close() {
	for _, t := range a.tasks {
		if t.reader != nil {
			a.note("source", t.reader.reader.Close())
		}
		if t.keyed != nil && t.keyed.store != nil {
			a.note("state", t.keyed.store.Close())
		}
		for _, w := range t.sinks {
			a.note("sink", w.writer.Close())
		}
	}
	a.note("state", a.workdir.close())
	a.closeSteps()
	for _, s := range a.sources {
		a.note("source", s.source.Close())
	}
	for _, s := range a.sinks {
		a.note("sink", s.sink.Close())
	}
}

func (a *attempt) note(what string, err error) {
	if err != nil {
		a.log.Debug("closing failed", "what", what, "err", err)
	}
}
