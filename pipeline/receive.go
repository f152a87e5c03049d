package pipeline

import (
	"context"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// runReceiver takes what other tasks send.
func (t *task) runReceiver(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	if err := t.resume(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		select { // the clock has its turn under load too
		case now := <-ticker.C:
			if err := t.tick(ctx, now); err != nil {
				return err
			}
		default:
		}
		if it, sender, ok := t.inbox.take(); ok {
			if err := t.receive(ctx, it, sender); err != nil {
				return err
			}
			continue
		}
		t.time.wait(idle)
		var now time.Time
		select {
		case <-ctx.Done():
		case now = <-ticker.C:
		case <-t.inbox.ready:
		}
		t.time.resume(0)
		if !now.IsZero() {
			if err := t.tick(ctx, now); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// resume tells how far event time had come when the checkpoint was taken: timers
// that were due then fire.
func (t *task) resume(ctx context.Context) error {
	t.told = mark{time: state.MinTime}
	if t.keyed == nil || t.flow.now.time == state.MinTime {
		return nil
	}
	return t.pass(ctx)
}

// pass hands the event time of the task's inputs to its step and on to the receivers,
// behind what the step gives out for it.
func (t *task) pass(ctx context.Context) error {
	m := t.flow.now
	if t.keyed != nil {
		t.keyed.shown.idle.Store(m.idle)
		if err := t.keyed.advance(ctx, m.time); err != nil {
			return err
		}
		if m.time != state.MaxTime {
			m.time = minus(m.time, t.chain.keyed.delay)
		}
	}
	t.tell(m)
	return nil
}

func (t *task) receive(ctx context.Context, it item, sender int) error {
	if it.barrier != nil {
		now := time.Now()
		al, complete := t.align.arrive(sender, it.barrier, now)
		if !complete {
			return nil
		}
		return t.cut(ctx, it.barrier, checkpoint.Ack{Alignment: now.Sub(al.first), Buffered: al.buffered})
	}
	if it.batch != nil {
		err := t.receiveBatch(ctx, it.batch, t.chain.in[it.edge])
		it.batch.Recycle()
		if err != nil {
			return err
		}
	}
	if it.mark.set && t.flow.set(sender, it.mark) {
		return t.pass(ctx)
	}
	return nil
}

func (t *task) receiveBatch(ctx context.Context, b *connectors.Batch, e *edge) error {
	rows, err := t.enter(b, e)
	if err != nil {
		return err
	}
	if err := t.awaitGates(ctx); err != nil {
		return err
	}
	if err := t.refuse(ctx, b, len(b.Records)); err != nil {
		return err
	}
	switch {
	case len(rows) == 0:
		return nil
	case t.keyed != nil:
		return t.keyed.process(ctx, e.input, b, rows)
	}
	return t.head(ctx, b, rows)
}
