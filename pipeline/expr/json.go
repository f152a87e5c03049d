package expr

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unsafe"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
func bytesOf(s string) []byte  { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// cursor walks over the JSON text of a list or map.
type cursor struct {
	b   []byte
	pos int
}

func over(raw []byte) cursor { c := cursor{b: raw}; c.pos = c.space(0) + 1; return c }

func (c *cursor) space(i int) int {
	for i < len(c.b) && (c.b[i] <= ' ' || c.b[i] == ',' || c.b[i] == ':') {
		i++
	}
	return i
}

// next gives the text of the next element, or of the next name or value.
func (c *cursor) next() ([]byte, bool) {
	i := c.space(c.pos)
	if i >= len(c.b) || c.b[i] == ']' || c.b[i] == '}' {
		return nil, false
	}
	c.pos = c.skip(i)
	return c.b[i:c.pos], true
}

func (c *cursor) skip(i int) int {
	switch c.b[i] {
	case '"':
		for i++; i < len(c.b) && c.b[i] != '"'; i++ {
			if c.b[i] == '\\' {
				i++
			}
		}
		return min(i+1, len(c.b))
	case '{', '[':
		for depth := 0; i < len(c.b); i++ {
			switch c.b[i] {
			case '"':
				i = c.skip(i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return len(c.b)
	}
	for i < len(c.b) && c.b[i] > ' ' && c.b[i] != ',' && c.b[i] != ']' && c.b[i] != '}' {
		i++
	}
	return i
}

// valueOf is the value that JSON text holds; what is not valid reads as null.
func valueOf(raw []byte, a *connectors.Arena) connectors.Value {
	if len(raw) == 0 {
		return connectors.NullValue()
	}
	switch raw[0] {
	case '"':
		return connectors.TextValue(connectors.String, unquoted(raw, a))
	case '{':
		return connectors.MapValue(raw)
	case '[':
		return connectors.ListValue(raw)
	case 't':
		return connectors.BoolValue(true)
	case 'f':
		return connectors.BoolValue(false)
	case 'n':
		return connectors.NullValue()
	}
	if v, ok := format.Number(stringOf(raw)); ok {
		return v
	}
	return connectors.NullValue()
}

func unquoted(raw []byte, a *connectors.Arena) []byte {
	for _, c := range raw {
		if c == '\\' {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return nil
			}
			return a.Copy([]byte(s))
		}
	}
	return raw[1 : len(raw)-1]
}

// lookup finds the last field called name in a map's text.
func lookup(raw []byte, name string, a *connectors.Arena) (connectors.Value, bool) {
	c := over(raw)
	var found []byte
	for {
		key, ok := c.next()
		if !ok {
			break
		}
		value, ok := c.next()
		if !ok {
			break
		}
		if string(unquoted(key, a)) == name {
			found = value
		}
	}
	if found == nil {
		return connectors.Value{}, false
	}
	return valueOf(found, a), true
}

// appendJSON appends v as JSON text.
func appendJSON(dst []byte, v connectors.Value) []byte {
	switch v.Kind() {
	case connectors.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case connectors.Float:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(dst, "null"...)
		}
		out, _ := json.Marshal(f)
		return append(dst, out...)
	case connectors.Decimal, connectors.List, connectors.Map:
		return append(dst, v.Raw()...)
	case connectors.String, connectors.Bytes:
		return format.AppendString(dst, v.Text())
	case connectors.Timestamp:
		dst = append(dst, '"')
		dst = v.Time().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"')
	case connectors.Duration:
		return format.AppendString(dst, v.Duration().String())
	}
	return append(dst, "null"...)
}

func validJSON(text []byte) bool { return json.Valid(text) }
