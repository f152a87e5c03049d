package pipeline

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// intake makes rows of the records of a source: it turns those of a format that is no
// JSON into JSON, and takes records apart of which each can hold several rows or none.
type intake struct {
	input     format.Input    // nil where records are JSON
	expand    format.Expander // nil where a record is a row
	rows      []connectors.Record
	originals [][]byte  // by row, what the source gave
	refused   []refusal // records that hold no row, which stand for themselves
	room      int       // bytes that the JSON of one record is expected to take
}

// mostRows is how many rows a record holds at most, and mostInput about how many bytes of
// JSON are made before the rows so far are handed on.
const (
	mostRows  = 2
	mostInput = 8 << 20
)

func (t *task) makeIntake(cfg connectors.FormatConfig) error {
	expand, err := format.NewExpander(cfg)
	if err != nil {
		return err
	}
	input, err := format.NewInput(cfg)
	if err != nil {
		return err
	}
	if input != nil || expand != nil {
		t.intake = &intake{input: input, expand: expand}
	}
	if input != nil {
		t.starts = append(t.starts, start{"the format of source " + t.chain.name, format.Env{}, input.Start})
	}
	return nil
}

// start is what a task calls before it takes records.
type start struct {
	what string
	env  format.Env
	call func(context.Context, format.Env) error
}

// begin starts what the task's formats need, again and again while it is not there.
func (t *task) begin(ctx context.Context) error {
	for _, s := range t.starts {
		log := t.attempt.log.With("task", t.chain.name)
		s.env.Log = log
		p := retry.Policy{Log: log, What: "start " + s.what}
		if err := p.Do(ctx, func(ctx context.Context) error { return s.call(ctx, s.env) }); err != nil {
			return err
		}
	}
	return nil
}

// processIntake hands a batch on row by row, in parts that are no larger than a
// batch may be.
func (t *task) processIntake(ctx context.Context, b *connectors.Batch) error {
	x, all := t.intake, b.Records
	defer func() {
		clear(x.rows)
		clear(x.originals)
		clear(x.refused)
		b.Records, b.Originals, x.refused = all, nil, x.refused[:0]
	}()
	mark := b.Arena.Mark()
	for rest := all; ; {
		var err error
		if rest, err = x.fill(ctx, t.chain.name, &b.Arena, rest); err != nil {
			return err
		}
		next := b.Next
		if len(rest) > 0 {
			next = rest[0].Offset
		}
		b.Records, b.Originals = x.rows, x.originals
		if err := t.processRows(ctx, b, next); err != nil || len(rest) == 0 {
			return err
		}
		clear(b.Slots)
		b.Arena.Rewind(mark)
	}
}

// fill makes rows of records, as many as fit, and returns the others. An error says that
// no record can be read.
func (x *intake) fill(ctx context.Context, source string, arena *connectors.Arena, records []connectors.Record) ([]connectors.Record, error) {
	x.rows, x.originals, x.refused = x.rows[:0], x.originals[:0], x.refused[:0]
	begun := arena.Made()
	for len(records) > 0 && len(x.rows)+mostRows <= connectors.MaxBatch && arena.Made()-begun < mostInput {
		r := &records[0]
		rows, kind, err := x.one(ctx, arena, r)
		if err != nil {
			if kind == "" {
				return nil, err
			}
			rows = append(x.rows, *r)
			e := &connectors.RecordError{Origin: r.Origin, Offset: r.Offset, Step: source, Kind: kind, Reason: err.Error()}
			x.refused = append(x.refused, refusal{uint16(len(x.rows)), e})
		}
		for range len(rows) - len(x.rows) {
			x.originals = append(x.originals, r.Value)
		}
		x.rows, records = rows, records[1:]
	}
	return records, nil
}

// one appends the rows of a record to those there are. An error with a kind is the
// record's own.
func (x *intake) one(ctx context.Context, arena *connectors.Arena, r *connectors.Record) (rows []connectors.Record, kind string, err error) {
	row := *r
	if x.input != nil && !r.Tombstone() {
		if row.Value, err = x.json(ctx, arena, r); err != nil {
			if !format.IsRefused(err) {
				return x.rows, "", err
			}
			return x.rows, "decode", err
		}
	}
	if x.expand == nil {
		return append(x.rows, row), "", nil
	}
	if rows, err = x.expand.Expand(x.rows, &row); err != nil {
		var syntax *format.SyntaxError
		if errors.As(err, &syntax) {
			return x.rows, "decode", err
		}
		return x.rows, "debezium", err
	}
	return rows, "", nil
}

// json is the record's value as JSON, in the arena.
func (x *intake) json(ctx context.Context, arena *connectors.Arena, r *connectors.Record) ([]byte, error) {
	room := arena.Grow(max(x.room, 2*len(r.Value)) + 64)
	out, err := x.input.JSON(ctx, room, r)
	if err != nil {
		return nil, err
	}
	x.room = max(len(out), x.room-x.room/16) // what the last records took
	return arena.Keep(out), nil
}

// leaveRefused refuses the records of the source's batch at hand that hold no row: those
// that the source itself has found so, or the intake.
func (t *task) leaveRefused(b *connectors.Batch) {
	for _, e := range b.Refused {
		row := uint16(e.Row)
		t.refused = append(t.refused, refusal{row, recordError(b, row, t.chain.name, e.Kind, e.Reason)})
	}
	if t.intake != nil {
		t.refused = append(t.refused, t.intake.refused...)
	}
	if len(t.refused) == 0 {
		return
	}
	n, failed := 0, t.refused
	for _, row := range t.sel {
		if len(failed) > 0 && failed[0].row == row {
			failed = failed[1:]
			continue
		}
		t.sel[n] = row
		n++
	}
	t.sel = t.sel[:n]
}
