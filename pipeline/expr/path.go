package expr

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// identifier compiles a plain name.
func (c *compiler) identifier(n *ast.IdentifierNode) *node {
	if v, ok := c.local(n.Value); ok {
		return c.variable(c.site(n), v)
	}
	if n.Value == "null" {
		return c.literal(n, connectors.NullValue())
	}
	return c.path(n, n.Value, nil)
}

func (c *compiler) local(name string) (local, bool) {
	for i := len(c.locals) - 1; i >= 0; i-- {
		if c.locals[i].name == name {
			return c.locals[i], true
		}
	}
	return local{}, false
}

func (c *compiler) variable(at *site, v local) *node {
	if v.outside {
		return c.fault(at, "`"+v.name+"` is made of results, and an argument of an aggregate function is about single records", "")
	}
	if v.pure != nil {
		if k, ok := v.pure.constant(); ok {
			return c.known(at, k)
		}
	}
	i := v.at
	return &node{typ: v.typ, slot: -1, at: at, run: func(e *Env) connectors.Value { return e.vars[i] }}
}

// static takes a chain of names apart: a.b["c"] is a with b and c. Rest is the
// name itself.
func (c *compiler) static(n ast.Node) (root string, rest []string, ok bool) {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		if _, taken := c.local(n.Value); taken || n.Value == "null" {
			return "", nil, false
		}
		return n.Value, nil, true
	case *ast.ChainNode:
		return c.static(n.Node)
	case *ast.MemberNode:
		name, is := n.Property.(*ast.StringNode)
		if !is || n.Method {
			return "", nil, false
		}
		root, rest, ok = c.static(n.Node)
		return root, append(rest, name.Value), ok
	}
	return "", nil, false
}

// path compiles root.rest, where root is a field, this or meta.
func (c *compiler) path(n ast.Node, root string, rest []string) *node {
	at := c.site(n)
	switch {
	case root == "meta":
		return c.meta(at, rest)
	case root == "this" && len(rest) == 0:
		return c.this(at)
	case root != "this":
		rest = append([]string{root}, rest...)
	}
	at.field = true
	ref, err := c.scope.Field(slices.Clone(rest))
	if err != nil {
		return c.scopeFault(at, err)
	}
	if ref.Covered < 1 || ref.Covered > len(rest) {
		return c.errorf(at, "%s has no place in the record", at.name)
	}
	if !slices.ContainsFunc(c.fields, func(f []string) bool { return slices.Equal(f, rest) }) {
		c.fields = append(c.fields, rest)
	}
	typ := ref.Type
	if typ == 0 {
		typ = Any
	}
	slot := ref.Slot
	if ref.Covered == len(rest) {
		at.whole = slot + 1
		return &node{typ: typ, slot: slot, at: at, run: func(e *Env) connectors.Value { return e.row[slot] }}
	}
	if !typ.Overlaps(mapBit) && typ != nullBit {
		return c.errorf(at, "%s is %s and has no field `%s`", strings.Join(rest[:ref.Covered], "."), typ, rest[ref.Covered])
	}
	inner := Any
	if ref.Inner != 0 {
		inner = ref.Inner
	}
	return &node{typ: inner, slot: -1, at: at, run: inside(at, slot, rest[ref.Covered:])}
}

// scopeFault notes what the scope says against a name, in its own words.
func (c *compiler) scopeFault(at *site, err error) *node {
	var fault *Error
	if errors.As(err, &fault) {
		return c.fault(at, fault.Msg, fault.Help)
	}
	return c.fault(at, err.Error(), "")
}

// inside looks up names in the container of a slot. What is no map has no
// fields: the path is null then, wherever the slot's own path ends.
func inside(at *site, slot int, names []string) fn {
	return func(e *Env) connectors.Value {
		v := e.row[slot]
		for _, name := range names {
			if v.Kind() != connectors.Map {
				return connectors.Value{}
			}
			if !e.read(at, v) {
				return failure
			}
			v, _ = format.Lookup(v.Raw(), name, e.arena())
		}
		return v
	}
}

func (c *compiler) this(at *site) *node {
	slot, err := c.scope.This()
	if err != nil {
		return c.scopeFault(at, err)
	}
	c.whole = true
	if slot == WholeRaw {
		return &node{typ: Any, slot: -1, at: at, run: func(e *Env) connectors.Value { return e.value(at) }}
	}
	return &node{typ: Any, slot: slot, at: at, run: func(e *Env) connectors.Value { return e.row[slot] }}
}

// value reads the record's raw bytes.
func (e *Env) value(s *site) connectors.Value {
	if e.rec.Tombstone() {
		return connectors.Value{}
	}
	if !e.step(s, len(e.rec.Value)/regexSteps) {
		return failure
	}
	v, err := format.ParseValue(e.rec.Value, e.arena())
	if err != nil {
		return e.fail(s, KindArgument, "the record's value is no valid JSON: "+err.Error())
	}
	return v
}

const metaParts = "meta.key, meta.topic, meta.partition, meta.offset, meta.timestamp, meta.op, meta.tombstone and meta.headers[\"name\"]"

type metaPart struct {
	typ Type
	run fn
}

// ops are the operations of an updating stream as values.
var ops = [...]connectors.Value{
	connectors.StringValue(connectors.Insert.String()), connectors.StringValue(connectors.UpdateBefore.String()),
	connectors.StringValue(connectors.UpdateAfter.String()), connectors.StringValue(connectors.Delete.String()),
}

var metas = map[string]metaPart{
	"key": {(textBit | bytesBit).Nullable(), func(e *Env) connectors.Value { return textOrBytes(e.rec.Key) }},
	"topic": {Text.Nullable(), func(e *Env) connectors.Value {
		if e.rec.Origin == nil {
			return connectors.Value{}
		}
		return connectors.StringValue(e.rec.Origin.Topic)
	}},
	"partition": {intBit.Nullable(), func(e *Env) connectors.Value {
		if e.rec.Origin == nil {
			return connectors.Value{}
		}
		return connectors.IntValue(int64(e.rec.Origin.Partition))
	}},
	"offset": {intBit.Nullable(), func(e *Env) connectors.Value {
		if e.rec.Origin == nil {
			return connectors.Value{}
		}
		return connectors.IntValue(e.rec.Offset)
	}},
	"timestamp": {stampBit, func(e *Env) connectors.Value { return millis(e.rec.Time) }},
	"op": {Text, func(e *Env) connectors.Value {
		if op := int(e.rec.Op); op < len(ops) {
			return ops[op]
		}
		return connectors.Value{}
	}},
	"tombstone": {Bool, func(e *Env) connectors.Value { return connectors.BoolValue(e.rec.Tombstone()) }},
}

// meta compiles what belongs to the record but is no field of its value.
func (c *compiler) meta(at *site, rest []string) *node {
	if c.agg != nil && c.agg.within == "" {
		return c.fault(at, "meta belongs to a record, and outside of an aggregate function there is a group of them", "as in `first("+at.name+")`")
	}
	if len(rest) == 0 {
		return c.fault(at, "meta is no value of its own", "it has "+metaParts)
	}
	if rest[0] == "headers" {
		if len(rest) != 2 {
			return c.fault(at, "name one header", "as in meta.headers[\"trace\"]")
		}
		name := rest[1]
		c.varies = true
		return &node{typ: (textBit | bytesBit).Nullable(), slot: -1, at: at, run: func(e *Env) connectors.Value { return header(e.rec, name) }}
	}
	part, ok := metas[rest[0]]
	if !ok || len(rest) > 1 {
		return c.fault(at, "meta has no `"+strings.Join(rest, ".")+"`", "it has "+metaParts)
	}
	c.tombstone = c.tombstone || rest[0] == "tombstone"
	c.varies = c.varies || rest[0] == "offset" || rest[0] == "timestamp" || rest[0] == "op"
	return &node{typ: part.typ, slot: -1, at: at, run: part.run}
}

// header is the value of the last header called name, as Kafka's own clients
// give it.
func header(r *connectors.Record, name string) connectors.Value {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return textOrBytes(r.Headers[i].Value)
		}
	}
	return connectors.Value{}
}

// textOrBytes is a string where b is text, so that it compares with strings.
func textOrBytes(b []byte) connectors.Value {
	switch {
	case b == nil:
		return connectors.Value{}
	case utf8.Valid(b):
		return connectors.TextValue(connectors.String, b)
	}
	return connectors.BytesValue(b)
}

// member compiles a.b, a["b"] and a[1].
func (c *compiler) member(n ast.Node) *node {
	if root, rest, ok := c.static(n); ok {
		return c.path(n, root, rest)
	}
	if chain, ok := n.(*ast.ChainNode); ok {
		return c.compile(chain.Node)
	}
	m, ok := n.(*ast.MemberNode)
	if !ok || m.Method {
		return c.errorf(c.site(n), "`%s` is not supported here", c.site(n).name)
	}
	if p, ok := m.Node.(*ast.PointerNode); ok && p.Name == "" {
		return c.access(m, c.pointer(p))
	}
	if id, ok := m.Node.(*ast.MemberNode); ok {
		if root, rest, ok := c.static(id); ok && root == "meta" && len(rest) == 1 && rest[0] == "headers" {
			return c.headerBy(m)
		}
	}
	return c.access(m, c.compile(m.Node))
}

func (c *compiler) headerBy(m *ast.MemberNode) *node {
	at, name := c.site(m), c.compile(m.Property)
	if !name.typ.Overlaps(Text) {
		return c.errorf(name.at, "a header's name is a string, and %s is %s", name.at.name, name.typ)
	}
	run := name.run
	return &node{typ: (textBit | bytesBit).Nullable(), slot: -1, at: at, run: func(e *Env) connectors.Value {
		v := run(e)
		switch v.Kind() {
		case connectors.String:
			return header(e.rec, v.Text())
		case failed:
			return v
		default:
		}
		return e.failf(name.at, KindType, "a header's name is a string, and %s is %s", name.at.name, article(v.Kind()))
	}}
}

// access compiles base[key] for values that are no plain path of fields.
func (c *compiler) access(m *ast.MemberNode, base *node) *node {
	at, key := c.site(m), c.compile(m.Property)
	const holders = listBit | mapBit | textBit
	if !base.typ.Overlaps(holders) && base.typ != nullBit {
		return c.errorf(at, "%s is %s and has no members", base.at.name, base.typ)
	}
	if !key.typ.Overlaps(intBit | textBit) {
		return c.errorf(key.at, "a member is chosen by a string or an int, and %s is %s", key.at.name, key.typ)
	}
	run, by := base.run, key.run
	return &node{typ: Any, slot: -1, at: at, pure: base.pure && key.pure, run: func(e *Env) connectors.Value {
		b := run(e)
		if b.Kind() == failed || b.IsNull() {
			return b
		}
		k := by(e)
		if k.Kind() == failed {
			return k
		}
		return e.member(at, b, k)
	}}
}
