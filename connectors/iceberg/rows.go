package iceberg

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Kinds of refused rows, for counters.
const (
	kindType = "type"
	kindNull = "null"
	kindKey  = "key"
)

// rowOptions say how rows become rows of a table.
type rowOptions struct {
	schema   *arrow.Schema
	declared []connectors.Column
	key      []string // columns that tell rows apart; none where rows are only added
	unknown  bool     // fields that have no column are left out
	seed     maphash.Seed
}

// rowBuilder turns rows into record batches of a table's columns. It serves one subtask.
type rowBuilder struct {
	rowOptions
	asJSON []bool // by column: any value, as its JSON text
	mapper *table.Mapper
	build  *array.RecordBuilder
	op     []table.Op // what each row that is held does; 0 where it was refused
	width  int64      // bytes that a row takes at least, whatever is in it
}

// keyWidth is about what it takes to tell the rows of a batch apart by their keys.
const keyWidth = 64

// widthOf is what a value of a column takes in memory, one that is null or empty too.
func widthOf(t arrow.DataType) int64 {
	if w, ok := t.(arrow.FixedWidthDataType); ok {
		return int64(w.BitWidth()+7)/8 + 1
	}
	return 5 // where it ends, and whether it is there
}

func newRowBuilder(o rowOptions) (*rowBuilder, error) {
	b := &rowBuilder{rowOptions: o, build: array.NewRecordBuilder(memory.DefaultAllocator, o.schema)}
	cols := make([]table.Column, o.schema.NumFields())
	for i, f := range o.schema.Fields() {
		cols[i].Name = f.Name
		b.width += widthOf(f.Type)
		switch f.Type.ID() {
		case arrow.DECIMAL128:
			cols[i].Type.Base = connectors.Exact
		case arrow.STRING:
			cols[i].Type.Base = connectors.Text
		}
		b.asJSON = append(b.asJSON, slices.ContainsFunc(o.declared, func(c connectors.Column) bool {
			return c.Name == f.Name && c.Type.Base == connectors.Document
		}))
	}
	how := table.Options{Mode: table.Insert, Key: o.key, RefuseUnknown: !o.unknown}
	if len(o.key) > 0 {
		how.Mode = table.Upsert
		b.width += keyWidth
	}
	var err error
	b.mapper, err = table.NewMapper(cols, how)
	return b, err
}

// append takes rows, and returns those that have no place in the table.
func (b *rowBuilder) append(rows *connectors.Rows) []connectors.RowError {
	var refused []connectors.RowError
	b.mapper.Begin(rows)
	for i := range rows.Values {
		op, err := b.row(i)
		if err != nil {
			op = 0
			why := &deferred.Refused{Kind: kindType, Reason: err.Error()}
			errors.As(err, &why)
			refused = append(refused, connectors.RowError{Row: i, Kind: why.Kind, Reason: why.Reason})
		}
		b.op = append(b.op, op)
	}
	return refused
}

// row appends a row; an empty one with an error, and beside the key of one to delete, so
// that columns stay of one length.
func (b *rowBuilder) row(i int) (table.Op, error) {
	op, err := b.mapper.Op(i)
	for c := range b.schema.NumFields() {
		to := b.build.Field(c)
		key := slices.Contains(b.mapper.Keys(), c)
		if err != nil || op == table.Delete && !key {
			to.AppendEmptyValue()
			continue
		}
		f := b.schema.Field(c)
		if kind, fault := b.value(to, f, c, key, b.mapper.Value(i, c)); fault != nil {
			err = &deferred.Refused{Kind: kind, Reason: fmt.Sprintf("column %s: %s", f.Name, fault)}
		}
	}
	return op, err
}

// value appends one value, or an empty one with an error.
func (b *rowBuilder) value(to array.Builder, f arrow.Field, c int, key bool, v connectors.Value) (kind string, err error) {
	switch {
	case !v.IsNull():
	case key:
		to.AppendEmptyValue()
		return kindKey, errors.New("there is no value, and a key needs one")
	case !f.Nullable:
		to.AppendEmptyValue()
		return kindNull, errors.New("there is no value, and the table requires one")
	default:
		to.AppendNull()
		return "", nil
	}
	if b.asJSON[c] {
		text, err := jsonText(v)
		to.(*array.StringBuilder).Append(text)
		return kindType, err
	}
	return kindType, appendValue(to, f.Type, b.unknown, v)
}

// take gives what is held as a batch and begins anew.
func (b *rowBuilder) take(ctx context.Context) (*rowBatch, error) {
	rows := b.build.NewRecordBatch()
	defer rows.Release()
	out, err := newBatch(ctx, rows, b.op, b.mapper.Keys(), b.seed)
	b.op = b.op[:0]
	return out, err
}

// jsonText is the JSON text of a value.
func jsonText(v connectors.Value) (string, error) {
	text, err := format.AppendValue(nil, v)
	return string(text), err
}

// appendValue appends a value to the column of its type. Where it has no place there,
// an empty one is appended, so that columns stay of one length. Unknown says that fields
// which a struct does not have are left out.
func appendValue(to array.Builder, typ arrow.DataType, unknown bool, v connectors.Value) error {
	before := to.Len()
	err := convert(to, typ, unknown, v)
	if err != nil && to.Len() == before {
		to.AppendEmptyValue()
	}
	return err
}

func convert(to array.Builder, typ arrow.DataType, unknown bool, v connectors.Value) error {
	switch b := to.(type) {
	case *array.ListBuilder, *array.StructBuilder, *array.MapBuilder:
		return convertNested(to, typ, unknown, v)
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
		return put(b.Append)(text(v))
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
