package transform

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
)

// aggregateOut gathers rows of results. What their fields are is evaluated for many
// of them at once.
type aggregateOut struct {
	*aggregate
	run    *KeyedRun
	stride int
	batch  connectors.Batch
	sel    []uint16
	failed []*failures // of selects, and of having behind them
	faults []aggregateFault
	bad    [connectors.MaxBatch]bool // rows for which a function has no result
}

func newAggregateOut(s *aggregate, run *KeyedRun) *aggregateOut {
	o := &aggregateOut{aggregate: s, run: run, stride: s.stride()}
	for _, a := range s.selects {
		o.failed = append(o.failed, newFailures(s.name, a.text))
	}
	o.failed = append(o.failed, newFailures(s.name, s.filter))
	o.batch.Stride = o.stride
	return o
}

func (o *aggregateOut) arena() *connectors.Arena { return &o.batch.Arena }

func (o *aggregateOut) slots(n uint16) []connectors.Value { return o.batch.Row(int(n)) }

// full reports whether n more rows do not go in.
func (o *aggregateOut) full(n int) bool {
	return len(o.batch.Records)+n > connectors.MaxBatch || o.batch.Arena.Made() > roundBytes
}

// add makes a row and gives its number.
func (o *aggregateOut) add(time int64) uint16 {
	b := &o.batch
	n := len(b.Records)
	b.Records = append(b.Records, connectors.Record{Value: emptyObject, Time: time, Mark: connectors.NoMark})
	if need := (n + 1) * o.stride; need <= cap(b.Slots) {
		b.Slots = b.Slots[:need]
	} else {
		for range o.stride {
			b.Slots = append(b.Slots, connectors.Value{})
		}
	}
	return uint16(n)
}

// refuse notes that a function has no result for a row.
func (o *aggregateOut) refuse(n uint16, text string, err error) {
	if !o.bad[n] {
		o.bad[n] = true
		o.faults = append(o.faults, aggregateFault{n, text, err})
	}
}

// evaluate computes the fields of rows, and gives those of them that have all and
// are wanted, in the memory of rows. What has none goes to on_error, unless silent:
// old rows went there before.
func (o *aggregateOut) evaluate(ctx context.Context, rows []uint16, silent bool) ([]uint16, error) {
	if len(o.faults) > 0 {
		rows = o.leaveBad(rows)
	}
	for i := range o.selects {
		a := &o.selects[i]
		rows = a.prog.Fill(o.run.Exprs, &o.batch, rows, a.slot, o.failed[i].add)
	}
	last := o.failed[len(o.failed)-1]
	if o.having != nil {
		rows = o.having.Filter(o.run.Exprs, &o.batch, rows, last.add)
	}
	if silent {
		for _, f := range o.failed {
			f.rows, f.errs = f.rows[:0], f.errs[:0]
		}
		return rows, nil
	}
	return rows, o.report(ctx)
}

// leaveBad takes the rows out for which a function has no result.
func (o *aggregateOut) leaveBad(rows []uint16) []uint16 {
	n := 0
	for _, row := range rows {
		if !o.bad[row] {
			rows[n] = row
			n++
		}
	}
	return rows[:n]
}

func (o *aggregateOut) report(ctx context.Context) error {
	for _, f := range o.faults {
		reason := evalError(f.err)
		if err := failRow(ctx, o.run, &o.batch, f.row, o.name, f.text, reason.Kind, reason.Reason); err != nil {
			return err
		}
	}
	clear(o.faults)
	o.faults = o.faults[:0]
	for _, f := range o.failed {
		if err := f.report(ctx, &o.run.RunEnv, &o.batch); err != nil {
			return err
		}
	}
	return nil
}

// silence forgets the faults so far: of rows that are only compared with.
func (o *aggregateOut) silence() {
	clear(o.faults)
	o.faults = o.faults[:0]
}

// flush evaluates all rows and gives out those that are wanted.
func (o *aggregateOut) flush(ctx context.Context) error {
	if len(o.batch.Records) == 0 {
		return nil
	}
	o.sel = o.sel[:0]
	for n := range o.batch.Records {
		o.sel = append(o.sel, uint16(n))
	}
	rows, err := o.evaluate(ctx, o.sel, false)
	if err != nil {
		return err
	}
	return o.emit(ctx, rows)
}

// emit gives rows out and begins a new batch.
func (o *aggregateOut) emit(ctx context.Context, rows []uint16) error {
	var err error
	if len(rows) > 0 {
		err = o.run.Emit(ctx, 0, &o.batch, rows)
	}
	o.reset()
	return err
}

func (o *aggregateOut) reset() {
	b := &o.batch
	clear(o.bad[:len(b.Records)])
	clear(b.Records)
	clear(b.Slots)
	b.Records, b.Slots, b.Scan, b.Originals = b.Records[:0], b.Slots[:0], b.Scan[:0], nil
	b.Stride = o.stride
	b.Arena.Reset()
}

// sameResult reports whether two rows have the same fields of select.
func (o *aggregateOut) sameResult(a, b uint16) bool {
	x, y := o.slots(a), o.slots(b)
	for _, slot := range o.columns {
		if !sameValue(x[slot], y[slot]) {
			return false
		}
	}
	return true
}

// sameValue reports whether two values are one and the same, text and all.
func sameValue(a, b connectors.Value) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case connectors.Absent, connectors.Null:
		return true
	case connectors.Timestamp:
		x, y := a.Time(), b.Time()
		_, zx := x.Zone()
		_, zy := y.Zone()
		return x.Equal(y) && zx == zy
	case connectors.String, connectors.Bytes, connectors.Decimal, connectors.List, connectors.Map:
		return a.Text() == b.Text()
	default:
	}
	return a.Int() == b.Int()
}
