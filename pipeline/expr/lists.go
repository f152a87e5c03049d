package expr

import (
	"math"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
)

// list compiles [a, b, c].
func (c *compiler) list(n *ast.ArrayNode) *node {
	at, pure := c.site(n), true
	parts := make([]fn, len(n.Nodes))
	for i, part := range n.Nodes {
		x := c.compile(part)
		parts[i], pure = x.run, pure && x.pure
	}
	return &node{typ: listBit, slot: -1, at: at, pure: pure, run: func(e *Env) connectors.Value {
		b := e.open(at, '[')
		for _, part := range parts {
			if !b.value(e, part(e)) {
				return failure
			}
		}
		return b.list(e)
	}}
}

type pair struct {
	name  string
	key   fn // nil where name is it
	keyAt *site
	value fn
}

// mapping compiles {a: 1, "b": 2, (c): 3}. Of a name given twice the last
// counts.
func (c *compiler) mapping(n *ast.MapNode) *node {
	at, pure := c.site(n), true
	var pairs []pair
	for _, part := range n.Pairs {
		p := part.(*ast.PairNode)
		k, v := c.compile(p.Key), c.compile(p.Value)
		if !k.typ.Overlaps(Text) {
			return c.errorf(k.at, "the name of a field is a string, and %s is %s", k.at.name, k.typ)
		}
		pure = pure && k.pure && v.pure
		one := pair{key: k.run, keyAt: k.at, value: v.run}
		if name, ok := k.text(); ok {
			one.name, one.key = name, nil
			for i := range pairs {
				if pairs[i].key == nil && pairs[i].name == name {
					pairs = append(pairs[:i], pairs[i+1:]...)
					break
				}
			}
		}
		pairs = append(pairs, one)
	}
	return &node{typ: mapBit, slot: -1, at: at, pure: pure, run: func(e *Env) connectors.Value {
		b := e.open(at, '{')
		for i := range pairs {
			if !b.pair(e, &pairs[i]) {
				return failure
			}
		}
		return b.mapping(e)
	}}
}

func (b *builder) pair(e *Env, p *pair) bool {
	name := p.name
	if p.key != nil {
		k := p.key(e)
		if k.Kind() != connectors.String {
			if k.Kind() != failed {
				e.failf(p.keyAt, KindType, "the name of a field is a string, and %s is %s", p.keyAt.name, article(k.Kind()))
			}
			return false
		}
		name = k.Text()
	}
	if !e.spend(b.at, len(name)) {
		return false
	}
	b.name(e, name)
	return b.put(e, p.value(e))
}

// rangeOf compiles low..high, the list of the ints from low to high.
func (c *compiler) rangeOf(n *ast.BinaryNode) *node {
	l, r, at := c.compile(n.Left), c.compile(n.Right), c.site(n)
	for _, end := range []*node{l, r} {
		if !end.typ.Overlaps(intBit) {
			return c.errorf(end.at, "the end of a range is an int, and %s is %s", end.at.name, end.typ)
		}
	}
	low, high := l.run, r.run
	return &node{typ: listBit, slot: -1, at: at, pure: l.pure && r.pure, run: func(e *Env) connectors.Value {
		i, j := low(e), high(e)
		if !e.isInt(l.at, i) || !e.isInt(r.at, j) {
			return failure
		}
		b := e.open(at, '[')
		for k := i.Int(); k <= j.Int(); k++ {
			if !e.step(at, 1) || !b.value(e, connectors.IntValue(k)) {
				return failure
			}
			if k == math.MaxInt64 {
				break
			}
		}
		return b.list(e)
	}}
}

// pointer compiles #, #index and #acc within a predicate.
func (c *compiler) pointer(n *ast.PointerNode) *node {
	at := c.site(n)
	if len(c.items) == 0 {
		return c.errorf(at, "`#` stands for an element, within filter(), map() and the like")
	}
	it := c.items[len(c.items)-1]
	i, typ := it.value, Any
	switch n.Name {
	case "":
	case "index":
		i, typ = it.index, intBit
	case "acc":
		if it.acc < 0 {
			return c.errorf(at, "`#acc` is what reduce() has so far, and this is not within one")
		}
		i = it.acc
	default:
		return c.fault(at, "`#"+n.Name+"` is not known", "there are `#`, `#index` and, in reduce(), `#acc`")
	}
	return &node{typ: typ, slot: -1, at: at, run: func(e *Env) connectors.Value { return e.vars[i] }}
}

// loop is a call of a function with a predicate, at work on one list.
type loop struct {
	at   *site
	list *node
	body *node
	test cond // body as a condition
	it   item
	arg  *node // the third argument
	help string
}

// each runs do for each element with # and #index set, until it says false. It
// reports whether all went well.
func (l *loop) each(e *Env, do func(raw []byte) bool) bool {
	list := l.list.run(e)
	switch list.Kind() {
	case connectors.List:
	case failed:
		return false
	case connectors.Absent, connectors.Null:
		e.null(l.list.at, "gone through", "[]")
		return false
	default:
		e.failf(l.list.at, KindType, "%s must be a list, and is %s%s", l.list.at.name, article(list.Kind()), l.help)
		return false
	}
	if !e.read(l.at, list) {
		return false
	}
	c := over(list)
	for i := int64(0); ; i++ {
		raw, ok := c.next()
		if !ok {
			return true
		}
		if !e.step(l.at, 1) {
			return false
		}
		e.vars[l.it.value] = elementOf(raw, e.arena())
		e.vars[l.it.index] = connectors.IntValue(i)
		if !do(raw) {
			return e.err == nil
		}
	}
}

type loopFunc struct {
	typ  Type
	test bool // the predicate is a condition
	bare bool // the predicate may be left out
	run  func(l *loop) fn
}

var loops map[string]loopFunc

func init() {
	loops = map[string]loopFunc{
		"all":           {typ: Bool, test: true, run: func(l *loop) fn { return l.decide(no, no, true) }},
		"none":          {typ: Bool, test: true, run: func(l *loop) fn { return l.decide(yes, no, true) }},
		"any":           {typ: Bool, test: true, run: func(l *loop) fn { return l.decide(yes, yes, false) }},
		"one":           {typ: Bool, test: true, run: func(l *loop) fn { return l.one }},
		"count":         {typ: intBit, test: true, bare: true, run: func(l *loop) fn { return l.count }},
		"filter":        {typ: listBit, test: true, run: func(l *loop) fn { return l.filter }},
		"map":           {typ: listBit, run: func(l *loop) fn { return l.mapped }},
		"find":          {typ: Any, test: true, run: func(l *loop) fn { return l.find(false, false) }},
		"findIndex":     {typ: intBit | nullBit, test: true, run: func(l *loop) fn { return l.find(true, false) }},
		"findLast":      {typ: Any, test: true, run: func(l *loop) fn { return l.find(false, true) }},
		"findLastIndex": {typ: intBit | nullBit, test: true, run: func(l *loop) fn { return l.find(true, true) }},
		"sum":           {typ: Number | spanBit, bare: true, run: func(l *loop) fn { return l.sum }},
		"groupBy":       {typ: mapBit, run: func(l *loop) fn { return l.groupBy }},
		"sortBy":        {typ: listBit, run: func(l *loop) fn { return l.sortBy }},
		"reduce":        {typ: Any, run: func(l *loop) fn { return l.reduce }},
	}
}

// loopCall compiles a call of a function with a predicate.
func (c *compiler) loopCall(n ast.Node, name string, args []ast.Node) *node {
	at, f := c.site(n), loops[name]
	if len(args) == 0 {
		return c.errorf(at, "%s() needs a list", name)
	}
	l := &loop{at: at, list: c.compile(args[0])}
	if !l.list.typ.Overlaps(listBit) {
		return c.fault(l.list.at, name+"() goes through a list, and "+l.list.at.name+" is "+l.list.typ.String(), aggregateHelp(name))
	}
	if help := aggregateHelp(name); help != "" {
		l.help = "; " + help
	}
	l.it = item{value: c.newVar(), index: c.newVar(), acc: -1}
	if name == "reduce" {
		l.it.acc = c.newVar()
	}
	if len(args) > 1 {
		body := args[1]
		if p, ok := body.(*ast.PredicateNode); ok {
			body = p.Node
		}
		c.items = append(c.items, l.it)
		l.body = c.compile(body)
		c.items = c.items[:len(c.items)-1]
		if f.test {
			l.test = c.condition(l.body)
		}
	} else if !f.bare {
		return c.errorf(at, "%s() needs an expression for the elements", name)
	}
	if len(args) > 2 {
		l.arg = c.compile(args[2])
	}
	return &node{typ: f.typ, slot: -1, at: at, run: f.run(l)}
}

// decide stops at the first element whose test is stop with result then, and is
// otherwise in the end.
func (l *loop) decide(stop, then truth, otherwise bool) fn {
	return func(e *Env) connectors.Value {
		out := otherwise
		if !l.each(e, func([]byte) bool {
			t := l.test(e)
			if t == stop {
				out = then == yes
			}
			return t != stop && t != unknown
		}) {
			return failure
		}
		return connectors.BoolValue(out)
	}
}

func (l *loop) one(e *Env) connectors.Value {
	n := l.count(e)
	if n.Kind() == failed {
		return n
	}
	return connectors.BoolValue(n.Int() == 1)
}

func (l *loop) count(e *Env) connectors.Value {
	n := int64(0)
	if !l.each(e, func([]byte) bool {
		var t truth
		if l.test != nil {
			t = l.test(e)
		} else {
			t = e.condition(l.at, e.vars[l.it.value])
		}
		if t == yes {
			n++
		}
		return t != unknown
	}) {
		return failure
	}
	return connectors.IntValue(n)
}

func (l *loop) filter(e *Env) connectors.Value {
	b := e.open(l.at, '[')
	if !l.each(e, func(raw []byte) bool {
		t := l.test(e)
		return t == no || t == yes && b.raw(e, raw)
	}) {
		return failure
	}
	return b.list(e)
}

func (l *loop) mapped(e *Env) connectors.Value {
	b := e.open(l.at, '[')
	if !l.each(e, func([]byte) bool { return b.value(e, l.body.run(e)) }) {
		return failure
	}
	return b.list(e)
}

func (l *loop) find(index, last bool) fn {
	return func(e *Env) connectors.Value {
		out := connectors.NullValue()
		if !l.each(e, func([]byte) bool {
			t := l.test(e)
			if t != yes {
				return t == no
			}
			out = e.vars[l.it.value]
			if index {
				out = e.vars[l.it.index]
			}
			return last
		}) {
			return failure
		}
		return out
	}
}
