package iceberg

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/sluice-etl/sluice/connectors"
)

// driver feeds a sink as the engine does.
type driver struct {
	t       testing.TB
	sink    *Sink
	writers []*writer
	next    uint64 // number of the checkpoint
}

// changedRow is a row with its operation and the key of its record.
type changedRow struct {
	op    connectors.Op
	key   string // none for ""
	value string // a tombstone for ""
}

// drive starts a sink on a table that is there, or is created.
func drive(t testing.TB, c SinkConfig, subtasks int) *driver {
	t.Helper()
	d, err := tryDrive(t, c, subtasks)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tryDrive is drive with the error of the start.
func tryDrive(t testing.TB, c SinkConfig, subtasks int) (*driver, error) {
	t.Helper()
	s := NewSink(c)
	d := &driver{t: t, sink: s, next: 1}
	t.Cleanup(d.close)
	env := connectors.SinkEnv{Pipeline: "test", Name: c.Mode, Subtasks: subtasks, Generation: func() uint64 { return 1 }}
	if err := s.Open(t.Context(), env); err != nil {
		return nil, err
	}
	w, ok, err := s.Committer().Witness(t.Context())
	if err != nil {
		return nil, err
	}
	if ok {
		d.next = w.Number + 1
	}
	if err := s.Start(t.Context(), connectors.Restored{}); err != nil {
		return nil, err
	}
	for i := range subtasks {
		w, err := s.Writer(i)
		if err != nil {
			return nil, err
		}
		d.writers = append(d.writers, w.(*writer))
	}
	return d, nil
}

func (d *driver) close() {
	for _, w := range d.writers {
		_ = w.Close()
	}
	d.writers = nil
	_ = d.sink.Close()
}

// write gives rows to a subtask and returns those that it refuses.
func (d *driver) write(subtask int, rows ...changedRow) []connectors.RowError {
	d.t.Helper()
	var refused []connectors.RowError
	for chunk := range slices.Chunk(rows, connectors.MaxBatch) {
		in := &connectors.Rows{Batch: &connectors.Batch{}}
		for i, r := range chunk {
			rec := connectors.Record{Op: r.op}
			if r.key != "" {
				rec.Key = []byte(r.key)
			}
			if r.value != "" {
				rec.Value = []byte(r.value)
			}
			in.Batch.Records = append(in.Batch.Records, rec)
			in.Sel, in.Values = append(in.Sel, uint16(i)), append(in.Values, rec.Value)
		}
		err := d.writers[subtask].Write(d.t.Context(), in)
		var e *connectors.RowsError
		if err != nil && !errors.As(err, &e) {
			d.t.Fatal(err)
		}
		if e != nil {
			refused = append(refused, e.Rows...)
		}
	}
	return refused
}

// prepare takes a checkpoint without its commit.
func (d *driver) prepare() []connectors.Committable {
	d.t.Helper()
	id := connectors.CheckpointID{Generation: 1, Number: d.next}
	d.next++
	var out []connectors.Committable
	for _, w := range d.writers {
		prepare, err := w.Barrier(d.t.Context(), connectors.Barrier{ID: id})
		if err != nil {
			d.t.Fatal(err)
		}
		p, err := prepare(d.t.Context(), nil)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, p.Committables...)
	}
	return out
}

// commit publishes what was prepared.
func (d *driver) commit(coms []connectors.Committable) error {
	for _, c := range coms {
		if err := d.sink.Committer().Commit(d.t.Context(), c, false); err != nil {
			return err
		}
		d.sink.Committer().Done(c.Checkpoint)
	}
	return nil
}

// checkpoint takes a checkpoint and publishes it.
func (d *driver) checkpoint() {
	d.t.Helper()
	if err := d.commit(d.prepare()); err != nil {
		d.t.Fatal(err)
	}
}

// withTable gives the table to f, as another program has it.
func withTable(t testing.TB, c SinkConfig, f func(*iceLake)) {
	t.Helper()
	l, err := openLake(t.Context(), &c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	f(l.(*iceLake))
}

// createTable makes the table as another program does.
func createTable(t testing.TB, c SinkConfig, schema *ice.Schema, opts ...catalog.CreateTableOpt) {
	t.Helper()
	withTable(t, c, func(l *iceLake) {
		if err := l.cat.CreateNamespace(t.Context(), catalog.NamespaceFromIdent(l.ident), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := l.cat.CreateTable(t.Context(), l.ident, schema, opts...); err != nil {
			t.Fatal(err)
		}
	})
}

// loadTable looks at the table.
func loadTable(t testing.TB, c SinkConfig) (out *table.Table) {
	t.Helper()
	withTable(t, c, func(l *iceLake) {
		var err error
		if out, err = l.cat.LoadTable(t.Context(), l.ident); err != nil {
			t.Fatal(err)
		}
	})
	return out
}

// alter changes the table as another program does.
func alter(t testing.TB, c SinkConfig, f func(*table.Transaction) error) {
	t.Helper()
	withTable(t, c, func(l *iceLake) {
		tbl, err := l.cat.LoadTable(t.Context(), l.ident)
		if err != nil {
			t.Fatal(err)
		}
		tx := tbl.NewTransaction()
		if err := f(tx); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// tableRows reads the table by the library's scan, as the lines that testdata/ReadTable.java
// prints, sorted.
func tableRows(t testing.TB, c SinkConfig) []string {
	t.Helper()
	out, err := scanRows(t.Context(), loadTable(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func scanRows(ctx context.Context, tbl *table.Table) ([]string, error) {
	_, batches, err := tbl.Scan().ToArrowRecords(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for batch, err := range batches {
		if err != nil {
			return nil, err
		}
		for i := range int(batch.NumRows()) {
			row := map[string]any{}
			for c, f := range batch.Schema().Fields() {
				row[f.Name] = show(batch.Column(c), i)
			}
			text, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			out = append(out, string(text))
		}
	}
	slices.Sort(out)
	return out, nil
}

// sortedLines brings JSON lines into the form of tableRows.
func sortedLines(t testing.TB, text string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(text) {
		var v map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	slices.Sort(out)
	return out
}

// show is a value as the readers print it: floats as their bits, times as microseconds,
// bytes as base64, maps as lists of entries.
func show(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(i)
	case *array.Int32:
		return a.Value(i)
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		if math.IsNaN(float64(a.Value(i))) {
			return "NaN"
		}
		return fmt.Sprintf("%08x", math.Float32bits(a.Value(i)))
	case *array.Float64:
		if math.IsNaN(a.Value(i)) {
			return "NaN"
		}
		return fmt.Sprintf("%016x", math.Float64bits(a.Value(i)))
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		return a.Value(i).FormattedString()
	case *array.Time64:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return base64.StdEncoding.EncodeToString(a.Value(i))
	case *array.FixedSizeBinary:
		return base64.StdEncoding.EncodeToString(a.Value(i))
	case *extensions.UUIDArray:
		return a.Value(i).String()
	}
	return showNested(a, i)
}

func showNested(a arrow.Array, i int) any {
	switch a := a.(type) {
	case *array.Map: // before the list that it is as well
		out := []any{}
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			out = append(out, []any{show(a.Keys(), int(j)), show(a.Items(), int(j))})
		}
		return out
	case array.ListLike:
		out := []any{}
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			out = append(out, show(a.ListValues(), int(j)))
		}
		return out
	case *array.Struct:
		out := map[string]any{}
		for f, field := range a.DataType().(*arrow.StructType).Fields() {
			out[field.Name] = show(a.Field(f), i)
		}
		return out
	}
	return a.ValueStr(i)
}
