package iceberg

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Kinds of refused rows, for counters.
const (
	kindDecode = "decode"
	kindType   = "type"
	kindNull   = "null"
)

// rowBuilder turns rows into record batches of a table's columns. It serves one subtask.
type rowBuilder struct {
	schema *arrow.Schema
	asJSON []bool // by column: any value, as its JSON text
	reader *columns.Reader
	build  *array.RecordBuilder
	rows   int
}

func newRowBuilder(schema *arrow.Schema, declared []connectors.Column) (*rowBuilder, error) {
	b := &rowBuilder{schema: schema, build: array.NewRecordBuilder(memory.DefaultAllocator, schema)}
	cols := make([]connectors.Column, schema.NumFields())
	for i, f := range schema.Fields() {
		cols[i].Name = f.Name
		if f.Type.ID() == arrow.DECIMAL128 {
			cols[i].Type.Base = connectors.Exact
		}
		b.asJSON = append(b.asJSON, slices.ContainsFunc(declared, func(c connectors.Column) bool {
			return c.Name == f.Name && c.Type.Base == connectors.Document
		}))
	}
	var err error
	b.reader, err = columns.NewReader(cols)
	return b, err
}

// append takes rows, and returns those that have no place in the table. They are in the
// batch as empty rows, at the indexes added to holes.
func (b *rowBuilder) append(rows *connectors.Rows, holes []int) ([]connectors.RowError, []int) {
	refused := make(map[int]connectors.RowError)
	b.reader.Read(rows.Values, func(i int, err *format.SyntaxError) {
		refused[i] = connectors.RowError{Row: i, Kind: kindDecode, Reason: err.Error()}
	})
	for i, v := range rows.Values {
		if v == nil {
			refused[i] = connectors.RowError{Row: i, Kind: kindNull, Reason: "a tombstone has no place in a table that is only appended to"}
		}
	}
	for c, f := range b.schema.Fields() {
		to := b.build.Field(c)
		for i := range rows.Values {
			if _, bad := refused[i]; bad {
				to.AppendEmptyValue()
				continue
			}
			if kind, err := b.value(to, f, c, b.reader.Value(i, c)); err != nil {
				refused[i] = connectors.RowError{Row: i, Kind: kind, Reason: fmt.Sprintf("column %s: %s", f.Name, err)}
			}
		}
	}
	var out []connectors.RowError
	for i := range rows.Values {
		if r, bad := refused[i]; bad {
			out, holes = append(out, r), append(holes, b.rows+i)
		}
	}
	b.rows += len(rows.Values)
	return out, holes
}

// value appends one value, or an empty one with an error.
func (b *rowBuilder) value(to array.Builder, f arrow.Field, c int, v connectors.Value) (kind string, err error) {
	if v.IsNull() {
		if f.Nullable {
			to.AppendNull()
			return "", nil
		}
		to.AppendEmptyValue()
		return kindNull, errors.New("there is no value, and the table requires one")
	}
	if b.asJSON[c] {
		to.(*array.StringBuilder).Append(jsonText(v))
		return "", nil
	}
	return kindType, appendValue(to, f.Type, v)
}

// take gives the rows as a batch and begins anew.
func (b *rowBuilder) take() arrow.RecordBatch {
	b.rows = 0
	return b.build.NewRecordBatch()
}

// jsonText is the JSON text of a value.
func jsonText(v connectors.Value) string {
	switch v.Kind() {
	case connectors.String:
		text, _ := json.Marshal(v.Text()) //nolint:errchkjson // text has a JSON form
		return string(text)
	case connectors.Bool:
		return strconv.FormatBool(v.Bool())
	case connectors.Int:
		return strconv.FormatInt(v.Int(), 10)
	case connectors.Float:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	default:
		return v.Text()
	}
}

// appendValue appends a value to the column of its type. Where it has no place there,
// an empty one is appended, so that columns stay of one length.
func appendValue(to array.Builder, typ arrow.DataType, v connectors.Value) error {
	before := to.Len()
	err := convert(to, typ, v)
	if err != nil && to.Len() == before {
		to.AppendEmptyValue()
	}
	return err
}

func convert(to array.Builder, typ arrow.DataType, v connectors.Value) error {
	switch b := to.(type) {
	case *array.ListBuilder, *array.StructBuilder, *array.MapBuilder:
		return convertNested(to, typ, v)
	case *array.BooleanBuilder:
		return put(b.Append)(columns.Bool(v))
	case *array.Int32Builder:
		n, err := columns.Int(v, 32)
		return put(b.Append)(int32(n), err)
	case *array.Int64Builder:
		return put(b.Append)(columns.Int(v, 64))
	case *array.Float32Builder:
		f, err := columns.Float(v, 32)
		return put(b.Append)(float32(f), err)
	case *array.Float64Builder:
		return put(b.Append)(columns.Float(v, 64))
	case *array.StringBuilder:
		return put(b.Append)(columns.Text(v))
	case *array.BinaryBuilder:
		return put(b.Append)(columns.Bytes(v))
	case *array.Decimal128Builder:
		return put(b.Append)(decimal(v, typ.(*arrow.Decimal128Type)))
	case *array.FixedSizeBinaryBuilder:
		return put(b.Append)(fixed(v, typ.(*arrow.FixedSizeBinaryType).ByteWidth))
	case *extensions.UUIDBuilder:
		return put(b.AppendBytes)(columns.UUID(v))
	default:
		return convertTime(to, v)
	}
}
