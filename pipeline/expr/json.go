package expr

import (
	"bytes"
	"unsafe"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
func bytesOf(s string) []byte  { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// cursor walks over the elements of a list and gives their text, so that what
// is only passed on is not written anew. The list is known to be valid.
type cursor struct {
	b   []byte
	pos int
}

func over(list connectors.Value) cursor { return cursor{b: list.Raw(), pos: 1} }

// next gives the text of the next element.
func (c *cursor) next() ([]byte, bool) {
	i := c.pos
	for i < len(c.b) && (c.b[i] <= ' ' || c.b[i] == ',') {
		i++
	}
	if i >= len(c.b) || c.b[i] == ']' {
		return nil, false
	}
	start := i
	switch c.b[i] {
	case '"':
		i = stringEnd(c.b, i)
	case '{', '[':
		i = containerEnd(c.b, i)
	default:
		for i < len(c.b) && c.b[i] > ' ' && c.b[i] != ',' && c.b[i] != ']' {
			i++
		}
	}
	c.pos = i
	return c.b[start:i], true
}

// stringEnd is the position behind the string that starts at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(b)
}

// containerEnd is the position behind the list or map that starts at i.
func containerEnd(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// elementOf is the value of an element's text.
func elementOf(raw []byte, a *connectors.Arena) connectors.Value {
	switch c := raw[0]; {
	case c == '{':
		return connectors.MapValue(raw)
	case c == '[':
		return connectors.ListValue(raw)
	case c == '"' && bytes.IndexByte(raw, '\\') < 0:
		return connectors.TextValue(connectors.String, raw[1:len(raw)-1])
	case c == '-' || c-'0' <= 9:
		v, _ := format.Number(stringOf(raw))
		return v
	}
	v, err := format.ParseValue(raw, a)
	if err != nil {
		// The decoder was not asked to check what it passed over.
		return connectors.TextValue(connectors.String, raw)
	}
	return v
}
