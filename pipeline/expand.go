package pipeline

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// expansion takes the records of a source apart, of which each can hold several
// rows or none.
type expansion struct {
	format.Expander
	rows      []connectors.Record
	originals [][]byte  // by row, what the source gave
	refused   []refusal // records that hold no row, which stand for themselves
}

// mostRows is how many rows a record holds at most.
const mostRows = 2

func (t *task) makeExpansion(cfg connectors.FormatConfig) error {
	x, err := format.NewExpander(cfg)
	if err == nil && x != nil {
		t.expand = &expansion{Expander: x}
	}
	return err
}

// processExpanded hands a batch on row by row, in parts that are no larger than a
// batch may be.
func (t *task) processExpanded(ctx context.Context, b *connectors.Batch) error {
	x, all := t.expand, b.Records
	defer func() {
		clear(x.rows)
		clear(x.originals)
		clear(x.refused)
		b.Records, b.Originals, x.refused = all, nil, x.refused[:0]
	}()
	for rest := all; ; {
		rest = x.fill(t.chain.name, rest)
		next := b.Next
		if len(rest) > 0 {
			next = rest[0].Offset
		}
		b.Records, b.Originals = x.rows, x.originals
		if err := t.processRows(ctx, b, next); err != nil || len(rest) == 0 {
			return err
		}
	}
}

// fill takes records apart, as many as fit, and returns the others.
func (x *expansion) fill(source string, records []connectors.Record) []connectors.Record {
	x.rows, x.originals, x.refused = x.rows[:0], x.originals[:0], x.refused[:0]
	for len(records) > 0 && len(x.rows)+mostRows <= connectors.MaxBatch {
		r := &records[0]
		rows, err := x.Expand(x.rows, r)
		if err != nil {
			rows = append(rows, *r)
			x.refused = append(x.refused, refusal{uint16(len(x.rows)), expandError(source, r, err)})
		}
		for range len(rows) - len(x.rows) {
			x.originals = append(x.originals, r.Value)
		}
		x.rows, records = rows, records[1:]
	}
	return records
}

func expandError(source string, r *connectors.Record, err error) *connectors.RecordError {
	kind := "debezium"
	var syntax *format.SyntaxError
	if errors.As(err, &syntax) {
		kind = "decode"
	}
	return &connectors.RecordError{Origin: r.Origin, Offset: r.Offset, Step: source, Kind: kind, Reason: err.Error()}
}

// leaveUnexpanded refuses the records of the batch at hand that hold no row.
func (t *task) leaveUnexpanded() {
	if t.expand == nil || len(t.expand.refused) == 0 {
		return
	}
	t.refused = append(t.refused, t.expand.refused...)
	n, failed := 0, t.expand.refused
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
