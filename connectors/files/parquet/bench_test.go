package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

type bid struct {
	ID    int64  `parquet:"id"`
	User  string `parquet:"user,dict"`
	Price int64  `parquet:"price"`
	Note  string `parquet:"note"`
}

var bidColumns = []connectors.Column{
	{Name: "id", Type: connectors.Type{Base: connectors.Integer}}, {Name: "user", Type: connectors.Type{Base: connectors.Text}},
	{Name: "price", Type: connectors.Type{Base: connectors.Integer}}, {Name: "note", Type: connectors.Type{Base: connectors.Text}},
}

const benchRows = 1000

func bidOf(i int) bid {
	return bid{int64(i), fmt.Sprintf("user-%d", i%50), int64(i) * 7919, fmt.Sprintf("a note that is different for each row, %d", i*i)}
}

// BenchmarkRows takes rows from JSON to a file: what the sink costs.
func BenchmarkRows(b *testing.B) {
	var values [][]byte
	for i := range benchRows {
		r := bidOf(i)
		values = append(values, fmt.Appendf(nil, `{"id":%d,"user":%q,"price":%d,"note":%q}`, r.ID, r.User, r.Price, r.Note))
	}
	e, err := typed.NewEncoder(bidColumns, typed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var rows, row []byte
	for n := 0; n < b.N; n += 100 * benchRows {
		rows = rows[:0]
		for range 100 {
			e.Begin(values)
			for i := range values {
				if row, err = e.Append(row[:0], i); err != nil {
					b.Fatal(err)
				}
				rows = append(binary.AppendUvarint(rows, uint64(len(row))), row...)
			}
		}
		if err := Convert(b.Context(), io.Discard, bytes.NewReader(rows), Layout{Columns: bidColumns, Compression: "snappy", RowGroup: 64 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBare writes the same rows, which are Go values already, with the library alone.
func BenchmarkBare(b *testing.B) {
	var all []bid
	for i := range benchRows {
		all = append(all, bidOf(i))
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += 100 * benchRows {
		w := parquet.NewGenericWriter[bid](io.Discard, parquet.Compression(&parquet.Snappy), parquet.DataPageStatistics(true))
		for range 100 {
			if _, err := w.Write(all); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
