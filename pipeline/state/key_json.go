package state

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// maxKeyDepth is how deep lists and maps are made canonical. Decoders take 1000.
const maxKeyDepth = 2000

// appendContainerKey appends a list or a map as canonical JSON: without spaces, the
// fields of maps once each (the last one of a name) and by the bytes of their names,
// numbers as AppendKey sees them, in text nothing escaped but quotes, backslashes and
// control characters.
func appendContainerKey(dst []byte, tag byte, v connectors.Value) []byte {
	var arena connectors.Arena
	return appendKeyText(dst, tag, appendCanonical(nil, v, &arena, 0))
}

func appendCanonical(dst []byte, v connectors.Value, arena *connectors.Arena, depth int) []byte {
	switch v.Kind() {
	case connectors.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case connectors.Float, connectors.Decimal:
		return appendCanonicalNumber(dst, v)
	case connectors.String:
		return appendCanonicalText(dst, v.Text())
	case connectors.List, connectors.Map:
		if depth >= maxKeyDepth {
			return append(dst, v.Raw()...)
		}
		if v.Kind() == connectors.List {
			return appendCanonicalList(dst, v, arena, depth)
		}
		return appendCanonicalMap(dst, v, arena, depth)
	default:
	}
	return append(dst, "null"...)
}

func appendCanonicalList(dst []byte, v connectors.Value, arena *connectors.Arena, depth int) []byte {
	dst = append(dst, '[')
	first := true
	format.Elements(v.Raw(), arena, func(e connectors.Value) bool {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendCanonical(dst, e, arena, depth+1)
		return true
	})
	return append(dst, ']')
}

func appendCanonicalMap(dst []byte, v connectors.Value, arena *connectors.Arena, depth int) []byte {
	type field struct {
		name  string
		value connectors.Value
	}
	var fields []field
	format.Entries(v.Raw(), arena, func(name string, e connectors.Value) bool {
		fields = append(fields, field{name, e})
		return true
	})
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendCanonicalText(dst, f.name), ':')
		dst = appendCanonical(dst, f.value, arena, depth+1)
	}
	return append(dst, '}')
}

// appendCanonicalNumber writes a number by its key, so that equal ones are equal text.
func appendCanonicalNumber(dst []byte, v connectors.Value) []byte {
	var buf [64]byte
	n, _, err := ReadKey(AppendKey(buf[:0], v))
	switch {
	case err != nil:
		return append(dst, v.Raw()...)
	case n.Kind() == connectors.Int:
		return strconv.AppendInt(dst, n.Int(), 10)
	case n.Kind() == connectors.Decimal:
		return append(dst, n.Raw()...)
	case math.IsInf(n.Float(), 0) || math.IsNaN(n.Float()):
		return append(dst, "null"...) // JSON has no such numbers
	}
	return appendFloatText(dst, n.Float())
}

// appendCanonicalText quotes text. Bytes that are no UTF-8 stay, so that different text
// stays different.
func appendCanonicalText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
