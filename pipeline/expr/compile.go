package expr

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser/lexer"

	"github.com/sluice-etl/sluice/connectors"
)

// node is a compiled part of an expression.
type node struct {
	typ  Type
	run  fn
	cond cond // set for comparisons and the like, which have a faster way
	slot int  // the slot that the part is nothing but, or -1
	at   *site
	pure bool // the same for all records
}

// constant gives the part's value where it is the same for all records.
func (n *node) constant() (connectors.Value, bool) {
	if n.at.constant == nil {
		return connectors.Value{}, false
	}
	return *n.at.constant, true
}

// text gives the part's value where it is a constant string.
func (n *node) text() (string, bool) {
	if v, ok := n.constant(); ok && v.Kind() == connectors.String {
		return v.Text(), true
	}
	return "", false
}

// local is a name that the expression itself defines.
type local struct {
	name string
	at   int // index into Env.vars
	typ  Type
	pure *node // set where it stands for a constant
	// outside says that it stands for results of aggregate functions, and the part is
	// an argument of one.
	outside bool
}

// compiler compiles one expression.
type compiler struct {
	text      string
	offs      []int // byte offset of each rune; nil for ASCII
	start     int   // where in text the part begins that is compiled, from which places count
	scope     Scope
	opts      Options
	limits    Limits
	errs      Errors
	locals    []local
	vars      int
	items     []item // predicates around the part, innermost last
	fields    [][]string
	whole     bool
	tombstone bool
	varies    bool
	vm        bool
	fold      *Env
	agg       *aggregation // set where aggregate functions may stand
	// tokens of the text, the extent of each node of the tree, and how many were
	// compiled. The
	// parser shares nodes (a < b < c has b twice), so that nesting could make
	// exponentially many.
	extents map[ast.Node]extent
	tokens  []lexer.Token
	parts   int
	// steps and bytes are what is left for the constants of the whole expression.
	steps, bytes int
}

// item is what # and its kin stand for in a predicate.
type item struct{ value, index, acc int }

func (c *compiler) errorf(at *site, format string, args ...any) *node {
	return c.fault(at, fmt.Sprintf(format, args...), "")
}

// fault notes a fault and returns a part that stands in for the faulty one and
// raises no further ones.
func (c *compiler) fault(at *site, msg, help string) *node {
	e := &Error{Offset: at.offset, Length: at.length, Msg: msg, Help: help}
	if !slices.ContainsFunc(c.errs, func(x *Error) bool { return *x == *e }) {
		c.errs = append(c.errs, e)
	}
	return &node{typ: Any, slot: -1, at: at, run: func(*Env) connectors.Value { return failure }}
}

func (c *compiler) offset(char int) int {
	if c.offs == nil {
		return max(0, min(char, len(c.text)))
	}
	return c.offs[max(0, min(char, len(c.offs)-1))]
}

const longestName = 40

// site makes the place of n, which spans all its parts.
func (c *compiler) site(n ast.Node) *site {
	from, to := c.span(n)
	s := &site{offset: from - c.start, length: to - from}
	s.name = strings.Join(strings.Fields(c.text[from:to]), " ")
	if len(s.name) > longestName {
		cut := longestName
		for cut > 0 && s.name[cut]&0xC0 == 0x80 {
			cut--
		}
		s.name = s.name[:cut] + "…"
	}
	return s
}

// extent is where a part starts and ends, in runes.
type extent struct{ from, to int }

func (x extent) join(y extent) extent {
	switch {
	case x.from >= x.to:
		return y
	case y.from >= y.to:
		return x
	}
	return extent{min(x.from, y.from), max(x.to, y.to)}
}

func (c *compiler) span(n ast.Node) (int, int) {
	x := c.extents[n]
	if x.from >= x.to {
		return c.start, len(c.text)
	}
	x = c.balanced(x)
	return c.offset(x.from), c.offset(x.to)
}

// balanced widens an extent by the brackets that are open or closed in it: nodes
// do not know where their brackets are.
func (c *compiler) balanced(x extent) extent {
	const most = 1000
	first := sort.Search(len(c.tokens), func(i int) bool { return c.tokens[i].From >= x.from })
	last, open, missing := first, 0, 0
	for ; last < len(c.tokens) && c.tokens[last].To <= x.to && c.tokens[last].Kind != lexer.EOF; last++ {
		if last-first > most {
			return x
		}
		open += direction(c.tokens[last])
		missing = max(missing, -open)
	}
	if last > first && last+1 < len(c.tokens) && c.tokens[last].Is(lexer.Bracket, "(") && c.tokens[last+1].Is(lexer.Bracket, ")") {
		x.to = c.tokens[last+1].To // a call without arguments
		last += 2
	}
	for i, open := last, open+missing; open > 0 && i < len(c.tokens); i++ {
		if open += direction(c.tokens[i]); open == 0 {
			x.to = c.tokens[i].To
		}
	}
	for i := first - 1; missing > 0 && i >= 0; i-- {
		if missing -= direction(c.tokens[i]); missing == 0 {
			x.from = c.tokens[i].From
		}
	}
	return x
}

// direction is 1 for a bracket that opens and -1 for one that closes.
func direction(t lexer.Token) int {
	switch {
	case t.Kind != lexer.Bracket:
		return 0
	case strings.Contains("([{", t.Value):
		return 1
	}
	return -1
}

// measure notes the extent of n and of all its parts.
func (c *compiler) measure(n ast.Node) extent {
	if n == nil {
		return extent{}
	}
	if x, ok := c.extents[n]; ok {
		return x
	}
	x := extent{n.Location().From, n.Location().To}
	if _, ok := n.(*ast.ConditionalNode); ok {
		// Its own location is that of the token after it.
		x = extent{}
	}
	for _, part := range partsOf(n) {
		x = x.join(c.measure(part))
	}
	c.extents[n] = x
	return x
}

func partsOf(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.UnaryNode:
		return []ast.Node{n.Node}
	case *ast.BinaryNode:
		return []ast.Node{n.Left, n.Right}
	case *ast.ChainNode:
		return []ast.Node{n.Node}
	case *ast.MemberNode:
		return []ast.Node{n.Node, n.Property}
	case *ast.SliceNode:
		return []ast.Node{n.Node, n.From, n.To}
	case *ast.CallNode:
		return append([]ast.Node{n.Callee}, n.Arguments...)
	case *ast.BuiltinNode:
		return n.Arguments
	case *ast.PredicateNode:
		return []ast.Node{n.Node}
	case *ast.ConditionalNode:
		return []ast.Node{n.Cond, n.Exp1, n.Exp2}
	case *ast.VariableDeclaratorNode:
		return []ast.Node{n.Value, n.Expr}
	case *ast.SequenceNode:
		return n.Nodes
	case *ast.ArrayNode:
		return n.Nodes
	case *ast.MapNode:
		return n.Pairs
	case *ast.PairNode:
		return []ast.Node{n.Key, n.Value}
	}
	return nil
}

// compile compiles n, and computes it at once where it is the same for all
// records.
func (c *compiler) compile(n ast.Node) *node {
	if c.parts++; c.parts > 2*c.limits.Nodes {
		return c.fault(&site{length: len(c.text)}, "the expression has too many parts", "")
	}
	out := c.dispatch(n)
	if out.pure && out.at.constant == nil && len(c.errs) == 0 {
		return c.folded(out)
	}
	return out
}

func (c *compiler) dispatch(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.NilNode:
		return c.literal(n, connectors.NullValue())
	case *ast.BoolNode:
		return c.literal(n, connectors.BoolValue(n.Value))
	case *ast.IntegerNode:
		return c.literal(n, connectors.IntValue(int64(n.Value)))
	case *ast.FloatNode:
		return c.literal(n, connectors.FloatValue(n.Value))
	case *ast.StringNode:
		return c.literal(n, connectors.StringValue(n.Value))
	case *ast.BytesNode:
		return c.literal(n, connectors.BytesValue(n.Value))
	case *ast.IdentifierNode:
		return c.identifier(n)
	case *ast.MemberNode, *ast.ChainNode:
		return c.member(n)
	case *ast.SliceNode:
		return c.slice(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.VariableDeclaratorNode:
		return c.let(n)
	case *ast.SequenceNode:
		return c.sequence(n)
	case *ast.ArrayNode:
		return c.list(n)
	case *ast.MapNode:
		return c.mapping(n)
	case *ast.PointerNode:
		return c.pointer(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		return c.callNode(n)
	}
	return c.errorf(c.site(n), "`%s` is not supported here", c.site(n).name)
}

func (c *compiler) literal(n ast.Node, v connectors.Value) *node { return c.known(c.site(n), v) }

// known is a part with the value v.
func (c *compiler) known(at *site, v connectors.Value) *node {
	at.constant = &v
	return &node{typ: Of(v.Kind()), slot: -1, at: at, pure: true, run: func(*Env) connectors.Value { return v }}
}

// folded computes a part that is the same for all records.
func (c *compiler) folded(n *node) *node {
	e := c.folding()
	v := n.run(e)
	c.steps, c.bytes = e.steps, e.bytes
	if v.Kind() == failed {
		if e.err.Kind == KindLimit {
			// Too much for the load, perhaps not for a single record.
			return n
		}
		c.errs = append(c.errs, &Error{Offset: e.err.Offset, Length: e.err.Length, Msg: e.err.Reason, Help: "this is so for every record"})
		return n
	}
	return c.known(n.at, v)
}

// folding is an Env over one empty record. Its arena stays with the program's
// constants.
func (c *compiler) folding() *Env {
	if c.fold == nil {
		c.fold = NewEnv()
		b := &connectors.Batch{}
		b.Size(1, 0)
		c.fold.batch = b
		c.fold.limits = c.limits
		c.steps, c.bytes = c.limits.Steps, c.limits.Bytes
	}
	if len(c.fold.vars) < c.vars {
		c.fold.vars = make([]connectors.Value, c.vars)
	}
	c.fold.at(0)
	c.fold.steps, c.fold.bytes = c.steps, c.bytes
	return c.fold
}

// condition gives the way to evaluate n as a condition, and refuses what can
// never be one.
func (c *compiler) condition(n *node) cond {
	if n.cond != nil {
		return n.cond
	}
	run, at := n.run, n.at
	if !n.typ.Overlaps(Bool) {
		if n.typ == nullBit {
			c.fault(at, "a condition must be a bool, and this is null", "")
		} else {
			c.fault(at, fmt.Sprintf("a condition must be a bool, and %s is %s", at.name, n.typ), conditionHelp(n))
		}
	}
	if n.slot >= 0 {
		slot := n.slot
		return func(e *Env) truth {
			v := e.row[slot]
			if v.Kind() == connectors.Bool {
				return truthOf(v.Bool())
			}
			return e.condition(at, v)
		}
	}
	return func(e *Env) truth {
		v := run(e)
		if v.Kind() == connectors.Bool {
			return truthOf(v.Bool())
		}
		return e.condition(at, v)
	}
}

func conditionHelp(n *node) string {
	if k, ok := n.typ.NonNull().Kind(); ok {
		switch k {
		case connectors.Int, connectors.Float, connectors.Decimal:
			return fmt.Sprintf("compare it, as in `%s != 0`", n.at.bracketed())
		case connectors.String:
			return fmt.Sprintf("compare it, as in `%s != \"\"`", n.at.bracketed())
		default:
		}
	}
	return ""
}

// decided makes a part of a condition.
func decided(at *site, pure bool, do cond) *node {
	return &node{typ: Bool, slot: -1, at: at, cond: do, pure: pure, run: func(e *Env) connectors.Value {
		switch do(e) {
		case yes:
			return connectors.BoolValue(true)
		case no:
			return connectors.BoolValue(false)
		default:
		}
		return failure
	}}
}
