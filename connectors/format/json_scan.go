package format

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanner walks over JSON text. Its methods take and return positions; a
// negative one says that the text is wrong, in the way that off and want tell.
type scanner struct {
	// full makes it check the numbers, escapes, control characters and UTF-8 of what
	// it passes over. Otherwise it checks structure, literals and where strings end.
	full  bool
	limit int      // deepest nesting
	open  []uint64 // a bit for each open container, set for an object; openWords(limit) of them
	off   int
	want  want
}

// want is what the scanner expected and did not find.
type want uint8

const (
	wantValue want = iota
	wantComma
	wantListComma
	wantKey
	wantColon
	wantLiteral
	wantDigit
	wantNoZero
	wantEnd
	wantMore
	wantQuote
	wantEscape
	wantNoControl
	wantUTF8
	wantNoBOM
	wantNotEmpty
	wantShallow
	wantSmall
)

// In the words of the user.
var wants = [...]string{
	wantValue:     "expected a value",
	wantComma:     "expected ',' or '}' after the field",
	wantListComma: "expected ',' or ']' after the element",
	wantKey:       "expected a field name in double quotes",
	wantColon:     "expected ':' after the field name",
	wantLiteral:   "expected true, false or null",
	wantDigit:     "expected a digit",
	wantNoZero:    "expected no digit after a leading zero",
	wantEnd:       "expected the end of the value",
	wantMore:      "the value ends too early",
	wantQuote:     "the value ends within a string",
	wantEscape:    "expected an escape such as \\n or \\u00e4 after the backslash",
	wantNoControl: "expected control characters within a string to be escaped",
	wantUTF8:      "expected UTF-8 within the string",
	wantNoBOM:     "expected no byte order mark before the value",
	wantNotEmpty:  "the value is empty",
	wantShallow:   "the value is nested more deeply than max_depth allows",
	wantSmall:     "the value is larger than max_size allows",
}

// openWords is how many words a nesting of limit needs.
func openWords(limit int) int { return (limit + 63) / 64 }

func newScanner(limit int) scanner {
	return scanner{limit: limit, open: make([]uint64, openWords(limit))}
}

func (s *scanner) fail(at int, w want) int {
	s.off, s.want = at, w
	return -1
}

func (s *scanner) err() *SyntaxError { return &SyntaxError{Offset: s.off, Msg: wants[s.want]} }

// expected fails with w, or says that the text ended.
func (s *scanner) expected(b []byte, at int, w want) int {
	if at >= len(b) {
		return s.fail(len(b), wantMore)
	}
	return s.fail(at, w)
}

// space is the position of the first byte at i or behind that is no white space.
func space(b []byte, i int) int {
	for uint(i) < uint(len(b)) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// begin is the position of the value's first byte.
func (s *scanner) begin(b []byte) int {
	i := space(b, 0)
	if i < len(b) {
		if len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF {
			return s.fail(0, wantNoBOM)
		}
		return i
	}
	return s.fail(0, wantNotEmpty)
}

// end checks that nothing follows i but white space.
func (s *scanner) end(b []byte, i int) int {
	if i = space(b, i); i < len(b) {
		return s.fail(i, wantEnd)
	}
	return i
}

// skip passes over the value at i, within depth open containers.
func (s *scanner) skip(b []byte, i, depth int) int {
	if uint(i) >= uint(len(b)) {
		return s.fail(len(b), wantMore)
	}
	switch c := b[i]; {
	case c == '"':
		return s.skipString(b, i+1)
	case c == '{' || c == '[':
		return s.skipContainer(b, i, depth)
	case c == '-' || c-'0' <= 9:
		return s.skipNumber(b, i)
	default:
		return s.skipLiteral(b, i)
	}
}

// numberByte tells which bytes can be part of a number.
var numberByte = [256]bool{
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true,
	'+': true, '-': true, '.': true, 'e': true, 'E': true,
}

func (s *scanner) skipNumber(b []byte, i int) int {
	if s.full {
		return s.checkNumber(b, i)
	}
	if i++; i+8 <= len(b) {
		i += bits.TrailingZeros64(noDigit(binary.LittleEndian.Uint64(b[i:]))) >> 3
	}
	for uint(i) < uint(len(b)) && numberByte[b[i]] {
		i++
	}
	return i
}

const (
	litTrue  = 't' | 'r'<<8 | 'u'<<16 | 'e'<<24
	litFalse = 'f' | 'a'<<8 | 'l'<<16 | 's'<<24
	litNull  = 'n' | 'u'<<8 | 'l'<<16 | 'l'<<24
)

func (s *scanner) skipLiteral(b []byte, i int) int {
	if i+4 <= len(b) {
		switch binary.LittleEndian.Uint32(b[i:]) {
		case litTrue, litNull:
			return i + 4
		case litFalse:
			if i+4 < len(b) && b[i+4] == 'e' {
				return i + 5
			}
		}
	}
	switch b[i] {
	case 't', 'f', 'n':
		return s.fail(i, wantLiteral)
	}
	return s.fail(i, wantValue)
}

// skipString passes over a string whose first byte is at i.
func (s *scanner) skipString(b []byte, i int) int {
	if s.full {
		end, _ := s.checkString(b, i)
		if end < 0 {
			return end
		}
		return end + 1
	}
	end := stringEnd(b, i)
	if end < 0 {
		return s.fail(len(b), wantQuote)
	}
	return end + 1
}

// skipContainer passes over the list or object at i, within depth open ones.
func (s *scanner) skipContainer(b []byte, i, depth int) int {
	base, object := depth, false
	for {
		// At a value, or at the end of an empty container.
		switch c := next(b, i); {
		case c == '{' || c == '[':
			if depth >= s.limit {
				return s.fail(i, wantShallow)
			}
			object = c == '{'
			s.push(depth, object)
			depth++
			i = space(b, i+1)
			if c = next(b, i); c == '}' && object || c == ']' && !object {
				break
			}
			if object {
				i = s.skipKey(b, i)
			}
			if i < 0 {
				return i
			}
			continue
		case c == '"' && !s.full:
			if i = stringEnd(b, i+1) + 1; i == 0 {
				return s.fail(len(b), wantQuote)
			}
		default:
			if i = s.skip(b, i, depth); i < 0 {
				return i
			}
		}
		// Behind it, and behind every container that ends here.
		for i = space(b, i); next(b, i) != ','; i = space(b, i) {
			if c := next(b, i); c != '}' || !object {
				if c != ']' || object {
					return s.expected(b, i, commaIn(object))
				}
			}
			i++
			if depth--; depth == base {
				return i
			}
			object = s.object(depth - 1)
		}
		if i = space(b, i+1); object {
			if i = s.skipKey(b, i); i < 0 {
				return i
			}
		}
	}
}

// next is the byte at i, zero at the end of the text.
func next(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

func commaIn(object bool) want {
	if object {
		return wantComma
	}
	return wantListComma
}

// skipKey passes over a field's name and its colon, up to its value.
func (s *scanner) skipKey(b []byte, i int) int {
	if uint(i) >= uint(len(b)) || b[i] != '"' {
		return s.expected(b, i, wantKey)
	}
	if s.full {
		i, _ = s.checkString(b, i+1)
	} else {
		i = stringEnd(b, i+1)
	}
	if i < 0 {
		if !s.full {
			s.fail(len(b), wantQuote)
		}
		return i
	}
	if uint(i+2) < uint(len(b)) && b[i+1] == ':' && b[i+2] > ' ' {
		return i + 2
	}
	return s.colon(b, i+1)
}

func (s *scanner) colon(b []byte, i int) int {
	i = space(b, i)
	if uint(i) >= uint(len(b)) || b[i] != ':' {
		return s.expected(b, i, wantColon)
	}
	return space(b, i+1)
}

func (s *scanner) push(depth int, object bool) {
	w, bit := depth>>6, uint64(1)<<(depth&63)
	if object {
		s.open[w] |= bit
	} else {
		s.open[w] &^= bit
	}
}

func (s *scanner) object(depth int) bool { return s.open[depth>>6]&(1<<(depth&63)) != 0 }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// Of the masks of these functions the lowest bit is exact: it marks the first
// byte that is meant, at its highest bit. (Sean Anderson, Bit Twiddling Hacks,
// "Determine if a word has a zero byte" and "… a byte less than n".)

func quote(w uint64) uint64 {
	q := w ^ (ones * '"')
	return (q - ones) &^ q & highs
}

func quoteOrBackslash(w uint64) uint64 {
	q, e := w^(ones*'"'), w^(ones*'\\')
	return ((q-ones)&^q | (e-ones)&^e) & highs
}

func control(w uint64) uint64 { return (w - ones*' ') &^ w & highs }

// noDigit marks the first byte that is no digit.
func noDigit(w uint64) uint64 {
	d := w ^ (ones * '0')
	return (d + ones*(0x80-10) | d) & highs
}

// validUTF8 checks text that is known to hold bytes beyond ASCII.
func (s *scanner) validUTF8(b []byte, i, end int) bool {
	if utf8.Valid(b[i:end]) {
		return true
	}
	for i < end {
		r, n := utf8.DecodeRune(b[i:end])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	s.fail(i, wantUTF8)
	return false
}
