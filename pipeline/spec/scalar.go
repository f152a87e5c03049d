package spec

import (
	"bytes"
	"strings"
)

// scanEnd finds the end of a plain scalar that starts at its span's start.
func (n *node) scanEnd() int {
	if n.implicit || n.onOneLine() {
		return n.span.start + len(n.raw)
	}
	at := n.offsets()
	return at[len(at)-1]
}

// onOneLine reports whether a plain scalar stands in the file as it is.
func (n *node) onOneLine() bool {
	return bytes.HasPrefix(n.file.text[n.span.start:], []byte(n.raw))
}

// place finds the characters of the file that bytes off to off+length of the
// scalar's text come from. Where that lies in what a variable gave, it is the
// whole ${…}.
func (n *node) place(off, length int) span {
	off = max(0, min(off, len(n.text)))
	end := max(off, min(off+length, len(n.text)))
	rawStart, _ := n.rawOffset(off)
	rawEnd := rawStart
	if end > off {
		_, rawEnd = n.rawOffset(end - 1)
	}
	at := n.offsets()
	s := span{at[min(rawStart, len(at)-1)], at[min(rawEnd, len(at)-1)]}
	// The end of a scalar is also the end of its last character.
	if rawEnd > rawStart && rawEnd < len(at) {
		s.end = n.charEnd(at[rawEnd-1], at[rawEnd])
	}
	if s.end <= s.start {
		s.end = s.start + 1
	}
	return s
}

// charEnd ends a range at the end of its last character, where a fold or an
// indentation follows before the next.
func (n *node) charEnd(last, next int) int {
	gap := n.file.text[last:max(last, min(next, len(n.file.text)))]
	if i := bytes.IndexByte(gap, '\n'); i > 0 {
		return last + len(bytes.TrimRight(gap[:i], " \t"))
	}
	return next
}

// rawOffset maps a byte of the text to the bytes of the text before variables.
func (n *node) rawOffset(off int) (start, end int) {
	shift := 0
	for _, p := range n.pieces {
		if off < p.text.start {
			break
		}
		if off < p.text.end {
			return p.raw.start, p.raw.end
		}
		shift = p.raw.end - p.text.end
	}
	return off + shift, off + shift + 1
}

// offsets gives, for each byte of the scalar before variables and for its end,
// the offset in the file.
func (n *node) offsets() []int {
	s := &scan{text: n.file.text, raw: n.raw, pos: n.span.start, at: make([]int, 0, len(n.raw)+1)}
	switch n.style {
	case single, double:
		u := unquoter{src: s.text, pos: s.pos + 1, quote: s.text[s.pos], track: true}
		u.run()
		s.at, s.pos = append(u.at, u.pos-1), u.pos
	case literal, folded:
		s.pos = n.file.lineEnd(n.file.line(n.span.start)) + 1
		if n.style == literal {
			s.literal(n.indent(s.pos))
		} else {
			s.greedy()
		}
	default:
		if n.onOneLine() {
			for i := 0; i <= len(n.raw); i++ {
				s.at = append(s.at, n.span.start+i)
			}
			return s.at
		}
		s.plain()
	}
	for len(s.at) <= len(n.raw) {
		s.at = append(s.at, min(s.pos, len(s.text)))
	}
	return s.at[:len(n.raw)+1]
}

// indent is the number of blanks before each line of a block scalar whose first
// line starts at pos.
func (n *node) indent(pos int) int {
	text := n.file.text
	for pos < len(text) {
		end := n.file.lineEnd(n.file.line(pos))
		line := text[pos:end]
		if rest := bytes.TrimLeft(line, " "); len(rest) > 0 {
			raw := strings.TrimLeft(n.raw, "\n")
			own := len(raw) - len(strings.TrimLeft(raw, " ")) // blanks that belong to the text
			return max(0, len(line)-len(rest)-own)
		}
		pos = end + 1
	}
	return 0
}

// scan walks a scalar and its text in step.
type scan struct {
	text []byte
	raw  string
	pos  int
	at   []int
}

func (s *scan) done() bool { return len(s.at) >= len(s.raw) || s.pos >= len(s.text) }

// take notes that the next produced bytes come from consumed bytes at pos.
func (s *scan) take(produced, consumed int) {
	for range produced {
		s.at = append(s.at, s.pos)
	}
	s.pos += consumed
}

// plain walks a plain scalar of several lines, whose breaks are folded.
func (s *scan) plain() {
	for !s.done() {
		run := blankRun(s.text[s.pos:])
		if breaks := bytes.Count(run, []byte("\n")); breaks > 0 {
			s.take(max(1, breaks-1), len(run))
		} else {
			s.take(1, 1)
		}
	}
}

// blankRun is the blanks and line breaks that b starts with.
func blankRun(b []byte) []byte { return b[:len(b)-len(bytes.TrimLeft(b, " \t\n"))] }

// literal walks a | block.
func (s *scan) literal(indent int) {
	for !s.done() {
		for i := 0; i < indent && s.pos < len(s.text) && s.text[s.pos] == ' '; i++ {
			s.pos++
		}
		for !s.done() {
			c := s.text[s.pos]
			s.take(1, 1)
			if c == '\n' {
				break
			}
		}
	}
}

// greedy walks a > block: what is no blank is found by its own character.
func (s *scan) greedy() {
	blank := func(c byte) bool { return c == ' ' || c == '\n' || c == '\t' }
	for !s.done() {
		c := s.raw[len(s.at)]
		if blank(c) {
			consumed := 0
			if s.text[s.pos] == c && c != '\n' {
				consumed = 1
			}
			s.take(1, consumed)
			continue
		}
		for s.pos < len(s.text) && blank(s.text[s.pos]) && s.text[s.pos] != c {
			s.pos++
		}
		s.take(1, 1)
	}
}
