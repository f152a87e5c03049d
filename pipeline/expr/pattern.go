package expr

import (
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// pattern is a regular expression with what it takes to bound its work.
type pattern struct {
	*regexp.Regexp
	// after finds a match behind the first character of its text, as its first
	// group: that character is only there for what looks back, such as \b and ^.
	after *regexp.Regexp
	// weight is what a character costs, in units of a small expression: the machine
	// may be in all of its places at once.
	weight int
}

const (
	// regexSteps is how many bytes of text a step of matching covers.
	regexSteps = 4
	// regexSmall is how many instructions a small expression has.
	regexSmall = 32
	// regexShort is how many bytes of text are gone through as often as it takes.
	regexShort = 2048
)

func newPattern(text string) (*pattern, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	after, err := regexp.Compile(`^(?s:.)(?s:.*?)(` + text + `)`)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	return &pattern{re, after, 1 + len(prog.Inst)/regexSmall}, nil
}

// scan pays for going through text once.
func (e *Env) scan(s *site, re *pattern, text string) bool {
	return e.step(s, len(text)/regexSteps*re.weight)
}

// matches hands the matches in text to do, as FindAllStringSubmatchIndex would
// list them, until it says false. Looking for each one may go through the whole
// rest of the text, which is paid for as it is read. It reports whether all went well.
func (e *Env) matches(s *site, re *pattern, text string, do func(m []int) bool) bool {
	if len(text) <= regexShort {
		for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
			if !e.step(s, 1) || !do(m) {
				return false
			}
		}
		return true
	}
	for pos, last := 0, -1; pos <= len(text); {
		m, ok := e.match(s, re, text, pos)
		if !ok || m == nil {
			return ok
		}
		empty := m[1] == pos
		if !empty || m[0] != last {
			if !e.step(s, 1) || !do(m) {
				return false
			}
		}
		pos, last = m[1], m[1]
		if empty {
			_, n := utf8.DecodeRuneInString(text[pos:])
			pos += max(n, 1)
		}
	}
	return true
}

// match finds the first match in text from pos on.
func (e *Env) match(s *site, re *pattern, text string, pos int) (m []int, ok bool) {
	in := &paidReader{text: text, left: e.steps / re.weight * regexSteps}
	if pos == 0 {
		m = re.FindReaderSubmatchIndex(in)
	} else {
		_, n := utf8.DecodeLastRuneInString(text[:pos])
		in.pos = pos - n
		start := in.pos
		if m = re.after.FindReaderSubmatchIndex(in); m != nil {
			m = m[2:]
		}
		for i := range m {
			if m[i] >= 0 {
				m[i] += start
			}
		}
	}
	if in.over {
		return nil, e.tooLong(s)
	}
	return m, e.step(s, in.read/regexSteps*re.weight)
}

// paidReader reads text as long as steps are left.
type paidReader struct {
	text       string
	pos        int
	read, left int
	over       bool
}

// ReadRune implements io.RuneReader.
func (r *paidReader) ReadRune() (rune, int, error) {
	if r.pos >= len(r.text) {
		return 0, 0, io.EOF
	}
	if r.read >= r.left {
		r.over = true
		return 0, 0, io.EOF
	}
	c, n := utf8.DecodeRuneInString(r.text[r.pos:])
	r.pos += n
	r.read += n
	return c, n, nil
}
