package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
)

// concat joins two texts in the arena.
func (e *Env) concat(s *site, a, b string) connectors.Value {
	n := len(a) + len(b)
	if !e.spend(s, n) {
		return failure
	}
	arena := e.arena()
	return connectors.TextValue(connectors.String, arena.Keep(append(append(arena.Grow(n), a...), b...)))
}

// keep copies made text into the arena.
func (e *Env) keep(s *site, text string) connectors.Value {
	if !e.spend(s, len(text)) {
		return failure
	}
	arena := e.arena()
	return connectors.TextValue(connectors.String, arena.Keep(append(arena.Grow(len(text)), text...)))
}

// changeCase is lower and upper.
func (e *Env) changeCase(s *site, text string, from, to byte, other func(string) string) connectors.Value {
	flip := false
	for i := range len(text) {
		b := text[i]
		if b >= utf8.RuneSelf {
			return e.keep(s, other(text))
		}
		flip = flip || b >= from && b <= to
	}
	if !flip {
		return connectors.StringValue(text)
	}
	if !e.spend(s, len(text)) {
		return failure
	}
	arena := e.arena()
	out := arena.Grow(len(text))[:len(text)]
	for i := range len(text) {
		b := text[i]
		if b >= from && b <= to {
			b ^= 0x20
		}
		out[i] = b
	}
	return connectors.TextValue(connectors.String, arena.Keep(out))
}

func lower(e *Env, s *site, v connectors.Value) connectors.Value {
	return e.changeCase(s, v.Text(), 'A', 'Z', strings.ToLower)
}

func upper(e *Env, s *site, v connectors.Value) connectors.Value {
	return e.changeCase(s, v.Text(), 'a', 'z', strings.ToUpper)
}

var textTests = map[string]func(s, part string) bool{
	"contains": strings.Contains, "startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix,
}

// textTest compiles contains, startsWith and endsWith. With null they are false.
func (c *compiler) textTest(n *ast.BinaryNode) *node {
	l, r, at, test := c.compile(n.Left), c.compile(n.Right), c.site(n), textTests[n.Operator]
	for _, x := range []*node{l, r} {
		if !x.typ.Overlaps(Text.Nullable()) {
			help := ""
			if n.Operator == "contains" && x.typ.Overlaps(listBit) {
				help = "whether a list has an element is `element in list`"
			}
			return c.fault(x.at, fmt.Sprintf("`%s` takes strings, and %s is %s", n.Operator, x.at.name, x.typ), help)
		}
	}
	left, right, op := l.run, r.run, n.Operator
	if part, ok := r.text(); ok {
		return decided(at, l.pure, func(e *Env) truth {
			v := left(e)
			switch {
			case v.Kind() != connectors.String:
				return e.noText(l.at, op, v)
			case !e.read(at, v):
				return unknown
			}
			return truthOf(test(v.Text(), part))
		})
	}
	return decided(at, l.pure && r.pure, func(e *Env) truth {
		a := left(e)
		if a.Kind() != connectors.String {
			return e.noText(l.at, op, a)
		}
		b := right(e)
		if b.Kind() != connectors.String {
			return e.noText(r.at, op, b)
		}
		if !e.read(at, a) || !e.read(at, b) {
			return unknown
		}
		return truthOf(test(a.Text(), b.Text()))
	})
}

// noText is the result of a test of text on what is none.
func (e *Env) noText(s *site, op string, v connectors.Value) truth {
	switch {
	case v.Kind() == failed:
	case v.IsNull():
		return no
	default:
		e.failf(s, KindType, "`%s` takes strings, and %s is %s", op, s.name, article(v.Kind()))
	}
	return unknown
}

// Regular expressions that records bring are bounded in length, and so many of
// them are kept.
const (
	regexLongest = 1000
	regexKept    = 64
)

type regexCache struct{ byText map[string]*pattern }

// regex compiles a pattern that is known at run time only.
func (e *Env) regex(s *site, text string) *pattern {
	if re, ok := e.regexes.byText[text]; ok {
		return re
	}
	if len(text) > regexLongest {
		e.failf(s, KindLimit, "%s is a regular expression of more than %d bytes", s.name, regexLongest)
		return nil
	}
	re, err := newPattern(strings.Clone(text))
	if err != nil {
		e.fail(s, KindArgument, s.name+" is no valid regular expression")
		return nil
	}
	if e.regexes.byText == nil || len(e.regexes.byText) >= regexKept {
		e.regexes.byText = make(map[string]*pattern, regexKept)
	}
	e.regexes.byText[re.String()] = re
	return re
}

// pattern compiles the regular expression that n is, at load where the text
// fixes it.
func (c *compiler) pattern(n *node) func(e *Env) *pattern {
	at := n.at
	if text, ok := n.text(); ok {
		re, err := newPattern(text)
		if err != nil {
			c.fault(at, "the regular expression is not valid: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "), "the syntax is RE2's")
			return nil
		}
		return func(*Env) *pattern { return re }
	}
	run := n.run
	return func(e *Env) *pattern {
		v := run(e)
		if v.Kind() != connectors.String {
			if v.Kind() != failed {
				e.failf(at, KindType, "a regular expression is a string, and %s is %s", at.name, article(v.Kind()))
			}
			return nil
		}
		return e.regex(at, v.Text())
	}
}

// matches compiles `text matches regex`. Null matches nothing.
func (c *compiler) matches(n *ast.BinaryNode) *node {
	l, r, at := c.compile(n.Left), c.compile(n.Right), c.site(n)
	for _, x := range []*node{l, r} {
		if !x.typ.Overlaps(Text.Nullable()) {
			return c.errorf(x.at, "`matches` takes strings, and %s is %s", x.at.name, x.typ)
		}
	}
	left, pattern := l.run, c.pattern(r)
	if pattern == nil {
		return c.known(at, connectors.BoolValue(false))
	}
	return decided(at, l.pure && r.pure, func(e *Env) truth {
		v := left(e)
		if v.Kind() != connectors.String {
			return e.noText(l.at, "matches", v)
		}
		re := pattern(e)
		if re == nil || !e.scan(at, re, v.Text()) {
			return unknown
		}
		return truthOf(re.MatchString(v.Text()))
	})
}
