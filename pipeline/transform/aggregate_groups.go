package transform

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// aggregateGroups aggregates without a window of time: groups that last, or that
// are given out and begun anew with each so many rows. All are in namespace 0.
type aggregateGroups struct {
	*aggregateRun
	changes *aggregateChanges // nil where groups give their result when they close
	timers  *state.Timers     // nil without a ttl
	ttl     *state.TTL
	key     []byte
	value   []byte
}

func newAggregateGroups(s *aggregate, run KeyedRun) *aggregateGroups {
	r := &aggregateGroups{aggregateRun: newAggregateRun(s, run)}
	if s.emit.Updating() {
		r.changes = newAggregateChanges(r.aggregateRun)
	}
	if s.ttl.Span > 0 {
		r.timers = state.NewTimers(run.Store.Table("timers"))
		r.ttl = state.NewTTL(r.timers, s.ttl.Span, nil)
	}
	return r
}

// Process implements KeyedInstance.
func (r *aggregateGroups) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	now := int64(0)
	if r.ttl != nil && !r.stamped {
		now = r.run.Now().UnixMilli()
	}
	for _, row := range sel {
		if r.changes != nil && r.changes.full() {
			if err := r.changes.finish(ctx, r.changes.dirty != nil); err != nil {
				return err
			}
		}
		if r.stamped {
			now = b.Records[row].Time
		}
		if err := r.count(ctx, b, row, now); err != nil {
			return err
		}
	}
	if r.changes != nil {
		if err := r.changes.finish(ctx, r.changes.dirty != nil); err != nil {
			return err
		}
	} else if err := r.out.flush(ctx); err != nil {
		return err
	}
	return r.report(ctx, b)
}

// count adds a row to its group, or takes it back.
func (r *aggregateGroups) count(ctx context.Context, b *connectors.Batch, row uint16, now int64) error {
	rec := &b.Records[row]
	k := RowKey(b, row, r.run.Groups)
	retract := rec.Op.Retracts()
	if retract {
		if value, ok := r.table.Get(0, k); !ok || gone(value) {
			r.run.Dropped(1) // its group has gone by the ttl
			return nil
		}
	}
	if len(r.loose) > 0 && !r.prepare(0, k, b, row, retract, copied) {
		return nil
	}
	value, fresh := r.table.Upsert(0, k, headSize+r.size)
	if r.changes != nil {
		valid, err := r.changes.touch(0, k, value, fresh)
		if err != nil {
			return err
		}
		if !valid {
			value, _ = r.table.Upsert(0, k, len(value))
		}
	}
	if !r.add(value[headSize:], b, row, retract) {
		r.forget(k, fresh)
		return nil
	}
	rows := binary.LittleEndian.Uint64(value[headRows:])
	if retract {
		rows--
	} else {
		rows++
	}
	binary.LittleEndian.PutUint64(value[headRows:], rows)
	if at := int64(binary.LittleEndian.Uint64(value[headTime:])); rec.Time > at || fresh {
		binary.LittleEndian.PutUint64(value[headTime:], uint64(rec.Time))
	}
	if rows == 0 {
		clear(value[headSize:])
	}
	if r.ttl != nil {
		r.ttl.Touch(k, value[headStamp:headStamp+state.StampSize], fresh, now)
	}
	if rows > 0 && len(r.loose) > 0 && !r.store(0, k, b, row, retract) {
		step := int64(1)
		if !retract {
			step = -1
		}
		r.undo(0, k, headSize, step)
		return nil
	}
	return r.settle(ctx, k, rows)
}

// settle closes a group that is full or empty.
func (r *aggregateGroups) settle(ctx context.Context, k state.Key, rows uint64) error {
	switch {
	case rows == 0 && r.changes == nil:
		r.remove(0, k)
	case rows == 0:
		r.clearLoose(0, k)
	case r.window.Kind == CountWindow && rows >= uint64(r.window.Count):
		k = ownKey(k, &r.key)
		if err := r.give(ctx, k); err != nil {
			return err
		}
		r.remove(0, k)
	}
	return nil
}

// forget removes a group that was made for a row that is not counted. With changes
// it stays until finish, which may have noted it.
func (r *aggregateGroups) forget(k state.Key, fresh bool) {
	if fresh && r.changes == nil {
		r.table.Delete(0, k)
	}
}

// give gives out the result of a group.
func (r *aggregateGroups) give(ctx context.Context, k state.Key) error {
	value, ok := r.table.Get(0, k)
	if !ok {
		return nil
	}
	return r.row(ctx, k, value)
}

// row makes a row of a group's result. value may be borrowed from the store; k is not,
// where there are loose calls.
func (r *aggregateGroups) row(ctx context.Context, k state.Key, value []byte) error {
	if r.out.full(1) {
		r.value = append(r.value[:0], value...)
		value = r.value
		if err := r.out.flush(ctx); err != nil {
			return err
		}
	}
	n := r.out.add(int64(binary.LittleEndian.Uint64(value[headTime:])))
	if err := r.head(n, k, 0, 0); err != nil {
		return err
	}
	r.results(n, value[headSize:], 0, k)
	return nil
}

// Watermark implements KeyedInstance.
func (r *aggregateGroups) Watermark(ctx context.Context, wm int64) error {
	if wm == state.MaxTime {
		return r.end(ctx)
	}
	if r.ttl == nil || !r.stamped {
		return nil
	}
	return r.expire(ctx, wm)
}

// end closes what is left when the input ends.
func (r *aggregateGroups) end(ctx context.Context) error {
	if r.changes != nil {
		if r.changes.dirty != nil {
			return r.changes.flush(ctx, math.MaxInt64)
		}
		return nil
	}
	if r.window.Kind == CountWindow {
		return nil
	}
	var failed error
	r.table.Scan(0, func(k state.Key, value []byte) bool {
		if len(r.loose) > 0 {
			r.value = append(r.value[:0], value...)
			k, value = ownKey(k, &r.key), r.value
		}
		failed = r.row(ctx, k, value)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.drop(0)
	return r.out.flush(ctx)
}

// Tick implements KeyedInstance.
func (r *aggregateGroups) Tick(ctx context.Context, now time.Time) error {
	if r.changes != nil && r.changes.dirty != nil && r.changes.pace.due(now) {
		if err := r.changes.flush(ctx, math.MaxInt64); err != nil {
			return err
		}
	}
	if r.ttl == nil || r.stamped {
		return nil
	}
	return r.expire(ctx, now.UnixMilli())
}

// expire removes the groups that nothing has changed for the ttl.
func (r *aggregateGroups) expire(ctx context.Context, now int64) error {
	err := r.timers.Due(now, func(at int64, k state.Key, _ []byte) error {
		k = ownKey(k, &r.key)
		var stamp []byte
		if value, ok := r.table.Get(0, k); ok {
			stamp = value[headStamp : headStamp+state.StampSize]
		}
		if !r.ttl.Fire(at, k, stamp) {
			return nil
		}
		return r.expired(ctx, k)
	})
	if err != nil {
		return err
	}
	return r.out.flush(ctx)
}

func (r *aggregateGroups) expired(ctx context.Context, k state.Key) error {
	switch {
	case r.changes != nil && r.changes.dirty != nil:
		if err := r.changes.flushOne(ctx, 0, k); err != nil {
			return err
		}
	case r.changes == nil && r.window.Kind == NoWindow:
		if err := r.give(ctx, k); err != nil {
			return err
		}
	}
	r.remove(0, k)
	return nil
}

// Barrier implements KeyedInstance.
func (r *aggregateGroups) Barrier(context.Context) error { return nil }
