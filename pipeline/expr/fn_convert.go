package expr

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func init() {
	define(
		function{Function: doc("is_null(value any) bool",
			"tells whether a value is null or absent",
			`is_null(null)`, `true`), run1: func(_ *Env, _ *site, v connectors.Value) connectors.Value { return connectors.BoolValue(v.IsNull()) }},
		function{Function: doc("coalesce(values any...) any",
			"gives the first value that is not null",
			`coalesce(null, 7, 8)`, `7`), build: func(_ *compiler, _ *site, args []*node) fn { return firstOf(args) }},
		function{Function: doc("type(value any) string",
			"names the kind of a value: null, bool, int, float, decimal, string, bytes, timestamp, duration, list or map",
			`type(1.5)`, `"float"`), run1: typeName},
		function{Function: doc("int(value number|string) int",
			"makes an int: of a number without its fraction, of text that is a number",
			`int("-12")`, `-12`), run1: toInt},
		function{Function: doc("float(value number|string) float",
			"makes a float of a number or of text that is one",
			`float("2.5")`, `2.5`), run1: toFloatValue},
		function{Function: doc("decimal(value number|string) decimal",
			"makes an exact decimal number, of at most 38 digits",
			`decimal("1.10") + 2`, `3.10`), run1: toDecimal},
		function{Function: doc("string(value any) string",
			"makes text of a value, as it would be in JSON but without quotes; of null it is `null`",
			`string(1.5)`, `"1.5"`), run1: toText},
		function{Function: doc("len(value string|bytes|list|map) int",
			"counts the characters of text, bytes, the elements of a list or the fields of a map",
			`len("häuser")`, `6`), run1: lengthOf},
	)
}

func firstOf(args []*node) fn {
	parts := make([]fn, len(args))
	for i, a := range args {
		parts[i] = a.run
	}
	return func(e *Env) connectors.Value {
		for _, part := range parts {
			if v := part(e); !v.IsNull() {
				return v
			}
		}
		return connectors.NullValue()
	}
}

func typeName(_ *Env, _ *site, v connectors.Value) connectors.Value {
	if v.IsNull() {
		return connectors.StringValue("null")
	}
	return connectors.StringValue(v.Kind().String())
}

func toInt(e *Env, s *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.Int:
		return v
	case connectors.Float:
		f := math.Trunc(v.Float())
		if f >= -1<<63 && f < 1<<63 {
			return connectors.IntValue(int64(f))
		}
		return e.fail(s, KindOverflow, "the number does not fit an int of 64 bits")
	case connectors.String:
		i, err := strconv.ParseInt(v.Text(), 10, 64)
		if err != nil {
			return e.fail(s, KindArgument, "the text given to int() is no whole number that fits 64 bits")
		}
		return connectors.IntValue(i)
	default:
	}
	d := &e.dec.x
	if !e.parseDecimal(s, d, v) {
		return failure
	}
	if d.Exponent < 0 {
		truncated := apd.Context{Precision: 2 * decimalReach, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundDown}
		_, _ = truncated.Quantize(d, d, 0)
	}
	i, err := d.Int64()
	if err != nil {
		return e.fail(s, KindOverflow, "the number does not fit an int of 64 bits")
	}
	return connectors.IntValue(i)
}

func toFloatValue(e *Env, s *site, v connectors.Value) connectors.Value {
	if v.Kind() == connectors.String {
		f, err := strconv.ParseFloat(v.Text(), 64)
		if err != nil || strings.ContainsAny(v.Text(), "_xX") {
			return e.fail(s, KindArgument, "the text given to float() is no number")
		}
		return connectors.FloatValue(f)
	}
	f, ok := e.toFloat(s, v)
	if !ok {
		return failure
	}
	return connectors.FloatValue(f)
}

func toDecimal(e *Env, s *site, v connectors.Value) connectors.Value {
	d := &e.dec.x
	if v.Kind() == connectors.String {
		if !parseDecimalText(d, v.Text()) {
			return e.fail(s, KindArgument, "the text given to decimal() is no number of at most 38 digits")
		}
	} else if !e.parseDecimal(s, d, v) {
		return failure
	}
	return e.decimalValue(s, d)
}

func toText(e *Env, s *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.String:
		return v
	case connectors.Decimal, connectors.List, connectors.Map:
		return connectors.StringValue(v.Text())
	case connectors.Bytes:
		if !utf8.Valid(v.Raw()) {
			return e.fail(s, KindArgument, "the bytes are not text in UTF-8; toBase64() writes any bytes")
		}
		return connectors.StringValue(v.Text())
	default:
	}
	const room = 64
	a := e.arena()
	out := a.Grow(room)
	switch v.Kind() {
	case connectors.Timestamp:
		out = v.Time().AppendFormat(out, time.RFC3339Nano)
	case connectors.Duration:
		out = append(out, v.Duration().String()...)
	case connectors.Float:
		out = appendFloatText(out, v.Float())
	default:
		out, _ = format.AppendValue(out, v)
	}
	return connectors.TextValue(connectors.String, a.Keep(out))
}

func appendFloatText(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendFloat(dst, f, 'g', -1, 64)
	}
	dst, _ = format.AppendValue(dst, connectors.FloatValue(f))
	return dst
}

// textOf is toText for the parts of messages and keys.
func (e *Env) textOf(s *site, v connectors.Value) (string, bool) {
	if v.Kind() == failed {
		return "", false
	}
	t := toText(e, s, v)
	return t.Text(), t.Kind() == connectors.String
}

func lengthOf(e *Env, _ *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.String:
		return connectors.IntValue(int64(utf8.RuneCountInString(v.Text())))
	case connectors.Bytes:
		return connectors.IntValue(int64(len(v.Raw())))
	default:
	}
	return connectors.IntValue(int64(format.Len(v.Raw())))
}
