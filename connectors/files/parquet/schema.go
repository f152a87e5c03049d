// Package parquet writes and reads Parquet files of rows.
package parquet

import (
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// group is a group whose fields stand in the order in which they are declared.
type group struct {
	parquet.Group
	fields []parquet.Field
}

func (g *group) Fields() []parquet.Field { return g.fields }

type field struct {
	parquet.Node
	name string
}

func (f *field) Name() string { return f.name }

// Value is for rows that are Go values, which none are here.
func (f *field) Value(reflect.Value) reflect.Value { return reflect.Value{} }

func schemaOf(cols []connectors.Column) *parquet.Schema {
	return parquet.NewSchema("row", groupOf(cols))
}

func groupOf(cols []connectors.Column) parquet.Node {
	g := &group{Group: parquet.Group{}}
	for i := range cols {
		n := nodeOf(&cols[i].Type)
		g.Group[cols[i].Name] = n
		g.fields = append(g.fields, &field{n, cols[i].Name})
	}
	return g
}

func nodeOf(t *connectors.Type) parquet.Node {
	n := requiredNode(t)
	if t.Nullable {
		return parquet.Optional(n)
	}
	return n
}

func requiredNode(t *connectors.Type) parquet.Node {
	switch t.Base {
	case connectors.Sequence:
		return parquet.List(nodeOf(t.Elem))
	case connectors.Struct:
		return groupOf(t.Fields)
	case connectors.Dictionary:
		return parquet.Map(parquet.String(), nodeOf(t.Elem))
	case connectors.Boolean:
		return parquet.Leaf(parquet.BooleanType)
	case connectors.Integer:
		bits := t.Bits
		if bits == 0 {
			bits = 64
		}
		if t.Unsigned {
			return parquet.Uint(bits)
		}
		return parquet.Int(bits)
	case connectors.Real:
		if t.Bits == 32 {
			return parquet.Leaf(parquet.FloatType)
		}
		return parquet.Leaf(parquet.DoubleType)
	case connectors.Exact:
		return dictionary(parquet.Decimal(t.Scale, t.Precision, decimalType(t.Precision)))
	case connectors.Instant:
		return parquet.TimestampAdjusted(parquet.Microsecond, true)
	case connectors.Local:
		return parquet.TimestampAdjusted(parquet.Microsecond, false)
	case connectors.Date:
		return dictionary(parquet.Date())
	case connectors.TimeOfDay:
		return parquet.TimeAdjusted(parquet.Microsecond, false)
	case connectors.UUID:
		return parquet.UUID()
	case connectors.Binary:
		return parquet.Leaf(parquet.ByteArrayType)
	case connectors.Document, connectors.Dynamic:
		return parquet.JSON()
	default:
		return dictionary(parquet.String())
	}
}

// dictionary stores each value of a page once. Where there are too many, the writer goes
// on without.
func dictionary(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.RLEDictionary) }

// Decimals of few digits are integers, as other programs make them.
const (
	digits32 = 9
	digits64 = 18
)

func decimalType(precision int) parquet.Type {
	switch {
	case precision <= digits32:
		return parquet.Int32Type
	case precision <= digits64:
		return parquet.Int64Type
	}
	return parquet.FixedLenByteArrayType(typed.DecimalSize(precision))
}
