package expr

import (
	"slices"

	"github.com/sluice-etl/sluice/connectors"
)

func (l *loop) element(e *Env) connectors.Value {
	if l.body == nil {
		return e.vars[l.it.value]
	}
	return l.body.run(e)
}

// sum adds up numbers or durations; of none it is the int 0.
func (l *loop) sum(e *Env) connectors.Value {
	o := &operands{at: l.at, l: l.at, r: l.at, op: opAdd, sign: "+"}
	if l.body != nil {
		o.r = l.body.at
	}
	total := connectors.IntValue(0)
	first := true
	if !l.each(e, func([]byte) bool {
		v := l.element(e)
		if first && v.Kind() == connectors.Duration {
			total = connectors.DurationValue(0)
		}
		first = false
		if v.Kind() == connectors.String {
			e.failf(o.r, KindType, "a sum is of numbers, and an element is %s", article(v.Kind()))
			return false
		}
		total = e.arith(o, total, v)
		return total.Kind() != failed
	}) {
		return failure
	}
	return total
}

func (l *loop) reduce(e *Env) connectors.Value {
	acc := connectors.Value{}
	started := l.arg != nil
	if started {
		if acc = l.arg.run(e); acc.Kind() == failed {
			return acc
		}
	}
	if !l.each(e, func([]byte) bool {
		if !started {
			started, acc = true, e.vars[l.it.value]
			return true
		}
		e.vars[l.it.acc] = acc
		acc = l.body.run(e)
		return acc.Kind() != failed
	}) {
		return failure
	}
	if !started {
		return e.fail(l.at, KindArgument, "reduce() of an empty list needs a first value, as its third argument")
	}
	return acc
}

// keyed is an element with what it is sorted or grouped by.
type keyed struct {
	raw []byte
	key connectors.Value
}

// groupBy makes a map of lists, in the order in which their keys come first.
func (l *loop) groupBy(e *Env) connectors.Value {
	var names []string
	groups := map[string][][]byte{}
	if !l.each(e, func(raw []byte) bool {
		v := l.body.run(e)
		name, ok := e.textOf(l.body.at, v)
		if !ok || !e.read(l.at, connectors.StringValue(name)) {
			return false
		}
		if _, known := groups[name]; !known {
			names = append(names, name)
		}
		groups[name] = append(groups[name], raw)
		return e.spend(l.at, 64)
	}) {
		return failure
	}
	b := e.open(l.at, '{')
	for _, name := range names {
		b.name(e, name)
		inner := e.open(l.at, '[')
		for _, raw := range groups[name] {
			if !inner.raw(e, raw) {
				return failure
			}
		}
		e.scratch = append(e.scratch, ']')
	}
	return b.mapping(e)
}

func (l *loop) sortBy(e *Env) connectors.Value {
	var all []keyed
	if !l.each(e, func(raw []byte) bool {
		k := l.body.run(e)
		all = append(all, keyed{raw, k})
		return k.Kind() != failed && e.spend(l.at, 64)
	}) {
		return failure
	}
	desc := false
	if l.arg != nil {
		var ok bool
		if desc, ok = e.descending(l.arg.at, l.arg.run(e)); !ok {
			return failure
		}
	}
	return e.sorted(l.at, l.body.at, all, desc)
}

// descending reads the order that sort and sortBy are given.
func (e *Env) descending(s *site, v connectors.Value) (desc, ok bool) {
	if v.Kind() == connectors.String {
		switch v.Text() {
		case "asc":
			return false, true
		case "desc":
			return true, true
		}
	}
	if v.Kind() != failed {
		e.fail(s, KindArgument, `the order is "asc" or "desc"`)
	}
	return false, false
}

// sorted makes a list of all, ordered by their keys, equal ones as they came.
func (e *Env) sorted(s, by *site, all []keyed, desc bool) connectors.Value {
	if !e.sortKeyed(s, by, all, desc) {
		return failure
	}
	out := e.open(s, '[')
	for _, one := range all {
		if !out.raw(e, one.raw) {
			return failure
		}
	}
	return out.list(e)
}

// sortKeyed sorts all by their keys.
func (e *Env) sortKeyed(s, by *site, all []keyed, desc bool) bool {
	for n := len(all); n > 1; n /= 2 {
		if !e.step(s, len(all)) {
			return false
		}
	}
	bad := false
	slices.SortStableFunc(all, func(a, b keyed) int {
		if bad {
			return 0
		}
		r := e.order(by, a.key, b.key)
		if r&(less|equal|greater) == 0 {
			if bad = true; e.err == nil {
				e.failf(by, KindType, "%s and %s have no order", article(a.key.Kind()), article(b.key.Kind()))
			}
			return 0
		}
		if desc {
			r = r.flip()
		}
		return int(r>>2) - int(r&less)
	})
	return !bad
}
