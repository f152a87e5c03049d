package expr

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func init() {
	define(
		function{Function: doc("first(list list) any", "gives the first element, or null", `first([1, 2])`, `1`), run1: func(e *Env, s *site, v connectors.Value) connectors.Value { return e.elementOrNull(s, v, 0) }},
		function{Function: doc("last(list list) any", "gives the last element, or null", `last([1, 2])`, `2`), run1: func(e *Env, s *site, v connectors.Value) connectors.Value { return e.elementOrNull(s, v, -1) }},
		function{Function: doc("get(from list|map|string|null, key int|string) any", "gives an element or a field, or null where there is none", `get([1, 2], 7)`, `null`), run2: get},
		function{Function: doc("take(list list, n int) list", "gives the first n elements", `take([1, 2, 3], 2)`, `[1,2]`), run2: take},
		function{Function: doc("keys(map map) list", "lists the names of a map's fields", `keys({a: 1, b: 2})`, `["a","b"]`), run1: listing(true, false)},
		function{Function: doc("values(map map) list", "lists the values of a map's fields", `values({a: 1, b: 2})`, `[1,2]`), run1: listing(false, true)},
		function{Function: doc("toPairs(map map) list", "lists the fields of a map as [name, value]", `toPairs({a: 1})`, `[["a",1]]`), run1: listing(true, true)},
		function{Function: doc("fromPairs(list list) map", "makes a map of a list of [name, value]", `fromPairs([["a", 1]])`, `{"a":1}`), run1: fromPairs},
		function{Function: doc("reverse(list list) list", "turns a list around", `reverse([1, 2])`, `[2,1]`), run1: reverse},
		function{Function: doc("uniq(list list) list", "keeps the first of equal elements", `uniq([1, 2, 1])`, `[1,2]`), run1: uniq},
		function{Function: doc("concat(lists list...) list", "joins lists", `concat([1], [2, 3])`, `[1,2,3]`), run: concatLists},
		function{Function: doc("flatten(list list) list", "puts the elements of lists within a list in their place, however deeply nested", `flatten([1, [2, [3]]])`, `[1,2,3]`), run1: flatten},
		function{Function: doc("sort(list list, order string?) list", "sorts the elements, in the order asc or desc", `sort([2, 3, 1], "desc")`, `[3,2,1]`), run: sortList},
	)
}

func (e *Env) elementOrNull(s *site, list connectors.Value, i int64) connectors.Value {
	v, ok := e.element(s, list, i)
	switch {
	case ok:
		return v
	case e.err != nil:
		return failure
	}
	return connectors.NullValue()
}

func get(e *Env, s *site, from, key connectors.Value) connectors.Value {
	switch fk, kk := from.Kind(), key.Kind(); {
	case from.IsNull():
		return connectors.NullValue()
	case fk == connectors.List && kk == connectors.Int:
		return e.elementOrNull(s, from, key.Int())
	case fk == connectors.String && kk == connectors.Int:
		n, i := lengthOf(e, s, from).Int(), key.Int()
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return connectors.NullValue()
		}
		return runes(from, int(i), int(i+1))
	}
	return e.member(s, from, key)
}

func take(e *Env, s *site, list, n connectors.Value) connectors.Value {
	if n.Int() < 0 {
		return e.fail(s, KindArgument, "a negative number of elements cannot be taken")
	}
	return e.slice(s, list, 0, n.Int(), false)
}

// listing lists names, values or both of a map's fields.
func listing(names, values bool) func(*Env, *site, connectors.Value) connectors.Value {
	return func(e *Env, s *site, m connectors.Value) connectors.Value {
		b, ok := e.open(s, '['), true
		format.Entries(m.Raw(), e.arena(), func(name string, v connectors.Value) bool {
			ok = e.step(s, 1)
			switch {
			case !ok:
			case names && values:
				b.comma(e)
				inner := e.open(s, '[')
				ok = inner.value(e, connectors.StringValue(name)) && inner.value(e, v)
				e.scratch = append(e.scratch, ']')
			case names:
				ok = b.value(e, connectors.StringValue(name))
			default:
				ok = b.value(e, v)
			}
			return ok
		})
		if !ok {
			return failure
		}
		return b.list(e)
	}
}

func fromPairs(e *Env, s *site, list connectors.Value) connectors.Value {
	b := e.open(s, '{')
	c := over(list)
	for {
		raw, ok := c.next()
		if !ok {
			return b.mapping(e)
		}
		var name, value []byte
		pair := elementOf(raw, e.arena())
		if pair.Kind() == connectors.List && format.Len(raw) == 2 {
			in := over(pair)
			name, _ = in.next()
			value, _ = in.next()
		}
		if len(name) == 0 || name[0] != '"' {
			return e.fail(s, KindArgument, "fromPairs() takes a list of [name, value], the name a string")
		}
		key := elementOf(name, e.arena())
		if !e.step(s, 1) || !e.spend(s, len(name)) {
			return failure
		}
		b.name(e, key.Text())
		e.scratch = append(e.scratch, value...)
		if !e.spend(s, len(value)) {
			return failure
		}
	}
}

func reverse(e *Env, s *site, list connectors.Value) connectors.Value {
	var all [][]byte
	c := over(list)
	for {
		raw, ok := c.next()
		if !ok {
			break
		}
		if !e.step(s, 1) {
			return failure
		}
		all = append(all, raw)
	}
	b := e.open(s, '[')
	for i := len(all) - 1; i >= 0; i-- {
		if !b.raw(e, all[i]) {
			return failure
		}
	}
	return b.list(e)
}

func uniq(e *Env, s *site, list connectors.Value) connectors.Value {
	texts := map[string]struct{}{}
	var others []connectors.Value
	b := e.open(s, '[')
	c := over(list)
next:
	for {
		raw, ok := c.next()
		if !ok {
			return b.list(e)
		}
		v := elementOf(raw, e.arena())
		if !e.step(s, 1) {
			return failure
		}
		if v.Kind() == connectors.String {
			if _, seen := texts[v.Text()]; seen {
				continue
			}
			texts[v.Text()] = struct{}{}
		} else {
			for _, o := range others {
				switch t := e.equals(s, v, o); {
				case t == unknown || !e.step(s, 1):
					return failure
				case t == yes:
					continue next
				}
			}
			others = append(others, v)
		}
		if !b.raw(e, raw) {
			return failure
		}
	}
}

func concatLists(e *Env, s *site, lists []connectors.Value) connectors.Value {
	b := e.open(s, '[')
	for _, list := range lists {
		c := over(list)
		for {
			raw, ok := c.next()
			if !ok {
				break
			}
			if !e.step(s, 1) || !b.raw(e, raw) {
				return failure
			}
		}
	}
	return b.list(e)
}

func flatten(e *Env, s *site, list connectors.Value) connectors.Value {
	b := e.open(s, '[')
	if !b.flat(e, s, list, 0) {
		return failure
	}
	return b.list(e)
}

func (b *builder) flat(e *Env, s *site, list connectors.Value, depth int) bool {
	if depth > deepest {
		e.fail(s, KindLimit, "lists are nested too deeply")
		return false
	}
	if !e.read(s, list) {
		return false
	}
	c := over(list)
	for {
		raw, ok := c.next()
		switch {
		case !ok:
			return true
		case !e.step(s, 1):
			return false
		case raw[0] == '[':
			ok = b.flat(e, s, connectors.ListValue(raw), depth+1)
		default:
			ok = b.raw(e, raw)
		}
		if !ok {
			return false
		}
	}
}

func sortList(e *Env, s *site, args []connectors.Value) connectors.Value {
	desc := false
	if len(args) == 2 {
		var ok bool
		if desc, ok = e.descending(s, args[1]); !ok {
			return failure
		}
	}
	var all []keyed
	c := over(args[0])
	for {
		raw, ok := c.next()
		if !ok {
			return e.sorted(s, s, all, desc)
		}
		if !e.step(s, 1) || !e.spend(s, 64) {
			return failure
		}
		all = append(all, keyed{raw, elementOf(raw, e.arena())})
	}
}
