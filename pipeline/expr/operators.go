package expr

import (
	"fmt"
	"math"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
)

var operatorOf = map[string]operator{"+": opAdd, "-": opSub, "*": opMul, "/": opDiv, "%": opMod, "**": opPow, "^": opPow}

func (c *compiler) unary(n *ast.UnaryNode) *node {
	x, at := c.compile(n.Node), c.site(n)
	switch n.Operator {
	case "!", "not":
		test := c.condition(x)
		return decided(at, x.pure, func(e *Env) truth {
			switch test(e) {
			case yes:
				return no
			case no:
				return yes
			default:
			}
			return unknown
		})
	case "-", "+":
		const signed = Number | spanBit
		typ := x.typ & signed
		if typ == 0 {
			return c.arithmeticFault(at, n.Operator, x, x)
		}
		run, inner, plus := x.run, x.at, n.Operator == "+"
		return &node{typ: typ, slot: -1, at: at, pure: x.pure, run: func(e *Env) connectors.Value {
			v := run(e)
			if plus && signed.Has(v.Kind()) {
				return v
			}
			return e.negate(inner, v)
		}}
	}
	return c.errorf(at, "the operator `%s` is not known", n.Operator)
}

func (c *compiler) binary(n *ast.BinaryNode) *node {
	switch n.Operator {
	case "&&", "and", "||", "or":
		return c.logic(n)
	case "??":
		return c.coalesce(n)
	case "in":
		return c.in(n)
	case "matches":
		return c.matches(n)
	case "contains", "startsWith", "endsWith":
		return c.textTest(n)
	case "..":
		return c.rangeOf(n)
	}
	l, r, at := c.compile(n.Left), c.compile(n.Right), c.site(n)
	o := &operands{at: at, l: l.at, r: r.at, sign: n.Operator}
	if want, ok := relations[n.Operator]; ok {
		if want == equal || want&unordered != 0 {
			return c.equality(o, want == equal, l, r)
		}
		return c.ordering(o, want, l, r)
	}
	op, ok := operatorOf[n.Operator]
	if !ok {
		return c.errorf(at, "the operator `%s` is not known", n.Operator)
	}
	o.op = op
	return c.arithmetic(o, l, r)
}

func (c *compiler) logic(n *ast.BinaryNode) *node {
	l, r := c.compile(n.Left), c.compile(n.Right)
	left, right, at := c.condition(l), c.condition(r), c.site(n)
	pure := l.pure && r.pure
	if n.Operator == "&&" || n.Operator == "and" {
		return decided(at, pure, func(e *Env) truth {
			if t := left(e); t != yes {
				return t
			}
			return right(e)
		})
	}
	return decided(at, pure, func(e *Env) truth {
		if t := left(e); t != no {
			return t
		}
		return right(e)
	})
}

func (c *compiler) coalesce(n *ast.BinaryNode) *node {
	l, r := c.compile(n.Left), c.compile(n.Right)
	typ := l.typ
	if typ.MayBeNull() {
		typ = typ.NonNull() | r.typ
	}
	// A record may lack what its schema promises, so that the right side stays.
	first, second := l.run, r.run
	return &node{typ: typ, slot: -1, at: c.site(n), pure: l.pure && r.pure, run: func(e *Env) connectors.Value {
		if v := first(e); !v.IsNull() {
			return v
		}
		return second(e)
	}}
}

// arithmeticType is the type of l op r, 0 where no kinds of operands go together.
func arithmeticType(op operator, l, r Type) Type {
	var t Type
	ln, rn := l&Number, r&Number
	if ln != 0 && rn != 0 {
		t |= numberType(op, ln, rn)
	}
	if op == opAdd && l&textBit != 0 && r&textBit != 0 {
		t |= textBit
	}
	add := op == opAdd || op == opSub
	if add && l&stampBit != 0 && r&spanBit != 0 || op == opAdd && l&spanBit != 0 && r&stampBit != 0 {
		t |= stampBit
	}
	if op == opSub && l&r&stampBit != 0 || add && l&r&spanBit != 0 ||
		(op == opMul || op == opDiv) && l&spanBit != 0 && r&intBit != 0 || op == opMul && l&intBit != 0 && r&spanBit != 0 {
		t |= spanBit
	}
	if op == opDiv && l&r&spanBit != 0 {
		t |= floatBit
	}
	return t
}

func numberType(op operator, l, r Type) Type {
	var t Type
	if op == opMod {
		return l & r & intBit
	}
	if op == opPow || (l|r)&floatBit != 0 {
		t |= floatBit
	}
	if op == opPow {
		return t
	}
	if l&intBit != 0 && r&intBit != 0 {
		if op == opDiv {
			t |= floatBit
		} else {
			t |= intBit
		}
	}
	if l&decBit != 0 && r&(intBit|decBit) != 0 || r&decBit != 0 && l&(intBit|decBit) != 0 {
		t |= decBit
	}
	return t
}

func (c *compiler) arithmeticFault(at *site, sign string, l, r *node) *node {
	help := ""
	switch {
	case l.typ == nullBit || r.typ == nullBit:
		help = "null has no value to compute with; `??` gives it one"
	case sign == "+" && (l.typ.NonNull() == Text || r.typ.NonNull() == Text):
		help = "string(x) makes text of a value, int(x) and float(x) a number of text"
	case sign == "%":
		help = "it takes ints"
	}
	if l == r {
		return c.fault(at, fmt.Sprintf("`%s` does not take %s", sign, l.typ), help)
	}
	return c.fault(at, fmt.Sprintf("`%s` does not take %s and %s", sign, l.typ, r.typ), help)
}

func (c *compiler) arithmetic(o *operands, l, r *node) *node {
	typ := arithmeticType(o.op, l.typ, r.typ)
	if typ == 0 {
		return c.arithmeticFault(o.at, o.sign, l, r)
	}
	n := &node{typ: typ, slot: -1, at: o.at, pure: l.pure && r.pure}
	if k, ok := r.constant(); ok && o.op < opMod {
		n.run = arithConstant(o, l, k)
	}
	if n.run == nil {
		n.run = arithGeneral(o, l.run, r.run)
	}
	return n
}

func arithGeneral(o *operands, l, r fn) fn {
	op := o.op
	if op >= opDiv {
		return func(e *Env) connectors.Value { return e.arith(o, l(e), r(e)) }
	}
	return func(e *Env) connectors.Value {
		a, b := l(e), r(e)
		switch {
		case a.Kind() == connectors.Int && b.Kind() == connectors.Int:
			return e.intOp(o, a.Int(), b.Int())
		case a.Kind() == connectors.Float && b.Kind() == connectors.Float:
			return connectors.FloatValue(floatOp(op, a.Float(), b.Float()))
		}
		return e.arith(o, a, b)
	}
}

// arithConstant is + - * / with a number on the right that the text fixes.
func arithConstant(o *operands, l *node, k connectors.Value) fn {
	switch {
	case k.Kind() == connectors.Float && (o.op != opDiv || k.Float() != 0):
		return arithFloat(o, l, k)
	case k.Kind() == connectors.Int && o.op != opDiv:
		return arithInt(o, l, k)
	}
	return nil
}

func arithFloat(o *operands, l *node, k connectors.Value) fn {
	op, run, slot, f := o.op, l.run, l.slot, k.Float()
	if slot < 0 {
		return func(e *Env) connectors.Value {
			v := run(e)
			switch v.Kind() {
			case connectors.Float:
				return connectors.FloatValue(floatOp(op, v.Float(), f))
			case connectors.Int:
				return connectors.FloatValue(floatOp(op, float64(v.Int()), f))
			default:
			}
			return e.arith(o, v, k)
		}
	}
	return func(e *Env) connectors.Value {
		v := &e.row[slot]
		switch v.Kind() {
		case connectors.Float:
			return connectors.FloatValue(floatOp(op, v.Float(), f))
		case connectors.Int:
			return connectors.FloatValue(floatOp(op, float64(v.Int()), f))
		default:
		}
		return e.arith(o, *v, k)
	}
}

func arithInt(o *operands, l *node, k connectors.Value) fn {
	op, run, i, f := o.op, l.run, k.Int(), float64(k.Int())
	if op == opSub && i != math.MinInt64 {
		minus := -i
		return func(e *Env) connectors.Value {
			v := run(e)
			if v.Kind() == connectors.Int {
				if s, ok := addInt(v.Int(), minus); ok {
					return connectors.IntValue(s)
				}
			}
			return e.arith(o, v, k)
		}
	}
	return func(e *Env) connectors.Value {
		v := run(e)
		switch v.Kind() {
		case connectors.Int:
			if op == opAdd {
				if s, ok := addInt(v.Int(), i); ok {
					return connectors.IntValue(s)
				}
			}
			return e.intOp(o, v.Int(), i)
		case connectors.Float:
			return connectors.FloatValue(floatOp(op, v.Float(), f))
		default:
		}
		return e.arith(o, v, k)
	}
}

func (c *compiler) conditional(n *ast.ConditionalNode) *node {
	t := c.compile(n.Cond)
	test := c.condition(t)
	a, b, at := c.compile(n.Exp1), c.compile(n.Exp2), c.site(n)
	first, second := a.run, b.run
	out := &node{typ: a.typ | b.typ, slot: -1, at: at, pure: t.pure && a.pure && b.pure}
	out.run = func(e *Env) connectors.Value {
		switch test(e) {
		case yes:
			return first(e)
		case no:
			return second(e)
		default:
		}
		return failure
	}
	if out.typ == Bool {
		yesCond, noCond := c.condition(a), c.condition(b)
		out.cond = func(e *Env) truth {
			switch test(e) {
			case yes:
				return yesCond(e)
			case no:
				return noCond(e)
			default:
			}
			return unknown
		}
	}
	return out
}

// let compiles `let name = value; rest`. The value is computed once.
func (c *compiler) let(n *ast.VariableDeclaratorNode) *node {
	if n.Name == "this" || n.Name == "meta" || n.Name == "null" {
		c.errorf(c.site(n), "`%s` cannot be the name of a variable", n.Name)
	}
	value := c.compile(n.Value)
	at := c.newVar()
	v := local{name: n.Name, at: at, typ: value.typ}
	if value.at.constant != nil {
		v.pure = value
	}
	c.locals = append(c.locals, v)
	rest := c.compile(n.Expr)
	c.locals = c.locals[:len(c.locals)-1]
	if v.pure != nil {
		return rest
	}
	set, then := value.run, rest.run
	return &node{typ: rest.typ, slot: -1, at: c.site(n), run: func(e *Env) connectors.Value {
		x := set(e)
		if x.Kind() == failed {
			return x
		}
		e.vars[at] = x
		return then(e)
	}}
}

func (c *compiler) newVar() int {
	c.vars++
	return c.vars - 1
}

// sequence compiles `a; b`: expressions have no effects, so only the last
// counts.
func (c *compiler) sequence(n *ast.SequenceNode) *node {
	var last *node
	for _, part := range n.Nodes {
		last = c.compile(part)
	}
	return last
}

func (c *compiler) slice(n *ast.SliceNode) *node {
	base, at := c.compile(n.Node), c.site(n)
	if !base.typ.Overlaps(listBit | textBit) {
		return c.errorf(base.at, "%s is %s and cannot be sliced", base.at.name, base.typ)
	}
	bound := func(b ast.Node) *node {
		if b == nil {
			return c.known(&site{}, connectors.IntValue(0))
		}
		x := c.compile(b)
		if !x.typ.Overlaps(intBit) {
			return c.errorf(x.at, "a position is an int, and %s is %s", x.at.name, x.typ)
		}
		return x
	}
	from, to, open := bound(n.From), bound(n.To), n.To == nil
	run, low, high := base.run, from.run, to.run
	return &node{typ: base.typ & (listBit | textBit | nullBit), slot: -1, at: at, pure: base.pure && from.pure && to.pure, run: func(e *Env) connectors.Value {
		b := run(e)
		if b.Kind() == failed || b.IsNull() {
			return b
		}
		i, j := low(e), high(e)
		if !e.isInt(from.at, i) || !e.isInt(to.at, j) {
			return failure
		}
		return e.slice(at, b, i.Int(), j.Int(), open)
	}}
}

func (e *Env) isInt(s *site, v connectors.Value) bool {
	if v.Kind() == connectors.Int {
		return true
	}
	if v.Kind() != failed {
		e.failf(s, KindType, "%s must be an int, and is %s", s.name, article(v.Kind()))
	}
	return false
}
