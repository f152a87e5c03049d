package transform

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// joinRun is what the forms of a join have in common at work.
type joinRun struct {
	*joinStep
	run    KeyedRun
	rows   *Rows
	stored *storedRows // of left records, where they are kept whole
	cause  *connectors.Batch
	row    uint16   // of cause, which is being handled
	window [2]int64 // the bounds of the window that is given out
	key    []byte   // scratch: a key of our own
	kept   []byte   // scratch: a record being encoded
}

func newJoinRun(s *joinStep, run KeyedRun) *joinRun {
	r := &joinRun{joinStep: s, run: run}
	r.rows = NewRows(&r.run.RunEnv, 0, s.out.stride())
	r.stored = newStoredRows(s.sides[leftSide].slots)
	r.stored.passing = s.sides[leftSide].passing
	return r
}

// joinRow is the record of one side of a result: one of a batch, or a kept one. The
// zero joinRow stands for none.
type joinRow struct {
	rec   *connectors.Record
	slots []connectors.Value
	kept  []byte
	// mark is how far event time had come before the record, where it was late; NoMark
	// where it was not, so that no result can be late by it.
	mark int64
}

func batchRow(b *connectors.Batch, row uint16) joinRow {
	return joinRow{rec: &b.Records[row], slots: b.Row(int(row)), mark: connectors.NoMark}
}

func (x joinRow) missing() bool { return x.rec == nil && x.kept == nil }

// eachRow hands the rows of a batch that can be joined to do, one by one.
func (r *joinRun) eachRow(ctx context.Context, b *connectors.Batch, sel []uint16, do func(row uint16, k state.Key) error) error {
	if r.tombstone < 0 {
		sel = dropKeyedTombstones(&r.run, b, sel)
	}
	r.cause = b
	defer func() { r.cause = nil }()
	for _, row := range sel {
		r.row = row
		if err := do(row, RowKey(b, row, r.run.Groups)); err != nil {
			return r.wrap(err)
		}
	}
	return r.wrap(r.rows.Flush(ctx))
}

// wrap says whose state it is that cannot be read.
func (r *joinRun) wrap(err error) error {
	if errors.Is(err, state.ErrCorrupt) {
		return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, err))
	}
	return err
}

// nullKey reports whether a part of a key is null, so that it equals nothing.
func nullKey(k state.Key) bool {
	for rest := k.Bytes; len(rest) > 0; {
		v, tail, err := state.ReadKey(rest)
		if err != nil || v.IsNull() {
			return true
		}
		rest = tail
	}
	return false
}

// horizon is what lies before has come as far as is known where a row stands.
func (r *joinRun) horizon(rec *connectors.Record, k state.Key) int64 {
	return max(rec.Mark, r.run.Watermark(k.Group))
}

// marked is a row of a batch with its mark.
func (r *joinRun) marked(b *connectors.Batch, row uint16, k state.Key) joinRow {
	x := batchRow(b, row)
	if seen := r.horizon(x.rec, k); seen > x.rec.Time {
		x.mark = seen
	}
	return x
}

// resultMark is the Mark of what two records make, of which one may be missing: the
// later of their marks. Either record can be the one that comes last and makes the
// result, which by then is as late as that one; which of them does so hangs on how
// partitions are mixed, and the later mark is not before either. So what comes next
// calls the same results late in every mix, and never by its own watermark alone.
func resultMark(l, rt joinRow) int64 {
	mark := int64(connectors.NoMark)
	for _, x := range [2]joinRow{l, rt} {
		if !x.missing() {
			mark = max(mark, x.mark)
		}
	}
	return mark
}

// encode appends what is kept of a record to dst.
func (r *joinRun) encode(dst []byte, side int, x joinRow) []byte {
	s := &r.sides[side]
	if s.whole {
		return r.stored.append(dst, x.rec, x.slots)
	}
	for _, slot := range s.slots {
		dst = state.AppendValue(dst, x.slots[slot])
	}
	return dst
}

// fill puts the values of a record into the slots of a result.
func (r *joinRun) fill(at []connectors.Value, side int, x joinRow) error {
	s := &r.sides[side]
	if x.rec != nil {
		for _, slot := range s.slots {
			at[slot] = x.slots[slot]
		}
		return nil
	}
	kept := r.rows.Arena().Copy(x.kept)
	if s.whole {
		if _, err := r.stored.record(kept); err != nil {
			return state.ErrCorrupt
		}
		for i, slot := range s.slots {
			at[slot] = r.stored.values[i]
		}
		return nil
	}
	for _, slot := range s.slots {
		v, rest, err := state.ReadValue(kept)
		if err != nil {
			return state.ErrCorrupt
		}
		at[slot], kept = v, rest
	}
	return nil
}

// add adds the row of a result, without what is computed.
func (r *joinRun) add(ctx context.Context, l, rt joinRow, time int64, op connectors.Op) error {
	at, err := r.rows.Add(ctx, time, op)
	if err != nil {
		return err
	}
	r.rows.Batch().Records[r.last()].Mark = resultMark(l, rt)
	for i, slot := range r.bounds {
		if slot >= 0 {
			at[slot] = connectors.IntValue(r.window[i])
		}
	}
	for side, x := range [2]joinRow{l, rt} {
		if x.missing() {
			continue
		}
		if err := r.fill(at, side, x); err != nil {
			return err
		}
	}
	return nil
}

// last is the index of the row that was added last.
func (r *joinRun) last() int { return len(r.rows.Batch().Records) - 1 }

// matches reports whether two records with equal keys fulfil what else must hold.
// Where that has no value they do not; quiet says that it was reported before.
func (r *joinRun) matches(ctx context.Context, l, rt joinRow, quiet bool) (bool, error) {
	if r.rest == nil {
		return true, nil
	}
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return false, err
	}
	mark := r.rows.Arena().Mark()
	if err := r.add(ctx, l, rt, 0, connectors.Insert); err != nil {
		return false, err
	}
	ok, err := r.holds(ctx, quiet)
	r.rows.Drop(1)
	r.rows.Arena().Rewind(mark)
	return ok, err
}

// holds evaluates the condition for the row that was added last.
func (r *joinRun) holds(ctx context.Context, quiet bool) (bool, error) {
	v, fault := r.rest.Eval(r.run.Exprs, r.rows.Batch(), r.last())
	if fault == nil {
		return v.Bool(), nil
	}
	if quiet {
		return false, nil
	}
	return false, r.fail(ctx, r.config.On.Text, fault)
}

// pair gives out a result of two records, of which one may be missing.
func (r *joinRun) pair(ctx context.Context, l, rt joinRow, time int64, op connectors.Op) error {
	if err := r.add(ctx, l, rt, time, op); err != nil {
		return err
	}
	return r.compute(ctx, op)
}

// matched is matches and pair in one.
func (r *joinRun) matched(ctx context.Context, l, rt joinRow, time int64) (bool, error) {
	if r.rest == nil {
		return true, r.pair(ctx, l, rt, time, connectors.Insert)
	}
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return false, err
	}
	mark := r.rows.Arena().Mark()
	if err := r.add(ctx, l, rt, time, connectors.Insert); err != nil {
		return false, err
	}
	ok, err := r.holds(ctx, false)
	if err != nil || !ok {
		r.rows.Drop(1)
		r.rows.Arena().Rewind(mark)
		return false, err
	}
	return true, r.compute(ctx, connectors.Insert)
}

// compute evaluates the fields of the row that was added last, and takes it back
// where one has no value.
func (r *joinRun) compute(ctx context.Context, op connectors.Op) error {
	row := r.last()
	for i := range r.out.selects {
		a := &r.out.selects[i]
		b := r.rows.Batch()
		v, fault := a.prog.Eval(r.run.Exprs, b, row)
		if fault == nil {
			b.Row(row)[a.slot] = v
			continue
		}
		var err error
		if !op.Retracts() {
			err = r.fail(ctx, a.text, fault)
		}
		r.rows.Drop(1)
		return err
	}
	return nil
}

// fail hands the row that is being handled to on_error, or the result where there is
// no such row.
func (r *joinRun) fail(ctx context.Context, text string, fault *expr.EvalError) error {
	b, row := r.cause, r.row
	if b == nil {
		b, row = r.rows.Batch(), uint16(r.last())
	}
	return r.run.Fail(ctx, b, row, failure(r.name, text, b, row, fault))
}

// leftRecord gives a left record out as it is but for its time and its mark.
func (r *joinRun) leftRecord(ctx context.Context, x joinRow, time int64, op connectors.Op) error {
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	s := &r.sides[leftSide]
	var rec connectors.Record
	if x.rec != nil {
		rec = *x.rec
	} else {
		var err error
		if rec, err = r.stored.record(r.rows.Arena().Copy(x.kept)); err != nil {
			return state.ErrCorrupt
		}
	}
	rec.Time, rec.Mark, rec.Op = time, x.mark, op
	at, err := r.rows.AddRecord(ctx, rec)
	if err != nil {
		return err
	}
	for i, slot := range s.slots {
		if x.rec != nil {
			at[slot] = x.slots[slot]
		} else {
			at[slot] = r.stored.values[i]
		}
	}
	return nil
}

// unmatched gives out a record of a side that has no match.
func (r *joinRun) unmatched(ctx context.Context, side int, x joinRow, time int64, op connectors.Op) error {
	switch {
	case r.config.leftOnly():
		return r.leftRecord(ctx, x, time, op)
	case side == leftSide:
		return r.pair(ctx, x, joinRow{}, time, op)
	}
	return r.pair(ctx, joinRow{}, x, time, op)
}

// ordered is the records of a pair as left and right, where one is of a side.
func ordered(side int, one, other joinRow) (l, rt joinRow) {
	if side == leftSide {
		return one, other
	}
	return other, one
}

// plusTime is t moved by d, or the end of time that this would be beyond.
func plusTime(t, d int64) int64 {
	switch {
	case d > 0 && t > math.MaxInt64-d:
		return math.MaxInt64
	case d < 0 && t < math.MinInt64-d:
		return math.MinInt64
	}
	return t + d
}

// Watermark implements KeyedInstance for forms that do not go by event time.
func (r *joinRun) Watermark(context.Context, int64) error { return nil }

// Tick implements KeyedInstance for forms that do not go by processing time.
func (r *joinRun) Tick(context.Context, time.Time) error { return nil }

// Barrier implements KeyedInstance: nothing is held back.
func (r *joinRun) Barrier(context.Context) error { return nil }
