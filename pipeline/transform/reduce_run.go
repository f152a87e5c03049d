package transform

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Start implements KeyedStep.
func (r *reduce) Start(run KeyedRun) (KeyedInstance, error) {
	i := &reduceRun{
		reduce: r, run: run, states: run.Store.Table("state"), timers: state.NewTimers(run.Store.Table("timers")),
	}
	i.life = state.NewTTL(i.timers, r.ttl, nil)
	i.rows = NewRows(&i.run.RunEnv, 0, r.stride())
	if r.emit.Mode == EmitEvery {
		i.out, i.dirty, i.pace.every = run.Store.Table("out"), run.Store.Table("dirty"), r.emit.Every
	}
	return i, nil
}

// reduceRun holds for each key two times, see reduceHead, and the values of its fields.
type reduceRun struct {
	*reduce
	run    KeyedRun
	states state.Table
	out    state.Table // what was given out last, with emit every
	dirty  state.Table
	timers *state.Timers
	life   *state.TTL // where there is a ttl
	rows   *Rows
	pace   pace
	old    []byte
	buf    []byte
	key    []byte
}

// Two times stand in front of the values: the event time of the newest record, and
// when the key was touched last by the clock of its ttl.
const reduceHead = 16

// Process changes the states of the rows' keys.
func (r *reduceRun) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	now := r.run.Now().UnixMilli()
	for _, row := range sel {
		if err := r.one(ctx, b, row, now); err != nil {
			return err
		}
	}
	return r.rows.Flush(ctx)
}

func (r *reduceRun) one(ctx context.Context, b *connectors.Batch, row uint16, now int64) error {
	k, rec := RowKey(b, row, r.run.Groups), &b.Records[row]
	stored, found := r.states.Get(0, k)
	r.old = append(r.old[:0], stored...)
	if found && len(r.old) < reduceHead {
		return r.corrupt()
	}
	if found && r.expired(rec, k) {
		if err := r.end(ctx, k); err != nil {
			return err
		}
		r.states.Delete(0, k)
		r.old, found = r.old[:0], false
	}
	newest := rec.Time
	if found {
		newest = max(newest, state.Stamp(r.old))
	} else {
		r.old = append(append(r.old, make([]byte, reduceHead)...), r.initial...)
	}
	r.buf = binary.LittleEndian.AppendUint64(r.buf[:0], uint64(newest))
	r.buf = append(r.buf, r.old[8:reduceHead]...)
	failed, err := r.fold(ctx, b, row)
	if failed || err != nil {
		return err
	}
	if r.ttl > 0 {
		touched := now
		if r.event {
			touched = newest
		}
		r.life.Touch(k, r.buf[8:reduceHead], !found, touched)
	}
	r.states.Put(0, k, r.buf)
	switch r.emit.Mode {
	case EmitOnChange:
		if found && bytes.Equal(r.old[reduceHead:], r.buf[reduceHead:]) {
			return nil
		}
		return r.give(ctx, k, r.old, found, r.buf)
	case EmitEvery:
		r.dirty.Put(0, k, nil)
	default:
	}
	return nil
}

// expired reports whether a state in r.old had outlived its ttl when a record came,
// whether or not its timer has fired.
func (r *reduceRun) expired(rec *connectors.Record, k state.Key) bool {
	return r.ttl > 0 && r.event && r.life.Expired(r.old[8:], max(rec.Mark, r.run.Watermark(k.Group)))
}

func (r *reduceRun) corrupt() error {
	return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, state.ErrCorrupt))
}

// fold appends the values after a record to r.buf; those before it are in r.old.
func (r *reduceRun) fold(ctx context.Context, b *connectors.Batch, row uint16) (failed bool, err error) {
	slots := b.Row(int(row))
	rest := r.old[reduceHead:]
	for _, slot := range r.state {
		if slots[slot], rest, err = state.ReadValue(rest); err != nil {
			return false, r.corrupt()
		}
	}
	for i, p := range r.update {
		v := slots[r.state[i]]
		if p != nil {
			var fault *expr.EvalError
			if v, fault = p.Eval(r.run.Exprs, b, int(row)); fault != nil {
				return true, r.run.Fail(ctx, b, row, failure(r.name, p.Text(), b, row, fault))
			}
		}
		r.buf = state.AppendValue(r.buf, v)
	}
	return false, nil
}

// give gives the values of a key out, in place of others where it replaces them.
func (r *reduceRun) give(ctx context.Context, k state.Key, old []byte, replaces bool, values []byte) error {
	if !replaces {
		return r.row(ctx, k, values, connectors.Insert)
	}
	if err := r.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := r.row(ctx, k, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return r.row(ctx, k, values, connectors.UpdateAfter)
}

func (r *reduceRun) row(ctx context.Context, k state.Key, values []byte, op connectors.Op) error {
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	arena := r.rows.Arena()
	at := int64(binary.LittleEndian.Uint64(values))
	rest := arena.Copy(values[reduceHead:])
	slots, err := r.rows.Add(ctx, at, op)
	if err != nil {
		return err
	}
	k.Bytes = arena.Copy(k.Bytes)
	if setKeys(slots, r.byOut, k) != nil {
		return r.corrupt()
	}
	for _, slot := range r.outTo {
		if slots[slot], rest, err = state.ReadValue(rest); err != nil {
			return r.corrupt()
		}
	}
	return nil
}

// Watermark ends the keys whose ttl is over by event time; at the end of the input
// what was not given out is.
func (r *reduceRun) Watermark(ctx context.Context, wm int64) error {
	if wm == state.MaxTime {
		return r.finish(ctx)
	}
	if r.event {
		return r.expire(ctx, wm)
	}
	return nil
}

// Tick does the same by processing time.
func (r *reduceRun) Tick(ctx context.Context, now time.Time) error {
	if r.emit.Mode == EmitEvery && r.pace.due(now) {
		if err := r.gathered(ctx); err != nil {
			return err
		}
	}
	if r.event {
		return nil
	}
	return r.expire(ctx, now.UnixMilli())
}

// expire drops the states that no record has touched for the ttl.
func (r *reduceRun) expire(ctx context.Context, now int64) error {
	if r.ttl == 0 {
		return nil
	}
	err := r.timers.Due(now, func(at int64, k state.Key, _ []byte) error {
		v, found := r.states.Get(0, k)
		if !found {
			return nil
		}
		if len(v) < reduceHead {
			return r.corrupt()
		}
		r.old = append(r.old[:0], v...)
		if !r.life.Fire(at, k, r.old[8:]) {
			return nil
		}
		if err := r.end(ctx, k); err != nil {
			return err
		}
		r.states.Delete(0, k)
		return nil
	})
	if err != nil {
		return err
	}
	return r.rows.Flush(ctx)
}

// end gives out what was not given out yet of a state that has outlived its ttl and is
// in r.old.
func (r *reduceRun) end(ctx context.Context, k state.Key) error {
	switch r.emit.Mode {
	case EmitOnClose:
		return r.row(ctx, k, r.old, connectors.Insert)
	case EmitEvery:
		if err := r.change(ctx, k); err != nil {
			return err
		}
		r.dirty.Delete(0, k)
		r.out.Delete(0, k)
	default:
	}
	return nil
}

// finish gives out, at the end of the input, what has not been.
func (r *reduceRun) finish(ctx context.Context) error {
	switch r.emit.Mode {
	case EmitEvery:
		return r.gathered(ctx)
	case EmitOnClose:
	default:
		return nil
	}
	var failed error
	r.states.Scan(0, func(k state.Key, v []byte) bool {
		if len(v) < reduceHead {
			failed = r.corrupt()
			return false
		}
		failed = r.row(ctx, k, v, connectors.Insert)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.states.Drop(0)
	return r.rows.Flush(ctx)
}

// gathered gives out the changes since the last time.
func (r *reduceRun) gathered(ctx context.Context) error {
	var failed error
	r.dirty.Scan(0, func(k state.Key, _ []byte) bool {
		failed = r.change(ctx, ownKey(k, &r.key))
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.dirty.Drop(0)
	return r.rows.Flush(ctx)
}

// change gives a key's values out where they differ from what was given out last.
func (r *reduceRun) change(ctx context.Context, k state.Key) error {
	v, found := r.states.Get(0, k)
	if !found {
		return nil
	}
	r.buf = append(r.buf[:0], v...)
	before, had := r.out.Get(0, k)
	r.old = append(r.old[:0], before...)
	if len(r.buf) < reduceHead || had && len(r.old) < reduceHead {
		return r.corrupt()
	}
	if had && bytes.Equal(r.old[reduceHead:], r.buf[reduceHead:]) {
		return nil
	}
	if err := r.give(ctx, k, r.old, had, r.buf); err != nil {
		return err
	}
	r.out.Put(0, k, r.buf)
	return nil
}

// Barrier implements KeyedInstance: everything is in the store.
func (r *reduceRun) Barrier(context.Context) error { return nil }
