package transform

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// DedupConfig is the block of a dedup.
type DedupConfig struct {
	By     connectors.Keys     `key:"by" doc:"What records that repeat each other have in common: fields, or expressions by name." required:"true"`
	Keep   string              `key:"keep" doc:"Which of the repeats stays: the first that comes, or the last by event time." enum:"first|last"`
	Within connectors.TimeSpan `key:"within" doc:"For how long after the first record others with the same key are repeats. Default: for ever, and the keys are kept for ever too."`
	Emit   Emit                `key:"emit" doc:"When a last record is given out: on_change (the default) as an update of the one before, on_close once within has passed or the input has ended, or {every: 10s}."`
}

// Validate checks the block.
func (c *DedupConfig) Validate() error {
	switch {
	case c.Within < 0:
		return &connectors.FieldError{Key: "within", Msg: "a time cannot be negative"}
	case c.Keep == "first" && c.Emit.Mode != EmitDefault:
		return &connectors.FieldError{Key: "emit", Msg: "the first record is given out as it comes", Help: "remove emit, or write keep: last"}
	}
	return nil
}

func init() {
	Register(Spec{
		Name:       "dedup",
		Doc:        "Drops records that repeat others.",
		NewConfig:  func() any { return &DedupConfig{Keep: "first"} },
		BuildKeyed: buildDedup,
	})
}

type dedup struct {
	name   string
	first  bool
	within int64 // milliseconds, 0 for ever
	emit   Emit
	event  bool // within is a span of event time
	slots  []int
	stride func() int
	text   string
	meta   bool // tombstones have a key of their own
}

func buildDedup(config any, env *KeyedEnv) KeyedStep {
	c := config.(*DedupConfig)
	keys := env.KeyBy(0, c.By, "by")
	if keys == nil {
		return nil
	}
	d := &dedup{
		name: env.Name, first: c.Keep == "first", within: time.Duration(c.Within).Milliseconds(),
		emit: c.Emit.or(EmitOnChange), event: env.Timestamped, stride: env.Row.Base().Stride,
	}
	var text []string
	d.meta = true
	for _, k := range keys {
		text = append(text, k.Text())
		d.meta = d.meta && len(k.Fields()) == 0 && !k.This()
	}
	d.text = fmt.Sprintf("by %s keep %s within %dms", strings.Join(text, ", "), c.Keep, d.within)
	if d.first {
		env.CarryRow(0)
		env.Output(env.Row)
		return d
	}
	view, slots := env.carryMade(0)
	d.slots = slots
	if d.emit.Updating() {
		view = view.Updating(keyFields(c.By))
	}
	env.Output(view)
	return d
}

// Definition is what the meaning of the state hangs on.
func (d *dedup) Definition() string { return d.text }

// Start implements KeyedStep.
func (d *dedup) Start(run KeyedRun) (KeyedInstance, error) {
	r := &dedupRun{dedup: d, run: run, kept: run.Store.Table("kept"), timers: state.NewTimers(run.Store.Table("timers"))}
	if !d.first {
		r.out, r.dirty = run.Store.Table("out"), run.Store.Table("dirty")
		r.stored = newStoredRows(d.slots)
		r.rows = NewRows(&r.run.RunEnv, 0, d.stride())
		r.pace.every = d.emit.Every
	}
	return r, nil
}

// dedupRun holds for each key, in kept, the time of the first record; of the last
// ones also the record. out is what was given out where that is something else.
type dedupRun struct {
	*dedup
	run    KeyedRun
	kept   state.Table
	out    state.Table
	dirty  state.Table
	timers *state.Timers
	stored *storedRows
	rows   *Rows
	pace   pace
	buf    []byte
	old    []byte
	key    []byte
}

// Process lets first records pass, or keeps last ones.
func (r *dedupRun) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	if !r.meta {
		sel = dropKeyedTombstones(&r.run, b, sel)
	}
	now := r.run.Now().UnixMilli()
	n := 0
	for _, row := range sel {
		k := RowKey(b, row, r.run.Groups)
		at := now
		if r.event {
			at = b.Records[row].Time
		}
		if !r.first {
			if err := r.last(ctx, b, row, k, at); err != nil {
				return err
			}
			continue
		}
		if r.isNew(k, at) {
			sel[n] = row
			n++
		}
	}
	if !r.first {
		return r.rows.Flush(ctx)
	}
	if dropped := len(sel) - n; dropped > 0 {
		r.run.Dropped(dropped)
	}
	if n == 0 {
		return nil
	}
	return r.run.Emit(ctx, 0, b, sel[:n])
}

// isNew notes a key's first record, and reports whether this is it. A record that
// lies a whole span before the noted one is none of its repeats.
func (r *dedupRun) isNew(k state.Key, at int64) bool {
	v, fresh := r.kept.Upsert(0, k, 8)
	first := int64(binary.LittleEndian.Uint64(v))
	switch {
	case fresh:
	case r.within == 0 || r.repeats(at, first):
		return false
	case at < first:
		return true
	}
	binary.LittleEndian.PutUint64(v, uint64(at))
	r.expire(k, at)
	return true
}

func (r *dedupRun) repeats(at, first int64) bool {
	return at < addTime(first, r.within) && first < addTime(at, r.within)
}

func (r *dedupRun) expire(k state.Key, first int64) {
	if r.within > 0 {
		r.timers.Set(addTime(first, r.within), k, nil)
	}
}

// last keeps a record where it is the newest of its key.
func (r *dedupRun) last(ctx context.Context, b *connectors.Batch, row uint16, k state.Key, at int64) error {
	old, found := r.kept.Get(0, k)
	first := at
	if found {
		if len(old) < 8 {
			return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, state.ErrCorrupt))
		}
		first = int64(binary.LittleEndian.Uint64(old))
		r.old = append(r.old[:0], old[8:]...)
		before, err := r.stored.record(r.old)
		if err != nil {
			return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, err))
		}
		if r.within == 0 || at < addTime(first, r.within) {
			if !newer(&b.Records[row], &before) {
				r.run.Dropped(1)
				return nil
			}
		} else if err := r.close(ctx, k, r.old); err != nil {
			return err
		} else {
			first, found = at, false
		}
	}
	if !found {
		r.expire(k, first)
	}
	r.buf = binary.LittleEndian.AppendUint64(r.buf[:0], uint64(first))
	r.buf = r.stored.append(r.buf, &b.Records[row], b.Row(int(row)))
	r.kept.Put(0, k, r.buf)
	switch r.emit.Mode {
	case EmitOnChange:
		return r.update(ctx, r.old, found, r.buf[8:])
	case EmitEvery:
		r.dirty.Put(0, k, nil)
	default:
	}
	return nil
}

// newer reports whether a comes after b in event time; where that is the same, by
// topic, partition and offset; where there is none, in order of arrival.
func newer(a, b *connectors.Record) bool {
	if a.Time != b.Time {
		return a.Time > b.Time
	}
	if a.Origin == nil || b.Origin == nil {
		return true
	}
	if c := strings.Compare(a.Origin.Topic, b.Origin.Topic); c != 0 {
		return c > 0
	}
	if a.Origin.Partition != b.Origin.Partition {
		return a.Origin.Partition > b.Origin.Partition
	}
	return a.Offset >= b.Offset
}

// update gives a row out, in place of the old one where there is one.
func (r *dedupRun) update(ctx context.Context, old []byte, replaces bool, row []byte) error {
	if !replaces {
		return r.give(ctx, row, connectors.Insert)
	}
	if err := r.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := r.give(ctx, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return r.give(ctx, row, connectors.UpdateAfter)
}

func (r *dedupRun) give(ctx context.Context, row []byte, op connectors.Op) error {
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	if _, _, err := r.stored.add(r.rows, row, op); err != nil {
		return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, err))
	}
	return nil
}

// close ends the time of a key's record: what of it was not given out is now.
func (r *dedupRun) close(ctx context.Context, k state.Key, row []byte) error {
	switch r.emit.Mode {
	case EmitOnClose:
		return r.give(ctx, row, connectors.Insert)
	case EmitEvery:
		if !r.dirty.Delete(0, k) {
			break
		}
		before, had := r.out.Get(0, k)
		if err := r.update(ctx, before, had, row); err != nil {
			return err
		}
	default:
	}
	if r.out != nil {
		r.out.Delete(0, k)
	}
	return nil
}

// fire ends the keys whose time is over.
func (r *dedupRun) fire(ctx context.Context, now int64) error {
	err := r.timers.Due(now, func(at int64, k state.Key, _ []byte) error {
		k = ownKey(k, &r.key)
		v, found := r.kept.Get(0, k)
		// The key may have begun anew since the timer was set.
		if !found || len(v) < 8 || addTime(int64(binary.LittleEndian.Uint64(v)), r.within) > at {
			return nil
		}
		if !r.first {
			r.old = append(r.old[:0], v[8:]...)
			if err := r.close(ctx, k, r.old); err != nil {
				return err
			}
		}
		r.kept.Delete(0, k)
		return nil
	})
	if err != nil || r.rows == nil {
		return err
	}
	return r.rows.Flush(ctx)
}

// Watermark ends what event time has passed; at the end of the input, everything.
func (r *dedupRun) Watermark(ctx context.Context, wm int64) error {
	if wm == state.MaxTime && !r.first {
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
func (r *dedupRun) finish(ctx context.Context) error {
	if r.emit.Mode == EmitEvery {
		return r.gathered(ctx)
	}
	if r.emit.Mode != EmitOnClose || r.within > 0 {
		return nil
	}
	var failed error
	r.kept.Scan(0, func(_ state.Key, v []byte) bool {
		r.old = append(r.old[:0], v[min(8, len(v)):]...)
		failed = r.give(ctx, r.old, connectors.Insert)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.kept.Drop(0)
	return r.rows.Flush(ctx)
}

// gathered gives out the changes since the last time.
func (r *dedupRun) gathered(ctx context.Context) error {
	var failed error
	r.dirty.Scan(0, func(k state.Key, _ []byte) bool {
		k = ownKey(k, &r.key)
		v, found := r.kept.Get(0, k)
		if !found || len(v) < 8 {
			return true
		}
		r.buf = append(r.buf[:0], v[8:]...)
		before, had := r.out.Get(0, k)
		r.old = append(r.old[:0], before...)
		if failed = r.update(ctx, r.old, had, r.buf); failed != nil {
			return false
		}
		r.out.Put(0, k, r.buf)
		return true
	})
	if failed != nil {
		return failed
	}
	r.dirty.Drop(0)
	return r.rows.Flush(ctx)
}

// Tick ends what processing time has passed, and gives gathered changes out.
func (r *dedupRun) Tick(ctx context.Context, now time.Time) error {
	if r.emit.Mode == EmitEvery && !r.first && r.pace.due(now) {
		if err := r.gathered(ctx); err != nil {
			return err
		}
	}
	if r.event {
		return nil
	}
	return r.fire(ctx, now.UnixMilli())
}

// Barrier implements KeyedInstance: everything is in the store.
func (r *dedupRun) Barrier(context.Context) error { return nil }

// addTime is t + d, which stays within what a time can be.
func addTime(t, d int64) int64 {
	s := t + d
	if d > 0 && s < t {
		return state.MaxTime
	}
	return s
}
