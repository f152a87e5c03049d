package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

	sources []*sourceRun
	sinks   map[string]*sinkRun
	commits *committers
	shared  sharedObjects
	tasks   []*task
	coord   *checkpoint.Coordinator
	files   func(n uint64) connectors.CheckpointFiles
	limits  limits
	counts  *tally

	ended  chan struct{} // closed when every source is read to its end
	left   atomic.Int32  // source tasks that are not at their end
	stop   atomic.Bool   // the next barrier tells sources to wait
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

// construct makes the sources, which does no I/O.
func (a *attempt) construct() error {
	p := a.plan
	for _, c := range p.chains {
		if c.source == nil {
			continue
		}
		src, err := c.source.spec.Spec.New(c.source.spec.Config)
		if err != nil {
			return fmt.Errorf("source %s: %w", c.source.spec.Name, err)
		}
		a.sources = append(a.sources, &sourceRun{node: c.source, chain: c, source: src, subtasks: a.parallelism})
	}
	return nil
}

// makeSinks makes the sinks anew and closes those that could not be opened.
func (a *attempt) makeSinks() error {
	for _, s := range a.sinks {
		a.note("sink", s.sink.Close())
	}
	a.sinks, a.shared.byKey = map[string]*sinkRun{}, nil
	a.commits = &committers{log: a.log, byID: map[string]connectors.Committer{}}
	for _, s := range a.plan.sinks {
		sink, err := s.spec.Spec.New(s.spec.Config)
		if err != nil {
			return connectors.Permanent(fmt.Errorf("sink %s: %w", s.spec.Name, err))
		}
		a.sinks[s.spec.Name] = &sinkRun{node: s, sink: sink}
	}
	return nil
}

// openSinks connects the sinks. It changes nothing in their targets. It can be
// repeated: each try has sinks of its own.
func (a *attempt) openSinks(ctx context.Context) error {
	if err := a.makeSinks(); err != nil {
		return err
	}
	cp := &a.plan.Spec.Checkpoint
	slots := 16
	if cp.TolerableFailures >= 0 {
		slots = cp.MaxConcurrent + int(cp.TolerableFailures) + 1
	}
	for _, s := range a.plan.sinks {
		run := a.sinks[s.spec.Name]
		env := connectors.SinkEnv{
			Log: a.log.With("sink", s.spec.Name), Pipeline: a.plan.Spec.Name, Name: s.spec.Name,
			Subtasks: s.writers * a.parallelism, Generation: a.generation.Load, Origin: a.originName, Slots: slots,
			Shared: a.shared.get, Encoding: "json", Budget: a.opts.sinkBudget(len(a.plan.sinks)),
			Interval: cp.Interval, Failpoint: a.opts.Failpoint,
		}
		if err := run.sink.Open(ctx, env); err != nil {
			return fmt.Errorf("sink %s: open: %w", s.spec.Name, err)
		}
		if two, ok := run.sink.(connectors.TwoPhaseSink); ok {
			c := two.Committer()
			a.commits.byID[c.ID()] = c
		}
	}
	return nil
}

func (a *attempt) originName() string {
	name, _ := a.origin.Load().(string)
	return name
}

// startSinks hands the sinks what they left in the restored checkpoint.
func (a *attempt) startSinks(ctx context.Context, m *checkpoint.Metadata, files connectors.CheckpointFiles) error {
	for _, s := range a.plan.sinks {
		restored := connectors.Restored{Files: files}
		if op := findOperator(m, s.spec.UID); op != nil {
			for _, st := range op.Subtasks {
				restored.Subtasks = append(restored.Subtasks, connectors.Prepared{State: st.State, Files: st.Files})
			}
		}
		if err := a.sinks[s.spec.Name].sink.Start(ctx, restored); err != nil {
			return fmt.Errorf("sink %s: start: %w", s.spec.Name, err)
		}
	}
	return nil
}

// listSplits asks the sources what is there to read.
func (a *attempt) listSplits(ctx context.Context, m *checkpoint.Metadata) error {
	for _, s := range a.sources {
		var restored []connectors.Split
		if op := findOperator(m, s.node.spec.UID); op != nil {
			restored = op.Splits
			if restored == nil {
				restored = []connectors.Split{}
			}
		}
		splits, err := s.source.Splits(ctx, restored)
		if err != nil {
			return fmt.Errorf("source %s: %w", s.node.spec.Name, err)
		}
		s.splits = sortSplits(splits)
		if err := a.checkDropped(s.node.spec.Name, restored, splits); err != nil {
			return err
		}
	}
	return nil
}

// checkDropped refuses to forget positions: what the source does not read any more
// would be read from its start when it is named again.
func (a *attempt) checkDropped(source string, restored, now []connectors.Split) error {
	kept := map[string]bool{}
	for _, sp := range now {
		kept[sp.ID] = true
	}
	var gone []string
	for _, sp := range restored {
		if !kept[sp.ID] {
			gone = append(gone, fmt.Sprintf("%s at %d", sp.ID, sp.Offset))
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if a.opts.AllowNonRestoredState {
		a.log.Warn("positions are dropped, as asked", "source", source, "splits", strings.Join(gone, ", "))
		return nil
	}
	return connectors.Permanent(fmt.Errorf("source %s does not read %s any more, which the checkpoint has positions of: "+
		"name it again, or drop the positions with --allow-non-restored-state", source, strings.Join(gone, ", ")))
}

func sortSplits(s []connectors.Split) []connectors.Split {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b connectors.Split) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func findOperator(m *checkpoint.Metadata, uid string) *checkpoint.Operator {
	if m == nil {
		return nil
	}
	for i := range m.Operators {
		if m.Operators[i].UID == uid {
			return &m.Operators[i]
		}
	}
	return nil
}

// operators is the state of a new job before its first record.
func (a *attempt) operators(m *checkpoint.Metadata) []checkpoint.Operator {
	var ops []checkpoint.Operator
	for _, s := range a.sources {
		ops = append(ops, checkpoint.Operator{
			UID: s.node.spec.UID, Kind: "source " + s.node.spec.Kind, Parallelism: a.parallelism, Splits: s.splits,
		})
	}
	for _, s := range a.plan.sinks {
		if op := findOperator(m, s.spec.UID); op != nil {
			ops = append(ops, *op)
		}
	}
	return ops
}

// readsNew reports whether there are splits that a checkpoint does not know.
func (a *attempt) readsNew(m *checkpoint.Metadata) bool {
	for _, s := range a.sources {
		known := map[string]bool{}
		if op := findOperator(m, s.node.spec.UID); op != nil {
			for _, sp := range op.Splits {
				known[sp.ID] = true
			}
		}
		for _, sp := range s.splits {
			if !known[sp.ID] {
				return true
			}
		}
	}
	return false
}

// openReaders deals the splits out to the subtasks and makes their readers.
func (a *attempt) openReaders() error {
	for _, s := range a.sources {
		dealt := make([][]connectors.Split, a.parallelism)
		for i, sp := range s.splits {
			dealt[i%a.parallelism] = append(dealt[i%a.parallelism], sp)
		}
		for _, t := range a.tasks {
			if t.chain != s.chain {
				continue
			}
			env := connectors.ReaderEnv{
				Log: a.log.With("source", s.node.spec.Name), Subtask: t.subtask, Subtasks: a.parallelism,
				Budget:  a.opts.sourceBudget(len(a.sources) * max(1, min(a.parallelism, len(s.splits)))),
				Batches: connectors.NewBatchPool(idleBatches),
			}
			r, err := newSourceReader(s, env, dealt[t.subtask])
			if err != nil {
				return fmt.Errorf("source %s: %w", s.node.spec.Name, err)
			}
			t.reader = r
			s.tasks = append(s.tasks, t)
			a.left.Add(1)
		}
	}
	return nil
}

// run works until ctx ends, a task or the coordinator fails, or, with bounded
// sources, until the last checkpoint is proven. finished says that it was.
func (a *attempt) run(ctx context.Context) (finished bool, err error) {
	g, gctx := errgroup.WithContext(ctx)
	done := errors.New("finished")
	start := func(f func(context.Context) error) {
		g.Go(func() (err error) {
			defer recoverTo(&err)
			return f(gctx)
		})
	}
	for _, t := range a.tasks {
		start(t.run)
	}
	start(a.coord.Run)
	start(a.watchFailures)
	start(a.discover)
	start(func(ctx context.Context) error {
		if err := a.awaitEnd(ctx); err != nil {
			return err
		}
		return done
	})
	err = g.Wait()
	a.beside.Wait()
	if errors.Is(err, done) {
		return true, nil
	}
	return false, err
}

// awaitEnd takes the last checkpoint once every source is read to its end, or
// one without an end when the pipeline is asked to stop.
func (a *attempt) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.ended:
		last, cancel := a.untilGraceIsOver(ctx)
		defer cancel()
		_, err := a.coord.TriggerDrained(last, checkpoint.Final)
		return a.orStopped(ctx, err)
	case <-a.opts.Stop:
	}
	a.stop.Store(true)
	last, cancel := a.untilGraceIsOver(ctx)
	defer cancel()
	if _, err := a.coord.Trigger(last, checkpoint.Periodic); err != nil {
		return a.orStopped(ctx, err)
	}
	return errStopped
}

// untilGraceIsOver is ctx until the pipeline was asked to stop and the time for a
// last checkpoint is over.
func (a *attempt) untilGraceIsOver(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	a.beside.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-a.opts.Stop:
		}
		if sleep(ctx, a.opts.grace()) == nil {
			cancel()
		}
	})
	return ctx, cancel
}

// orStopped is the error of a last checkpoint, or errStopped where that was given
// up for a stop.
func (a *attempt) orStopped(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-a.opts.Stop:
		a.log.Warn("stopping without a last checkpoint: the next start goes on from the one before", "err", err)
		return errStopped
	default:
		return err
	}
}

// errStopped ends an attempt that was asked to stop.
var errStopped = errors.New("stopped")

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
				a.log.Warn("looking for new partitions failed", "source", s.node.spec.Name, "err", err)
				continue
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
	roll := b.Roll() || a.stop.Load() || a.plan.Spec.Checkpoint.Storage == ""
	bar := &barrier{id: b.ID, roll: roll, stop: a.stop.Load(), triggered: b.Triggered}
	for _, t := range a.tasks {
		if t.reader != nil {
			t.trigger(bar)
		}
	}
}

// Commit implements checkpoint.Tasks.
func (a *attempt) Commit(ctx context.Context, m *checkpoint.Metadata) (err error) {
	defer recoverTo(&err)
	return a.commits.commit(ctx, m, false)
}

// Completed implements checkpoint.Tasks: offsets go to the group, for lag tools.
func (a *attempt) Completed(m *checkpoint.Metadata) {
	a.counts.checkpoints.Add(1)
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

func tellCommitted(s connectors.Source, splits []connectors.Split) (err error) {
	defer recoverTo(&err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Committed(ctx, splits)
}

// prepared is what one writer has to prepare for a barrier.
type prepared struct {
	sink    *sinkWriter
	prepare connectors.Prepare
}

// prepare makes durable what a task's writers took before a barrier, and
// acknowledges it.
func (a *attempt) prepare(ctx context.Context, b *barrier, ack checkpoint.Ack, parts []prepared) {
	var broken error
	defer func() {
		if broken != nil {
			a.fail(broken)
		}
	}()
	defer recoverTo(&broken)
	began := time.Now()
	files := a.files(b.id.Number)
	var failed error
	for _, p := range parts {
		// All of them, also when one fails: the others hold what the next is to hand over.
		got, err := p.prepare(ctx, files)
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("sink %s: prepare checkpoint %d: %w", p.sink.name, b.id.Number, err))
			continue
		}
		ack.Committables = append(ack.Committables, got.Committables...)
		if got.State != nil || len(got.Files) > 0 {
			sp := p.sink.node.spec
			ack.Operators = append(ack.Operators, checkpoint.OperatorState{
				UID: sp.UID, Kind: "sink " + sp.Kind, Parallelism: p.sink.node.writers * a.parallelism,
				State: &checkpoint.SubtaskState{Subtask: p.sink.index, State: got.State, Files: got.Files},
			})
		}
	}
	if failed != nil {
		a.declined(ctx, b, ack.Task, failed)
		return
	}
	ack.Checkpoint, ack.Async = b.id, time.Since(began)
	a.coord.Ack(ack)
}

// declined fails the checkpoint, or the attempt where trying again is no use.
func (a *attempt) declined(ctx context.Context, b *barrier, t checkpoint.TaskID, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, connectors.ErrFenced), connectors.IsPermanent(err):
		a.fail(err)
	default:
		a.coord.Decline(t, b.id, err)
	}
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
		for _, w := range t.sinks {
			a.note("sink", w.writer.Close())
		}
	}
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

// prepareSequence runs functions one after the other, beside the task that adds them.
type prepareSequence struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

func (s *prepareSequence) add(wg *sync.WaitGroup, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, f)
	if s.running {
		return
	}
	s.running = true
	wg.Go(s.drain)
}

func (s *prepareSequence) drain() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		f()
	}
}
