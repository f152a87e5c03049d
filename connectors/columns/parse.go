package columns

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// List is columns as a user declares them, in their order:
//
//	columns:
//	  - id: int
//	  - price: decimal(10, 2)
//	  - note: string?
//	  - tags: [string]
//	  - address: [{street: string}, {zip: string?}]
//
// A type that ends in ? may be null.
type List []connectors.Column

// UnmarshalConfig reads the list.
func (l *List) UnmarshalConfig(v any) error {
	items, ok := v.([]any)
	if !ok {
		return errors.New("a list of columns is wanted: [{id: int}, {name: string?}]")
	}
	cols, err := fields(items)
	*l = cols
	return err
}

func fields(items []any) ([]connectors.Column, error) {
	var out []connectors.Column
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok || len(m) != 1 {
			return nil, fmt.Errorf("column %d is not one name with its type, such as {id: int}", i+1)
		}
		for name, t := range m {
			if slices.ContainsFunc(out, func(c connectors.Column) bool { return c.Name == name }) {
				return nil, fmt.Errorf("there are two columns %s", name)
			}
			typ, err := parse(t)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", name, err)
			}
			out = append(out, connectors.Column{Name: name, Type: typ})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there are no columns")
	}
	return out, nil
}

func parse(v any) (connectors.Type, error) {
	switch v := v.(type) {
	case string:
		return ParseType(v)
	case []any:
		if len(v) == 1 {
			if _, ok := v[0].(map[string]any); !ok {
				elem, err := parse(v[0])
				return connectors.Type{Base: connectors.Sequence, Elem: &elem}, err
			}
		}
		sub, err := fields(v)
		return connectors.Type{Base: connectors.Struct, Fields: sub}, err
	}
	return connectors.Type{}, fmt.Errorf("%v is no type", v)
}

// words are the types by their names.
var words = map[string]connectors.Type{
	"bool": {Base: connectors.Boolean}, "int": {Base: connectors.Integer, Bits: 64}, "int8": {Base: connectors.Integer, Bits: 8},
	"int16": {Base: connectors.Integer, Bits: 16}, "int32": {Base: connectors.Integer, Bits: 32}, "int64": {Base: connectors.Integer, Bits: 64},
	"uint8":  {Base: connectors.Integer, Bits: 8, Unsigned: true},
	"uint16": {Base: connectors.Integer, Bits: 16, Unsigned: true}, "uint32": {Base: connectors.Integer, Bits: 32, Unsigned: true},
	"uint64": {Base: connectors.Integer, Bits: 64, Unsigned: true}, "float": {Base: connectors.Real, Bits: 64},
	"float32": {Base: connectors.Real, Bits: 32}, "float64": {Base: connectors.Real, Bits: 64}, "string": {Base: connectors.Text},
	"bytes": {Base: connectors.Binary}, "timestamp": {Base: connectors.Instant}, "timestamp_local": {Base: connectors.Local},
	"date": {Base: connectors.Date}, "time": {Base: connectors.TimeOfDay}, "duration": {Base: connectors.Span},
	"uuid": {Base: connectors.UUID}, "json": {Base: connectors.Document},
}

// Words lists the names of types without sizes of their own.
func Words() []string {
	out := []string{"decimal(PRECISION, SCALE)", "dictionary(TYPE)"}
	for w := range words {
		out = append(out, w)
	}
	slices.Sort(out)
	return out
}

// maxPrecision is how many digits a decimal has at most.
const maxPrecision = 38

// ParseType reads one type as a user writes it.
func ParseType(text string) (connectors.Type, error) {
	name, nullable := strings.CutSuffix(strings.TrimSpace(text), "?")
	t, ok := words[name]
	if !ok {
		head, args, open := strings.Cut(name, "(")
		args, closed := strings.CutSuffix(args, ")")
		var err error
		switch {
		case open && closed && head == "decimal":
			t, err = parseDecimal(args)
		case open && closed && head == "dictionary":
			var elem connectors.Type
			elem, err = ParseType(args)
			t = connectors.Type{Base: connectors.Dictionary, Elem: &elem}
		default:
			err = fmt.Errorf("%q is no type; there is %s, and [TYPE] for a list", text, strings.Join(Words(), ", "))
		}
		if err != nil {
			return connectors.Type{}, err
		}
	}
	t.Nullable = nullable
	return t, nil
}

func parseDecimal(args string) (connectors.Type, error) {
	p, s, two := strings.Cut(args, ",")
	precision, err := strconv.Atoi(strings.TrimSpace(p))
	scale := 0
	if err == nil && two {
		scale, err = strconv.Atoi(strings.TrimSpace(s))
	}
	if err != nil || precision < 1 || precision > maxPrecision || scale < 0 || scale > precision {
		return connectors.Type{}, fmt.Errorf("decimal(%s): write decimal(PRECISION, SCALE) with up to %d digits, SCALE of them behind the point", args, maxPrecision)
	}
	return connectors.Type{Base: connectors.Exact, Precision: precision, Scale: scale}, nil
}
