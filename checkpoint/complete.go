package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// startCompletion completes the first attempt that is ready, if none before it
// must go first, and reports whether there was one. Completions run one at a time,
// so that nothing is committed before the one before it is proven.
func (c *Coordinator) startCompletion(now time.Time) bool {
	for _, a := range c.attempts {
		if a.phase == ready {
			c.complete(a, now)
			return true
		}
		// A savepoint subsumes nothing and is not subsumed: whatever is on the other
		// side of it keeps its order, and waits until it is acknowledged or times out.
		if !a.subsumable() || c.savepointReady(a) {
			return false
		}
	}
	return false
}

// savepointReady reports whether the first ready attempt after a is a savepoint.
func (c *Coordinator) savepointReady(a *attempt) bool {
	for _, b := range c.attempts {
		if b.id.Number > a.id.Number && b.phase == ready {
			return b.Kind == Savepoint
		}
	}
	return false
}

// complete starts the completion of a.
func (c *Coordinator) complete(a *attempt, now time.Time) {
	m, err := c.metadata(a, now)
	if err != nil {
		c.fail(a, fmt.Errorf("put the tasks' states together: %w", err), now)
		return
	}
	a.phase = completing
	c.completing = a
	c.stats.change(a.entry, func(s *AttemptStats) { s.Status = Committing })
	c.goBeside(func(ctx context.Context) {
		lost := c.writeMetadata(ctx, m)
		written := time.Now()
		c.post(func() { c.onWritten(a, lost, now, written) })
		if lost != nil {
			return
		}
		err := c.publish(ctx, m)
		proven := time.Now()
		c.post(func() { c.onPublished(a, m, err, written, proven) })
	})
}

func (c *Coordinator) metadata(a *attempt, now time.Time) (*Metadata, error) {
	m := c.emptyMetadata(a.id.Number, a.Kind, a.started, now)
	m.Drained = a.Drained
	var err error
	if m.Operators, err = mergeOperators(a.acks); err != nil {
		return nil, err
	}
	m.Committables = mergeCommittables(a.acks, c.published)
	return m, nil
}

func (c *Coordinator) emptyMetadata(n uint64, kind Kind, triggered, completed time.Time) *Metadata {
	return &Metadata{
		Format: FormatVersion, Pipeline: c.cfg.Pipeline, Job: c.cfg.Job, Generation: c.cfg.Generation,
		Number: n, Kind: kind, Mode: c.cfg.Mode, Triggered: wall(triggered), Completed: wall(completed),
		Definition: c.cfg.Definition, MaxParallelism: c.cfg.MaxParallelism, Restored: c.cfg.Restored,
		Operators: []Operator{}, Committables: []connectors.Committable{},
	}
}

// writeMetadata makes m durable: after it, m will be committed, by this process
// or a later one. nil says that it is there, ErrNotWritten that it is not. As long
// as neither is known it is tried again: a checkpoint taken for failed whose
// metadata is there after all would have its files removed, while a newer process
// may restore it. If the timeout passes first, the job has to be restarted, since
// a restart looks at the storage for what is complete.
func (c *Coordinator) writeMetadata(ctx context.Context, m *Metadata) error {
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.cfg.Failpoint("before-metadata")
	err := c.retry(bounded, "write the metadata of a checkpoint", m.Number, func(ctx context.Context) error {
		return c.log.Complete(ctx, m)
	})
	switch {
	case err == nil:
		c.cfg.Failpoint("after-metadata")
		return nil
	case errors.Is(err, ErrNotWritten) || isFenced(err):
		return fmt.Errorf("write metadata: %w", err)
	default:
		return fmt.Errorf("write metadata: %w: %w", ErrUnknownOutcome, err)
	}
}

// publish commits m, whose metadata is durable. Any error ends the job: what m
// lists must be committed, and the restart does it from the metadata.
func (c *Coordinator) publish(ctx context.Context, m *Metadata) error {
	if err := c.checkOwner(ctx, m.Number); err != nil {
		return err
	}
	c.cfg.Failpoint("before-commit")
	if err := c.tasks.Commit(ctx, m); err != nil {
		return c.commitFault(ctx, m.Number, err)
	}
	c.cfg.Failpoint("after-commit")
	if err := c.prove(ctx, m.Number); err != nil {
		return err
	}
	c.tasks.Completed(m)
	return nil
}

// prove marks checkpoint n as published if this process still owns the pipeline.
func (c *Coordinator) prove(ctx context.Context, n uint64) error {
	if err := c.checkOwner(ctx, n); err != nil {
		return err
	}
	c.cfg.Failpoint("before-proven")
	err := c.retry(ctx, "mark a checkpoint as proven", n, func(ctx context.Context) error {
		return c.log.Proven(ctx, n)
	})
	if err != nil {
		return fmt.Errorf("mark as proven: %w", err)
	}
	c.cfg.Failpoint("after-proven")
	return nil
}

func (c *Coordinator) checkOwner(ctx context.Context, n uint64) error {
	if err := c.retry(ctx, "look for a newer owner", n, c.log.CheckOwner); err != nil {
		return fmt.Errorf("look for a newer owner: %w", err)
	}
	return nil
}

// commitFault tells what a failed commit means. A target that refuses this
// process is asked about at the owners: only a newer generation makes it fenced.
func (c *Coordinator) commitFault(ctx context.Context, n uint64, err error) error {
	if !isFenced(err) {
		return fmt.Errorf("commit: %w", err)
	}
	if owner := c.checkOwner(ctx, n); owner != nil {
		return owner
	}
	// The chain is cut on purpose: this is no fencing, but a fault to restart from.
	return fmt.Errorf("commit: a sink refuses this process as if a newer one had taken over, "+
		"but the pipeline has no newer owner; something else may be using its identity there: %v", err)
}

// Bounds of the delay between tries of a storage call.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// retry calls f until its outcome is known: nil, or an error that another try
// cannot change, or the end of ctx.
func (c *Coordinator) retry(ctx context.Context, what string, n uint64, f func(context.Context) error) error {
	delay := firstRetry
	for try := uint(1); ; try++ {
		err := f(ctx)
		if err == nil || isFenced(err) || errors.Is(err, ErrNotWritten) || connectors.IsPermanent(err) || ctx.Err() != nil {
			return err
		}
		if bits.OnesCount(try) == 1 { // ever more seldom
			c.slog.Warn("a step of a checkpoint failed, trying again", "step", what, "checkpoint", n, "try", try, "err", err)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		delay = min(2*delay, lastRetry)
	}
}

func (c *Coordinator) onWritten(a *attempt, err error, begun, now time.Time) {
	c.stats.change(a.entry, func(s *AttemptStats) { s.Metadata = now.Sub(begun) })
	switch {
	case err == nil:
		c.subsume(a, now)
	case errors.Is(err, ErrNotWritten):
		c.completing = nil
		c.fail(a, err, now)
	default:
		c.stop(fmt.Errorf("checkpoint %d: %w", a.id.Number, err))
	}
}

func (c *Coordinator) onPublished(a *attempt, m *Metadata, err error, written, now time.Time) {
	c.stats.change(a.entry, func(s *AttemptStats) { s.Commit = now.Sub(written) })
	if err != nil {
		c.stop(fmt.Errorf("checkpoint %d is complete, its commit not proven: %w", a.id.Number, err))
		return
	}
	c.completing = nil
	c.attempts = slices.DeleteFunc(c.attempts, func(b *attempt) bool { return a == b })
	c.failures = 0
	c.stats.update(func(s *Stats) { s.FailedInARow = 0 })
	c.stats.end(a.entry, Completed, nil, now)
	c.decider.proven = now
	c.forget(m)
	c.cleaner.behind++
	c.cleaner.proven = a.id.Number
	c.cleaner.unremembered = append(c.cleaner.unremembered, a.entry)
	c.stats.update(func(s *Stats) { s.Cleaning = c.cleaner.behind })
	c.warnSlow(now.Sub(a.started), a.id.Number, now)
	c.slog.Debug("checkpoint proven", "checkpoint", a.id.Number, "kind", a.Kind, "took", now.Sub(a.started))
	for _, r := range a.requests {
		r.finish(m, nil)
	}
}

// slowAgain is how often is said that checkpoints take longer than the time between them.
const slowAgain = 10 * time.Minute

// warnSlow says that checkpoints take longer than the time between them: when they begin
// to, and from time to time while they do.
func (c *Coordinator) warnSlow(took time.Duration, n uint64, now time.Time) {
	switch {
	case c.cfg.Interval == 0 || took <= c.cfg.Interval:
		c.slow = time.Time{}
	case now.Sub(c.slow) >= slowAgain:
		c.slow = now
		c.slog.Warn("a checkpoint took longer than checkpoint.interval: records are processed beside checkpoints all the time; raise the interval or set min_pause",
			"checkpoint", n, "took", took.Round(time.Millisecond), "interval", c.cfg.Interval)
	}
}

// forget keeps what m lists, and is proven, out of later checkpoints. Sinks stop listing it when
// they are told of the proof; attempts triggered before that still do.
func (c *Coordinator) forget(m *Metadata) {
	oldest := c.next
	if len(c.attempts) > 0 {
		oldest = c.attempts[0].id.Number
	}
	for k, last := range c.published {
		if last < oldest {
			delete(c.published, k)
		}
	}
	if len(c.attempts) == 0 {
		return
	}
	for i := range m.Committables {
		if c.published == nil {
			c.published = map[string]uint64{}
		}
		c.published[committableKey(&m.Committables[i])] = c.next - 1
	}
}

// cleaner is what is known of the cleaning beside.
type cleaner struct {
	running   bool
	behind    int      // proven checkpoints that no pass has been made for
	proven    uint64   // the last proven number
	abandoned []uint64 // numbers given up, whose files may go once a later one is proven
	// unremembered are proven ones whose statistics are not kept yet.
	unremembered []*tracked
}

// maxAbandoned bounds the numbers remembered for Log.Abort. What is beyond is left
// to Log.Retain, which finds it by itself.
const maxAbandoned = 1024

func (k *cleaner) abandon(n uint64) {
	k.abandoned = append(k.abandoned, n)
	if over := len(k.abandoned) - maxAbandoned; over > 0 {
		k.abandoned = slices.Delete(k.abandoned, 0, over)
	}
}

// startCleaning removes in the background what is not needed any more. A failure
// is counted and tried again after the next proof; it fails nothing.
func (c *Coordinator) startCleaning() {
	k := &c.cleaner
	if k.running || k.behind == 0 {
		return
	}
	k.running = true
	covered := k.behind
	var gone []uint64
	gone, k.abandoned = split(k.abandoned, k.proven)
	proven := k.unremembered
	k.unremembered = nil
	c.goBeside(func(ctx context.Context) {
		c.remember(ctx, proven)
		var errs []error
		var left []uint64
		for _, n := range gone {
			if err := c.log.Abort(ctx, n); err != nil {
				left = append(left, n)
				errs = append(errs, fmt.Errorf("remove what checkpoint %d left: %w", n, err))
			}
		}
		if err := c.log.Retain(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove old checkpoints: %w", err))
		}
		c.post(func() { c.onCleaned(covered, left, errors.Join(errs...)) })
	})
}

// rememberWithin bounds how long statistics may hold up what comes after them.
const rememberWithin = 5 * time.Second

// remember keeps the statistics of proven checkpoints with them, also when the run has
// just ended. Nothing depends on them: what cannot be written is left out.
func (c *Coordinator) remember(ctx context.Context, proven []*tracked) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberWithin)
	defer cancel()
	for _, e := range proven {
		list := c.stats.upTo(e)
		if err := c.log.Remember(ctx, list[0].ID.Number, list); err != nil {
			c.slog.Warn("the statistics of a checkpoint are not kept", "checkpoint", list[0].ID.Number, "err", err)
		}
	}
}

// split divides numbers into those below n and the others.
func split(numbers []uint64, n uint64) (below, others []uint64) {
	for _, m := range numbers {
		if m < n {
			below = append(below, m)
		} else {
			others = append(others, m)
		}
	}
	return below, others
}

func (c *Coordinator) onCleaned(covered int, left []uint64, err error) {
	k := &c.cleaner
	k.running = false
	k.behind -= covered
	for _, n := range left {
		k.abandon(n)
	}
	c.stats.update(func(s *Stats) {
		s.Cleaning = k.behind
		if err != nil {
			s.CleanFailures++
		}
	})
	if err != nil && c.ctx.Err() == nil {
		c.slog.Warn("cannot remove what old checkpoints left, trying again after the next one", "err", err)
	}
}

// WriteInitial writes the first checkpoint of a new job: its operators as
// resolved or restored, and no committables. It is called before Run and before any
// record flows.
func (c *Coordinator) WriteInitial(ctx context.Context, operators []Operator) (*Metadata, error) {
	begun := time.Now()
	n, err := c.claim(ctx, c.next)
	c.next = n + 1
	entry := c.stats.begin(ID{Generation: c.cfg.Generation, Number: n}, Initial, begun)
	m := c.emptyMetadata(n, Initial, begun, time.Now())
	m.Operators = append(m.Operators, operators...)
	if err == nil {
		err = c.writeMetadata(ctx, m)
	}
	if err == nil {
		err = c.prove(ctx, n)
	}
	if err != nil {
		c.stats.end(entry, Failed, err, time.Now())
		return nil, fmt.Errorf("write the first checkpoint, %d: %w", n, err)
	}
	c.stats.end(entry, Completed, nil, time.Now())
	c.cleaner.unremembered = append(c.cleaner.unremembered, entry)
	return m, nil
}
