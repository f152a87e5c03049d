package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// The names by which the expressions of a join call the records of its two inputs.
const (
	LeftSide  = "left"
	RightSide = "right"
)

// On is the condition of a join, taken apart.
type On struct {
	// Left and Right are the two sides of each equality between the inputs, over
	// the records of one input each: two records match only where all are equal. Their
	// Text is the side alone.
	Left, Right []*Program
	// Rest is what else must hold, over both records; nil where there is nothing.
	Rest *Program
}

// CompileOn compiles the condition of a join. The equalities between an expression of
// left.* and one of right.* among the parts joined by && become On.Left, over the
// scope left, and On.Right, over right. All other parts become On.Rest, over both,
// whose paths begin with left or right, see CompileBoth. The error is an Errors, as
// that of Compile.
func CompileOn(text string, left, right, both Scope, o Options) (*On, error) {
	on := &On{}
	_, err := joined(text, both, o, func(c *compiler, tree ast.Node) *Program {
		c.names(tree, LeftSide, RightSide)
		if len(c.errs) > 0 {
			return nil
		}
		var rest []ast.Node
		parts := conjuncts(tree, nil)
		for _, part := range parts {
			l, r, ok := equality(part)
			if !ok {
				rest = append(rest, part)
				continue
			}
			on.add(c, part, l, r, left, right)
		}
		if len(on.Left) == 0 && len(c.errs) == 0 {
			c.noEquality(parts)
		}
		on.Rest = c.rest(rest)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return on, nil
}

// CompileBoth compiles an expression over the two records of a join. Its scope is
// asked for paths such as ["left", "user", "id"], for ["left"], which is the whole
// record, and for ["left", "meta", "timestamp"], which belongs to the record and is
// no field of it; also for others, which are names of neither record.
func CompileBoth(text string, both Scope, o Options, others ...string) (*Program, error) {
	return joined(text, both, o, func(c *compiler, tree ast.Node) *Program {
		if c.names(tree, append([]string{LeftSide, RightSide}, others...)...); len(c.errs) > 0 {
			return nil
		}
		return c.program(c.compile(tree))
	})
}

// CompileTime compiles a point in time that only the records of one side decide, such
// as left.expires, over the scope of that side: it gives milliseconds since 1970, of
// anything that functions of time take.
func CompileTime(text, side string, scope Scope, o Options) (*Program, error) {
	return joined(text, scope, o, func(c *compiler, tree ast.Node) *Program {
		if c.names(tree, side); len(c.errs) > 0 {
			return nil
		}
		c.strip(&tree, side)
		call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: "unix_ms"}, Arguments: []ast.Node{tree}}
		c.extents[call], c.extents[call.Callee] = c.extents[tree], c.extents[tree]
		return c.program(c.compile(call))
	})
}

// joined parses a text and leaves the rest to build, whose faults it returns.
func joined(text string, scope Scope, o Options, build func(c *compiler, tree ast.Node) *Program) (p *Program, err error) {
	c := &compiler{text: text, scope: scope, opts: o, limits: o.Limits.orDefault(), extents: map[ast.Node]extent{}}
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, Errors{{Length: len(text), Msg: fmt.Sprintf("the expression cannot be compiled: %v", r)}}
		}
	}()
	tree, fault := c.parse()
	if fault != nil {
		return nil, Errors{fault}
	}
	c.measure(tree)
	p = build(c, tree)
	if len(c.errs) > 0 {
		slices.SortStableFunc(c.errs, func(a, b *Error) int { return a.Offset - b.Offset })
		return nil, c.errs
	}
	return p, nil
}

// conjuncts appends the parts of a condition that are joined by &&.
func conjuncts(n ast.Node, dst []ast.Node) []ast.Node {
	if b, ok := n.(*ast.BinaryNode); ok && (b.Operator == "&&" || b.Operator == "and") {
		return conjuncts(b.Right, conjuncts(b.Left, dst))
	}
	return append(dst, n)
}

// equality takes an equality between the two sides apart, whichever stands first.
func equality(n ast.Node) (left, right ast.Node, ok bool) {
	b, is := n.(*ast.BinaryNode)
	if !is || b.Operator != "==" {
		return nil, nil, false
	}
	switch l, r := sidesOf(b.Left), sidesOf(b.Right); {
	case l == onlyLeft && r == onlyRight:
		return b.Left, b.Right, true
	case l == onlyRight && r == onlyLeft:
		return b.Right, b.Left, true
	}
	return nil, nil, false
}

// sides is the set of records that a part reads.
type sides uint8

const (
	onlyLeft sides = 1 << iota
	onlyRight
)

func sidesOf(n ast.Node) (s sides) {
	if n == nil {
		return 0
	}
	if id, ok := n.(*ast.IdentifierNode); ok {
		switch id.Value {
		case LeftSide:
			return onlyLeft
		case RightSide:
			return onlyRight
		}
	}
	for _, part := range partsOf(n) {
		s |= sidesOf(part)
	}
	return s
}

// add compiles an equality between the sides.
func (on *On) add(c *compiler, n, l, r ast.Node, left, right Scope) {
	at := c.site(n)
	c.strip(&l, LeftSide)
	c.strip(&r, RightSide)
	lp, rp := c.part(l, left, Any), c.part(r, right, Any)
	if lp == nil || rp == nil {
		return
	}
	lt, rt := lp.typ.NonNull(), rp.typ.NonNull()
	if !comparableWith(lt).Overlaps(rt) {
		c.fault(at, fmt.Sprintf("%s and %s never match", lp.typ, rp.typ), timeHelp(lt, rt))
		return
	}
	lp.text, rp.text = c.textOf(l), c.textOf(r)
	on.Left, on.Right = append(on.Left, lp), append(on.Right, rp)
}

// textOf is the text of a part.
func (c *compiler) textOf(n ast.Node) string {
	from, to := c.span(n)
	return c.text[from:to]
}

// rest compiles the parts of a condition that are no key.
func (c *compiler) rest(parts []ast.Node) *Program {
	if len(parts) == 0 || len(c.errs) > 0 {
		return nil
	}
	all := parts[0]
	for _, p := range parts[1:] {
		all = &ast.BinaryNode{Operator: "&&", Left: all, Right: p}
	}
	c.measure(all)
	return c.part(all, c.scope, Bool)
}

// part compiles a part of the text over a scope.
func (c *compiler) part(n ast.Node, scope Scope, want Type) *Program {
	sub := &compiler{
		text: c.text, offs: c.offs, scope: scope, limits: c.limits, extents: c.extents, tokens: c.tokens, parts: c.parts,
		opts: Options{Want: want, Name: c.opts.Name, Deterministic: true, Limits: c.opts.Limits},
	}
	root := sub.compile(n)
	c.parts = sub.parts
	p := sub.program(root)
	c.errs = append(c.errs, sub.errs...)
	if len(sub.errs) > 0 {
		return nil
	}
	return p
}

// noEquality says why a condition gives no key.
func (c *compiler) noEquality(parts []ast.Node) {
	const help = "a join needs one such as `left.id == right.id`; further conditions follow after `&&`"
	for _, n := range parts {
		b, ok := n.(*ast.BinaryNode)
		if !ok {
			continue
		}
		switch s := sidesOf(n); {
		case b.Operator == "||" || b.Operator == "or":
			c.fault(c.site(n), "a condition with `||` gives no key to join by", "an equality must hold for all pairs; put `||` behind one, as in `left.id == right.id && (… || …)`")
		case b.Operator != "==":
			continue
		case s == onlyLeft:
			c.fault(c.site(n), "both sides of the equality are of the left record", help)
		case s == onlyRight:
			c.fault(c.site(n), "both sides of the equality are of the right record", help)
		case s == onlyLeft|onlyRight:
			c.fault(c.site(n), "a side of the equality is of both records", "bring it into the form `expression of left == expression of right`")
		default:
			continue
		}
		return
	}
	c.fault(&site{length: len(c.text)}, "there is no equality between the left and the right record", help)
}

// names notes the names that mean nothing in a join, where only those records are
// known.
func (c *compiler) names(tree ast.Node, known ...string) {
	declared := map[string]bool{}
	visit(tree, func(n ast.Node) {
		if v, ok := n.(*ast.VariableDeclaratorNode); ok {
			declared[v.Name] = true
			if v.Name == LeftSide || v.Name == RightSide || v.Name == "this" {
				c.fault(c.site(n), "`"+v.Name+"` is a record of the join, and no name for a variable", "")
			}
		}
	})
	parts := map[ast.Node]string{}
	visit(tree, func(n ast.Node) {
		if m, ok := n.(*ast.MemberNode); ok {
			if name, ok := m.Property.(*ast.StringNode); ok {
				parts[m.Node] = name.Value
			}
		}
		id, ok := n.(*ast.IdentifierNode)
		if !ok || declared[id.Value] || id.Value == "null" || slices.Contains(known, id.Value) {
			return
		}
		c.fault(c.site(n), nameFault(id.Value, known), nameHelp(id.Value, parts[n], known))
	})
}

func nameFault(name string, known []string) string {
	switch name {
	case LeftSide, RightSide:
		return fmt.Sprintf("only the %s record is known here", known[0])
	case "this", "meta":
		return "`" + name + "` does not say of which record of the join"
	}
	return "`" + name + "` does not say of which record of the join it is"
}

// nameHelp is the help for a name that means nothing in a join. part is what stands
// behind it after a dot: the name of an input may have been meant.
func nameHelp(name, part string, known []string) string {
	switch name {
	case LeftSide, RightSide:
		return ""
	case "this":
		return "write " + forms(known, "")
	case "meta":
		return "write " + forms(known, ".meta")
	}
	if near := didYouMean(name, known); near != "" {
		return near
	}
	if part != "" {
		return "the records are called left and right, whatever their inputs are called: write " + forms(known, "."+part) + ", and for a field " + name + " " + forms(known, "."+name+"."+part)
	}
	return "write " + forms(known, "."+name)
}

// forms are the ways to write a name of either record.
func forms(known []string, rest string) string {
	var list []string
	for _, k := range known {
		if k == LeftSide || k == RightSide {
			list = append(list, "`"+k+rest+"`")
		}
	}
	return strings.Join(list, " or ")
}

// visit goes over a tree, but for the names of functions that are called.
func visit(n ast.Node, do func(n ast.Node)) {
	if n == nil {
		return
	}
	do(n)
	for _, part := range partsOf(n) {
		if call, ok := n.(*ast.CallNode); ok && part == call.Callee {
			if _, name := part.(*ast.IdentifierNode); name {
				continue
			}
		}
		visit(part, do)
	}
}

// strip makes a part that reads one record of a join an expression over that record
// alone: left.f becomes this.f, and left.meta.key becomes meta.key. Nodes keep their
// places in the text.
func (c *compiler) strip(n *ast.Node, side string) { ast.Walk(n, &stripper{c, side}) }

type stripper struct {
	c    *compiler
	side string
}

func (s *stripper) Visit(n *ast.Node) {
	switch x := (*n).(type) {
	case *ast.IdentifierNode:
		if x.Value == s.side {
			x.Value = "this"
		}
	case *ast.MemberNode:
		id, ok := x.Node.(*ast.IdentifierNode)
		name, is := x.Property.(*ast.StringNode)
		if ok && is && id.Value == "this" && name.Value == "meta" {
			meta := &ast.IdentifierNode{Value: "meta"}
			meta.SetLocation(x.Location())
			s.c.extents[meta] = s.c.extents[x]
			*n = meta
		}
	}
}
