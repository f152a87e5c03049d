package avro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// encoder turns JSON into values of a schema.
type encoder struct {
	arena  connectors.Arena
	stack  []connectors.Value // fields of the records that are being written
	depth  int
	ignore bool // fields that the schema does not have are left out
}

// encode appends the JSON object in value.
func (e *encoder) encode(dst []byte, n *node, value []byte) ([]byte, error) {
	e.arena.Reset()
	e.stack, e.depth = e.stack[:0], 0
	v, err := format.ParseValue(value, &e.arena)
	if err != nil {
		return dst, err
	}
	return e.value(dst, n, v)
}

// pathError is what is wrong with a field.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return "field " + e.path + ": " + e.err.Error() }
func (e *pathError) Unwrap() error { return e.err }

func at(name string, err error) error {
	var inner *pathError
	if errors.As(err, &inner) {
		sep := "."
		if strings.HasPrefix(inner.path, "[") {
			sep = ""
		}
		return &pathError{name + sep + inner.path, inner.err}
	}
	return &pathError{name, err}
}

func (e *encoder) value(dst []byte, n *node, v connectors.Value) ([]byte, error) {
	if v.IsNull() && n.kind != "null" && n.kind != "union" {
		return dst, fmt.Errorf("%s is wanted, and it is null", n.what())
	}
	switch n.kind {
	case "null":
		if !v.IsNull() {
			return dst, fmt.Errorf("null is wanted, not %s", v.Kind())
		}
		return dst, nil
	case "boolean":
		b, err := columns.Bool(v)
		if b {
			return append(dst, 1), err
		}
		return append(dst, 0), err
	case "int", "long":
		i, err := n.integer(v)
		return binary.AppendVarint(dst, i), err
	case "float":
		f, err := columns.Float(v, 32)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), err
	case "double":
		f, err := columns.Float(v, 64)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), err
	case "string":
		if n.logical == "uuid" {
			if _, err := columns.UUID(v); err != nil {
				return dst, err
			}
		}
		text, err := columns.Text(v)
		return append(binary.AppendVarint(dst, int64(len(text))), text...), err
	case "bytes", "fixed":
		return n.binary(dst, v)
	case "enum":
		text, err := columns.Text(v)
		if err != nil {
			return dst, err
		}
		i := slices.Index(n.symbols, text)
		if i < 0 {
			return dst, fmt.Errorf("one of %s is wanted", shown(n.symbols))
		}
		return binary.AppendVarint(dst, int64(i)), nil
	case "union":
		return e.union(dst, n, v)
	}
	if e.depth++; e.depth > maxDepth {
		return dst, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	defer func() { e.depth-- }()
	switch n.kind {
	case "record":
		return e.record(dst, n, v)
	case "array":
		return e.array(dst, n, v)
	}
	return e.dictionary(dst, n, v)
}

func shown(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// what names the type for messages.
func (n *node) what() string {
	switch {
	case n.logical != "":
		return "a " + n.logical
	case n.name != "":
		return n.kind + " " + n.name
	}
	return n.kind
}

// integer is the number that an int or a long holds.
func (n *node) integer(v connectors.Value) (int64, error) {
	bits := 64
	if n.kind == "int" {
		bits = 32
	}
	var t time.Time
	var err error
	switch n.logical {
	case "":
		return columns.Int(v, bits)
	case "date":
		if t, err = columns.Day(v); err != nil {
			return 0, err
		}
		return floorDiv(t.Unix(), 86400), nil
	case "time-millis", "time-micros":
		d, err := columns.TimeOfDay(v)
		if err != nil {
			return 0, err
		}
		return whole(int64(d), unitOf(n.logical))
	}
	if strings.HasPrefix(n.logical, "local-") {
		t, err = columns.LocalTime(v)
	} else {
		t, err = columns.Time(v)
	}
	if err != nil {
		return 0, err
	}
	unit := unitOf(n.logical)
	rest, err := whole(int64(t.Nanosecond()), unit)
	if err != nil {
		return 0, err
	}
	if unit == 1 && (t.Year() < 1678 || t.Year() > 2261) {
		return 0, errors.New("the time is outside of what nanoseconds in 64 bits reach, 1678 to 2261")
	}
	return t.Unix()*(1e9/unit) + rest, nil
}

func unitOf(logical string) int64 {
	switch {
	case strings.HasSuffix(logical, "millis"):
		return 1e6
	case strings.HasSuffix(logical, "micros"):
		return 1e3
	}
	return 1
}

func whole(nanos, unit int64) (int64, error) {
	if nanos%unit != 0 {
		return 0, fmt.Errorf("the time is finer than %s, which the schema has", time.Duration(unit))
	}
	return nanos / unit, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// binary appends bytes or a fixed.
func (n *node) binary(dst []byte, v connectors.Value) ([]byte, error) {
	var raw []byte
	var err error
	switch n.logical {
	case "decimal":
		raw, err = n.decimal(v)
	case "uuid":
		var u [16]byte
		u, err = columns.UUID(v)
		raw = u[:]
	case "duration":
		raw, err = parseDuration(v)
	default:
		raw, err = columns.Bytes(v)
	}
	if err != nil {
		return dst, err
	}
	if n.kind == "bytes" {
		return append(binary.AppendVarint(dst, int64(len(raw))), raw...), nil
	}
	if len(raw) != n.size {
		return dst, fmt.Errorf("%d bytes are wanted, and it has %d", n.size, len(raw))
	}
	return append(dst, raw...), nil
}

// decimal is the unscaled number in two's complement.
func (n *node) decimal(v connectors.Value) ([]byte, error) {
	d, err := columns.Decimal(v, n.precision, n.scale)
	if err != nil {
		return nil, err
	}
	x := new(big.Int)
	if _, ok := x.SetString(d.Coeff.String(), 10); !ok {
		return nil, errors.New("a decimal number is wanted")
	}
	if d.Negative {
		x.Neg(x)
	}
	size := n.size
	if n.kind == "bytes" {
		size = twosLen(x)
	}
	if twosLen(x) > size {
		return nil, fmt.Errorf("the number does not fit the %d bytes of the schema", size)
	}
	if x.Sign() < 0 {
		x.Add(x, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	return x.FillBytes(make([]byte, size)), nil
}

// twosLen is how many bytes x takes up in two's complement.
func twosLen(x *big.Int) int {
	if x.Sign() >= 0 {
		return x.BitLen()/8 + 1
	}
	return new(big.Int).Not(x).BitLen()/8 + 1
}

var errDuration = errors.New("a duration like P1M2DT3.5S or 1h30m is wanted, from 0 on and in whole milliseconds")

// parseDuration reads months, days and milliseconds.
func parseDuration(v connectors.Value) ([]byte, error) {
	var parts [3]float64
	text := ""
	if v.Kind() == connectors.String {
		text = v.Text()
	}
	if rest, ok := strings.CutPrefix(text, "P"); ok {
		date, clock, _ := strings.Cut(rest, "T")
		for _, p := range []struct {
			text  *string
			unit  string
			into  int
			times float64
		}{{&date, "Y", 0, 12}, {&date, "M", 0, 1}, {&date, "W", 1, 7}, {&date, "D", 1, 1}, {&clock, "H", 2, 3600e3}, {&clock, "M", 2, 60e3}, {&clock, "S", 2, 1e3}} {
			number, after, found := strings.Cut(*p.text, p.unit)
			if !found {
				continue
			}
			f, err := strconv.ParseFloat(number, 64)
			if err != nil {
				return nil, errDuration
			}
			parts[p.into] += f * p.times
			*p.text = after
		}
		if date != "" || clock != "" {
			return nil, errDuration
		}
	} else {
		d, err := columns.Span(v)
		if err != nil {
			return nil, errDuration
		}
		parts[2] = float64(d) / 1e6
	}
	var out []byte
	for _, f := range parts {
		f = math.Round(f*1e6) / 1e6
		if f < 0 || f > math.MaxUint32 || f != math.Trunc(f) {
			return nil, errDuration
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(f))
	}
	return out, nil
}

// natural are the types that a value of a kind is of without being converted.
var natural = map[connectors.Kind][]string{
	connectors.Bool: {"boolean"}, connectors.Int: {"int", "long"}, connectors.Float: {"double", "float"}, connectors.Decimal: {"bytes", "fixed"},
	connectors.String: {"string", "enum"}, connectors.List: {"array"}, connectors.Map: {"record", "map"},
}

// union takes the first branch that the value fits: of those that it is of as it is, and
// then of the others.
func (e *encoder) union(dst []byte, n *node, v connectors.Value) ([]byte, error) {
	if inner, ok := n.nullable(); ok && !v.IsNull() {
		i := slices.Index(n.branches, inner)
		return e.value(binary.AppendVarint(dst, int64(i)), inner, v)
	}
	start, held := len(dst), len(e.stack)
	for _, converted := range []bool{false, true} {
		for i, b := range n.branches {
			if v.IsNull() != (b.kind == "null") || !v.IsNull() && slices.Contains(natural[v.Kind()], b.kind) == converted {
				continue
			}
			out, err := e.value(binary.AppendVarint(dst[:start], int64(i)), b, v)
			if err == nil {
				return out, nil
			}
			e.stack = e.stack[:held]
		}
	}
	names := make([]string, len(n.branches))
	for i, b := range n.branches {
		names[i] = b.what()
	}
	if v.IsNull() {
		return dst, fmt.Errorf("one of %s is wanted, and it is null", shown(names))
	}
	return dst, fmt.Errorf("the value fits none of %s", shown(names))
}

func (e *encoder) record(dst []byte, n *node, v connectors.Value) ([]byte, error) {
	if v.Kind() != connectors.Map {
		return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	base := len(e.stack)
	e.stack = append(e.stack, make([]connectors.Value, len(n.fields))...)
	extra := ""
	format.Entries(v.Raw(), &e.arena, func(key string, v connectors.Value) bool {
		if i, ok := n.byName[key]; ok {
			e.stack[base+i] = v
		} else if extra == "" {
			extra = key
		}
		return true
	})
	if extra != "" && !e.ignore {
		return dst, at(extra, errors.New("the schema has no such field: drop it, or write ignore_unknown: true"))
	}
	var err error
	for i := range n.fields {
		f := &n.fields[i]
		v := e.stack[base+i]
		if v.Kind() == connectors.Absent {
			if f.hasDefault {
				dst = append(dst, f.encoded...)
				continue
			}
			if f.node.kind != "union" {
				return dst, at(f.name, fmt.Errorf("it is missing, and the schema has no default for it (%s)", f.node.what()))
			}
		}
		if dst, err = e.value(dst, f.node, v); err != nil {
			return dst, at(f.name, err)
		}
	}
	e.stack = e.stack[:base]
	return dst, nil
}

func (e *encoder) array(dst []byte, n *node, v connectors.Value) (_ []byte, err error) {
	if v.Kind() != connectors.List {
		return dst, fmt.Errorf("a list is wanted, not %s", v.Kind())
	}
	if size := format.Len(v.Raw()); size > 0 {
		dst = binary.AppendVarint(dst, int64(size))
		i := 0
		format.Elements(v.Raw(), &e.arena, func(v connectors.Value) bool {
			if dst, err = e.value(dst, n.elem, v); err != nil {
				err = at(fmt.Sprintf("[%d]", i), err)
			}
			i++
			return err == nil
		})
	}
	return append(dst, 0), err
}

func (e *encoder) dictionary(dst []byte, n *node, v connectors.Value) (_ []byte, err error) {
	if v.Kind() != connectors.Map {
		return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	if size := format.Len(v.Raw()); size > 0 {
		dst = binary.AppendVarint(dst, int64(size))
		format.Entries(v.Raw(), &e.arena, func(key string, v connectors.Value) bool {
			dst = append(binary.AppendVarint(dst, int64(len(key))), key...)
			if dst, err = e.value(dst, n.elem, v); err != nil {
				err = at(key, err)
			}
			return err == nil
		})
	}
	return append(dst, 0), err
}
