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

// aggregateSession aggregates by sessions. The value of a key holds the time that
// its timer is set to and then, in order of time, its sessions: start, end, anchor,
// and the states of fixed size. The anchor is a time within the session that stays
// when its ends move: the namespace of its states in the other tables.
//
// A session takes all records up to its end, that time included, so it is over once
// the watermark, less the lateness, is beyond its end. A record is late when it is
// older than that: then no record that is not late belongs to a session that is over,
// and what comes out does not hang on when the watermark came.
//
// Where sessions have a longest length, no part that is kept crosses a multiple of
// slice, so that a session that is too long can be cut there, wherever its start
// turns out to be.
type aggregateSession struct {
	*aggregateRun
	timers *state.Timers
	slice  int64 // 0 where sessions may be of any length
	entry  int   // length of one part
	now    int64
	value  []byte
}

// sessionSlices is how many slices the longest session is cut into.
const sessionSlices = 8

// What comes before the parts of a value, and in a part before the states.
const (
	sessionHead   = 8
	sessionStart  = 0
	sessionEnd    = 8
	sessionAnchor = 16
	sessionStates = 24
)

func newAggregateSession(s *aggregate, run KeyedRun) *aggregateSession {
	r := &aggregateSession{aggregateRun: newAggregateRun(s, run), entry: sessionStates + s.size, now: math.MinInt64}
	r.timers = state.NewTimers(run.Store.Table("timers"))
	if s.window.Max > 0 {
		r.slice = max(1, s.window.Max/sessionSlices)
	}
	return r
}

// Process implements KeyedInstance.
func (r *aggregateSession) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	r.now = max(r.now, r.processingTime())
	for _, row := range sel {
		rec := &b.Records[row]
		t := window.Clamp(r.rowTime(rec, r.now))
		k := RowKey(b, row, r.run.Groups)
		if !r.window.Processing && t+r.lateness < max(rec.Mark, r.run.Watermark(k.Group)) {
			r.late = append(r.late, row)
			continue
		}
		if err := r.count(b, row, t, k); err != nil {
			return err
		}
	}
	return r.report(ctx, b)
}

func get64(b []byte, at int) int64    { return int64(binary.LittleEndian.Uint64(b[at:])) }
func put64(b []byte, at int, v int64) { binary.LittleEndian.PutUint64(b[at:], uint64(v)) }

// count adds a row to the session that its time is in or next to, and joins the two
// that it closes the gap between.
func (r *aggregateSession) count(b *connectors.Batch, row uint16, t int64, k state.Key) error {
	old, _ := r.table.Get(0, k)
	at, n := r.touching(old, t)
	if n == 1 && len(r.loose) == 0 {
		// The common case: in place.
		value, _ := r.table.Upsert(0, k, len(old))
		if part := value[at : at+r.entry]; r.add(part[sessionStates:], b, row, false) {
			r.extend(part, t)
			if r.slice > 0 {
				r.arm(k, value)
			}
		}
		return nil
	}
	r.value = append(r.value[:0], old...)
	if len(r.value) == 0 {
		r.value = append(r.value, make([]byte, sessionHead)...)
		put64(r.value, 0, math.MaxInt64)
	}
	if n == 0 {
		r.value = slices.Insert(r.value, at, make([]byte, r.entry)...)
		part := r.value[at : at+r.entry]
		put64(part, sessionStart, t)
		put64(part, sessionEnd, t+r.window.Gap)
		put64(part, sessionAnchor, t)
	}
	part := r.value[at : at+r.entry]
	anchor := get64(part, sessionAnchor)
	most := copied
	if n == 2 {
		most = math.MaxInt
	}
	if !r.prepare(anchor, k, b, row, false, most) || !r.add(part[sessionStates:], b, row, false) {
		return nil
	}
	r.extend(part, t)
	if n == 2 {
		refused, err := r.absorb(part, r.value[at+r.entry:at+2*r.entry], k)
		if refused != nil {
			r.faults = append(r.faults, aggregateFault{row, "", refused})
		}
		if refused != nil || err != nil {
			return err
		}
		r.clearLoose(get64(r.value, at+r.entry+sessionAnchor), k)
		r.value = slices.Delete(r.value, at+r.entry, at+2*r.entry)
	}
	if !r.store(anchor, k, b, row, false) {
		return nil
	}
	r.arm(k, r.value)
	r.table.Put(0, k, r.value)
	return nil
}

// touching finds the parts, two at most, that a record of time t belongs to: the
// first, and how many; where there are none, the place for a new one.
func (r *aggregateSession) touching(value []byte, t int64) (at, n int) {
	at = sessionHead
	for i := sessionHead; i < len(value); i += r.entry {
		start := get64(value, i+sessionStart)
		switch {
		case start > t+r.window.Gap:
			return at, n
		case get64(value, i+sessionEnd) >= t && r.sliceOf(start) == r.sliceOf(t):
			if n == 0 {
				at = i
			}
			n++
		case n == 0 && start <= t:
			at = i + r.entry
		}
	}
	return at, n
}

// sliceOf numbers the slice that a time is in.
func (r *aggregateSession) sliceOf(t int64) int64 {
	if r.slice == 0 {
		return 0
	}
	return window.FloorDiv(t, r.slice)
}

func (r *aggregateSession) extend(part []byte, t int64) {
	put64(part, sessionStart, min(get64(part, sessionStart), t))
	put64(part, sessionEnd, max(get64(part, sessionEnd), t+r.window.Gap))
}

// absorb makes other, a part behind it, part of part. The loose states of part are in
// news; those of other stay where they are.
func (r *aggregateSession) absorb(part, other []byte, k state.Key) (refused, failed error) {
	ns := get64(other, sessionAnchor)
	for j := range r.loose {
		more, _ := r.tables[j].Get(ns, k)
		if refused, failed = r.mergeLoose(j, more); refused != nil || failed != nil {
			return refused, failed
		}
	}
	put64(part, sessionEnd, max(get64(part, sessionEnd), get64(other, sessionEnd)))
	return nil, r.merge(part[sessionStates:], other[sessionStates:])
}

// piece is the first session of a value: the length of its parts, its window, and the
// watermark at which it is over.
func (r *aggregateSession) piece(value []byte) (length int, start, end, due int64) {
	start, end = get64(value, sessionHead+sessionStart), get64(value, sessionHead+sessionEnd)
	length = r.entry
	for at := sessionHead + length; at < len(value) && get64(value, at+sessionStart) <= end; at += r.entry {
		end = max(end, get64(value, at+sessionEnd))
		length += r.entry
	}
	if r.slice == 0 || end-start <= r.window.Max {
		return length, start, end, end + r.lateness + 1
	}
	cut := r.sliceOf(start+r.window.Max) * r.slice
	length, end = 0, 0
	for at := sessionHead; at < len(value) && get64(value, at+sessionStart) < cut; at += r.entry {
		end = min(get64(value, at+sessionEnd), cut)
		length += r.entry
	}
	return length, start, end, cut + r.lateness
}

// arm sets the timer of a key where its first session is over before the one that is
// set. value is written to first, and not valid afterwards where it is borrowed.
func (r *aggregateSession) arm(k state.Key, value []byte) {
	_, _, _, due := r.piece(value)
	if due < get64(value, 0) {
		put64(value, 0, due)
		r.timers.Set(due, k, nil)
	}
}

// Watermark implements KeyedInstance.
func (r *aggregateSession) Watermark(ctx context.Context, wm int64) error {
	if r.window.Processing && wm != state.MaxTime {
		return nil
	}
	return r.close(ctx, wm)
}

// Tick implements KeyedInstance.
func (r *aggregateSession) Tick(ctx context.Context, now time.Time) error {
	if !r.window.Processing {
		return nil
	}
	r.now = max(r.now, now.UnixMilli())
	return r.close(ctx, r.now)
}

// Barrier implements KeyedInstance.
func (r *aggregateSession) Barrier(context.Context) error { return nil }

func (r *aggregateSession) close(ctx context.Context, wm int64) error {
	err := r.timers.Due(wm, func(at int64, k state.Key, _ []byte) error { return r.fire(ctx, at, k) })
	if err != nil {
		return err
	}
	return r.out.flush(ctx)
}

// fire gives out the sessions of a key that are over, and sets its timer to the next.
func (r *aggregateSession) fire(ctx context.Context, at int64, k state.Key) error {
	value, ok := r.table.Get(0, k)
	if !ok || get64(value, 0) != at {
		return nil // an earlier end than the session has by now
	}
	r.value = append(r.value[:0], value...)
	for len(r.value) > sessionHead {
		length, start, end, due := r.piece(r.value)
		if due > at {
			put64(r.value, 0, due)
			r.table.Put(0, k, r.value)
			r.timers.Set(due, k, nil)
			return nil
		}
		if err := r.give(ctx, k, r.value[sessionHead:sessionHead+length], start, end); err != nil {
			return err
		}
		r.value = slices.Delete(r.value, sessionHead, sessionHead+length)
	}
	r.table.Delete(0, k)
	return nil
}

// give gives out a session that consists of parts.
func (r *aggregateSession) give(ctx context.Context, k state.Key, parts []byte, start, end int64) error {
	if r.out.full(1) {
		if err := r.out.flush(ctx); err != nil {
			return err
		}
	}
	n := r.out.add(end - 1)
	if err := r.head(n, k, start, end); err != nil {
		return err
	}
	first, ns := parts[:r.entry], get64(parts, sessionAnchor)
	if len(parts) > r.entry {
		if err := r.combine(n, parts, k); err != nil {
			return err
		}
	}
	r.results(n, first[sessionStates:], ns, k)
	for at := 0; at < len(parts); at += r.entry {
		r.clearLoose(get64(parts, at+sessionAnchor), k)
	}
	return nil
}

// combine makes all parts of a session its first.
func (r *aggregateSession) combine(n uint16, parts []byte, k state.Key) error {
	first, ns := parts[:r.entry], get64(parts, sessionAnchor)
	for j, t := range r.tables {
		value, _ := t.Get(ns, k)
		r.news[j] = append(r.news[j][:0], value...)
	}
	for at := r.entry; at < len(parts); at += r.entry {
		refused, err := r.absorb(first, parts[at:at+r.entry], k)
		if err != nil {
			return err
		}
		if refused != nil {
			r.out.refuse(n, "", refused)
			return nil
		}
	}
	for j, t := range r.tables {
		t.Put(ns, k, r.news[j])
	}
	return nil
}
