package transform

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// withinJoin joins records whose event times are near each other. A left record has a
// range of right times, from lo to hi. It matches a right record with a time in it,
// unless the watermark had passed hi when the right record came, or had passed the right
// record's own range when the left one came: by that rule, which Mark decides, and not
// by what happens to be kept, results hang on no order of arrival.
//
// Rows whose side comes out unmatched have a timer for each key and bucket: at the
// earliest hi there, which stands in front of the rows.
type withinJoin struct {
	*joinRun
	tables [2]*joinRows
	timers *state.Timers
	wide   bool  // left records say their range themselves
	before int64 // how long before the left record the right one may be
	after  int64
	// keep is how long rows of a side are kept behind their time.
	keep  [2]int64
	timed [2]bool // rows of the side have timers
	now   int64   // the watermark while timers fire
	tag   []byte
}

// bucketsOf is into how many buckets the span is cut for which rows are kept: of more,
// each probe looks up more; of fewer, rows are kept longer than they must.
const bucketsOf = 4

// leastBucket is the shortest bucket in milliseconds.
const leastBucket = 100

// noTimer stands in front of rows none of which waits for a timer.
const noTimer = math.MaxInt64

func newWithinJoin(r *joinRun) *withinJoin {
	c := r.config.Within
	w := &withinJoin{joinRun: r, wide: c.From.Set(), before: time.Duration(c.Before).Milliseconds(), after: time.Duration(c.After).Milliseconds()}
	w.timers = state.NewTimers(r.run.Store.Table("timers"))
	w.keep = [2]int64{w.after, w.before}
	width := [2]int64{max(leastBucket, (w.before+w.after)/bucketsOf), max(leastBucket, (w.before+w.after)/bucketsOf)}
	if w.wide {
		w.keep[rightSide] = r.config.TTL.millis()
		width[leftSide], width[rightSide] = 0, max(leastBucket, r.config.TTL.millis()/bucketsOf)
		if r.config.TTL.Forever {
			w.keep[rightSide], width[rightSide] = math.MaxInt64, 0
		}
	}
	for side := range w.tables {
		w.timed[side] = r.config.outer(side) || w.wide && side == leftSide
		head := 0
		if w.timed[side] {
			head = 8
		}
		w.tables[side] = newJoinRows(r.run.Store.Table(sideNames[side]), width[side], head)
	}
	return w
}

// joinReach is what decides with which rows of the other side a row can be joined: of
// a left one the range of right times, of a right one its time, and that time or the
// watermark it came behind where that was later.
type joinReach struct{ a, b int64 }

// meet reports whether the bounds let two rows match.
func meet(l, rt joinReach) bool { return l.a <= rt.a && rt.b <= l.b }

// reach finds it for a row that comes, and whether it is too late to match at all.
func (w *withinJoin) reach(ctx context.Context, side int, x joinRow, k state.Key) (reach joinReach, own, late bool, err error) {
	seen := max(x.rec.Time, w.horizon(x.rec, k))
	own = seen > x.rec.Time
	if side == rightSide {
		return joinReach{x.rec.Time, seen}, own, !w.wide && seen > plusTime(x.rec.Time, w.before+w.after), nil
	}
	if !w.wide {
		reach = joinReach{plusTime(seen, -w.before), plusTime(x.rec.Time, w.after)}
		return reach, own, reach.a > reach.b, nil
	}
	from, to := x.slots[w.from].Int(), x.slots[w.to].Int()
	reach = joinReach{from, to}
	if w.keep[rightSide] == math.MaxInt64 {
		return reach, true, false, nil
	}
	if least := plusTime(x.rec.Time, -w.keep[rightSide]); from < least && from <= to {
		e := &expr.EvalError{Kind: expr.KindArgument, Reason: fmt.Sprintf(
			"the range begins %s before the record's own time, and right records are kept for %s only: set ttl to what ranges reach back",
			millis(x.rec.Time-from), millis(w.keep[rightSide]))}
		return reach, true, false, w.refuse(ctx, e)
	}
	reach.a = max(from, plusTime(seen, -w.keep[rightSide]))
	return reach, true, reach.a > to && from <= to, nil
}

// errRefused is what a row that was handed to on_error ends with.
var errRefused = errors.New("the row was handed to on_error")

func (w *withinJoin) refuse(ctx context.Context, e *expr.EvalError) error {
	if err := w.fail(ctx, w.config.Within.From.Text, e); err != nil {
		return err
	}
	return errRefused
}

// entryReach is the reach of a kept row.
func (w *withinJoin) entryReach(side int, e joinEntry) joinReach {
	if e.bounded() {
		a, b := e.bounds()
		return joinReach{a, b}
	}
	t := e.time()
	if side == leftSide {
		return joinReach{plusTime(t, -w.before), plusTime(t, w.after)}
	}
	return joinReach{t, t}
}

// until is how long a row can still match rows that come.
func (w *withinJoin) until(side int, time int64, reach joinReach) int64 {
	if side == leftSide {
		return reach.b
	}
	return plusTime(time, w.keep[rightSide])
}

// Process joins rows with what is kept of the other side, and keeps them.
func (w *withinJoin) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	return w.eachRow(ctx, b, sel, func(row uint16, k state.Key) error {
		return w.arrive(ctx, input, w.marked(b, row, k), k)
	})
}

func (w *withinJoin) arrive(ctx context.Context, side int, x joinRow, k state.Key) error {
	reach, own, late, err := w.reach(ctx, side, x, k)
	switch {
	case errors.Is(err, errRefused):
		return nil
	case err != nil:
		return err
	case late:
		w.run.Late(1)
		return nil
	}
	until := w.until(side, x.rec.Time, reach)
	null, matched := nullKey(k), false
	if !null {
		if matched, err = w.probe(ctx, side, x, reach, k); err != nil {
			return err
		}
	}
	switch {
	case matched && side == leftSide && w.config.leftOnly():
	case !null && until >= w.run.Watermark(k.Group):
		w.store(side, x, k, reach, own, until, matched)
	case matched:
	case w.config.outer(side):
		return w.unmatched(ctx, side, x, max(x.rec.Time, until), connectors.Insert)
	case !null && w.wide && side == rightSide && own:
		w.run.Late(1) // it is not kept, and nothing waited for it
	}
	return nil
}

// probe joins a row with the kept ones of the other side.
func (w *withinJoin) probe(ctx context.Context, side int, x joinRow, reach joinReach, k state.Key) (matched bool, err error) {
	other := 1 - side
	rows := w.tables[other]
	from, to := reach.a, reach.b
	if side == rightSide {
		from, to = plusTime(reach.b, -w.after), plusTime(reach.a, w.before)
	}
	for _, ns := range rows.between(from, to) {
		value, ok := w.look(other, ns, k)
		if !ok {
			continue
		}
		hit, err := w.bucket(ctx, side, x, reach, value)
		if err != nil {
			return false, err
		}
		matched = matched || hit
		if hit && w.config.leftOnly() {
			if side == leftSide {
				return true, nil
			}
			// Left rows that have a match are done with.
			if err := rows.compact(ns, k, value, func(e joinEntry) bool { return e.count() > 0 }); err != nil {
				return false, err
			}
		}
	}
	return matched, nil
}

// look gives the rows of a key in a bucket, to be changed where matches are noted.
func (w *withinJoin) look(side int, ns int64, k state.Key) ([]byte, bool) {
	if w.config.outer(side) || w.config.leftOnly() && side == leftSide {
		return w.tables[side].change(ns, k)
	}
	return w.tables[side].table.Get(ns, k)
}

// bucket joins a row with the rows of one value.
func (w *withinJoin) bucket(ctx context.Context, side int, x joinRow, reach joinReach, value []byte) (matched bool, err error) {
	other := 1 - side
	notes := w.config.outer(other) || w.config.leftOnly()
	for rest := w.tables[other].entries(value); len(rest) > 0; {
		var e joinEntry
		if e, rest, err = nextEntry(rest); err != nil {
			return false, err
		}
		l, rt := reach, w.entryReach(other, e)
		if side == rightSide {
			l, rt = rt, l
		}
		if !meet(l, rt) {
			continue
		}
		hit, err := w.join(ctx, side, x, e)
		if err != nil {
			return false, err
		}
		if !hit {
			continue
		}
		matched = true
		if side == leftSide && w.config.leftOnly() {
			return true, nil
		}
		if notes {
			e.setCount(1)
		}
	}
	return matched, nil
}

// join gives out what two rows make whose bounds let them match.
func (w *withinJoin) join(ctx context.Context, side int, x joinRow, e joinEntry) (bool, error) {
	l, rt := ordered(side, x, e.record())
	at := max(x.rec.Time, e.time())
	if !w.config.leftOnly() {
		return w.matched(ctx, l, rt, at)
	}
	if ok, err := w.matches(ctx, l, rt, false); err != nil || !ok {
		return false, err
	}
	if w.config.Type == joinSemi {
		l.mark = resultMark(l, rt)
		return true, w.leftRecord(ctx, l, at, connectors.Insert)
	}
	return true, nil
}

// store keeps a row.
func (w *withinJoin) store(side int, x joinRow, k state.Key, reach joinReach, own bool, until int64, matched bool) {
	rows := w.tables[side]
	ns := rows.bucket(x.rec.Time)
	due := int64(noTimer)
	if w.timed[side] && (!matched || w.wide && side == leftSide) {
		due = until
	}
	w.kept = w.kept[:0]
	if w.timed[side] {
		w.arm(side, ns, k, due)
	}
	start := len(w.kept)
	count := uint32(0)
	if matched {
		count = 1
	}
	var bounds *[2]int64
	if own {
		bounds = &[2]int64{reach.a, reach.b}
	}
	w.kept = appendEntry(w.kept, count, x.rec.Time, bounds, x.mark)
	w.kept = w.encode(w.kept, side, x)
	seal(w.kept, start)
	rows.table.Append(ns, k, w.kept)
	rows.open(ns)
}

// arm sets the timer of a key's rows in a bucket to due where it is later, and begins
// w.kept with it where there are no rows yet.
func (w *withinJoin) arm(side int, ns int64, k state.Key, due int64) {
	rows := w.tables[side]
	value, ok := rows.table.Get(ns, k)
	switch {
	case !ok || len(value) < rows.head:
		w.kept = binary.LittleEndian.AppendUint64(w.kept, uint64(due))
	case due < state.Stamp(value):
		value, _ = rows.table.Upsert(ns, k, len(value))
		binary.LittleEndian.PutUint64(value, uint64(due))
	default:
		return
	}
	w.alarm(side, ns, k, due)
}

func (w *withinJoin) alarm(side int, ns int64, k state.Key, due int64) {
	if due == noTimer {
		return
	}
	w.tag = binary.AppendVarint(append(w.tag[:0], byte(side)), ns)
	w.timers.Set(due, k, w.tag)
}

// Watermark gives out what can have no match any more, and forgets what is over.
func (w *withinJoin) Watermark(ctx context.Context, wm int64) error {
	w.now = wm
	last := wm
	if wm != state.MaxTime {
		last = plusTime(wm, -1)
	}
	err := w.timers.Due(last, func(at int64, k state.Key, tag []byte) error { return w.fire(ctx, at, k, tag) })
	if err != nil {
		return w.wrap(err)
	}
	for side, rows := range w.tables {
		rows.expire(wm, w.keep[side])
	}
	return w.rows.Flush(ctx)
}

// fire handles the rows of a key in a bucket whose timer has come.
func (w *withinJoin) fire(ctx context.Context, at int64, k state.Key, tag []byte) error {
	if len(tag) < 2 {
		return state.ErrCorrupt
	}
	side := int(tag[0] & 1)
	ns, _ := binary.Varint(tag[1:])
	rows := w.tables[side]
	value, ok := rows.change(ns, k)
	if !ok || len(value) < rows.head || state.Stamp(value) != at {
		return nil // another timer stands for them
	}
	next := int64(noTimer)
	gone := false
	for rest := rows.entries(value); len(rest) > 0; {
		e, tail, err := nextEntry(rest)
		if err != nil {
			return err
		}
		rest = tail
		until := w.until(side, e.time(), w.entryReach(side, e))
		over := until < w.now || w.now == state.MaxTime
		switch {
		case e.count() > 0:
		case over && w.config.outer(side):
			if err := w.unmatched(ctx, side, e.record(), max(e.time(), until), connectors.Insert); err != nil {
				return err
			}
			e.setCount(1)
		}
		if !over && (e.count() == 0 || w.wide && side == leftSide) {
			next = min(next, until)
		}
		gone = gone || over
	}
	binary.LittleEndian.PutUint64(value, uint64(next))
	if gone && w.wide && side == leftSide {
		err := rows.compact(ns, k, value, func(e joinEntry) bool { _, hi := e.bounds(); return hi < w.now || w.now == state.MaxTime })
		if err != nil {
			return err
		}
	}
	w.alarm(side, ns, k, next)
	return nil
}
