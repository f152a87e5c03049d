package expr

import (
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// member is base[key].
func (e *Env) member(s *site, base, key connectors.Value) connectors.Value {
	if !e.read(s, base) {
		return failure
	}
	switch bk, kk := base.Kind(), key.Kind(); {
	case bk == connectors.Map && kk == connectors.String:
		v, _ := format.Lookup(base.Raw(), key.Text(), e.arena())
		return v
	case bk == connectors.List && kk == connectors.Int:
		v, ok := e.element(s, base, key.Int())
		if !ok {
			return e.outOfRange(s)
		}
		return v
	case bk == connectors.String && kk == connectors.Int:
		i, n := key.Int(), int64(utf8.RuneCountInString(base.Text()))
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return e.outOfRange(s)
		}
		return runes(base, int(i), int(i+1))
	default:
		return e.failf(s, KindType, "%s has no member that %s could name", article(bk), article(kk))
	}
}

func (e *Env) outOfRange(s *site) connectors.Value {
	if e.err != nil {
		return failure
	}
	return e.fail(s, KindArgument, "the index of "+s.name+" is out of range; get(list, index) gives null there")
}

// element is the element i of a list, from the end where i is negative.
func (e *Env) element(s *site, list connectors.Value, i int64) (connectors.Value, bool) {
	if i < 0 {
		i += int64(format.Len(list.Raw()))
		if i < 0 {
			return connectors.Value{}, false
		}
	}
	for c := over(list); ; i-- {
		raw, ok := c.next()
		if !ok || !e.step(s, 1) {
			return connectors.Value{}, false
		}
		if i == 0 {
			return elementOf(raw, e.arena()), true
		}
	}
}

// runes cuts characters from to to out of text, which has them.
func runes(v connectors.Value, from, to int) connectors.Value {
	s := v.Text()
	return connectors.StringValue(s[byteAt(s, from):byteAt(s, to)])
}

// byteAt is where character n of s starts.
func byteAt(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// slice is base[from:to], with negative positions from the end.
func (e *Env) slice(s *site, base connectors.Value, from, to int64, open bool) connectors.Value {
	if !e.read(s, base) {
		return failure
	}
	var n int
	switch base.Kind() {
	case connectors.String:
		n = utf8.RuneCountInString(base.Text())
	case connectors.List:
		n = format.Len(base.Raw())
	default:
		return e.failf(s, KindType, "%s cannot be sliced", article(base.Kind()))
	}
	if open {
		to = int64(n)
	}
	i, j := clampIndex(from, n), clampIndex(to, n)
	i = min(i, j)
	if base.Kind() == connectors.String {
		return runes(base, i, j)
	}
	if !e.step(s, n) {
		return failure
	}
	l := e.open(s, '[')
	c := over(base)
	for k := range j {
		raw, _ := c.next()
		if k >= i && !l.raw(e, raw) {
			return failure
		}
	}
	return l.list(e)
}

func clampIndex(i int64, n int) int {
	if i < 0 {
		i += int64(n)
	}
	return int(max(0, min(i, int64(n))))
}

// builder makes a list or a map in the scratch text of an Env. Builders nest:
// what is evaluated while one is open leaves the scratch text as it was.
type builder struct {
	at       *site
	start, n int
}

func (e *Env) open(at *site, bracket byte) builder {
	b := builder{at: at, start: len(e.scratch)}
	e.scratch = append(e.scratch, bracket)
	return b
}

func (b *builder) comma(e *Env) {
	if b.n > 0 {
		e.scratch = append(e.scratch, ',')
	}
	b.n++
}

// raw adds an element by its text, and reports whether it was within limits.
func (b *builder) raw(e *Env, element []byte) bool {
	b.comma(e)
	e.scratch = append(e.scratch, element...)
	return e.spend(b.at, len(element)+1)
}

// value adds an element, unless it failed or is too large.
func (b *builder) value(e *Env, v connectors.Value) bool {
	b.comma(e)
	return b.put(e, v)
}

func (b *builder) put(e *Env, v connectors.Value) bool {
	switch v.Kind() {
	case failed:
		return false
	case connectors.String, connectors.Bytes, connectors.Decimal, connectors.List, connectors.Map:
		if !e.spend(b.at, len(v.Raw())) {
			return false
		}
	default:
	}
	out, err := format.AppendValue(e.scratch, v)
	if err != nil {
		e.fail(b.at, KindOverflow, err.Error())
		return false
	}
	e.scratch = out
	return e.spend(b.at, 8)
}

// name starts a field of a map, whose value is put next.
func (b *builder) name(e *Env, name string) {
	b.comma(e)
	e.scratch = append(format.AppendString(e.scratch, name), ':')
}

func (b *builder) list(e *Env) connectors.Value { return connectors.ListValue(b.close(e, ']')) }
func (b *builder) mapping(e *Env) connectors.Value {
	return connectors.MapValue(b.close(e, '}'))
}

func (b *builder) close(e *Env, bracket byte) []byte {
	e.scratch = append(e.scratch, bracket)
	text := e.arena().Copy(e.scratch[b.start:])
	e.scratch = e.scratch[:b.start]
	return text
}

// sameContainers compares lists by their elements and maps by their fields.
func (e *Env) sameContainers(s *site, a, b connectors.Value) truth {
	switch {
	case !e.read(s, a) || !e.read(s, b):
		return unknown
	case string(a.Raw()) == string(b.Raw()):
		return yes
	}
	if a.Kind() == connectors.Map {
		return e.sameMaps(s, a, b)
	}
	x, y := over(a), over(b)
	for {
		l, ok := x.next()
		r, also := y.next()
		switch {
		case !ok && !also:
			return yes
		case ok != also:
			return no
		case !e.step(s, 1):
			return unknown
		}
		if t := e.equals(s, elementOf(l, e.arena()), elementOf(r, e.arena())); t != yes {
			return t
		}
	}
}

func (e *Env) sameMaps(s *site, a, b connectors.Value) truth {
	if format.Len(a.Raw()) != format.Len(b.Raw()) {
		return no
	}
	out := yes
	format.Entries(a.Raw(), e.arena(), func(name string, l connectors.Value) bool {
		if !e.step(s, 1+len(b.Raw())/16) {
			out = unknown
			return false
		}
		r, found := format.Lookup(b.Raw(), name, e.arena())
		if !found {
			out = no
			return false
		}
		out = e.equals(s, l, r)
		return out == yes
	})
	return out
}
