package transform

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// aggregateSliding aggregates by sliding windows. A row changes one pane only: the
// states of panes are in a table whose namespaces are their ends. When a window
// closes, its newest panes move into the rings of their keys: one value with all the
// panes of a key, in order of their ends, so that what a window consists of is found
// side by side, in one scan for all keys. States without a fixed size stay in the
// namespaces of their panes.
//
// A row that is late for some of its windows only waits in the table behind, in the
// namespace of the end of the first window that it counts for, and moves into the
// ring when that window closes. So it does not hang on when the watermark came which
// windows a row is counted in.
type aggregateSliding struct {
	*aggregateRun
	cursor *window.Cursor
	ring   state.Table
	behind state.Table
	closed *closedGroups
	pane   int64 // the end of the pane of the last row
	early  int64 // the end of the first window that it is in
	last   int64 // and of the last
	now    int64 // processing time, which does not go back
	done   int64 // the end of the last window that was closed
	first  int64 // no pane ends before that is not in rings
	held   int64 // nothing is in behind for a window that ends before
	live   bool  // there are rings
	entry  int   // length of a pane in a ring
	ends   []int64
	key    []byte
	value  []byte
	buf    []byte
	sum    []byte
	dead   keyList
}

const (
	paneEnd    = 0
	paneStates = 8
)

func newAggregateSliding(s *aggregate, run KeyedRun) *aggregateSliding {
	r := &aggregateSliding{
		aggregateRun: newAggregateRun(s, run), cursor: window.NewCursor(s.window.Grid()),
		ring: run.Store.Table("rings"), behind: run.Store.Table("behind"), closed: newClosedGroups(run),
		pane: math.MinInt64, now: math.MinInt64, done: math.MaxInt64, first: math.MinInt64, held: math.MinInt64, entry: paneStates + s.size,
	}
	r.ring.Scan(0, func(k state.Key, _ []byte) bool {
		r.live = true
		r.closed.see(k.Group)
		return true
	})
	r.done = r.closed.load()
	return r
}

// Process implements KeyedInstance.
func (r *aggregateSliding) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	r.now = max(r.now, r.processingTime())
	for _, row := range sel {
		rec := &b.Records[row]
		_, end := r.cursor.At(r.rowTime(rec, r.now))
		if end != r.pane {
			r.pane, r.early = end, r.windowAt(end)
			r.last = r.early + (r.window.Size-1-(r.early-end))/r.window.Every*r.window.Every
		}
		k := RowKey(b, row, r.run.Groups)
		switch {
		case !r.isLate(r.early, rec, k.Group):
			r.first = min(r.first, end)
			r.count(b, row, end, k)
		case r.isLate(r.last, rec, k.Group):
			r.late = append(r.late, row)
		default:
			over := r.bound(max(rec.Mark, r.run.Watermark(k.Group)))
			from := r.windowAt(over + 1)
			r.held = min(r.held, from)
			r.countBehind(b, row, from, end, k)
		}
	}
	return r.report(ctx, b)
}

// windowAt is the end of the first window that ends at t or after.
func (r *aggregateSliding) windowAt(t int64) int64 {
	return t + window.FloorMod(r.window.Offset+r.window.Size-t, r.window.Every)
}

// count adds a row to its pane.
func (r *aggregateSliding) count(b *connectors.Batch, row uint16, end int64, k state.Key) {
	if len(r.loose) > 0 && !r.prepare(end, k, b, row, false) {
		return
	}
	value, fresh := r.table.Upsert(end, k, max(1, r.size))
	if !r.add(value[:r.size], b, row, false) {
		if fresh {
			r.table.Delete(end, k)
		}
		return
	}
	r.store(end, k)
}

// Watermark implements KeyedInstance.
func (r *aggregateSliding) Watermark(ctx context.Context, wm int64) error {
	if r.window.Processing && wm != state.MaxTime {
		return nil
	}
	return r.close(ctx, r.bound(wm))
}

// Tick implements KeyedInstance.
func (r *aggregateSliding) Tick(ctx context.Context, now time.Time) error {
	if !r.window.Processing {
		return nil
	}
	r.now = max(r.now, now.UnixMilli())
	return r.close(ctx, r.now)
}

// Barrier implements KeyedInstance.
func (r *aggregateSliding) Barrier(context.Context) error {
	r.closed.save(r.done)
	return nil
}

// close closes the windows that end by bound, in order of their ends.
func (r *aggregateSliding) close(ctx context.Context, bound int64) error {
	for {
		end := r.next(bound)
		if end > bound || end == math.MaxInt64 {
			return nil
		}
		if err := r.closeWindow(ctx, end); err != nil {
			return err
		}
	}
}

// next is the end of the next window that anything is in, MaxInt64 where there is
// none, or one beyond bound.
func (r *aggregateSliding) next(bound int64) int64 {
	end := int64(math.MaxInt64)
	if r.live && r.done != math.MinInt64 {
		end = r.done + r.window.Every
	}
	if r.first <= bound {
		r.first = r.earliest(r.table)
		if r.first != math.MaxInt64 {
			end = min(end, r.windowAt(r.first))
		}
	}
	if r.held <= bound {
		r.held = r.earliest(r.behind)
		end = min(end, r.held)
	}
	if r.done != math.MinInt64 && end <= r.done {
		end = r.done + r.window.Every // the clock went back while the step was down
	}
	return end
}

// earliest is the first namespace of a table that holds anything.
func (r *aggregateSliding) earliest(t state.Table) int64 {
	if r.ends = t.Namespaces(r.ends[:0], math.MinInt64, math.MaxInt64); len(r.ends) > 0 {
		return r.ends[0]
	}
	return math.MaxInt64
}

// closeWindow gives out the results of the window that ends at end, and lets go of
// what is in no later one.
func (r *aggregateSliding) closeWindow(ctx context.Context, end int64) error {
	if err := r.fold(end); err != nil {
		return err
	}
	r.done = end
	if err := r.give(ctx, end); err != nil {
		return err
	}
	for k := range r.dead.all() {
		r.ring.Delete(0, k)
	}
	r.dead.reset()
	for _, t := range r.tables {
		r.ends = t.Namespaces(r.ends[:0], math.MinInt64, end+r.window.Every-r.window.Size)
		for _, pane := range r.ends {
			t.Drop(pane)
		}
	}
	return nil
}

// give gives out a result for each ring that has panes in the window.
func (r *aggregateSliding) give(ctx context.Context, end int64) error {
	r.live = false
	var failed error
	r.ring.Scan(0, func(k state.Key, value []byte) bool {
		if len(r.loose) > 0 {
			r.value = append(r.value[:0], value...)
			k, value = ownKey(k, &r.key), r.value
		}
		if get64(value, len(value)-r.entry) <= end+r.window.Every-r.window.Size {
			r.dead.add(k)
		} else {
			r.live = true
		}
		value = r.since(value, end-r.window.Size)
		if len(value) == 0 || end <= r.closed.until(k.Group) {
			return true
		}
		failed = r.row(ctx, k, value, end)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return r.out.flush(ctx)
}

// since is the panes of a ring that end after a time.
func (r *aggregateSliding) since(ring []byte, t int64) []byte {
	for len(ring) > 0 && get64(ring, paneEnd) <= t {
		ring = ring[r.entry:]
	}
	return ring
}

// row makes the row of a key of which the window has these panes.
func (r *aggregateSliding) row(ctx context.Context, k state.Key, panes []byte, end int64) error {
	states := panes[paneStates:r.entry]
	if len(panes) > r.entry && len(r.fixed) > 0 {
		r.sum = append(r.sum[:0], states...)
		states = r.sum
		for at := r.entry; at < len(panes); at += r.entry {
			if err := r.merge(states, panes[at+paneStates:at+r.entry]); err != nil {
				return err
			}
		}
	}
	n := r.out.add(end - 1)
	if err := r.head(n, k, end-r.window.Size, end); err != nil {
		return err
	}
	row := r.out.slots(n)
	for _, i := range r.fixed {
		c := &r.calls[i]
		r.result(n, row, c, states[c.off:c.off+c.size:c.off+c.size], r.out.arena())
	}
	for j, i := range r.loose {
		if err := r.gather(j, k, panes); err != nil {
			return err
		}
		r.result(n, row, &r.calls[i], r.news[j], r.out.arena())
	}
	if r.out.full(1) {
		return r.out.flush(ctx)
	}
	return nil
}

// gather merges the states of a loose call of all panes into news.
func (r *aggregateSliding) gather(j int, k state.Key, panes []byte) error {
	r.news[j] = r.news[j][:0]
	for at := 0; at < len(panes); at += r.entry {
		value, ok := r.tables[j].Get(get64(panes, at), k)
		switch {
		case !ok:
		case at == 0:
			r.news[j] = append(r.news[j], value...)
		default:
			next, err := r.calls[r.loose[j]].fn.Merge(r.news[j], value)
			if err != nil {
				return r.mergeError(err)
			}
			r.news[j] = next
		}
	}
	return nil
}

// fold moves what the window that ends at end has, and none before it had, into rings.
func (r *aggregateSliding) fold(end int64) error {
	var failed error
	for _, pane := range r.table.Namespaces(nil, math.MinInt64, end) {
		r.table.Scan(pane, func(k state.Key, states []byte) bool {
			r.sum = append(r.sum[:0], states[:r.size]...)
			failed = r.into(ownKey(k, &r.key), pane, r.sum, end)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		r.table.Drop(pane)
	}
	for _, from := range r.behind.Namespaces(nil, math.MinInt64, end) {
		r.behind.Scan(from, func(k state.Key, value []byte) bool {
			r.value = append(r.value[:0], value...)
			failed = r.foldBehind(ownKey(k, &r.key), r.value, end)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		r.behind.Drop(from)
	}
	return nil
}

// into puts a pane into the ring of its key. Panes that ended before the window that
// ends at end began go, once they are half of the ring.
func (r *aggregateSliding) into(k state.Key, pane int64, states []byte, end int64) error {
	r.closed.see(k.Group)
	ring, _ := r.ring.Get(0, k)
	rest := r.since(ring, end-r.window.Size)
	trim := len(ring) > 2*len(rest)
	if !trim && (len(ring) == 0 || get64(ring, len(ring)-r.entry) < pane) {
		r.buf = append(binary.LittleEndian.AppendUint64(r.buf[:0], uint64(pane)), states...)
		r.ring.Append(0, k, r.buf)
		return nil
	}
	r.buf = append(r.buf[:0], rest...)
	at := len(r.buf)
	for at > 0 && get64(r.buf, at-r.entry) >= pane {
		at -= r.entry
	}
	if at < len(r.buf) && get64(r.buf, at) == pane {
		if err := r.merge(r.buf[at+paneStates:at+r.entry], states); err != nil {
			return err
		}
	} else {
		r.buf = append(r.buf, make([]byte, r.entry)...)
		copy(r.buf[at+r.entry:], r.buf[at:])
		put64(r.buf, at, pane)
		copy(r.buf[at+paneStates:], states)
	}
	r.ring.Put(0, k, r.buf)
	return nil
}
