package format

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
)

// stringEnd is the position of the quote that ends the string whose first byte
// is at i, negative where there is none. It looks at no byte more than it has to:
// most strings end within two words, and a long one is searched with the vector
// instructions of bytes.IndexByte.
func stringEnd(b []byte, i int) int {
	start := i
	if i+16 <= len(b) {
		m := quote(binary.LittleEndian.Uint64(b[i:]))
		if m == 0 {
			i += 8
			m = quote(binary.LittleEndian.Uint64(b[i:]))
		}
		if m == 0 {
			i += 8
		} else {
			i += bits.TrailingZeros64(m) >> 3
			if b[i-1] != '\\' || !escaped(b[start:i]) {
				return i
			}
			i++
		}
	}
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		if b[i-1] != '\\' || !escaped(b[start:i]) {
			return i
		}
		i++
	}
}

// escaped reports whether the byte behind b, the string so far, is escaped: an
// odd number of backslashes precedes it.
func escaped(b []byte) bool {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return (len(b)-n)&1 == 1
}

// checkString checks the string whose first byte is at i and returns the position
// of the quote that ends it, and whether it has escapes.
func (s *scanner) checkString(b []byte, i int) (end int, escapes bool) {
	start, wide := i, uint64(0)
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			m := quoteOrBackslash(w) | control(w)
			if m != 0 {
				n := bits.TrailingZeros64(m)
				wide |= w & (1<<n - 1)
				i += n >> 3
				break
			}
			wide |= w
			i += 8
		}
		for uint(i) < uint(len(b)) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			wide |= uint64(b[i])
			i++
		}
		switch {
		case uint(i) >= uint(len(b)):
			return s.fail(len(b), wantQuote), false
		case b[i] == '"':
			if wide&highs != 0 && !s.validUTF8(b, start, i) {
				return -1, false
			}
			return i, escapes
		case b[i] == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return s.fail(i, wantEscape), false
			}
			escapes = true
			i += n
		default:
			return s.fail(i, wantNoControl), false
		}
	}
}

// escapeLen is the length of the escape that b starts with, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 is the code unit of the escape \uXXXX that b starts with.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

var unescapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendUnescaped appends the text of a string, given without its quotes and
// known to have correct escapes. A surrogate without its other half, which no
// UTF-8 can express, becomes U+FFFD.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 || n+1 >= len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:n]...)
		raw = raw[n:]
		if raw[1] != 'u' {
			dst = append(dst, unescapes[raw[1]])
			raw = raw[2:]
			continue
		}
		r, ok := hex4(raw)
		if !ok {
			return dst
		}
		raw = raw[6:]
		if utf16.IsSurrogate(r) {
			low, _ := hex4(raw)
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				raw = raw[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// text is the value of a string token, given without its quotes.
func text(raw []byte, escapes bool, arena *connectors.Arena) connectors.Value {
	if !escapes {
		return connectors.TextValue(connectors.String, raw)
	}
	return connectors.TextValue(connectors.String, unescape(raw, arena))
}

// unescape puts the text of a string token into arena, or anywhere where that
// is nil.
func unescape(raw []byte, arena *connectors.Arena) []byte {
	if arena == nil {
		return appendUnescaped(make([]byte, 0, len(raw)), raw)
	}
	return arena.Keep(appendUnescaped(arena.Grow(len(raw)), raw))
}

// AppendString appends s as a JSON string. Bytes of s that are not UTF-8 become
// U+FFFD. Beyond what JSON demands nothing is escaped.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if plain(s) {
		dst = append(dst, s...)
		return append(dst, '"')
	}
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		dst = appendEscape(append(dst, s[from:i]...), c)
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// plain reports whether s is ASCII that needs no escape.
func plain(s string) bool {
	b := bytesOf(s)
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		if (quoteOrBackslash(w)|control(w)|w)&highs != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func appendEscape(dst []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}
