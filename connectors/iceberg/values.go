package iceberg

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

// put appends what a conversion gave, unless it failed.
func put[T any](appendTo func(T)) func(T, error) error {
	return func(v T, err error) error {
		if err == nil {
			appendTo(v)
		}
		return err
	}
}

// text reads text, which can come from the key of a record and then be any bytes.
func text(v connectors.Value) (string, error) {
	t, err := columns.Text(v)
	if err == nil && !utf8.ValidString(t) {
		err = errors.New("the text is no UTF-8")
	}
	return t, err
}

func decimal(v connectors.Value, t *arrow.Decimal128Type) (decimal128.Num, error) {
	d, err := columns.Decimal(v, int(t.Precision), int(t.Scale))
	if err != nil {
		return decimal128.Num{}, err
	}
	n := d.Coeff.MathBigInt()
	if d.Negative {
		n.Neg(n)
	}
	return decimal128.FromBigInt(n), nil
}

func fixed(v connectors.Value, width int) ([]byte, error) {
	b, err := columns.Bytes(v)
	if err == nil && len(b) != width {
		err = fmt.Errorf("there are %d bytes, the column holds %d", len(b), width)
	}
	return b, err
}

// convertTime appends to columns of dates and times.
func convertTime(to array.Builder, v connectors.Value) error {
	switch b := to.(type) {
	case *array.Date32Builder:
		t, err := columns.Day(v)
		return put(b.Append)(arrow.Date32FromTime(t), err)
	case *array.Time64Builder:
		d, err := columns.TimeOfDay(v)
		return put(b.Append)(arrow.Time64(d.Microseconds()), err)
	case *array.TimestampBuilder:
		typ := b.Type().(*arrow.TimestampType)
		read := columns.LocalTime
		if typ.TimeZone != "" {
			read = columns.Time
		}
		t, err := read(v)
		if err != nil {
			return err
		}
		ts, err := timestamp(t, typ.Unit)
		return put(b.Append)(ts, err)
	}
	return fmt.Errorf("columns of type %s cannot be written", to.Type())
}

// timestamp gives a time in a column's unit; what is finer than it is cut off.
func timestamp(t time.Time, unit arrow.TimeUnit) (arrow.Timestamp, error) {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return 0, errors.New("the year is not between 1 and 9999")
	}
	if unit == arrow.Nanosecond {
		if y := t.UTC().Year(); y < 1678 || y > 2261 {
			return 0, errors.New("the year is not between 1678 and 2261, which nanoseconds can hold")
		}
		return arrow.Timestamp(t.UnixNano()), nil
	}
	return arrow.Timestamp(t.UnixMicro()), nil
}

// convertNested appends a list, a struct or a map, which a value holds as JSON.
func convertNested(to array.Builder, typ arrow.DataType, unknown bool, v connectors.Value) error {
	want, word := connectors.Map, "a map"
	if typ.ID() == arrow.LIST {
		want, word = connectors.List, "a list"
	}
	if v.Kind() != want {
		return fmt.Errorf("%s is wanted, not %s", word, v.Kind())
	}
	d := json.NewDecoder(bytes.NewReader(v.Raw()))
	d.UseNumber()
	var parsed any
	if err := d.Decode(&parsed); err != nil {
		return errors.New("it is no JSON")
	}
	return (&nested{unknown}).parsed(to, typ, parsed)
}

// nested appends values inside of others. Unknown says that fields which a struct does
// not have are left out.
type nested struct{ unknown bool }

// parsed appends parsed JSON; field does so where null may be refused.
func (n *nested) parsed(to array.Builder, typ arrow.DataType, v any) error {
	switch b := to.(type) {
	case *array.ListBuilder:
		items, ok := v.([]any)
		if !ok {
			return errors.New("a list is wanted")
		}
		b.Append(true)
		elem := typ.(*arrow.ListType).ElemField()
		var first error
		for i, item := range items {
			if err := n.field(b.ValueBuilder(), elem, item); err != nil && first == nil {
				first = fmt.Errorf("element %d: %w", i, err)
			}
		}
		return first
	case *array.StructBuilder:
		return n.object(b, typ.(*arrow.StructType), v)
	case *array.MapBuilder:
		return n.entries(b, typ.(*arrow.MapType), v)
	}
	return appendValue(to, typ, n.unknown, scalar(v))
}

func (n *nested) object(b *array.StructBuilder, typ *arrow.StructType, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("a map of the struct's fields is wanted")
	}
	b.Append(true)
	var first error
	for i, f := range typ.Fields() {
		if err := n.field(b.FieldBuilder(i), f, m[f.Name]); err != nil && first == nil {
			first = fmt.Errorf("field %s: %w", f.Name, err)
		}
		delete(m, f.Name)
	}
	if len(m) > 0 && first == nil && !n.unknown {
		first = fmt.Errorf("the table's struct has no field %s: add it to the table, drop it from the rows, or set unknown_fields: ignore", slices.Min(slices.Collect(maps.Keys(m))))
	}
	return first
}

func (n *nested) entries(b *array.MapBuilder, typ *arrow.MapType, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("a map is wanted")
	}
	b.Append(true)
	var first error
	for _, k := range slices.Sorted(maps.Keys(m)) {
		kerr := appendValue(b.KeyBuilder(), typ.KeyType(), n.unknown, mapKey(k, typ.KeyType()))
		verr := n.field(b.ItemBuilder(), typ.ItemField(), m[k])
		if err := cmp.Or(kerr, verr); err != nil && first == nil {
			first = fmt.Errorf("an entry: %w", err)
		}
	}
	return first
}

// mapKey is a key of a JSON object as a value for keys of a type.
func mapKey(k string, typ arrow.DataType) connectors.Value {
	switch typ.ID() {
	case arrow.INT32, arrow.INT64, arrow.FLOAT32, arrow.FLOAT64, arrow.DECIMAL128:
		return scalar(json.Number(k))
	}
	return connectors.StringValue(k)
}

func (n *nested) field(to array.Builder, f arrow.Field, v any) error {
	switch {
	case v != nil:
		before := to.Len()
		err := n.parsed(to, f.Type, v)
		if err != nil && to.Len() == before {
			to.AppendEmptyValue()
		}
		return err
	case f.Nullable:
		to.AppendNull()
		return nil
	}
	to.AppendEmptyValue()
	return errors.New("there is no value, and the table requires one")
}

// scalar is a parsed JSON value that is neither list nor map.
func scalar(v any) connectors.Value {
	switch v := v.(type) {
	case string:
		return connectors.StringValue(v)
	case bool:
		return connectors.BoolValue(v)
	case json.Number:
		if n, err := v.Int64(); err == nil && !strings.ContainsAny(v.String(), ".eE") {
			return connectors.IntValue(n)
		}
		return connectors.DecimalValue(v.String())
	case []any:
		return connectors.ListValue([]byte("[]"))
	case map[string]any:
		return connectors.MapValue([]byte("{}"))
	}
	return connectors.NullValue()
}
