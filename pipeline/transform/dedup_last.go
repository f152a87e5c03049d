package transform

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// dedupLast keeps the last record of each key by event time. Of a key it keeps its
// spans, see lastSpan: one as a rule, several where records came out of order by more
// than within.
type dedupLast struct {
	dedupRun
	dirty  state.Table // keys that changed since changes were given out, with emit every
	stored *storedRows
	out    *Rows
	pace   pace
	spans  []lastSpan // of the key that is being handled
	value  []byte     // what they borrow from
	row    []byte     // the record that is being handled
	buf    []byte
}

// lastSpan is the last of the records that repeat a first one. It is kept as the time
// of the first as a varint, a byte that says what was given out, that record with its
// length where it is another one, and the last record with its length. The form is part
// of checkpoints.
type lastSpan struct {
	first int64
	given []byte // nil for nothing; with emit every only
	last  []byte
}

// What of a span was given out.
const (
	givenNothing = iota
	givenLast
	givenOther
)

func newDedupLast(r dedupRun) *dedupLast {
	l := &dedupLast{dedupRun: r, stored: newStoredRows(r.slots)}
	l.out = NewRows(&l.run.RunEnv, 0, r.stride())
	if r.emit.Mode == EmitEvery {
		l.dirty, l.pace.every = r.run.Store.Table("dirty"), r.emit.Every
	}
	return l
}

// Process keeps last records.
func (r *dedupLast) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	now := r.run.Now().UnixMilli()
	for _, row := range r.keyed(b, sel) {
		k := RowKey(b, row, r.run.Groups)
		at, late := r.at(&b.Records[row], k, now)
		if late {
			r.run.Late(1)
			continue
		}
		if err := r.take(ctx, b, row, k, at); err != nil {
			return err
		}
	}
	return r.out.Flush(ctx)
}

// take keeps a record where it is the newest of those that it repeats.
func (r *dedupLast) take(ctx context.Context, b *connectors.Batch, row uint16, k state.Key, at int64) error {
	if err := r.read(k); err != nil {
		return err
	}
	r.row = r.stored.append(r.row[:0], &b.Records[row], b.Row(int(row)))
	i := slices.IndexFunc(r.spans, func(s lastSpan) bool { return r.repeats(at, s.first) })
	var before []byte
	if i < 0 {
		i = len(r.spans)
		r.spans = append(r.spans, lastSpan{first: at})
		r.expire(k, at)
	} else {
		before = r.spans[i].last
		old, err := r.stored.record(before)
		if err != nil {
			return r.corrupt()
		}
		if !newer(&b.Records[row], r.row, &old, before) {
			r.run.Dropped(1)
			return nil
		}
	}
	r.spans[i].last = r.row
	if r.dirty != nil {
		r.dirty.Put(0, k, nil)
	}
	r.write(k)
	if r.emit.Mode != EmitOnChange {
		return nil
	}
	return r.change(ctx, before, r.row)
}

// newer reports whether a record comes after another in event time; where that is the
// same, by topic, partition and offset, of which the later comer is the newer; and by
// its stored form where there is none, so that it hangs on no order of arrival.
func newer(a *connectors.Record, storedA []byte, b *connectors.Record, storedB []byte) bool {
	if a.Time != b.Time {
		return a.Time > b.Time
	}
	if a.Origin == nil || b.Origin == nil {
		return bytes.Compare(storedA, storedB) >= 0
	}
	return comparePlaces(a, b) >= 0
}

// read reads the spans of a key.
func (r *dedupLast) read(k state.Key) error {
	v, _ := r.kept.Get(0, k)
	r.value, r.spans = append(r.value[:0], v...), r.spans[:0]
	for c := (state.Reader{Rest: r.value}); len(c.Rest) > 0; {
		s := lastSpan{first: c.Varint()}
		given := c.Byte()
		if given == givenOther {
			s.given = c.Bytes()
		}
		s.last = c.Bytes()
		if given == givenLast {
			s.given = s.last
		}
		if c.Bad {
			return r.corrupt()
		}
		r.spans = append(r.spans, s)
	}
	return nil
}

// write keeps the spans of a key.
func (r *dedupLast) write(k state.Key) {
	r.buf = r.buf[:0]
	for _, s := range r.spans {
		r.buf = binary.AppendVarint(r.buf, s.first)
		switch {
		case s.given == nil:
			r.buf = append(r.buf, givenNothing)
		case bytes.Equal(s.given, s.last):
			r.buf = append(r.buf, givenLast)
		default:
			r.buf = appendBytes(append(r.buf, givenOther), s.given)
		}
		r.buf = appendBytes(r.buf, s.last)
	}
	if len(r.buf) == 0 {
		r.kept.Delete(0, k)
	} else {
		r.kept.Put(0, k, r.buf)
	}
}

// change gives a record out, in place of the old one where there is one.
func (r *dedupLast) change(ctx context.Context, old, row []byte) error {
	if old == nil {
		return r.give(ctx, row, connectors.Insert)
	}
	if err := r.out.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := r.give(ctx, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return r.give(ctx, row, connectors.UpdateAfter)
}

func (r *dedupLast) give(ctx context.Context, row []byte, op connectors.Op) error {
	if err := r.out.Reserve(ctx, 1); err != nil {
		return err
	}
	if _, _, err := r.stored.add(r.out, row, op); err != nil {
		return r.corrupt()
	}
	return nil
}

// settle gives out what of a span was not given out yet.
func (r *dedupLast) settle(ctx context.Context, s *lastSpan) error {
	if s.given != nil && bytes.Equal(s.given, s.last) {
		return nil
	}
	given := s.given
	s.given = s.last
	return r.change(ctx, given, s.last)
}

// over ends the spans of a key that time has passed.
func (r *dedupLast) over(ctx context.Context, at int64, k state.Key) error {
	if err := r.read(k); err != nil || len(r.spans) == 0 {
		return err
	}
	n := 0
	for i := range r.spans {
		s := &r.spans[i]
		if plusTime(s.first, r.within) > at {
			r.spans[n] = *s
			n++
			continue
		}
		if r.emit.Mode == EmitOnChange {
			continue
		}
		if err := r.settle(ctx, s); err != nil {
			return err
		}
	}
	r.spans = r.spans[:n]
	r.write(k)
	if n == 0 && r.dirty != nil {
		r.dirty.Delete(0, k)
	}
	return nil
}

// fire ends the spans that are over.
func (r *dedupLast) fire(ctx context.Context, now int64) error {
	if err := r.timers.Due(now, func(at int64, k state.Key, _ []byte) error { return r.over(ctx, at, k) }); err != nil {
		return err
	}
	return r.out.Flush(ctx)
}

// Watermark ends what event time has passed; at the end of the input, everything.
func (r *dedupLast) Watermark(ctx context.Context, wm int64) error {
	if wm == state.MaxTime {
		if err := r.finish(ctx); err != nil {
			return err
		}
	}
	if r.event || wm == state.MaxTime {
		return r.fire(ctx, wm)
	}
	return nil
}

// finish gives out what has no time that could pass.
func (r *dedupLast) finish(ctx context.Context) error {
	if r.emit.Mode == EmitEvery {
		return r.gathered(ctx)
	}
	if r.emit.Mode != EmitOnClose || r.within > 0 {
		return nil
	}
	var failed error
	r.kept.Scan(0, func(k state.Key, v []byte) bool {
		c := state.Reader{Rest: v}
		c.Varint()
		c.Byte()
		if failed = r.give(ctx, c.Bytes(), connectors.Insert); c.Bad {
			failed = r.corrupt()
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.kept.Drop(0)
	return r.out.Flush(ctx)
}

// gathered gives out the changes since the last time.
func (r *dedupLast) gathered(ctx context.Context) error {
	var failed error
	var key []byte
	r.dirty.Scan(0, func(k state.Key, _ []byte) bool {
		k = ownKey(k, &key)
		if failed = r.read(k); failed != nil {
			return false
		}
		for i := range r.spans {
			if failed = r.settle(ctx, &r.spans[i]); failed != nil {
				return false
			}
		}
		r.write(k)
		return true
	})
	if failed != nil {
		return failed
	}
	r.dirty.Drop(0)
	return r.out.Flush(ctx)
}

// Tick ends what processing time has passed, and gives gathered changes out.
func (r *dedupLast) Tick(ctx context.Context, now time.Time) error {
	if r.emit.Mode == EmitEvery && r.pace.due(now) {
		if err := r.gathered(ctx); err != nil {
			return err
		}
	}
	if r.event {
		return nil
	}
	return r.fire(ctx, now.UnixMilli())
}
