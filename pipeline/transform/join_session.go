package transform

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// sessionJoin joins the records of the same session: those of both sides with a key
// make its sessions together. When a session is over, when a record is late, and where
// one that is too long is cut is as for the sessions of an aggregate.
//
// In the table of spans a key has the time that its timer is set to and then, in
// order of time, start and end of each part of a session.
type sessionJoin struct {
	*joinRun
	tables  [2]*joinRows
	spans   state.Table
	timers  *state.Timers
	slice   int64 // 0 where sessions may be of any length
	now     int64
	value   []byte
	matcher windowMatcher
	right   []byte
}

// spanSize is the length of a part in the table of spans.
const spanSize = 16

func newSessionJoin(r *joinRun) *sessionJoin {
	j := &sessionJoin{joinRun: r, spans: r.run.Store.Table("spans"), timers: state.NewTimers(r.run.Store.Table("timers")), now: math.MinInt64}
	for side := range j.tables {
		j.tables[side] = newJoinRows(r.run.Store.Table(sideNames[side]), 0, 0)
	}
	if longest := r.config.Window.Max; longest > 0 {
		j.slice = max(1, longest/sessionSlices)
	}
	j.matcher.joinRun = r
	return j
}

// Process keeps rows until their sessions are over.
func (j *sessionJoin) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	j.now = max(j.now, j.run.Now().UnixMilli())
	return j.eachRow(ctx, b, sel, func(row uint16, k state.Key) error {
		rec := &b.Records[row]
		t := j.now
		if !j.processing {
			if t = window.Clamp(rec.Time); t < j.horizon(rec, k) {
				j.run.Late(1)
				return nil
			}
		}
		if nullKey(k) && !j.config.outer(input) {
			return nil
		}
		j.kept = appendEntry(j.kept[:0], 0, t, nil, connectors.NoMark)
		j.kept = j.encode(j.kept, input, batchRow(b, row))
		seal(j.kept, 0)
		j.tables[input].table.Append(0, k, j.kept)
		j.span(k, t)
		return nil
	})
}

// span makes a time part of the sessions of a key.
func (j *sessionJoin) span(k state.Key, t int64) {
	gap := j.config.Window.Gap
	old, _ := j.spans.Get(0, k)
	at, n := j.touching(old, t)
	if n == 1 && get64(old, at) <= t && get64(old, at+8) >= t+gap {
		return
	}
	j.value = append(j.value[:0], old...)
	if len(j.value) == 0 {
		j.value = append(j.value, make([]byte, sessionHead)...)
		put64(j.value, 0, math.MaxInt64)
	}
	switch n {
	case 0:
		j.value = slices.Insert(j.value, at, make([]byte, spanSize)...)
		put64(j.value, at, t)
		put64(j.value, at+8, t+gap)
	default:
		put64(j.value, at, min(get64(j.value, at), t))
		put64(j.value, at+8, max(get64(j.value, at+spanSize*(n-1)+8), t+gap))
		j.value = slices.Delete(j.value, at+spanSize, at+spanSize*n)
	}
	_, _, _, due := j.piece(j.value)
	armed := due < get64(j.value, 0)
	if armed {
		put64(j.value, 0, due)
	}
	j.spans.Put(0, k, j.value)
	if armed {
		j.timers.Set(due, k, nil)
	}
}

// touching finds the parts that a time belongs to: the first, and how many, two at
// most; where there are none, the place for a new one.
func (j *sessionJoin) touching(value []byte, t int64) (at, n int) {
	at = sessionHead
	for i := sessionHead; i < len(value); i += spanSize {
		start, end := get64(value, i), get64(value, i+8)
		switch {
		case start > t+j.config.Window.Gap:
			return at, n
		case end >= t && j.sliceOf(start) == j.sliceOf(t):
			if n == 0 {
				at = i
			}
			n++
		case n == 0 && start <= t:
			at = i + spanSize
		}
	}
	return at, n
}

func (j *sessionJoin) sliceOf(t int64) int64 {
	if j.slice == 0 {
		return 0
	}
	return window.FloorDiv(t, j.slice)
}

// piece is the first session of a value: the length of its parts, its window, and the
// watermark at which it is over.
func (j *sessionJoin) piece(value []byte) (length int, start, end, due int64) {
	start, end, length = get64(value, sessionHead), get64(value, sessionHead+8), spanSize
	for at := sessionHead + length; at < len(value) && get64(value, at) <= end; at += spanSize {
		end = max(end, get64(value, at+8))
		length += spanSize
	}
	longest := j.config.Window.Max
	if j.slice == 0 || end-start <= longest {
		return length, start, end, end + 1
	}
	cut := j.sliceOf(start+longest) * j.slice
	length, end = 0, 0
	for at := sessionHead; at < len(value) && get64(value, at) < cut; at += spanSize {
		end = min(get64(value, at+8), cut)
		length += spanSize
	}
	return length, start, end, cut
}

// Watermark closes sessions by event time.
func (j *sessionJoin) Watermark(ctx context.Context, wm int64) error {
	if j.processing && wm != state.MaxTime {
		return nil
	}
	return j.wrap(j.advance(ctx, wm))
}

// Tick closes sessions by processing time.
func (j *sessionJoin) Tick(ctx context.Context, now time.Time) error {
	if !j.processing {
		return nil
	}
	return j.wrap(j.advance(ctx, max(j.now, now.UnixMilli())))
}

func (j *sessionJoin) advance(ctx context.Context, now int64) error {
	err := j.timers.Due(now, func(at int64, k state.Key, _ []byte) error { return j.fire(ctx, at, k) })
	if err != nil {
		return err
	}
	return j.rows.Flush(ctx)
}

// fire gives out the sessions of a key that are over.
func (j *sessionJoin) fire(ctx context.Context, at int64, k state.Key) error {
	value, ok := j.spans.Get(0, k)
	if !ok || len(value) < sessionHead || get64(value, 0) != at {
		return nil // an earlier end than the session has by now
	}
	j.value = append(j.value[:0], value...)
	for len(j.value) > sessionHead {
		length, start, end, due := j.piece(j.value)
		if due > at {
			put64(j.value, 0, due)
			j.spans.Put(0, k, j.value)
			j.timers.Set(due, k, nil)
			return nil
		}
		if err := j.close(ctx, k, start, end); err != nil {
			return err
		}
		j.value = slices.Delete(j.value, sessionHead, sessionHead+length)
	}
	j.spans.Delete(0, k)
	return nil
}

// close gives out the results of a session and forgets its rows.
func (j *sessionJoin) close(ctx context.Context, k state.Key, start, end int64) (err error) {
	j.window = [2]int64{start, end}
	if j.matcher.left, err = j.take(j.matcher.left[:0], leftSide, k, start, end); err != nil {
		return err
	}
	if j.right, err = j.take(j.right[:0], rightSide, k, start, end); err != nil {
		return err
	}
	if !nullKey(k) {
		return j.matcher.key(ctx, j.right, end-1)
	}
	if err := j.matcher.key(ctx, nil, end-1); err != nil {
		return err
	}
	j.matcher.left = j.matcher.left[:0]
	return j.matcher.key(ctx, j.right, end-1)
}

// take takes the rows of a session out of those that are kept, as the matcher wants
// them.
func (j *sessionJoin) take(dst []byte, side int, k state.Key, start, end int64) ([]byte, error) {
	value, ok := j.tables[side].change(0, k)
	if !ok {
		return dst, nil
	}
	err := j.tables[side].compact(0, k, value, func(e joinEntry) bool {
		if t := e.time(); t < start || t >= end {
			return false
		}
		dst = appendBytes(dst, e.record().kept)
		return true
	})
	return dst, err
}
