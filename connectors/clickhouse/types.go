package clickhouse

import (
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// codec writes the values of a type as RowBinary.
type codec struct {
	nullable bool
	document bool            // of the type JSON, which is sent as text
	number   bool            // its keys of a map are numbers
	reads    connectors.Base // what is asked of the rows: numbers exactly, or as they come
	write    appendFunc      // a value that is not null
}

// appendFunc appends a value, which is not null.
type appendFunc func(dst []byte, v connectors.Value) ([]byte, error)

// value appends a value; null only where the type has it.
func (c *codec) value(dst []byte, v connectors.Value) ([]byte, error) {
	switch {
	case c.nullable && v.IsNull():
		return append(dst, 1), nil
	case c.nullable:
		dst = append(dst, 0)
	case v.IsNull():
		return dst, errNull
	}
	return c.write(dst, v)
}

// newCodec makes the codec of a type as the server writes it; nil where values of it are
// not written by this program. Zone is the server's, rows the type that the field is known
// to have.
func newCodec(text, zone string, rows connectors.Type) *codec {
	name, args := cut(text)
	of := func(write appendFunc, reads connectors.Base) *codec { return &codec{write: write, reads: reads} }
	switch name {
	case "LowCardinality", "Nullable":
		if c := newCodec(args[0], zone, rows); c != nil {
			c.nullable = c.nullable || name == "Nullable"
			return c
		}
		return nil
	case "SimpleAggregateFunction":
		return newCodec(args[len(args)-1], zone, rows)
	case "Array", "Map", "Tuple":
		return newContainer(name, args, zone, rows)
	case "String":
		return of(appendString(rows.Base), connectors.Exact)
	case "FixedString":
		return of(appendFixed(number(args, 0), rows.Base), connectors.Exact)
	case "Enum8", "Enum16":
		return of(appendEnum(labels(args), name == "Enum16"), connectors.Exact)
	case "Bool":
		return of(appendBool, connectors.Boolean)
	case "Float32":
		return of(appendReal(32), connectors.Real)
	case "Float64":
		return of(appendReal(64), connectors.Real)
	case "Decimal":
		return of(appendDecimal(number(args, 0), number(args, 1)), connectors.Exact)
	case "UUID":
		return of(appendUUID, connectors.UUID)
	case "IPv4", "IPv6":
		return of(appendIP(name == "IPv4"), connectors.Text)
	case "JSON":
		return newDocument(args)
	}
	if c := newInteger(name); c != nil {
		return c
	}
	return newTemporal(name, args, zone)
}

// newInteger makes the codec of Int8 to UInt256.
func newInteger(name string) *codec {
	width, unsigned := strings.CutPrefix(name, "UInt")
	if !unsigned {
		var ok bool
		if width, ok = strings.CutPrefix(name, "Int"); !ok {
			return nil
		}
	}
	bits, err := strconv.Atoi(width)
	switch {
	case err != nil:
		return nil
	case bits > 64:
		return &codec{write: appendWide(bits, unsigned), reads: connectors.Exact, number: true}
	}
	return &codec{write: appendInt(bits, unsigned), reads: connectors.Exact, number: true}
}

// newTemporal makes the codecs of dates and times.
func newTemporal(name string, args []string, zone string) *codec {
	of := func(write appendFunc, reads connectors.Base) *codec { return &codec{write: write, reads: reads} }
	digits := 0
	if strings.HasSuffix(name, "64") && len(args) > 0 {
		digits = number(args, 0)
		args = args[1:]
	}
	if len(args) > 0 {
		zone = unquote(args[0])
	}
	utc := zone == "UTC" || zone == "Etc/UTC"
	switch name {
	case "Date":
		return of(appendDate, connectors.Date)
	case "Date32":
		return of(appendDate32, connectors.Date)
	case "DateTime":
		return of(appendSeconds(utc), connectors.Instant)
	case "DateTime64":
		return of(appendTicks(digits, utc), connectors.Instant)
	case "Time":
		return of(appendTime, connectors.TimeOfDay)
	case "Time64":
		return of(appendTime64(digits), connectors.TimeOfDay)
	}
	return nil
}

// newContainer makes the codecs of types that hold others.
func newContainer(name string, args []string, zone string, rows connectors.Type) *codec {
	names := make([]string, len(args))
	inner := make([]*codec, len(args))
	for i, arg := range args {
		if name == "Tuple" {
			names[i], arg = cutName(arg)
		}
		if inner[i] = newCodec(arg, zone, innerType(rows, i, names[i])); inner[i] == nil {
			return nil
		}
	}
	c := &codec{reads: connectors.Exact}
	for _, in := range inner {
		c.document = c.document || in.document
	}
	switch name {
	case "Array":
		c.write = appendArray(inner[0])
	case "Map":
		c.write = appendMap(inner[0], inner[1])
	default:
		c.write = appendTuple(names, inner)
	}
	return c
}

// innerType is what is known of the i-th type within a field, which can have a name: values
// go by it then, not by their place.
func innerType(rows connectors.Type, i int, name string) connectors.Type {
	switch {
	case rows.Base == connectors.Sequence, rows.Base == connectors.Dictionary && i == 1:
		return *rows.Elem
	case rows.Base == connectors.Struct && name != "":
		for _, f := range rows.Fields {
			if f.Name == name {
				return f.Type
			}
		}
	case rows.Base == connectors.Struct && i < len(rows.Fields):
		return rows.Fields[i].Type
	}
	return connectors.Type{}
}

// cut takes a type apart: its name and what stands in its brackets.
func cut(text string) (name string, args []string) {
	name, rest, open := strings.Cut(text, "(")
	if !open {
		return text, nil
	}
	return name, split(strings.TrimSuffix(rest, ")"), ',')
}

// cutName takes the name off an element of a tuple, where it has one.
func cutName(text string) (name, typ string) {
	parts := split(text, ' ')
	if len(parts) == 1 {
		return "", text
	}
	return unquote(parts[0]), strings.TrimSpace(text[len(parts[0]):])
}

// split cuts at a character that stands in no brackets and no quotes.
func split(text string, at byte) (out []string) {
	depth, from := 0, 0
	var quoted byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted != 0 && c == '\\':
			i++
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '\'' || c == '`':
			quoted = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == at && depth == 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(text[from:]))
}

// unquote reads a name or a text in quotes.
func unquote(text string) string {
	if len(text) < 2 || text[0] != '\'' && text[0] != '`' {
		return text
	}
	var out strings.Builder
	for i := 1; i < len(text)-1; i++ {
		if text[i] == '\\' && i+1 < len(text)-1 {
			i++
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// number reads one of the arguments; 0 where it is not there.
func number(args []string, i int) int {
	if i >= len(args) {
		return 0
	}
	n, _ := strconv.Atoi(args[i])
	return n
}

// labels are those of an enum with their numbers: 'a' = 1.
func labels(args []string) map[string]int16 {
	out := make(map[string]int16, len(args))
	for _, a := range args {
		at := strings.LastIndex(a, "=")
		if at < 0 {
			continue
		}
		n, _ := strconv.ParseInt(strings.TrimSpace(a[at+1:]), 10, 16)
		out[unquote(strings.TrimSpace(a[:at]))] = int16(n)
	}
	return out
}
