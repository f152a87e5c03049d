package connectortest

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

func whole(left int) int { return left }

// shapes are batch sizes in turn: nothing left by a filter, one record, some, all.
func shapes() func(left int) int {
	turn := 0
	return func(left int) int {
		turn++
		return [...]int{0, 1, 7, 300, left}[turn%5]
	}
}

func anyShape(ctx context.Context, w *world) error {
	p, err := w.start(ctx, nil, 2)
	if err != nil {
		return err
	}
	shape := shapes()
	for _, n := range []int{2 * connectors.MaxBatch, 0, 1, 333} {
		if err := p.feed(ctx, n, shape); err != nil {
			return err
		}
		if _, err := p.checkpoint(ctx, false); err != nil {
			return err
		}
	}
	return p.finish(ctx)
}

func unused(ctx context.Context, w *world) error {
	p, err := w.start(ctx, nil, 3)
	if err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return w.verify(ctx, [partitions]int{}, connectors.ExactlyOnce)
}

func emptyCheckpoints(ctx context.Context, w *world) error {
	p, err := w.start(ctx, nil, 2)
	if err != nil {
		return err
	}
	for i := range 6 {
		if i == 3 {
			if err := p.feed(ctx, 10, whole); err != nil {
				return err
			}
		}
		if _, err := p.checkpoint(ctx, false); err != nil {
			return err
		}
	}
	return p.finish(ctx)
}

// restoreEach ends the process after each checkpoint, with records that it took
// after it.
func restoreEach(ctx context.Context, w *world) error {
	var last *snapshot
	for i := range 5 {
		p, err := w.start(ctx, last, 2)
		if err != nil {
			return err
		}
		if err := p.feed(ctx, 50, whole); err != nil {
			return err
		}
		if i == 4 {
			return p.finish(ctx)
		}
		if last, err = p.checkpoint(ctx, false); err != nil {
			return err
		}
		if err := p.feed(ctx, 20, whole); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return nil
}

// fed starts a process that took some records and one checkpoint of them.
func fed(ctx context.Context, w *world) (*process, *snapshot, error) {
	p, err := w.start(ctx, nil, 2)
	if err != nil {
		return nil, nil, err
	}
	if err := p.feed(ctx, 100, whole); err != nil {
		return nil, nil, err
	}
	s, err := p.checkpoint(ctx, false)
	return p, s, err
}

func invisible(ctx context.Context, w *world) error {
	p, err := w.start(ctx, nil, 2)
	if err != nil {
		return err
	}
	if err := p.feed(ctx, 500, whole); err != nil {
		return err
	}
	s, err := p.prepare(ctx, true)
	if err != nil {
		return err
	}
	seen, err := w.read(ctx)
	if err != nil {
		return err
	}
	if len(seen) > 0 {
		return fmt.Errorf("%d records are visible before the commit", len(seen))
	}
	if s, err = w.complete(s); err != nil {
		return err
	}
	if err := p.commit(ctx, s); err != nil {
		return err
	}
	if err := w.verify(ctx, p.next, connectors.ExactlyOnce); err != nil {
		return fmt.Errorf("after the commit of a checkpoint that leaves nothing unpublished: %w", err)
	}
	return p.finish(ctx)
}

func failedCheckpoint(ctx context.Context, w *world) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	for range 3 {
		if err := p.feed(ctx, 30, whole); err != nil {
			return err
		}
		if _, err := p.prepare(ctx, false); err != nil {
			return err
		}
		w.retain() // the attempt failed elsewhere
	}
	s, err := p.checkpoint(ctx, false)
	if err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if p, err = w.start(ctx, s, 2); err != nil {
		return err
	}
	return p.finish(ctx)
}

func cancelledPrepare(ctx context.Context, w *world) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	if err := p.feed(ctx, 30, whole); err != nil {
		return err
	}
	id := connectors.CheckpointID{Generation: p.id, Number: w.number.Add(1)}
	for _, wr := range p.writers {
		prepare, err := wr.Barrier(ctx, connectors.Barrier{ID: id})
		if err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
		dead, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = prepare(dead, &w.files)
	}
	if err := p.feed(ctx, 30, whole); err != nil {
		return restart(ctx, w, p) // a writer may ask for a restore
	}
	s, err := p.prepare(ctx, false)
	if err != nil {
		return restart(ctx, w, p)
	}
	if s, err = w.complete(s); err != nil {
		return err
	}
	if err := p.commit(ctx, s); err != nil {
		return err
	}
	return p.finish(ctx)
}

// restart goes on from the newest complete checkpoint to the end.
func restart(ctx context.Context, w *world, old *process) error {
	if err := old.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return goOn(ctx, w, w.retained[len(w.retained)-1])
}

// crashBeforeMetadata prepares checkpoints that never become complete.
func crashBeforeMetadata(ctx context.Context, w *world) error {
	p, s, err := fed(ctx, w)
	if err != nil {
		return err
	}
	for _, roll := range []bool{false, true, true} {
		if err := p.feed(ctx, 100, whole); err != nil {
			return err
		}
		if _, err := p.prepare(ctx, roll); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		if p, err = w.start(ctx, s, 2); err != nil {
			return err
		}
		w.retain()
	}
	if err := p.feed(ctx, 70, whole); err != nil {
		return err
	}
	return p.finish(ctx)
}

// crash ends a process at a checkpoint that is complete; published says how many
// of its committables were committed.
func crash(ctx context.Context, w *world, p *process, roll bool, published func(n int) int) (*snapshot, error) {
	if err := p.feed(ctx, 100, whole); err != nil {
		return nil, err
	}
	s, err := p.prepare(ctx, roll)
	if err != nil {
		return nil, err
	}
	if s, err = w.complete(s); err != nil {
		return nil, err
	}
	for _, c := range s.Committables[:published(len(s.Committables))] {
		if err := p.committer.Commit(ctx, c, false); err != nil {
			return nil, fmt.Errorf("commit: %w", err)
		}
	}
	if err := p.feed(ctx, 10, whole); err != nil {
		return nil, err
	}
	return s, p.stop()
}

// crashes restores after crashes at complete checkpoints, then goes on to the end.
func crashes(ctx context.Context, w *world, published func(n int) int) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	for _, roll := range []bool{false, true, true} {
		s, err := crash(ctx, w, p, roll, published)
		if err != nil {
			return err
		}
		if p, err = w.start(ctx, s, 2); err != nil {
			return err
		}
		if roll {
			if err := w.verify(ctx, s.Next, connectors.ExactlyOnce); err != nil {
				return fmt.Errorf("after the restored committables were committed: %w", err)
			}
		}
	}
	return p.finish(ctx)
}

func crashBeforeCommit(ctx context.Context, w *world) error {
	return crashes(ctx, w, func(int) int { return 0 })
}

func crashAfterCommit(ctx context.Context, w *world) error {
	return crashes(ctx, w, func(n int) int { return n })
}

// crashWhileRestoring publishes a part, and restores more than once.
func crashWhileRestoring(ctx context.Context, w *world) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	s, err := crash(ctx, w, p, true, func(n int) int { return n / 2 })
	if err != nil {
		return err
	}
	for range 3 {
		if p, err = w.start(ctx, s, 2); err != nil {
			return err
		}
		if err := p.feed(ctx, 5, whole); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return goOn(ctx, w, s)
}

// goOn restores a checkpoint and runs to the end.
func goOn(ctx context.Context, w *world, s *snapshot) error {
	p, err := w.start(ctx, s, 2)
	if err != nil {
		return err
	}
	if err := p.feed(ctx, 40, whole); err != nil {
		return err
	}
	return p.finish(ctx)
}

func rescale(ctx context.Context, w *world) error {
	var last *snapshot
	for _, subtasks := range []int{2, 4, 1, 3} {
		p, err := w.start(ctx, last, subtasks)
		if err != nil {
			return err
		}
		if err := p.feed(ctx, 60, whole); err != nil {
			return err
		}
		if last, err = p.checkpoint(ctx, false); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return goOn(ctx, w, last)
}

// takeOver lets a process go on, as one does that slept, when a newer one has
// restored the checkpoint before its last one. Whatever the old one tries, what
// it prepared stays unpublished, and the newer one's is untouched.
func takeOver(ctx context.Context, w *world) error {
	old, s, err := fed(ctx, w)
	if err != nil {
		return err
	}
	if err := old.feed(ctx, 100, whole); err != nil {
		return err
	}
	orphan, err := old.prepare(ctx, true)
	if err != nil {
		return err
	}
	young, err := w.start(ctx, s, 2)
	if err != nil {
		return err
	}
	if err := young.feed(ctx, 100, whole); err != nil {
		return err
	}
	next, err := young.prepare(ctx, true)
	if err != nil {
		return err
	}
	if next, err = w.complete(next); err != nil {
		return err
	}
	for _, c := range orphan.Committables {
		_ = old.committer.Commit(ctx, c, false) // refused, or without effect
	}
	if err := old.feed(ctx, 100, whole); err == nil {
		_, _ = old.prepare(ctx, true)
	}
	_ = old.stop()
	if err := young.commit(ctx, next); err != nil {
		return err
	}
	if err := w.verify(ctx, next.Next, connectors.ExactlyOnce); err != nil {
		return err
	}
	return young.finish(ctx)
}
