package expr

import (
	"fmt"
	"math"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// orderedWith is the kinds that t has an order with.
func orderedWith(t Type) Type {
	o := t & (textBit | bytesBit | stampBit | spanBit)
	if t&Number != 0 {
		o |= Number
	}
	return o
}

// timeHelp says how a timestamp is compared with what stands for a time.
func timeHelp(l, r Type) string {
	if (l | r).NonNull().Within(Time) && (l | r).Overlaps(stampBit) {
		return "timestamp(x) makes a timestamp of text or of epoch milliseconds"
	}
	return ""
}

// ordering compiles < <= > >=.
func (c *compiler) ordering(o *operands, want relation, l, r *node) *node {
	if !orderedWith(l.typ).Overlaps(r.typ) {
		help := timeHelp(l.typ, r.typ)
		if l.typ == nullBit || r.typ == nullBit {
			help = "null has no order; is_null(x) and `??` handle it"
		}
		return c.fault(o.at, fmt.Sprintf("`%s` does not compare %s with %s", o.sign, l.typ, r.typ), help)
	}
	pure := l.pure && r.pure
	if k, ok := r.constant(); ok {
		if do := orderConstant(o, want, l, k); do != nil {
			return decided(o.at, pure, do)
		}
	}
	left, right := l.run, r.run
	return decided(o.at, pure, func(e *Env) truth {
		a, b := left(e), right(e)
		if a.Kind() == connectors.Int && b.Kind() == connectors.Int {
			return truthOf(orderInt(a.Int(), b.Int())&want != 0)
		}
		return e.compare(o, want, a, b)
	})
}

// orderConstant is an ordering with a number on the right that the text fixes.
func orderConstant(o *operands, want relation, l *node, k connectors.Value) cond {
	run, slot := l.run, l.slot
	switch {
	case k.Kind() == connectors.Int && slot >= 0:
		i := k.Int()
		return func(e *Env) truth {
			v := e.row[slot]
			if v.Kind() == connectors.Int {
				return truthOf(orderInt(v.Int(), i)&want != 0)
			}
			return e.compare(o, want, v, k)
		}
	case k.Kind() == connectors.Int:
		i := k.Int()
		return func(e *Env) truth {
			v := run(e)
			if v.Kind() == connectors.Int {
				return truthOf(orderInt(v.Int(), i)&want != 0)
			}
			return e.compare(o, want, v, k)
		}
	case k.Kind() == connectors.Float:
		f := k.Float()
		return func(e *Env) truth {
			v := run(e)
			if v.Kind() == connectors.Float {
				return truthOf(orderFloat(v.Float(), f)&want != 0)
			}
			return e.compare(o, want, v, k)
		}
	}
	return nil
}

// comparableWith is the kinds whose values may equal one of t.
func comparableWith(t Type) Type {
	o := t
	if t&Number != 0 {
		o |= Number
	}
	return o
}

// equality compiles == and !=.
func (c *compiler) equality(o *operands, same bool, l, r *node) *node {
	if !comparableWith(l.typ).Overlaps(r.typ) && !l.typ.MayBeNull() && !r.typ.MayBeNull() {
		return c.fault(o.at, fmt.Sprintf("%s and %s are never equal", l.typ, r.typ), timeHelp(l.typ, r.typ))
	}
	if l.typ != nullBit && r.typ != nullBit && !comparableWith(l.typ.NonNull()).Overlaps(r.typ.NonNull()) {
		return c.fault(o.at, fmt.Sprintf("%s and %s are never equal but for null", l.typ, r.typ), timeHelp(l.typ, r.typ))
	}
	if _, ok := l.constant(); ok {
		l, r = r, l
	}
	pure := l.pure && r.pure
	test := equalTo(o.at, l, r)
	if same {
		return decided(o.at, pure, test)
	}
	return decided(o.at, pure, func(e *Env) truth {
		switch test(e) {
		case yes:
			return no
		case no:
			return yes
		default:
		}
		return unknown
	})
}

func equalTo(at *site, l, r *node) cond {
	left, right := l.run, r.run
	k, fixed := r.constant()
	switch {
	case fixed && k.Kind() == connectors.String && len(k.Raw())>>scanShift == 0 && l.slot >= 0:
		slot, text := l.slot, k.Text()
		return func(e *Env) truth {
			v := e.row[slot]
			return truthOf(v.Kind() == connectors.String && v.Text() == text)
		}
	case fixed && k.Kind() == connectors.String && len(k.Raw())>>scanShift == 0:
		text := k.Text()
		return func(e *Env) truth {
			v := left(e)
			if v.Kind() == failed {
				return unknown
			}
			return truthOf(v.Kind() == connectors.String && v.Text() == text)
		}
	case fixed && k.Kind() == connectors.Int:
		i := k.Int()
		return func(e *Env) truth {
			v := left(e)
			if v.Kind() == connectors.Int {
				return truthOf(v.Int() == i)
			}
			return e.equals(at, v, k)
		}
	case fixed && k.IsNull():
		return func(e *Env) truth {
			v := left(e)
			if v.Kind() == failed {
				return unknown
			}
			return truthOf(v.IsNull())
		}
	}
	return func(e *Env) truth {
		a := left(e)
		if a.Kind() == failed {
			return unknown
		}
		b := right(e)
		if a.Kind() == connectors.String && b.Kind() == connectors.String && len(a.Raw())>>scanShift == 0 {
			return truthOf(a.Text() == b.Text())
		}
		return e.equals(at, a, b)
	}
}

// set is a constant list that `in` looks into.
type set struct {
	texts map[string]struct{}
	// longest is the length of the longest text: no longer one is worth hashing.
	longest int
	ints    map[int64]struct{}
	few     []int64            // the ints where they are few
	rest    []connectors.Value // what is neither text nor int
}

const fewInts = 8

func newSet(list connectors.Value, a *connectors.Arena) *set {
	s := &set{texts: map[string]struct{}{}, ints: map[int64]struct{}{}}
	c := over(list)
	for {
		raw, ok := c.next()
		if !ok {
			break
		}
		switch v := elementOf(raw, a); v.Kind() {
		case connectors.String:
			s.texts[v.Text()] = struct{}{}
			s.longest = max(s.longest, len(v.Text()))
		case connectors.Int:
			s.ints[v.Int()] = struct{}{}
			s.few = append(s.few, v.Int())
		default:
			s.rest = append(s.rest, v)
		}
	}
	if len(s.few) > fewInts {
		s.few = nil
	}
	return s
}

func (s *set) has(e *Env, at *site, v connectors.Value) truth {
	switch v.Kind() {
	case connectors.String:
		if len(v.Raw()) > s.longest || !e.read(at, v) {
			return truthOr(e.err)
		}
		if _, ok := s.texts[v.Text()]; ok {
			return yes
		}
	case connectors.Int:
		if s.hasInt(v.Int()) {
			return yes
		}
	case failed:
		return unknown
	case connectors.Float, connectors.Decimal:
		for i := range s.ints {
			if t := e.equals(at, v, connectors.IntValue(i)); t != no {
				return t
			}
		}
	default:
	}
	for _, r := range s.rest {
		if t := e.equals(at, v, r); t != no {
			return t
		}
	}
	return no
}

func (s *set) hasInt(i int64) bool {
	if s.few == nil {
		_, ok := s.ints[i]
		return ok
	}
	for _, k := range s.few {
		if k == i {
			return true
		}
	}
	return false
}

func truthOr(err *EvalError) truth {
	if err != nil {
		return unknown
	}
	return no
}

// in compiles `x in list`, `name in map` and `n in 1..9`.
func (c *compiler) in(n *ast.BinaryNode) *node {
	x, at := c.compile(n.Left), c.site(n)
	if b, ok := n.Right.(*ast.BinaryNode); ok && b.Operator == ".." {
		return c.between(at, x, b)
	}
	l := c.compile(n.Right)
	if !l.typ.Overlaps(listBit|mapBit) && l.typ != nullBit {
		help := ""
		if l.typ.Overlaps(Text) {
			help = "whether text is part of text is `a contains b`"
		}
		return c.fault(l.at, fmt.Sprintf("`in` looks into a list or a map, and %s is %s", l.at.name, l.typ), help)
	}
	run, holder := x.run, l.run
	if k, ok := l.constant(); ok && k.Kind() == connectors.List {
		s := newSet(k, c.folding().arena())
		return decided(at, x.pure, func(e *Env) truth { return s.has(e, at, run(e)) })
	}
	return decided(at, x.pure && l.pure, func(e *Env) truth {
		v := run(e)
		if v.Kind() == failed {
			return unknown
		}
		return e.within(at, l.at, v, holder(e))
	})
}

// between compiles `n in low..high` without making the list.
func (c *compiler) between(at *site, x *node, b *ast.BinaryNode) *node {
	low, high := c.compile(b.Left), c.compile(b.Right)
	for _, end := range []*node{low, high} {
		if !end.typ.Overlaps(intBit) {
			return c.errorf(end.at, "the end of a range is an int, and %s is %s", end.at.name, end.typ)
		}
	}
	run, from, to := x.run, low.run, high.run
	return decided(at, x.pure && low.pure && high.pure, func(e *Env) truth {
		v, i, j := run(e), from(e), to(e)
		if v.Kind() == failed || !e.isInt(low.at, i) || !e.isInt(high.at, j) {
			return unknown
		}
		if v.Kind() == connectors.Int {
			return truthOf(v.Int() >= i.Int() && v.Int() <= j.Int())
		}
		if !Number.Has(v.Kind()) {
			return no
		}
		// A float or decimal is in a range of ints if it is whole.
		if e.order(at, v, i)&(greater|equal) == 0 || e.order(at, v, j)&(less|equal) == 0 {
			return truthOf(false)
		}
		return e.isWhole(at, v)
	})
}

// within is `v in holder` where holder is not known before.
func (e *Env) within(s, hs *site, v, holder connectors.Value) truth {
	switch holder.Kind() {
	case connectors.Absent, connectors.Null:
		return no
	case connectors.Map:
		if v.Kind() != connectors.String {
			return no
		}
		if !e.read(s, holder) {
			return unknown
		}
		_, ok := format.Lookup(holder.Raw(), v.Text(), e.arena())
		return truthOf(ok)
	case connectors.List:
	case failed:
		return unknown
	default:
		e.failf(hs, KindType, "`in` looks into a list or a map, and %s is %s", hs.name, article(holder.Kind()))
		return unknown
	}
	if !e.read(s, holder) {
		return unknown
	}
	c := over(holder)
	for {
		raw, ok := c.next()
		if !ok {
			return no
		}
		if !e.step(s, 1) {
			return unknown
		}
		if t := e.equals(s, v, elementOf(raw, e.arena())); t != no {
			return t
		}
	}
}

// isWhole tells whether a number has no fraction.
func (e *Env) isWhole(s *site, v connectors.Value) truth {
	if v.Kind() == connectors.Float {
		return truthOf(v.Float() == math.Trunc(v.Float()))
	}
	i := toInt(e, s, v)
	if i.Kind() == failed {
		return unknown
	}
	return e.equals(s, v, i)
}
