package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// ToAny turns v into what expr's virtual machine works on: nil, bool, int,
// float64, string, []byte, time.Time, time.Duration, []any and map[string]any. A
// decimal becomes a json.Number, which keeps it exact and which no operator takes
// for a float. Text and bytes are borrowed.
func ToAny(v connectors.Value, arena *connectors.Arena) any {
	switch v.Kind() {
	case connectors.Bool:
		return v.Bool()
	case connectors.Int:
		return int(v.Int())
	case connectors.Float:
		return v.Float()
	case connectors.Decimal:
		return json.Number(v.Text())
	case connectors.String:
		return v.Text()
	case connectors.Bytes:
		return v.Raw()
	case connectors.Timestamp:
		return v.Time()
	case connectors.Duration:
		return v.Duration()
	case connectors.List:
		list := []any{}
		Elements(v.Raw(), arena, func(e connectors.Value) bool {
			list = append(list, ToAny(e, arena))
			return true
		})
		return list
	case connectors.Map:
		m := map[string]any{}
		Entries(v.Raw(), arena, func(key string, e connectors.Value) bool {
			m[key] = ToAny(e, arena)
			return true
		})
		return m
	default:
		return nil
	}
}

var errDeep = errors.New("the value is nested too deeply")

// FromAny turns what expr's virtual machine gives back into a value. Text is
// borrowed; lists and maps are written into arena as JSON, maps sorted by name.
func FromAny(x any, arena *connectors.Arena) (connectors.Value, error) {
	switch x := x.(type) {
	case nil:
		return connectors.NullValue(), nil
	case bool:
		return connectors.BoolValue(x), nil
	case int:
		return connectors.IntValue(int64(x)), nil
	case int64:
		return connectors.IntValue(x), nil
	case float64:
		return connectors.FloatValue(x), nil
	case string:
		return connectors.StringValue(x), nil
	case []byte:
		return connectors.BytesValue(x), nil
	case json.Number:
		if v, ok := Number(string(x)); ok {
			return v, nil
		}
		return connectors.Value{}, errors.New("a json.Number holds no number")
	case time.Time:
		return connectors.TimestampValue(x), nil
	case time.Duration:
		return connectors.DurationValue(x), nil
	case connectors.Value:
		return x, nil
	}
	return fromReflect(reflect.ValueOf(x), arena)
}

// fromReflect handles the other types of numbers, and lists and maps of any.
func fromReflect(x reflect.Value, arena *connectors.Arena) (connectors.Value, error) {
	switch {
	case x.Kind() == reflect.Pointer || x.Kind() == reflect.Interface:
		if x.IsNil() {
			return connectors.NullValue(), nil
		}
		return FromAny(x.Elem().Interface(), arena)
	case x.CanInt():
		return connectors.IntValue(x.Int()), nil
	case x.CanUint():
		if u := x.Uint(); u > math.MaxInt64 {
			return connectors.DecimalValue(strconv.FormatUint(u, 10)), nil
		}
		return connectors.IntValue(int64(x.Uint())), nil
	case x.CanFloat():
		return connectors.FloatValue(x.Float()), nil
	case x.Kind() == reflect.Bool:
		return connectors.BoolValue(x.Bool()), nil
	case x.Kind() == reflect.String:
		return connectors.StringValue(x.String()), nil
	}
	out, err := appendAny(nil, x, 0)
	if err != nil {
		return connectors.Value{}, err
	}
	if arena != nil {
		out = arena.Copy(out)
	}
	return container(out), nil
}

// appendAny appends a list or a map as JSON, within depth others.
func appendAny(dst []byte, x reflect.Value, depth int) ([]byte, error) {
	if depth >= defaultMaxDepth {
		return dst, errDeep
	}
	var err error
	switch {
	case x.Kind() == reflect.Slice || x.Kind() == reflect.Array:
		dst = append(dst, '[')
		for i := range x.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendElement(dst, x.Index(i), depth); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case x.Kind() == reflect.Map && x.Type().Key().Kind() == reflect.String:
		keys := x.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		dst = append(dst, '{')
		for i, k := range keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, k.String()), ':')
			if dst, err = appendElement(dst, x.MapIndex(k), depth); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	return dst, fmt.Errorf("a %s is no value of a record", x.Type())
}

func appendElement(dst []byte, x reflect.Value, depth int) ([]byte, error) {
	for x.Kind() == reflect.Interface && !x.IsNil() {
		x = x.Elem()
	}
	if k := x.Kind(); (k == reflect.Slice || k == reflect.Array || k == reflect.Map) && x.Type() != bytesType {
		return appendAny(dst, x, depth+1)
	}
	if x.Kind() == reflect.Interface || !x.IsValid() {
		return append(dst, "null"...), nil
	}
	v, err := FromAny(x.Interface(), nil)
	if err != nil {
		return dst, err
	}
	return AppendValue(dst, v)
}

var bytesType = reflect.TypeFor[[]byte]()
