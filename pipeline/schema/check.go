package schema

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Checker checks the declared fields of records, which a decoder has put into
// slots, and turns them into what they are declared as. It is immutable.
type Checker struct {
	fields []checked
}

// checked is one declared field.
type checked struct {
	path   string
	slot   int
	parent int // index of the map that it is in, -1 for the record
	typ    *Type
}

// NewChecker makes the checker of a record type. slot tells where the field of a
// path is decoded to; exact, that the decoder gives its number as text.
func NewChecker(record *Type, slot func(path []string, exact bool) int) *Checker {
	c := &Checker{}
	c.add(record, nil, "", -1, slot)
	return c
}

func (c *Checker) add(t *Type, path []string, prefix string, parent int, slot func([]string, bool) int) {
	for _, f := range t.Fields {
		at := append(append(make([]string, 0, len(path)+1), path...), f.Name)
		i := len(c.fields)
		c.fields = append(c.fields, checked{path: prefix + f.Name, slot: slot(at, f.Type.Base == Decimal), parent: parent, typ: f.Type})
		if f.Type.Base == Map {
			c.add(f.Type, at, prefix+f.Name+".", i, slot)
		}
	}
}

// Check checks row i of b. The answer is empty, or says what is wrong; it holds no
// data of the record.
func (c *Checker) Check(b *connectors.Batch, i int) string {
	if !isObject(b.Records[i].Value) {
		return "the value is no object, and the schema has fields"
	}
	row := b.Row(i)
	for j := range c.fields {
		f := &c.fields[j]
		if f.parent >= 0 && row[c.fields[f.parent].slot].IsNull() {
			continue
		}
		v := row[f.slot]
		if v.Kind() == plain[f.typ.Base] && f.typ.Elem == nil {
			continue
		}
		out, wrong := f.typ.convert(v, &b.Arena)
		if wrong != "" {
			return "field " + f.path + " " + wrong
		}
		row[f.slot] = out
	}
	return ""
}

func isObject(value []byte) bool {
	for _, c := range value {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c == '{'
		}
	}
	return false
}

// plain is the kind that a value of a base has when there is nothing to do about it.
var plain = [Map + 1]connectors.Kind{
	Bool: connectors.Bool, Int: connectors.Int, Float: connectors.Float, Number: connectors.Int, String: connectors.String,
	List: connectors.List, Map: connectors.Map,
	Any: noKind, Decimal: noKind, Bytes: noKind, Timestamp: noKind, Duration: noKind,
}

const noKind = connectors.Kind(255)

// convert is the value as it is declared; wrong says why it cannot be.
func (t *Type) convert(v connectors.Value, arena *connectors.Arena) (out connectors.Value, wrong string) {
	if v.IsNull() {
		switch {
		case t.Nullable || t.Base == Any:
			return v, ""
		case v.Kind() == connectors.Absent:
			return v, "is missing: declare it as " + t.Base.String() + "? if it may be"
		}
		return v, "is null: declare it as " + t.Base.String() + "? if it may be"
	}
	switch t.Base {
	case Any:
		return v, ""
	case Float:
		return toFloat(v)
	case Number:
		if k := v.Kind(); k == connectors.Int || k == connectors.Float || k == connectors.Decimal {
			return v, ""
		}
	case Decimal:
		return toDecimal(v)
	case Timestamp:
		return toTimestamp(v)
	case Duration:
		return toDuration(v)
	case Bytes:
		return toBytes(v, arena)
	case List:
		if v.Kind() == connectors.List {
			return v, t.checkList(v, arena)
		}
	default:
		if v.Kind() == plain[t.Base] {
			return v, ""
		}
	}
	return v, mismatch(v, t.Base.String())
}

// Convert turns a value that was decoded by itself into what it is declared as, if
// it is not that already and can be.
func Convert(t *Type, v *connectors.Value, arena *connectors.Arena) {
	if v.IsNull() || decoded[t.Base].Has(v.Kind()) {
		return
	}
	if out, wrong := t.convert(*v, arena); wrong == "" {
		*v = out
	}
}

func mismatch(v connectors.Value, want string) string {
	return fmt.Sprintf("is %s, and the schema has %s", v.Kind(), want)
}

func toFloat(v connectors.Value) (connectors.Value, string) {
	switch v.Kind() {
	case connectors.Float:
		return v, ""
	case connectors.Int:
		return connectors.FloatValue(float64(v.Int())), ""
	case connectors.Decimal:
		f, err := strconv.ParseFloat(v.Text(), 64)
		if err != nil || math.IsInf(f, 0) {
			return v, "is a number beyond those of a float: declare it as decimal or number"
		}
		return connectors.FloatValue(f), ""
	case connectors.String: // JSON has no numbers for these
		switch v.Text() {
		case "NaN":
			return connectors.FloatValue(math.NaN()), ""
		case "Infinity":
			return connectors.FloatValue(math.Inf(1)), ""
		case "-Infinity":
			return connectors.FloatValue(math.Inf(-1)), ""
		}
		return v, mismatch(v, "float")
	default:
		return v, mismatch(v, "float")
	}
}

// toDecimal takes what the decoder gives, the text of a number, or a string that
// holds one.
func toDecimal(v connectors.Value) (connectors.Value, string) {
	switch v.Kind() {
	case connectors.Decimal:
		return v, ""
	case connectors.String:
		if _, ok := format.Number(v.Text()); ok {
			return connectors.DecimalValue(v.Text()), ""
		}
		return v, "is text that holds no number, and the schema has decimal"
	default:
		return v, mismatch(v, "decimal")
	}
}

func toTimestamp(v connectors.Value) (connectors.Value, string) {
	switch v.Kind() {
	case connectors.Int:
		return connectors.TimestampValue(time.UnixMilli(v.Int()).UTC()), ""
	case connectors.String:
		t, err := time.Parse(time.RFC3339Nano, v.Text())
		if err != nil {
			return v, "is text that is no RFC 3339 time, and the schema has timestamp"
		}
		return connectors.TimestampValue(t), ""
	default:
		return v, mismatch(v, "timestamp")
	}
}

func toDuration(v connectors.Value) (connectors.Value, string) {
	if v.Kind() != connectors.String {
		return v, mismatch(v, "duration")
	}
	d, err := connectors.ParseDuration(v.Text())
	if err != nil {
		return v, "is text that is no duration such as 1h30m, and the schema has duration"
	}
	return connectors.DurationValue(d), ""
}

func toBytes(v connectors.Value, arena *connectors.Arena) (connectors.Value, string) {
	if v.Kind() != connectors.String {
		return v, mismatch(v, "bytes")
	}
	text := v.Raw()
	room := arena.Grow(base64.StdEncoding.DecodedLen(len(text)))
	room = room[:base64.StdEncoding.DecodedLen(len(text))]
	n, err := base64.StdEncoding.Decode(room, text)
	if err != nil {
		return v, "is text that is no base64, and the schema has bytes"
	}
	return connectors.BytesValue(arena.Keep(room[:n])), ""
}

// checkList checks the elements of a list, which stay as they are written.
func (t *Type) checkList(v connectors.Value, arena *connectors.Arena) string {
	if t.Elem == nil || t.Elem.Base == Any {
		return ""
	}
	wrong, i := "", 0
	format.Elements(v.Raw(), arena, func(e connectors.Value) bool {
		if wrong = t.Elem.within(e, arena); wrong != "" {
			wrong = fmt.Sprintf("has an element %d that %s", i, wrong)
		}
		i++
		return wrong == ""
	})
	return wrong
}

// within checks a value that is part of another one.
func (t *Type) within(v connectors.Value, arena *connectors.Arena) string {
	if t.Base == Decimal && (v.Kind() == connectors.Int || v.Kind() == connectors.Float) {
		return ""
	}
	if _, wrong := t.convert(v, arena); wrong != "" || v.Kind() != connectors.Map {
		return wrong
	}
	for _, f := range t.Fields {
		part, _ := format.Lookup(v.Raw(), f.Name, arena)
		if wrong := f.Type.within(part, arena); wrong != "" {
			return "has a field " + f.Name + " that " + wrong
		}
	}
	return ""
}
