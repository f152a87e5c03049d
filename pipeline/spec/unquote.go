package spec

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unquoter reads a quoted scalar. The parser does so as well, but loses blanks
// around quotes at the start of a line, and cannot tell what stands where.
type unquoter struct {
	src   []byte
	pos   int // behind the opening quote at first, behind the closing one at the end
	quote byte
	track bool
	out   []byte
	at    []int // with track: where each byte of out comes from
}

// run reads up to the closing quote, or to the end of the file where there is none.
func (u *unquoter) run() {
	for u.pos < len(u.src) {
		c := u.src[u.pos]
		switch {
		case c == u.quote && u.quote == '\'' && u.next() == '\'':
			u.emit("'", 2)
		case c == u.quote:
			u.pos++
			return
		case c == '\\' && u.quote == '"':
			u.escape()
		case c == ' ' || c == '\t' || c == '\n':
			u.blanks()
		default:
			u.emit(string(u.src[u.pos:u.pos+1]), 1)
		}
	}
}

func (u *unquoter) next() byte {
	if u.pos+1 < len(u.src) {
		return u.src[u.pos+1]
	}
	return 0
}

// emit notes that text comes from so many bytes at pos.
func (u *unquoter) emit(text string, consumed int) {
	if u.track {
		for range len(text) {
			u.at = append(u.at, u.pos)
		}
	}
	u.out = append(u.out, text...)
	u.pos = min(u.pos+consumed, len(u.src))
}

// blanks reads a run of blanks: one line break in it is a blank, more are one
// less, and the blanks around them go.
func (u *unquoter) blanks() {
	run := blankRun(u.src[u.pos:])
	switch breaks := bytes.Count(run, []byte("\n")); breaks {
	case 0:
		for _, c := range run {
			u.emit(string(rune(c)), 1)
		}
	case 1:
		u.emit(" ", len(run))
	default:
		u.emit(string(bytes.Repeat([]byte("\n"), breaks-1)), len(run))
	}
}

var escapes = map[byte]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
	' ': " ", '"': `"`, '/': "/", '\\': `\`, 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
}

// escape reads a backslash and what belongs to it.
func (u *unquoter) escape() {
	c := u.next()
	switch c {
	case '\n':
		u.pos += 2
		u.pos += len(blankRun(u.src[u.pos:]))
	case 'x':
		u.code(2)
	case 'u':
		u.code(4)
	case 'U':
		u.code(8)
	default:
		u.emit(escapes[c], 2)
	}
}

// code reads an escape of so many hexadecimal digits, or of two that make a
// surrogate pair.
func (u *unquoter) code(digits int) {
	c, ok := u.hex(u.pos+2, digits)
	size := 2 + digits
	if digits == 4 && utf16.IsSurrogate(c) && bytes.HasPrefix(u.src[min(u.pos+size, len(u.src)):], []byte(`\u`)) {
		if low, lowOK := u.hex(u.pos+size+2, 4); lowOK {
			c, size = utf16.DecodeRune(c, low), 2*size
		}
	}
	if !ok {
		c = utf8.RuneError
	}
	u.emit(string(c), size)
}

func (u *unquoter) hex(from, digits int) (rune, bool) {
	if from+digits > len(u.src) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(u.src[from:from+digits]), 16, 32)
	return rune(n), err == nil
}
