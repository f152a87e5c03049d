package transform

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// aggregateTumbling aggregates by tumbling windows. The namespaces of its tables are
// the ends of windows, so that closing one is a scan and a drop. Values have a head
// only where results are given out as updates.
type aggregateTumbling struct {
	*aggregateRun
	changes *aggregateChanges // nil where windows give their result when they close
	cursor  *window.Cursor
	first   int64 // no window that is open ends before
	headLen int
	now     int64 // processing time, which does not go back
	ends    []int64
	key     []byte
	value   []byte
}

func newAggregateTumbling(s *aggregate, run KeyedRun) *aggregateTumbling {
	r := &aggregateTumbling{aggregateRun: newAggregateRun(s, run), cursor: window.NewCursor(s.window.Grid()), first: math.MinInt64, now: math.MinInt64}
	if s.emit.Updating() {
		r.changes, r.headLen = newAggregateChanges(r.aggregateRun), headSize
	}
	return r
}

// Process implements KeyedInstance.
func (r *aggregateTumbling) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	r.now = max(r.now, r.processingTime())
	for _, row := range sel {
		rec := &b.Records[row]
		_, end := r.cursor.At(r.rowTime(rec, r.now))
		k := RowKey(b, row, r.run.Groups)
		if r.isLate(end, rec, k.Group) {
			r.late = append(r.late, row)
			continue
		}
		r.first = min(r.first, end)
		if r.changes != nil && r.changes.full() {
			if err := r.changes.finish(ctx, r.changes.dirty != nil); err != nil {
				return err
			}
		}
		if err := r.count(b, row, end, k); err != nil {
			return err
		}
	}
	if r.changes != nil {
		if err := r.changes.finish(ctx, r.changes.dirty != nil); err != nil {
			return err
		}
	}
	return r.report(ctx, b)
}

// count adds a row to its group of the window that ends at end.
func (r *aggregateTumbling) count(b *connectors.Batch, row uint16, end int64, k state.Key) error {
	if len(r.loose) > 0 && !r.prepare(end, k, b, row, false, copied) {
		return nil
	}
	value, fresh := r.table.Upsert(end, k, max(1, r.headLen+r.size))
	if r.changes != nil {
		valid, err := r.changes.touch(end, k, value, fresh)
		if err != nil {
			return err
		}
		if !valid {
			value, _ = r.table.Upsert(end, k, len(value))
		}
	}
	if !r.add(value[r.headLen:r.headLen+r.size], b, row, false) {
		if fresh && r.changes == nil {
			r.table.Delete(end, k)
		}
		return nil
	}
	if r.changes != nil {
		binary.LittleEndian.PutUint64(value[headRows:], binary.LittleEndian.Uint64(value[headRows:])+1)
	}
	if len(r.loose) > 0 && !r.store(end, k, b, row, false) {
		r.undo(end, k, r.headLen, -1)
	}
	return nil
}

// Watermark implements KeyedInstance.
func (r *aggregateTumbling) Watermark(ctx context.Context, wm int64) error {
	if r.window.Processing && wm != state.MaxTime {
		return nil
	}
	return r.close(ctx, r.bound(wm))
}

// Tick implements KeyedInstance.
func (r *aggregateTumbling) Tick(ctx context.Context, now time.Time) error {
	if r.window.Processing {
		r.now = max(r.now, now.UnixMilli())
		if err := r.close(ctx, r.now); err != nil {
			return err
		}
	}
	if r.changes == nil || r.changes.dirty == nil || !r.changes.pace.due(now) {
		return nil
	}
	return r.changes.flush(ctx, math.MaxInt64)
}

// Barrier implements KeyedInstance.
func (r *aggregateTumbling) Barrier(context.Context) error { return nil }

// close closes the windows that end by bound, in order of their ends.
func (r *aggregateTumbling) close(ctx context.Context, bound int64) error {
	if bound < r.first {
		return nil
	}
	if r.changes != nil && r.changes.dirty != nil {
		if err := r.changes.flush(ctx, bound); err != nil {
			return err
		}
	}
	r.ends = r.table.Namespaces(r.ends[:0], math.MinInt64, math.MaxInt64)
	r.first = math.MaxInt64
	if open := slices.IndexFunc(r.ends, func(end int64) bool { return end > bound }); open >= 0 {
		r.first, r.ends = r.ends[open], r.ends[:open]
	}
	for _, end := range r.ends {
		if r.changes == nil {
			if err := r.give(ctx, end); err != nil {
				return err
			}
		}
		r.drop(end)
	}
	return nil
}

// give gives out the results of a window.
func (r *aggregateTumbling) give(ctx context.Context, end int64) error {
	start, _ := r.window.Grid().At(end - 1)
	var failed error
	r.table.Scan(end, func(k state.Key, value []byte) bool {
		if len(r.loose) > 0 {
			r.key, r.value = append(r.key[:0], k.Bytes...), append(r.value[:0], value...)
			k.Bytes, value = r.key, r.value
		}
		n := r.out.add(end - 1)
		if failed = r.head(n, k, start, end); failed != nil {
			return false
		}
		r.results(n, value, end, k)
		if r.out.full(1) {
			failed = r.out.flush(ctx)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return r.out.flush(ctx)
}
