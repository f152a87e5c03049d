package expr

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/parser/lexer"
)

// Compile parses an expression, checks it against what scope knows, and
// compiles it. The error is an Errors with all the faults found, in the order of
// the text.
func Compile(text string, scope Scope, o Options) (*Program, error) {
	c := &compiler{text: text, scope: scope, opts: o, limits: o.Limits.orDefault(), extents: map[ast.Node]extent{}}
	return c.all()
}

// all compiles the whole text.
func (c *compiler) all() (p *Program, err error) {
	defer func() {
		// expr-lang's parser and regexp may panic on what nobody thought of. A
		// configuration must not be able to stop the process.
		if r := recover(); r != nil {
			p, err = nil, Errors{{Length: len(c.text), Msg: fmt.Sprintf("the expression cannot be compiled: %v", r)}}
		}
	}()
	tree, fault := c.parse()
	if fault != nil {
		return nil, Errors{fault}
	}
	c.measure(tree)
	root := c.compile(tree)
	p = c.program(root)
	if len(c.errs) > 0 {
		slices.SortStableFunc(c.errs, func(a, b *Error) int { return a.Offset - b.Offset })
		return nil, c.errs
	}
	return p, nil
}

func (c *compiler) program(root *node) *Program {
	want := c.opts.Want
	if want == 0 {
		want = Any
	}
	p := &Program{
		text: c.text[c.start:], typ: root.typ, run: root.run, want: want, root: root.at, fields: c.fields,
		whole: c.whole, tombstone: c.tombstone, varies: c.varies, slot: root.slot, native: !c.vm, limits: c.limits, vars: c.vars,
	}
	switch {
	case want == Bool:
		p.cond = c.condition(root)
	case !root.typ.Overlaps(want):
		c.errorf(root.at, "%s must be %s, and this is %s", c.name(), want, root.typ)
		return nil
	default:
		p.cond = (&compiler{}).condition(root)
	}
	return p
}

func (c *compiler) name() string {
	if c.opts.Name == "" {
		return "the value"
	}
	return "`" + c.opts.Name + "`"
}

// parse checks the size and nesting of the text before expr-lang's recursive
// parser sees it, and of the tree before our recursive compiler does.
func (c *compiler) parse() (ast.Node, *Error) {
	switch {
	case strings.TrimSpace(c.text) == "":
		return nil, &Error{Length: len(c.text), Msg: "the expression is empty"}
	case len(c.text) > c.limits.Text:
		return nil, &Error{Length: len(c.text), Msg: fmt.Sprintf("the expression has %d bytes, more than %d", len(c.text), c.limits.Text)}
	}
	if i := invalidAt(c.text); i >= 0 {
		return nil, &Error{Offset: i, Length: 1, Msg: "the expression is not UTF-8"}
	}
	c.index()
	tokens, err := lexer.Lex(file.NewSource(c.text))
	if err != nil {
		return nil, c.syntax(err)
	}
	c.tokens = tokens
	if fault := c.guard(tokens); fault != nil {
		return nil, fault
	}
	config := conf.CreateNew()
	config.MaxNodes = uint(c.limits.Nodes)
	if c.agg != nil {
		shadow(config)
	}
	tree, err := parser.ParseWithConfig(c.text, config)
	if err != nil {
		return nil, c.syntax(err)
	}
	return tree.Node, nil
}

func invalidAt(s string) int {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// index notes where runes are, since expr-lang counts in runes.
func (c *compiler) index() {
	if len(c.text) == utf8.RuneCountInString(c.text) {
		return
	}
	for i := range c.text {
		c.offs = append(c.offs, i)
	}
	c.offs = append(c.offs, len(c.text))
}

// guard bounds the recursion of the parser: brackets, operators in front of
// their operand, and the forms that nest to the right without brackets.
func (c *compiler) guard(tokens []lexer.Token) *Error {
	open, run, right := 0, 0, 0
	for _, t := range tokens {
		over := ""
		switch t.Kind {
		case lexer.Bracket:
			run = 0
			open += direction(t)
		case lexer.Operator:
			switch t.Value {
			case "!", "not", "-", "+":
				run++
			case "?", "**", "^", "let", "if", ";", ":":
				run = 0
				right++
			default:
				run = 0
			}
		default:
			run = 0
		}
		switch {
		case open > c.limits.Depth:
			over = "brackets are nested"
		case run > c.limits.Depth:
			over = "signs are nested"
		case right > 10*c.limits.Depth:
			over = "conditions are nested"
		}
		if over != "" {
			from := c.offset(t.From)
			return &Error{Offset: from, Length: c.offset(t.To) - from, Msg: over + " too deeply", Help: fmt.Sprintf("at most %d levels", c.limits.Depth)}
		}
	}
	return nil
}
