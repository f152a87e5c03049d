package transform

import (
	"context"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// plainJoin keeps the rows of both sides for the ttl and joins each row that comes with
// those of the other side. In event time two rows match where their times are at most
// the ttl apart and none came when the watermark had left the other behind, whatever
// happens to be kept. A row that is taken back takes its results back; a row that has
// outlived the ttl is forgotten, and its results stay.
//
// A row of a side that comes out unmatched counts its matches: at the first, the result
// without one is taken back, and given out anew when the last is.
type plainJoin struct {
	*joinRun
	tables [2]*joinRows
	ttl    int64 // milliseconds, 0 for ever
	now    int64 // the time by which rows expire, where that is processing time
	// once says that left records that have a match are done with.
	once  bool
	other plainRow // the kept row that is visited
	found []byte
	a, b  []byte // scratch: keys of values that are compared
}

func newPlainJoin(r *joinRun) *plainJoin {
	p := &plainJoin{joinRun: r, ttl: r.config.TTL.millis()}
	p.once = r.config.leftOnly() && r.updating == [2]bool{}
	width := int64(0)
	if p.ttl > 0 {
		width = max(leastBucket, p.ttl/bucketsOf)
	}
	for side := range p.tables {
		p.tables[side] = newJoinRows(r.run.Store.Table(sideNames[side]), width, 0)
	}
	return p
}

// plainRow is a row that comes or is taken back.
type plainRow struct {
	joinRow
	there bool
	time  int64 // that its ttl runs from
	at    int64 // its event time
	reach joinReach
	own   bool // its bounds do not follow from its time
	count uint32
}

// joinResult is a row of the result.
type joinResult struct {
	left, right joinRow
	there       bool
	time        int64
}

// result is the one of a row of a side with one of the other, which may be missing.
func result(side int, one, other joinRow, time int64) joinResult {
	l, rt := ordered(side, one, other)
	return joinResult{left: l, right: rt, there: true, time: time}
}

// Process joins rows, or takes them back.
func (p *plainJoin) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	p.now = p.run.Now().UnixMilli()
	sel = dropKeyedTombstones(&p.run, b, sel)
	at, skip := 0, false
	return p.eachRow(ctx, b, sel, func(row uint16, k state.Key) error {
		at++
		if skip {
			skip = false
			return nil
		}
		x := p.marked(b, row, k)
		switch {
		case replacedNext(b, sel[at-1:]):
			skip = true
			return p.change(ctx, input, k, x, p.marked(b, sel[at], k))
		case x.rec.Op.Retracts():
			return p.change(ctx, input, k, x, joinRow{})
		}
		return p.change(ctx, input, k, joinRow{}, x)
	})
}

// change takes a row back and has another one come, either of which may be missing.
func (p *plainJoin) change(ctx context.Context, side int, k state.Key, old, fresh joinRow) error {
	if nullKey(k) {
		return p.unmatchable(ctx, side, old, fresh)
	}
	var before, after plainRow
	var err error
	if !old.missing() {
		if before, err = p.takeBack(side, k, old); err != nil {
			return err
		}
		if !before.there {
			p.run.Late(1) // it has outlived the ttl
		}
	}
	if !fresh.missing() {
		if after = p.arriving(side, fresh, k); !after.there {
			p.run.Late(1)
		}
	}
	switch {
	case !before.there && !after.there:
		return nil
	case p.config.leftOnly() && side == leftSide:
		err = p.changeLeft(ctx, k, &before, &after)
	case p.config.leftOnly():
		err = p.changeRight(ctx, k, &before, &after)
	default:
		err = p.changePairs(ctx, side, k, &before, &after)
	}
	if err == nil && after.there && !(p.once && side == leftSide && after.count > 0) {
		p.store(side, k, &after)
	}
	return err
}

// unmatchable passes on rows whose key is null, where they come out without a match.
func (p *plainJoin) unmatchable(ctx context.Context, side int, old, fresh joinRow) error {
	if !p.config.outer(side) {
		return nil
	}
	var take, give joinResult
	if !old.missing() {
		take = result(side, old, joinRow{}, old.rec.Time)
	}
	if !fresh.missing() {
		give = result(side, fresh, joinRow{}, fresh.rec.Time)
	}
	return p.emit(ctx, take, give)
}

// emit gives out a change of the result: a row taken back, one that comes, or both as
// an update.
func (p *plainJoin) emit(ctx context.Context, take, give joinResult) error {
	if err := p.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	switch {
	case take.there && give.there:
		if err := p.give(ctx, &take, connectors.UpdateBefore); err != nil {
			return err
		}
		return p.give(ctx, &give, connectors.UpdateAfter)
	case take.there:
		return p.give(ctx, &take, connectors.Delete)
	case give.there:
		return p.give(ctx, &give, connectors.Insert)
	}
	return nil
}

func (p *plainJoin) give(ctx context.Context, r *joinResult, op connectors.Op) error {
	if p.config.leftOnly() {
		return p.leftRecord(ctx, r.left, r.time, op)
	}
	return p.pair(ctx, r.left, r.right, r.time, op)
}

// bounded reports whether event times decide which rows match.
func (p *plainJoin) bounded() bool { return p.ttl > 0 && !p.processing }

// arriving is a row that comes, or none where it is too late.
func (p *plainJoin) arriving(side int, x joinRow, k state.Key) plainRow {
	row := plainRow{joinRow: x, there: true, time: x.rec.Time, at: x.rec.Time}
	switch {
	case p.bounded():
		seen := max(row.time, p.horizon(x.rec, k))
		row.own = seen > row.time
		row.reach = p.reach(side, row.time, seen)
		row.there = seen <= plusTime(plusTime(row.time, p.ttl), p.ttl)
	case p.ttl > 0:
		row.time, row.own = p.now, true
		row.reach.a = row.at
	}
	return row
}

func (p *plainJoin) reach(side int, time, seen int64) joinReach {
	if side == leftSide {
		return joinReach{plusTime(seen, -p.ttl), plusTime(time, p.ttl)}
	}
	return joinReach{time, seen}
}

// entry is a kept row.
func (p *plainJoin) entry(side int, e joinEntry) plainRow {
	row := plainRow{joinRow: e.record(), there: true, time: e.time(), at: e.time(), count: e.count(), own: e.bounded()}
	switch {
	case row.own:
		row.reach.a, row.reach.b = e.bounds()
		if p.processing {
			row.at = row.reach.a
		}
	case p.bounded():
		row.reach = p.reach(side, row.time, row.time)
	}
	return row
}

// meets reports whether a row of a side and a kept one of the other match.
func (p *plainJoin) meets(ctx context.Context, side int, x, e *plainRow, quiet bool) (bool, error) {
	if !x.there {
		return false, nil
	}
	if p.bounded() {
		l, rt := x.reach, e.reach
		if side == rightSide {
			l, rt = rt, l
		}
		if !meet(l, rt) {
			return false, nil
		}
	}
	l, rt := ordered(side, x.joinRow, e.joinRow)
	return p.matches(ctx, l, rt, quiet)
}

// each visits the kept rows of the other side that may match one of two rows, until
// visit says that it is enough. Values are there to be changed where change says so;
// done is called with each once its rows were visited.
func (p *plainJoin) each(side int, k state.Key, before, after *plainRow, change bool,
	visit func(entry joinEntry, e *plainRow) (more bool, err error), done func(ns int64, value []byte) error) error {
	rows := p.tables[1-side]
	for _, ns := range rows.between(p.span(before, after)) {
		value, ok := rows.table.Get(ns, k)
		if ok && change {
			value, _ = rows.table.Upsert(ns, k, len(value))
		}
		for rest := rows.entries(value); len(rest) > 0; {
			entry, tail, err := nextEntry(rest)
			if err != nil {
				return err
			}
			rest = tail
			p.other = p.entry(1-side, entry)
			if p.processing && p.ttl > 0 && plusTime(p.other.time, p.ttl) <= p.now {
				continue
			}
			if more, err := visit(entry, &p.other); err != nil || !more {
				return err
			}
		}
		if ok && done != nil {
			if err := done(ns, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is the times that rows may have which match one of two.
func (p *plainJoin) span(before, after *plainRow) (from, to int64) {
	if !p.bounded() {
		return math.MinInt64, math.MaxInt64
	}
	from, to = math.MaxInt64, math.MinInt64
	for _, row := range [2]*plainRow{before, after} {
		if row.there {
			from = min(from, plusTime(row.time, -p.ttl))
			to = max(to, plusTime(row.time, p.ttl))
		}
	}
	return from, to
}

// changePairs gives out what changes where the result is pairs.
func (p *plainJoin) changePairs(ctx context.Context, side int, k state.Key, before, after *plainRow) error {
	var alone joinResult // the row that is taken back without a match
	if before.there && p.config.outer(side) && before.count == 0 {
		alone = result(side, before.joinRow, joinRow{}, before.at)
	}
	counts := p.config.outer(1 - side)
	err := p.each(side, k, before, after, counts, func(entry joinEntry, e *plainRow) (bool, error) {
		was, err := p.meets(ctx, side, before, e, true)
		if err != nil {
			return false, err
		}
		is, err := p.meets(ctx, side, after, e, false)
		if err != nil || !was && !is {
			return true, err
		}
		var take, give joinResult
		if was {
			take = result(side, before.joinRow, e.joinRow, max(before.at, e.at))
		}
		if is {
			give = result(side, after.joinRow, e.joinRow, max(after.at, e.at))
			after.count++
		}
		switch {
		case was == is:
		case counts && was:
			if entry.setCount(e.count - 1); e.count == 1 {
				give = result(side, joinRow{}, e.joinRow, take.time)
			}
		case counts:
			if entry.setCount(e.count + 1); e.count == 0 {
				take = result(side, joinRow{}, e.joinRow, give.time)
			}
		}
		if !take.there && alone.there {
			take, alone = alone, joinResult{}
		}
		return true, p.emit(ctx, take, give)
	}, nil)
	if err != nil {
		return err
	}
	var give joinResult
	if after.there && p.config.outer(side) && after.count == 0 {
		give = result(side, after.joinRow, joinRow{}, after.at)
	}
	return p.emit(ctx, alone, give)
}

// changeLeft gives out what changes for left rows of a semi or anti join.
func (p *plainJoin) changeLeft(ctx context.Context, k state.Key, before, after *plainRow) error {
	if after.there {
		err := p.each(leftSide, k, &plainRow{}, after, false, func(_ joinEntry, e *plainRow) (bool, error) {
			ok, err := p.meets(ctx, leftSide, after, e, false)
			if ok {
				after.count++
			}
			// How many they are counts only where they can be taken back.
			return !ok || p.updating[rightSide], err
		}, nil)
		if err != nil {
			return err
		}
	}
	var take, give joinResult
	if before.there && p.shown(before.count) {
		take = result(leftSide, before.joinRow, joinRow{}, before.at)
	}
	if after.there && p.shown(after.count) {
		give = result(leftSide, after.joinRow, joinRow{}, after.at)
	}
	return p.emit(ctx, take, give)
}

// shown reports whether a left record with that many matches is in the result of a
// semi or anti join.
func (p *plainJoin) shown(count uint32) bool { return count > 0 == (p.config.Type == joinSemi) }

// changeRight gives out which left records a right row brings into the result of a
// semi or anti join, or out of it.
func (p *plainJoin) changeRight(ctx context.Context, k state.Key, before, after *plainRow) error {
	rows, hit := p.tables[leftSide], false
	return p.each(rightSide, k, before, after, true, func(entry joinEntry, e *plainRow) (bool, error) {
		was, err := p.meets(ctx, rightSide, before, e, true)
		if err != nil {
			return false, err
		}
		is, err := p.meets(ctx, rightSide, after, e, false)
		if err != nil || was == is {
			return true, err
		}
		count, at := e.count+1, max(e.at, after.at)
		if was {
			count, at = e.count-1, max(e.at, before.at)
		}
		entry.setCount(count)
		hit = true
		var take, give joinResult
		if p.shown(e.count) && !p.shown(count) {
			take = result(leftSide, e.joinRow, joinRow{}, at)
		}
		if !p.shown(e.count) && p.shown(count) {
			give = result(leftSide, e.joinRow, joinRow{}, at)
		}
		return true, p.emit(ctx, take, give)
	}, func(ns int64, value []byte) error {
		if !hit || !p.once {
			return nil
		}
		hit = false
		return rows.compact(ns, k, value, func(e joinEntry) bool { return e.count() > 0 })
	})
}

// store keeps a row.
func (p *plainJoin) store(side int, k state.Key, x *plainRow) {
	rows := p.tables[side]
	ns := rows.bucket(x.time)
	var bounds *[2]int64
	if x.own {
		bounds = &[2]int64{x.reach.a, x.reach.b}
	}
	if p.bounded() && plusTime(x.time, p.ttl) < p.run.Watermark(k.Group) {
		return
	}
	p.kept = appendEntry(p.kept[:0], x.count, x.time, bounds, x.mark)
	p.kept = p.encode(p.kept, side, x.joinRow)
	seal(p.kept, 0)
	rows.table.Append(ns, k, p.kept)
	rows.open(ns)
}

// Watermark forgets what has outlived the ttl in event time.
func (p *plainJoin) Watermark(_ context.Context, wm int64) error {
	if p.bounded() {
		p.expire(wm)
	}
	return nil
}

// Tick forgets what has outlived the ttl in processing time.
func (p *plainJoin) Tick(_ context.Context, now time.Time) error {
	if p.processing {
		p.expire(now.UnixMilli())
	}
	return nil
}

func (p *plainJoin) expire(now int64) {
	for _, rows := range p.tables {
		rows.expire(now, p.ttl)
	}
}
