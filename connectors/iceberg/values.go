package iceberg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
func convertNested(to array.Builder, typ arrow.DataType, v connectors.Value) error {
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
	return appendParsed(to, typ, parsed)
}

// appendParsed appends parsed JSON; appendField does so where null may be refused.
func appendParsed(to array.Builder, typ arrow.DataType, v any) error {
	switch b := to.(type) {
	case *array.ListBuilder:
		items, ok := v.([]any)
		if !ok {
			return errors.New("a list is wanted")
		}
		b.Append(true)
		elem := typ.(*arrow.ListType).ElemField()
		var errs error
		for i, item := range items {
			if err := appendField(b.ValueBuilder(), elem, item); err != nil && errs == nil {
				errs = fmt.Errorf("element %d: %w", i, err)
			}
		}
		return errs
	case *array.StructBuilder:
		m, ok := v.(map[string]any)
		if !ok {
			return errors.New("a map of the struct's fields is wanted")
		}
		b.Append(true)
		var errs error
		for i, f := range typ.(*arrow.StructType).Fields() {
			if err := appendField(b.FieldBuilder(i), f, m[f.Name]); err != nil && errs == nil {
				errs = fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		return errs
	case *array.MapBuilder:
		return appendMap(b, typ.(*arrow.MapType), v)
	}
	return appendValue(to, typ, scalar(v))
}

func appendMap(b *array.MapBuilder, typ *arrow.MapType, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("a map is wanted")
	}
	b.Append(true)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var errs error
	for _, k := range keys {
		kerr := appendValue(b.KeyBuilder(), typ.KeyType(), mapKey(k, typ.KeyType()))
		verr := appendField(b.ItemBuilder(), typ.ItemField(), m[k])
		if err := errors.Join(kerr, verr); err != nil && errs == nil {
			errs = fmt.Errorf("a map's entry: %w", err)
		}
	}
	return errs
}

// mapKey is a key of a JSON object as a value for keys of a type.
func mapKey(k string, typ arrow.DataType) connectors.Value {
	switch typ.ID() {
	case arrow.INT32, arrow.INT64, arrow.FLOAT32, arrow.FLOAT64, arrow.DECIMAL128:
		return scalar(json.Number(k))
	}
	return connectors.StringValue(k)
}

func appendField(to array.Builder, f arrow.Field, v any) error {
	if v != nil {
		return appendParsedSafe(to, f.Type, v)
	}
	if f.Nullable {
		to.AppendNull()
		return nil
	}
	to.AppendEmptyValue()
	return errors.New("there is no value, and the table requires one")
}

func appendParsedSafe(to array.Builder, typ arrow.DataType, v any) error {
	before := to.Len()
	err := appendParsed(to, typ, v)
	if err != nil && to.Len() == before {
		to.AppendEmptyValue()
	}
	return err
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
