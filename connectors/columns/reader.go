// Package columns reads rows, which travel as JSON, as columns with types: for
// sinks that write tables and for formats with a schema.
package columns

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Reader reads the same fields of rows. It serves one subtask.
type Reader struct {
	decoder format.Decoder
	batch   connectors.Batch
	sel     []uint16
	stride  int
	strict  bool
}

// NewReader makes a reader of the columns, in their order. Decimal columns and those
// inside of others keep their numbers as they are written.
func NewReader(cols []connectors.Column) (*Reader, error) { return newReader(cols, false) }

// NewStrictReader makes a reader that also tells which rows have fields that are none of
// the columns.
func NewStrictReader(cols []connectors.Column) (*Reader, error) { return newReader(cols, true) }

func newReader(cols []connectors.Column, strict bool) (*Reader, error) {
	fields := make([]format.Field, len(cols))
	for i, c := range cols {
		fields[i] = format.Field{Path: []string{c.Name}, Slot: i, Exact: c.Type.Base == connectors.Exact}
	}
	if strict {
		fields = append(fields, format.Field{Slot: len(cols), Others: true})
	}
	d, err := format.NewDecoder(connectors.FormatConfig{}, fields, false)
	if err != nil {
		return nil, err
	}
	return &Reader{decoder: d, stride: len(fields), strict: strict}, nil
}

// Read reads values, JSON objects or nil for tombstones, at most connectors.MaxBatch of
// them. A value that cannot be read is given to fail. What it gives out borrows from
// values and from the reader until the next Read.
func (r *Reader) Read(values [][]byte, fail func(i int, err *format.SyntaxError)) {
	b := &r.batch
	b.Arena.Reset()
	b.Scan = b.Scan[:0]
	if cap(b.Records) < len(values) {
		b.Records = make([]connectors.Record, len(values))
	}
	b.Records = b.Records[:len(values)]
	b.SetStride(r.stride)
	r.sel = r.sel[:0]
	for i, v := range values {
		b.Records[i].Value = v
		r.sel = append(r.sel, uint16(i))
	}
	r.decoder.Decode(b, r.sel, func(row uint16, err *format.SyntaxError) { fail(int(row), err) })
}

// Value is the value of a column in row i of the last Read; Absent where the row has no
// such field.
func (r *Reader) Value(i, column int) connectors.Value { return r.batch.Row(i)[column] }

// Unknown is the first field of row i of the last Read that is none of the columns. Only a
// strict reader knows of any.
func (r *Reader) Unknown(i int) (name string, ok bool) {
	if !r.strict {
		return "", false
	}
	v := r.batch.Row(i)[r.stride-1]
	return v.Text(), v.Kind() == connectors.String
}
