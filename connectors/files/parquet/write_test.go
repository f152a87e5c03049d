package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// Rows are given to the columns many at once: lists of every length, null and large texts
// stay with their rows over pages and row groups.
func TestRowsStayTogetherOverPagesAndRowGroups(t *testing.T) {
	number := connectors.Type{Base: connectors.Integer, Bits: 64}
	cols := []connectors.Column{
		{Name: "id", Type: number}, {Name: "list", Type: connectors.Type{Base: connectors.Sequence, Elem: &number}},
		{Name: "text", Type: connectors.Type{Base: connectors.Text, Nullable: true}},
	}
	e, err := typed.NewEncoder(cols, typed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	var want []string
	var rows []byte
	for i := range n {
		list := strings.Trim(strings.Repeat(fmt.Sprintf("%d,", i), i%4), ",")
		text := "null"
		if i%3 > 0 {
			text = `"` + strings.Repeat("x", i%1000) + `"`
		}
		want = append(want, fmt.Sprintf(`{"id":%d,"list":[%s],"text":%s}`, i, list, text))
		e.Begin([][]byte{[]byte(want[i])})
		row, err := e.Append(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(binary.AppendUvarint(rows, uint64(len(row))), row...)
	}
	var file bytes.Buffer
	if err := Convert(t.Context(), &file, bytes.NewReader(rows), Layout{Columns: cols, Compression: "snappy", RowGroup: 300_000}); err != nil {
		t.Fatal(err)
	}
	r, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()), 1<<20)
	if err != nil || r.Rows() != n || len(r.groups) < 3 {
		t.Fatalf("%d rows in %d groups, %v", r.Rows(), len(r.groups), err)
	}
	for i := range n {
		if got, err := r.Next(nil); err != nil || string(got) != want[i] {
			t.Fatalf("row %d: %.100s, %v, want %.100s", i, got, err, want[i])
		}
	}
}
