package parquet

import (
	"bytes"
	"testing"

	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// FuzzOpen reads files of strangers: an error, never a panic and never without end.
func FuzzOpen(f *testing.F) {
	e, err := typed.NewEncoder(bidColumns, typed.Options{})
	if err != nil {
		f.Fatal(err)
	}
	e.Begin([][]byte{[]byte(`{"id":1,"user":"a","price":2,"note":"b"}`)})
	row, err := e.Append(nil, 0)
	if err != nil {
		f.Fatal(err)
	}
	var file bytes.Buffer
	if err := Convert(f.Context(), &file, bytes.NewReader(append([]byte{byte(len(row))}, row...)), Layout{Columns: bidColumns, RowGroup: 1 << 20}); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte("PAR1PAR1"))
	for i := range file.Len() {
		damaged := bytes.Clone(file.Bytes())
		damaged[i] ^= 0xff
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Open(bytes.NewReader(data), int64(len(data)), 1<<20)
		if err != nil {
			return
		}
		defer r.Close()
		for range 1000 {
			if _, err := r.Next(nil); err != nil {
				return
			}
		}
	})
}
