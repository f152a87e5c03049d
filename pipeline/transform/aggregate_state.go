package transform

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/accumulate"
)

// aggregateRun is what the instances of all kinds of windows share: the states of
// groups. Those of a fixed size stand together in the value of a group, behind a
// head that the kind of window decides; each other one has a table of its own.
type aggregateRun struct {
	*aggregate
	run    KeyedRun
	table  state.Table
	tables []state.Table // of the loose calls, in their order
	out    *aggregateOut
	in     accumulate.Input
	args   []connectors.Value
	backup []byte
	news   [][]byte // new states of the loose calls, in their order
	large  []bool   // those that are changed in place instead
	faults []aggregateFault
	late   []uint16
}

// aggregateFault is a row that an aggregate function refused.
type aggregateFault struct {
	row  uint16
	text string
	err  error
}

func newAggregateRun(s *aggregate, run KeyedRun) *aggregateRun {
	r := &aggregateRun{aggregate: s, run: run, table: run.Store.Table("groups"), news: make([][]byte, len(s.loose)), large: make([]bool, len(s.loose))}
	for i := range s.loose {
		r.tables = append(r.tables, run.Store.Table(fmt.Sprintf("call-%d", s.loose[i])))
	}
	r.out = newAggregateOut(s, &r.run)
	return r
}

// arguments are those of a call for a row with these slots.
func (r *aggregateRun) arguments(c *aggregateCall, slots []connectors.Value) []connectors.Value {
	if len(c.args) == 0 {
		return nil
	}
	if c.near {
		return slots[c.args[0] : c.args[0]+len(c.args)]
	}
	r.args = r.args[:0]
	for _, slot := range c.args {
		r.args = append(r.args, slots[slot])
	}
	return r.args
}

// add adds a row to the states of fixed size, or takes it back. Where a function
// refuses it, all states are as they were.
func (r *aggregateRun) add(states []byte, b *connectors.Batch, row uint16, retract bool) bool {
	if len(r.calls) > 1 {
		r.backup = append(r.backup[:0], states...)
	}
	at := int(row) * b.Stride
	slots := b.Slots[at : at+b.Stride : at+b.Stride]
	r.in.Record = &b.Records[row]
	for _, i := range r.fixed {
		c := &r.calls[i]
		if c.cond >= 0 && !slots[c.cond].Bool() {
			continue
		}
		r.in.Args = r.arguments(c, slots)
		var err error
		if s := states[c.off : c.off+c.size : c.off+c.size]; retract {
			_, err = c.fn.Retract(s, &r.in)
		} else {
			_, err = c.fn.Add(s, &r.in)
		}
		if err != nil {
			if len(r.calls) > 1 {
				copy(states, r.backup)
			}
			r.refuse(row, c, err)
			return false
		}
	}
	return true
}

// copied is the length up to which a loose state is copied to be changed.
const copied = 4 << 10

// prepare computes the new states of the loose calls, for store to put in place: so
// a row that one of them refuses changes none. Those longer than most are left to
// store.
func (r *aggregateRun) prepare(ns int64, k state.Key, b *connectors.Batch, row uint16, retract bool, most int) bool {
	slots := b.Row(int(row))
	r.in.Record = &b.Records[row]
	for j, i := range r.loose {
		old, _ := r.tables[j].Get(ns, k)
		if r.large[j] = len(old) > most; r.large[j] {
			continue
		}
		r.news[j] = append(r.news[j][:0], old...)
		if !r.addLoose(j, &r.calls[i], slots, row, retract) {
			return false
		}
	}
	return true
}

// addLoose adds a row to the state of a loose call that is in news.
func (r *aggregateRun) addLoose(j int, c *aggregateCall, slots []connectors.Value, row uint16, retract bool) bool {
	if c.cond >= 0 && !slots[c.cond].Bool() {
		return true
	}
	r.in.Args = r.arguments(c, slots)
	var err error
	if retract {
		r.news[j], err = c.fn.Retract(r.news[j], &r.in)
	} else {
		r.news[j], err = c.fn.Add(r.news[j], &r.in)
	}
	if err != nil {
		r.refuse(row, c, err)
	}
	return err == nil
}

// store changes the large states, and puts the others that prepare computed in place.
// It reports whether all went well: a state that is large can be full. Where two are,
// the one that is not has counted the row.
func (r *aggregateRun) store(ns int64, k state.Key, b *connectors.Batch, row uint16, retract bool) bool {
	for j, i := range r.loose {
		if r.large[j] && !r.change(ns, k, j, &r.calls[i], b, row, retract) {
			return false
		}
	}
	for j, t := range r.tables {
		if !r.large[j] {
			t.Put(ns, k, r.news[j])
		}
	}
	return true
}

// change adds a row to the large state of a loose call, in place.
func (r *aggregateRun) change(ns int64, k state.Key, j int, c *aggregateCall, b *connectors.Batch, row uint16, retract bool) bool {
	old, _ := r.tables[j].Get(ns, k)
	size := len(old)
	value, _ := r.tables[j].Upsert(ns, k, size)
	kept := r.news[j]
	r.news[j] = value[:size:size]
	ok := r.addLoose(j, c, b.Row(int(row)), row, retract)
	if now := r.news[j]; ok && (len(now) != size || unsafe.SliceData(now) != unsafe.SliceData(value)) {
		r.tables[j].Put(ns, k, now)
	}
	r.news[j] = kept
	return ok
}

// undo takes the row back that add added last to the value of a group, and its number
// of rows where there is a head.
func (r *aggregateRun) undo(ns int64, k state.Key, head int, rows int64) {
	value, _ := r.table.Upsert(ns, k, max(1, head+r.size))
	copy(value[head:], r.backup)
	if head > 0 {
		put64(value, headRows, get64(value, headRows)+rows)
	}
}

func (r *aggregateRun) refuse(row uint16, c *aggregateCall, err error) {
	r.faults = append(r.faults, aggregateFault{row, c.text, err})
}

// report hands the rows that were refused to on_error, and those that came too late
// to their branch.
func (r *aggregateRun) report(ctx context.Context, b *connectors.Batch) error {
	for _, f := range r.faults {
		reason := evalError(f.err)
		if err := failRow(ctx, &r.run, b, f.row, r.name, f.text, reason.Kind, reason.Reason); err != nil {
			return err
		}
	}
	clear(r.faults)
	r.faults = r.faults[:0]
	if len(r.late) == 0 {
		return nil
	}
	late := r.late
	r.late = r.late[:0]
	if !r.aggregate.late {
		r.run.Late(len(late))
		return nil
	}
	return r.run.Emit(ctx, 1, b, late)
}

// evalError is the reason that an aggregate function gave.
func evalError(err error) *expr.EvalError {
	var e *expr.EvalError
	if errors.As(err, &e) {
		return e
	}
	return &expr.EvalError{Reason: err.Error(), Kind: expr.KindCrash}
}

// results puts the results of a group's functions into row n of out. states may be
// borrowed from the store; k is not, where there are loose calls.
func (r *aggregateRun) results(n uint16, states []byte, ns int64, k state.Key) {
	row, arena := r.out.slots(n), r.out.arena()
	for _, i := range r.fixed {
		c := &r.calls[i]
		r.result(n, row, c, states[c.off:c.off+c.size:c.off+c.size], arena)
	}
	for j, i := range r.loose {
		value, _ := r.tables[j].Get(ns, k)
		r.result(n, row, &r.calls[i], value[:len(value):len(value)], arena)
	}
}

func (r *aggregateRun) result(n uint16, row []connectors.Value, c *aggregateCall, value []byte, arena *connectors.Arena) {
	v, err := c.fn.Result(value, arena)
	if err != nil {
		r.out.refuse(n, c.text, err)
		return
	}
	row[c.out] = keepValue(arena, v)
}

// keepValue is v with what it borrows in arena.
func keepValue(arena *connectors.Arena, v connectors.Value) connectors.Value {
	switch k := v.Kind(); k {
	case connectors.String, connectors.Bytes, connectors.Decimal, connectors.List, connectors.Map:
		return connectors.TextValue(k, arena.Copy(v.Raw()))
	default:
	}
	return v
}

// merge adds the states of fixed size of another group.
func (r *aggregateRun) merge(states, other []byte) error {
	for _, i := range r.fixed {
		c := &r.calls[i]
		if _, err := c.fn.Merge(states[c.off:c.off+c.size:c.off+c.size], other[c.off:c.off+c.size]); err != nil {
			return r.mergeError(err)
		}
	}
	return nil
}

// mergeLoose adds more to the state of a loose call that is in news. What a function
// refuses is no failure of the step, but of the rows that are merged.
func (r *aggregateRun) mergeLoose(j int, more []byte) (refused, failed error) {
	next, err := r.calls[r.loose[j]].fn.Merge(r.news[j], more)
	var e *expr.EvalError
	switch {
	case err == nil:
		r.news[j] = next
		return nil, nil
	case errors.As(err, &e):
		return err, nil
	default:
	}
	return nil, r.mergeError(err)
}

func (r *aggregateRun) mergeError(err error) error {
	return fmt.Errorf("merge groups of step %s: %w", r.name, err)
}

// head puts what tells a group from others into row n of out.
func (r *aggregateRun) head(n uint16, k state.Key, start, end int64) error {
	row, arena := r.out.slots(n), r.out.arena()
	if err := setKeys(row, r.keys, k); err != nil {
		return fmt.Errorf("read a key of step %s: %w", r.name, err)
	}
	for _, slot := range r.keys {
		row[slot] = keepValue(arena, row[slot])
	}
	if r.start >= 0 {
		row[r.start], row[r.end] = connectors.IntValue(start), connectors.IntValue(end)
	}
	return nil
}

// remove deletes all state of a group.
func (r *aggregateRun) remove(ns int64, k state.Key) {
	r.table.Delete(ns, k)
	r.clearLoose(ns, k)
}

func (r *aggregateRun) clearLoose(ns int64, k state.Key) {
	for _, t := range r.tables {
		t.Delete(ns, k)
	}
}

// drop removes a namespace of all tables.
func (r *aggregateRun) drop(ns int64) {
	r.table.Drop(ns)
	for _, t := range r.tables {
		t.Drop(ns)
	}
}

// isLate reports whether what a row belongs to is over, where it ended at end.
func (r *aggregateRun) isLate(end int64, rec *connectors.Record, group int) bool {
	if r.window.Processing {
		return false
	}
	end += r.lateness
	return end <= rec.Mark || end <= r.run.Watermark(group)
}

// bound is the end of the last window that a watermark closes.
func (r *aggregateRun) bound(wm int64) int64 {
	if wm == state.MaxTime || wm < state.MinTime+r.lateness {
		return wm
	}
	return wm - r.lateness
}

// rowTime is the time by which a row is put into its window.
func (r *aggregateRun) rowTime(rec *connectors.Record, now int64) int64 {
	if r.window.Processing {
		return now
	}
	return rec.Time
}

func (r *aggregateRun) processingTime() int64 {
	if r.window.Processing {
		return r.run.Now().UnixMilli()
	}
	return 0
}
