package transform

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// DedupConfig is the block of a dedup.
type DedupConfig struct {
	By     connectors.Keys `key:"by" doc:"What records that repeat each other have in common: fields, or expressions by name." required:"true"`
	Keep   string          `key:"keep" doc:"Which of the repeats stays: the first that comes, or the last by event time." enum:"first|last"`
	Within TTL             `key:"within" doc:"For how long around the first record that comes others with the same key are repeats. Default: forever, and the keys are kept forever too."`
	Emit   Emit            `key:"emit" doc:"When a last record is given out: on_change (the default) as an update of the one before, on_close once within has passed or the input has ended, or {every: 10s}."`
}

// Validate checks the block.
func (c *DedupConfig) Validate() error {
	var errs []error
	if len(c.By) == 0 {
		errs = append(errs, &connectors.FieldError{Key: "by", Msg: "there is nothing to tell repeats by, so that one record would stay of all", Help: "name the fields that repeats have in common"})
	}
	if c.Keep == "first" && c.Emit.Mode != EmitDefault {
		errs = append(errs, &connectors.FieldError{Key: "emit", Msg: "the first record is given out as it comes", Help: "remove emit, or write keep: last"})
	}
	return errors.Join(errs...)
}

func init() {
	Register(Spec{
		Name:       "dedup",
		Doc:        "Drops records that repeat others.",
		NewConfig:  func() any { return &DedupConfig{Keep: "first"} },
		BuildKeyed: buildDedup,
		OpenState:  openDedup,
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
	keys   []string
	fields []string // names of slots
}

func buildDedup(config any, env *KeyedEnv) KeyedStep {
	c := config.(*DedupConfig)
	keys := env.KeyBy(0, c.By, "by")
	if keys == nil {
		return nil
	}
	d := &dedup{
		name: env.Name, first: c.Keep == "first", within: c.Within.millis(),
		emit: c.Emit.or(EmitOnChange), event: env.Timestamped, stride: env.Row.Base().Stride,
		keys: keyNames(c.By),
	}
	var text []string
	d.meta = true
	for _, k := range keys {
		text = append(text, k.Text())
		d.meta = d.meta && len(k.Fields()) == 0 && !k.This()
	}
	d.text = fmt.Sprintf("dedup by %s keep %s within ", strings.Join(text, ", "), c.Keep)
	switch {
	case d.within == 0:
		d.text += "forever"
	case d.event:
		d.text += c.Within.String()
	default:
		d.text += c.Within.String() + " of processing time"
	}
	if d.first {
		env.CarryRow(0)
		env.Output(env.Row)
		return d
	}
	kept := env.keepRows(0)
	d.slots, d.fields = kept.slots, kept.names
	d.text += kept.definition() + d.emit.definition()
	view := kept.view
	if d.emit.Updating() {
		var key []string
		if d.within == 0 { // otherwise a row stays when another of its key comes later
			key = keyFields(c.By)
		}
		view = view.Updating(key)
	}
	env.Output(view)
	return d
}

// Definition is what the meaning of the state hangs on.
func (d *dedup) Definition() string { return d.text }

// Start implements KeyedStep.
func (d *dedup) Start(run KeyedRun) (KeyedInstance, error) {
	r := dedupRun{dedup: d, run: run, kept: run.Store.Table("kept"), timers: state.NewTimers(run.Store.Table("timers"))}
	if d.first {
		return &dedupFirst{r}, nil
	}
	return newDedupLast(r), nil
}

// dedupRun is what both ways to drop repeats have in common at work.
type dedupRun struct {
	*dedup
	run    KeyedRun
	kept   state.Table
	timers *state.Timers
}

// keyed leaves out the rows that have no key.
func (r *dedupRun) keyed(b *connectors.Batch, sel []uint16) []uint16 {
	if r.meta {
		return sel
	}
	return dropKeyedTombstones(&r.run, b, sel)
}

// at is the time of a record, which the span runs from. late says that the span is over
// already, so that nobody knows whether the record is a repeat: what came before of its
// key is forgotten, or may be.
func (r *dedupRun) at(rec *connectors.Record, k state.Key, now int64) (at int64, late bool) {
	if !r.event {
		return now, false
	}
	return rec.Time, r.within > 0 && plusTime(rec.Time, r.within) <= max(rec.Mark, r.run.Watermark(k.Group))
}

// repeats reports whether two times lie within the span.
func (r *dedupRun) repeats(a, b int64) bool {
	return r.within == 0 || a < plusTime(b, r.within) && b < plusTime(a, r.within)
}

// expire sets the timer of a span that begins with a record.
func (r *dedupRun) expire(k state.Key, first int64) {
	if r.within > 0 {
		r.timers.Set(plusTime(first, r.within), k, nil)
	}
}

// corrupt says whose state it is that cannot be read.
func (r *dedupRun) corrupt() error {
	return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, state.ErrCorrupt))
}

// Barrier implements KeyedInstance: everything is in the store.
func (r *dedupRun) Barrier(context.Context) error { return nil }

// dedupFirst lets the first record of each key pass. Of a key it keeps the times of the
// records that passed, 8 bytes each, until within has passed: one as a rule, several
// where records came out of order by more than that.
type dedupFirst struct{ dedupRun }

// Process lets first records pass.
func (r *dedupFirst) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = r.keyed(b, sel)
	now := r.run.Now().UnixMilli()
	n, lates := 0, 0
	for _, row := range sel {
		k := RowKey(b, row, r.run.Groups)
		at, late := r.at(&b.Records[row], k, now)
		switch {
		case late:
			lates++
		case r.isNew(k, at):
			sel[n] = row
			n++
		}
	}
	if lates > 0 {
		r.run.Late(lates)
	}
	if dropped := len(sel) - n - lates; dropped > 0 {
		r.run.Dropped(dropped)
	}
	if n == 0 {
		return nil
	}
	return r.run.Emit(ctx, 0, b, sel[:n])
}

// isNew notes a record unless it repeats one, and reports whether it did.
func (r *dedupFirst) isNew(k state.Key, at int64) bool {
	if r.within == 0 {
		_, fresh := r.kept.Upsert(0, k, 0)
		return fresh
	}
	times, _ := r.kept.Get(0, k)
	for ; len(times) >= 8; times = times[8:] {
		if r.repeats(at, int64(binary.LittleEndian.Uint64(times))) {
			return false
		}
	}
	var first [8]byte
	binary.LittleEndian.PutUint64(first[:], uint64(at))
	r.kept.Append(0, k, first[:])
	r.expire(k, at)
	return true
}

// Watermark forgets what event time has passed.
func (r *dedupFirst) Watermark(_ context.Context, wm int64) error {
	if r.event {
		return r.forget(wm)
	}
	return nil
}

// Tick forgets what processing time has passed.
func (r *dedupFirst) Tick(_ context.Context, now time.Time) error {
	if r.event {
		return nil
	}
	return r.forget(now.UnixMilli())
}

func (r *dedupFirst) forget(now int64) error {
	return r.timers.Due(now, func(at int64, k state.Key, _ []byte) error {
		times, _ := r.kept.Get(0, k)
		if len(times)%8 != 0 {
			return r.corrupt()
		}
		if len(times) <= 8 {
			r.kept.Delete(0, k)
			return nil
		}
		times, _ = r.kept.Upsert(0, k, len(times))
		n := 0
		for i := 0; i < len(times); i += 8 {
			if plusTime(int64(binary.LittleEndian.Uint64(times[i:])), r.within) > at {
				n += copy(times[n:], times[i:i+8])
			}
		}
		if n == 0 {
			r.kept.Delete(0, k)
		} else {
			r.kept.Upsert(0, k, n)
		}
		return nil
	})
}
