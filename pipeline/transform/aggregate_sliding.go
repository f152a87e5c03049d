package transform

import (
	"context"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// aggregateSliding aggregates by sliding windows. A row changes one pane only: the
// states of panes are in a table whose namespaces are their ends. When a window
// closes, its newest panes move into the rings of their keys: one value with all the
// panes of a key, so that what a window consists of is found side by side, in one scan
// for all keys, see ringForm. States without a fixed size stay in the
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
	live   bool  // there may be rings
	entry  int   // length of a pane in behind, without its loose states
	form   ringForm
	ends   []int64
	key    []byte
	value  []byte
	buf    []byte
	sum    []byte
	dead   keyList // rings to delete once a window is closed
	turns  keyList // and those to turn
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
	r.form = ringForm{size: s.size, merge: r.merge}
	r.done, r.live = r.closed.load()
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
	if len(r.loose) > 0 && !r.prepare(end, k, b, row, false, copied) {
		return
	}
	value, fresh := r.table.Upsert(end, k, max(1, r.size))
	if !r.add(value[:r.size], b, row, false) {
		if fresh {
			r.table.Delete(end, k)
		}
		return
	}
	if len(r.loose) > 0 && !r.store(end, k, b, row, false) {
		r.undo(end, k, 0, 0)
	}
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
	r.closed.save(r.done, r.live)
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
	if err := r.fold(ctx, end); err != nil {
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
	for k := range r.turns.all() {
		if err := r.turn(k, end); err != nil {
			return err
		}
	}
	r.turns.reset()
	for _, t := range r.tables {
		r.ends = t.Namespaces(r.ends[:0], math.MinInt64, end+r.window.Every-r.window.Size)
		for _, pane := range r.ends {
			t.Drop(pane)
		}
	}
	return nil
}

// give gives out a result for each ring that has panes in the window, and notes which
// of them are out of the next one, or turn for it.
func (r *aggregateSliding) give(ctx context.Context, end int64) error {
	r.live = false
	var failed error
	r.ring.Scan(0, func(k state.Key, value []byte) bool {
		if len(r.loose) > 0 {
			r.value = append(r.value[:0], value...)
			k, value = ownKey(k, &r.key), r.value
		}
		first := r.form.since(value, end-r.window.Size)
		switch next := r.form.since(value, end+r.window.Every-r.window.Size); {
		case next == r.form.count(value):
			r.dead.add(k)
		case r.form.spent(value, next):
			r.turns.add(k)
			r.live = true
		default:
			r.live = true
		}
		if first == r.form.count(value) || end <= r.closed.until(k.Group) {
			return true
		}
		failed = r.row(ctx, k, value, first, end)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return r.out.flush(ctx)
}

// row makes the row of a key, of whose ring the window has the panes from first on.
func (r *aggregateSliding) row(ctx context.Context, k state.Key, ring []byte, first int, end int64) error {
	states, sum, err := r.form.total(r.sum, ring, first)
	if r.sum = sum; err != nil {
		return err
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
		refused, err := r.gather(j, k, ring, first)
		switch {
		case err != nil:
			return err
		case refused != nil:
			r.out.refuse(n, r.calls[i].text, refused)
		default:
			r.result(n, row, &r.calls[i], r.news[j], r.out.arena())
		}
	}
	if r.out.full(1) {
		return r.out.flush(ctx)
	}
	return nil
}

// gather merges the states of a loose call of the panes from first on into news.
func (r *aggregateSliding) gather(j int, k state.Key, ring []byte, first int) (refused, failed error) {
	r.news[j] = r.news[j][:0]
	for i := first; i < r.form.count(ring) && refused == nil && failed == nil; i++ {
		value, _ := r.tables[j].Get(r.form.end(ring, i), k)
		if i == first {
			r.news[j] = append(r.news[j], value...)
		} else {
			refused, failed = r.mergeLoose(j, value)
		}
	}
	return refused, failed
}

// fold moves what the window that ends at end has, and none before it had, into rings.
func (r *aggregateSliding) fold(ctx context.Context, end int64) error {
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
			failed = r.foldBehind(ctx, ownKey(k, &r.key), r.value, end)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		r.behind.Drop(from)
	}
	return nil
}

// into puts a pane into the ring of its key. The panes that are out of the window that
// ends at end go when the ring turns.
func (r *aggregateSliding) into(k state.Key, pane int64, states []byte, end int64) error {
	r.closed.see(k.Group)
	ring, ok := r.ring.Get(0, k)
	if !ok {
		ring, _ = r.ring.Upsert(0, k, r.form.head()+r.form.entry())
		return r.form.push(ring, pane, states)
	}
	var err error
	switch first := r.form.since(ring, end-r.window.Size); {
	case r.form.spent(ring, first):
		r.buf, err = r.form.turn(r.buf[:0], ring, first)
	case r.form.last(ring) < pane:
		ring, _ = r.ring.Upsert(0, k, len(ring)+r.form.entry())
		return r.form.push(ring, pane, states)
	default:
		r.buf = append(r.buf[:0], ring...)
	}
	if err == nil {
		r.buf, err = r.form.add(r.buf, pane, states)
	}
	if err == nil {
		r.ring.Put(0, k, r.buf)
	}
	return err
}

// turn makes the panes of a ring that are in the next window its front.
func (r *aggregateSliding) turn(k state.Key, end int64) error {
	ring, _ := r.ring.Get(0, k)
	var err error
	if r.buf, err = r.form.turn(r.buf[:0], ring, r.form.since(ring, end+r.window.Every-r.window.Size)); err == nil {
		r.ring.Put(0, k, r.buf)
	}
	return err
}
