package deferred

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func opener(data []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// records are rows, each made of a record.
func records(list ...connectors.Record) *connectors.Rows {
	b := new(connectors.Batch)
	b.Size(len(list), 0)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i := range list {
		b.Records[i] = list[i]
		rows.Sel, rows.Values = append(rows.Sel, uint16(i)), append(rows.Values, []byte("the row"))
	}
	return rows
}

func TestEachBlockTellsWhereItsRowsAreFrom(t *testing.T) {
	p := packer{originals: true}
	origin := &connectors.Origin{Topic: "in", Partition: 3}
	rows := records(
		connectors.Record{Origin: origin, Offset: 7, Value: []byte("a")}, connectors.Record{Origin: origin, Offset: 9, Value: []byte("b")},
		connectors.Record{Value: []byte("what a step made it of")}, connectors.Record{Origin: origin, Offset: 8, Value: []byte("c")})
	want := []string{"in/3@7 a", "in/3@9 b", "- the row", "in/3@8 c"}
	for range 2 { // the second block is read without the first one
		for i := range rows.Sel {
			p.rows, p.lens = append(p.rows, "kept"...), append(p.lens, 4)
			p.record(rows, i)
		}
		var b Block
		if err := b.read(bytes.NewReader(p.pack())); err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			r := b.Record(i)
			got := "- " + string(r.Value)
			if r.Origin != nil {
				got = fmt.Sprintf("%s/%d@%d %s", r.Origin.Topic, r.Origin.Partition, r.Offset, r.Value)
			}
			if string(b.Rows[i]) != "kept" || got != want[i] {
				t.Errorf("row %d is %q of %s, want %s", i, b.Rows[i], got, want[i])
			}
		}
	}
}

func TestRowsAreReadAgainFromTheFirst(t *testing.T) {
	file := []byte(fileMagic)
	for range 2 {
		p := packer{rows: []byte("ab"), lens: []int{1, 1}}
		rows := records(connectors.Record{}, connectors.Record{})
		p.record(rows, 0)
		p.record(rows, 1)
		file = append(file, p.pack()...)
	}
	rows := &Rows{parts: []part{{rows: 4, open: opener(file)}, {rows: 4, open: opener(file)}}}
	next := func(most int) (n int) {
		for n < most {
			if _, err := rows.Next(t.Context()); err != nil {
				break
			}
			n++
		}
		return n
	}
	for before := range 5 {
		next(before)
		rows.Rewind()
		if n := next(10); n != 4 {
			t.Errorf("%d blocks are read after %d, want 4", n, before)
		}
		rows.Rewind()
	}
}

func TestRowsTakeNoMemoryOfTheirOwn(t *testing.T) {
	s := NewSink(&memory{table: &table{}}, Options{Kind: "memory"})
	if err := s.Open(t.Context(), connectors.SinkEnv{Budget: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	w := newWriter(s, 0, &same{})
	rows := records(make([]connectors.Record, 1000)...)
	allocs := testing.AllocsPerRun(20, func() {
		if err := w.Write(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 10 {
		t.Errorf("%v allocations for 1000 rows", allocs)
	}
}

// same keeps rows as they are.
type same struct{ rows *connectors.Rows }

func (e *same) Begin(rows *connectors.Rows) error {
	e.rows = rows
	return nil
}

func (e *same) Append(dst []byte, i int) ([]byte, error) {
	return append(dst, e.rows.Values[i]...), nil
}

func FuzzBlock(f *testing.F) {
	f.Add([]byte{'a', 'b', 0, 0, 1, 1, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1})
	f.Add([]byte{'a', 2, 1, 't', 2, 4, 1, 1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, raw []byte) {
		b := Block{raw: raw}
		if b.unpack() == nil {
			for i := range b.Rows {
				_ = b.Record(i)
			}
		}
	})
}
