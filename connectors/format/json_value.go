package format

import (
	"bytes"

	"github.com/sluice-etl/sluice/connectors"
)

// value reads and checks the value at i, within depth open containers.
func (s *scanner) value(b []byte, i, depth int, arena *connectors.Arena) (v connectors.Value, end int) {
	if uint(i) >= uint(len(b)) {
		return v, s.fail(len(b), wantMore)
	}
	switch c := b[i]; {
	case c == '"':
		end, escapes := s.checkString(b, i+1)
		if end < 0 {
			return v, end
		}
		return text(b[i+1:end], escapes, arena), end + 1
	case c == '-' || c-'0' <= 9:
		return s.number(b, i)
	case c == '{' || c == '[':
		was := s.full
		s.full = true
		end = s.skipContainer(b, i, depth)
		s.full = was
		if end < 0 {
			return v, end
		}
		return container(b[i:end]), end
	}
	if end = s.skipLiteral(b, i); end < 0 {
		return v, end
	}
	return literal(b[i]), end
}

func container(b []byte) connectors.Value {
	if b[0] == '{' {
		return connectors.MapValue(b)
	}
	return connectors.ListValue(b)
}

func literal(first byte) connectors.Value {
	if first == 'n' {
		return connectors.NullValue()
	}
	return connectors.BoolValue(first == 't')
}

// ParseValue reads any JSON text and checks it completely. Lists and maps borrow
// json, and so does text without escapes; other text goes into arena. Nesting is
// limited to a depth of 1000. The error is a *SyntaxError.
func ParseValue(json []byte, arena *connectors.Arena) (connectors.Value, error) {
	var open [(defaultMaxDepth + 63) / 64]uint64
	s := scanner{full: true, limit: defaultMaxDepth, open: open[:]}
	i := s.begin(json)
	if i < 0 {
		return connectors.Value{}, s.err()
	}
	v, i := s.value(json, i, 0, arena)
	if i < 0 || s.end(json, i) < 0 {
		return connectors.Value{}, s.err()
	}
	return v, nil
}

// The functions below take the text of a List or a Map, which is known to be
// valid; of other text they make something, but no harm. What they give out borrows it, but for text with escapes, which goes
// into arena.

// jump passes over the value at i.
func jump(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch c := b[i]; c {
		case '"':
			end := stringEnd(b, i+1)
			if end < 0 {
				return len(b)
			}
			i = end
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 {
				return scalarEnd(b, i)
			}
			i++
			continue
		}
		i++
		if depth <= 0 {
			return i
		}
	}
	return i
}

// scalarEnd is the end of the number or literal at i.
func scalarEnd(b []byte, i int) int {
	for i++; uint(i) < uint(len(b)) && b[i] > ' ' && b[i] != ',' && b[i] != '}' && b[i] != ']'; i++ {
	}
	return i
}

// valueOf reads the value that takes up all of b.
func valueOf(b []byte, arena *connectors.Arena) connectors.Value {
	if len(b) == 0 {
		return connectors.Value{}
	}
	switch b[0] {
	case '"':
		raw := b[1:max(1, len(b)-1)]
		return text(raw, bytes.IndexByte(raw, '\\') >= 0, arena)
	case '{', '[':
		return container(b)
	case 't', 'f', 'n':
		return literal(b[0])
	}
	var s scanner
	v, _ := s.number(b, 0)
	return v
}

// walk goes over the elements of a list or the fields of a map: key is the name
// as written without its quotes, empty for elements. It stops when yield says so.
func walk(b []byte, yield func(key, value []byte) bool) {
	if len(b) == 0 {
		return
	}
	object := b[0] == '{'
	i := space(b, 1)
	for i < len(b) && b[i] != '}' && b[i] != ']' {
		var key []byte
		if object {
			end := stringEnd(b, i+1)
			if end < 0 {
				return
			}
			key = b[i+1 : end]
			i = space(b, space(b, end+1)+1)
		}
		start := i
		if i = jump(b, i); start >= i || !yield(key, b[start:i]) {
			return
		}
		if i = space(b, i); i < len(b) && b[i] == ',' {
			i = space(b, i+1)
		}
	}
}

// keyIs reports whether the name written is key.
func keyIs(written []byte, key string) bool {
	if string(written) == key {
		return bytes.IndexByte(written, '\\') < 0
	}
	if len(written) <= len(key) || bytes.IndexByte(written, '\\') < 0 {
		return false
	}
	var buf [128]byte
	return string(appendUnescaped(buf[:0], written)) == key
}

// Lookup is the value of a map's field, of the last one of that name.
func Lookup(json []byte, key string, arena *connectors.Arena) (v connectors.Value, ok bool) {
	var found []byte
	walk(json, func(k, value []byte) bool {
		if keyIs(k, key) {
			found = value
		}
		return true
	})
	return valueOf(found, arena), found != nil
}

// Index is the element of a list at position i, from 0.
func Index(json []byte, i int, arena *connectors.Arena) (v connectors.Value, ok bool) {
	var found []byte
	walk(json, func(_, value []byte) bool {
		if i == 0 {
			found = value
		}
		i--
		return found == nil
	})
	return valueOf(found, arena), found != nil
}

// Len is the number of elements of a list, or of different names in a map.
func Len(json []byte) int {
	n := 0
	if len(json) > 0 && json[0] == '{' {
		distinct(json, func(_, _ []byte) bool { n++; return true })
		return n
	}
	walk(json, func(_, _ []byte) bool { n++; return true })
	return n
}

// Elements yields the elements of a list until yield returns false.
func Elements(json []byte, arena *connectors.Arena, yield func(connectors.Value) bool) {
	walk(json, func(_, value []byte) bool { return yield(valueOf(value, arena)) })
}

// Entries yields the fields of a map until yield returns false: each name once,
// with its last value, in the place of the last one. It allocates where a map
// has more than 16 fields or names with escapes.
func Entries(json []byte, arena *connectors.Arena, yield func(key string, v connectors.Value) bool) {
	distinct(json, func(key, value []byte) bool {
		name := key
		if bytes.IndexByte(key, '\\') >= 0 {
			name = unescape(key, arena)
		}
		return yield(stringOf(name), valueOf(value, arena))
	})
}

// distinct is walk without the fields that a later one of the same name
// overrides.
func distinct(json []byte, yield func(key, value []byte) bool) {
	const few = 16
	var keys [few][]byte
	n, plain := 0, true
	walk(json, func(key, _ []byte) bool {
		if n < few {
			keys[n] = key
		}
		n++
		plain = plain && bytes.IndexByte(key, '\\') < 0
		return true
	})
	if n > few || !plain {
		distinctMany(json, n, yield)
		return
	}
	i := 0
	walk(json, func(key, value []byte) bool {
		i++
		for _, later := range keys[i:n] {
			if bytes.Equal(key, later) {
				return true
			}
		}
		return yield(key, value)
	})
}

func distinctMany(json []byte, n int, yield func(key, value []byte) bool) {
	last, i := make(map[string]int, n), 0
	walk(json, func(key, _ []byte) bool {
		last[string(appendUnescaped(nil, key))] = i
		i++
		return true
	})
	i = 0
	walk(json, func(key, value []byte) bool {
		i++
		return last[string(appendUnescaped(nil, key))] != i-1 || yield(key, value)
	})
}
