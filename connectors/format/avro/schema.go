package avro

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/avro"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// node is a part of a schema, compiled.
type node struct {
	kind    string // as Avro names it: "long", "record", …
	logical string // a logical type that is known and fits; empty for none
	name    string // full name of a record, an enum or a fixed

	size             int // of a fixed
	precision, scale int
	symbols          []string // of an enum; empty texts are symbols that a reader lacks
	spare            string   // the default of an enum, empty for none
	elem             *node    // of an array, or the values of a map
	branches         []*node  // of a union; nil for one that a reader cannot take
	fields           []field  // of a record
	more             []byte   // members that a reader's record has and a writer's lacks, as JSON
	byName           map[string]int
}

// field is a field of a record.
type field struct {
	name     string
	key      []byte // the name as a key in JSON, with the colon
	node     *node
	skip     bool // a reader does not have it
	fallback any  // the default, where hasDefault
	aliases  []string

	hasDefault bool
	encoded    []byte // the default, encoded
}

// parseSchema compiles the text of a schema with those that it refers to.
func parseSchema(text string, refs []registry.Reference) (*avro.Schema, *node, error) {
	var cache avro.SchemaCache
	for _, r := range refs {
		if _, err := cache.Parse(r.Text); err != nil {
			return nil, nil, fmt.Errorf("the schema %s, which it refers to: %w", r.Name, err)
		}
	}
	s, err := cache.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	c := compiler{named: map[string]*node{}}
	n, err := c.compile(s.Root(), "")
	return s, n, err
}

type compiler struct{ named map[string]*node }

func fullName(name, namespace string) string {
	if namespace == "" || strings.Contains(name, ".") {
		return name
	}
	return namespace + "." + name
}

func (c *compiler) compile(s *avro.SchemaNode, namespace string) (*node, error) {
	n := &node{kind: s.Type, size: s.Size, precision: s.Precision, scale: s.Scale, symbols: s.Symbols, spare: s.EnumDefault}
	n.setLogical(s.LogicalType)
	var err error
	switch s.Type {
	case "null", "boolean", "int", "long", "float", "double", "string", "bytes":
	case "array":
		n.elem, err = c.compile(s.Items, namespace)
	case "map":
		n.elem, err = c.compile(s.Values, namespace)
	case "union":
		for i := range s.Branches {
			b, err := c.compile(&s.Branches[i], namespace)
			if err != nil {
				return nil, err
			}
			n.branches = append(n.branches, b)
		}
	case "enum", "fixed":
		n.name = fullName(s.Name, s.Namespace)
		c.named[n.name] = n
	case "record", "error":
		n.kind, n.name = "record", fullName(s.Name, s.Namespace)
		c.named[n.name] = n
		err = c.record(n, s)
	default:
		return c.reference(s, namespace)
	}
	return n, err
}

// reference finds a type that is named.
func (c *compiler) reference(s *avro.SchemaNode, namespace string) (*node, error) {
	for _, name := range []string{fullName(s.Type, namespace), s.Type} {
		if n := c.named[name]; n != nil {
			return n, nil
		}
	}
	whole, err := s.Schema()
	if err != nil {
		return nil, fmt.Errorf("the type %s: %w", s.Type, err)
	}
	root := whole.Root()
	if root.Type == s.Type {
		return nil, fmt.Errorf("there is no type %s", s.Type)
	}
	return c.compile(root, namespace)
}

func (c *compiler) record(n *node, s *avro.SchemaNode) error {
	_, short, nested := cutLast(n.name)
	namespace := ""
	if nested {
		namespace = strings.TrimSuffix(n.name, "."+short)
	}
	n.byName = map[string]int{}
	for i := range s.Fields {
		f := &s.Fields[i]
		sub, err := c.compile(&f.Type, namespace)
		if err != nil {
			return err
		}
		if l, ok := f.Props["logicalType"].(string); ok && sub.logical == "" && sub.name == "" {
			sub.precision, sub.scale = intProp(f.Props["precision"]), intProp(f.Props["scale"])
			sub.setLogical(l)
		}
		n.byName[f.Name] = len(n.fields)
		n.fields = append(n.fields, field{
			name: f.Name, key: append(format.AppendString(nil, f.Name), ':'), node: sub,
			fallback: f.Default, hasDefault: f.HasDefault, aliases: f.Aliases,
		})
	}
	return nil
}

func intProp(v any) int {
	n, _ := v.(int64)
	return int(n)
}

// cutLast cuts a name at its last dot.
func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// logicals are the logical types by the types that they stand on.
var logicals = map[string]string{
	"date": "int", "time-millis": "int", "time-micros": "long",
	"timestamp-millis": "long", "timestamp-micros": "long", "timestamp-nanos": "long",
	"local-timestamp-millis": "long", "local-timestamp-micros": "long", "local-timestamp-nanos": "long",
}

// setLogical sets a logical type that is known and fits; by the specification any other is
// left out.
func (n *node) setLogical(l string) {
	switch {
	case logicals[l] == n.kind && l != "",
		l == "uuid" && (n.kind == "string" || n.kind == "fixed" && n.size == 16),
		l == "duration" && n.kind == "fixed" && n.size == 12,
		l == "decimal" && (n.kind == "bytes" || n.kind == "fixed") && n.precision > 0 && n.scale >= 0 && n.scale <= n.precision:
		n.logical = l
	}
}

// nullable is what a union holds besides null, where that is one type.
func (n *node) nullable() (*node, bool) {
	if n.kind != "union" || len(n.branches) != 2 {
		return nil, false
	}
	for i, b := range n.branches {
		if b != nil && b.kind == "null" && n.branches[1-i] != nil && n.branches[1-i].kind != "null" {
			return n.branches[1-i], true
		}
	}
	return nil, false
}

// columns are the fields of a record with their types.
func (n *node) columns() []connectors.Column {
	if n.kind != "record" {
		return nil
	}
	return n.typ(map[*node]bool{}).Fields
}

// bases are the bases of types without parts.
var bases = map[string]connectors.Type{
	"boolean": {Base: connectors.Boolean}, "int": {Base: connectors.Integer, Bits: 32}, "long": {Base: connectors.Integer, Bits: 64},
	"float": {Base: connectors.Real, Bits: 32}, "double": {Base: connectors.Real, Bits: 64}, "string": {Base: connectors.Text},
	"bytes": {Base: connectors.Binary}, "fixed": {Base: connectors.Binary}, "enum": {Base: connectors.Text},
	"date": {Base: connectors.Date}, "time-millis": {Base: connectors.TimeOfDay}, "time-micros": {Base: connectors.TimeOfDay},
	"timestamp-millis": {Base: connectors.Instant}, "timestamp-micros": {Base: connectors.Instant}, "timestamp-nanos": {Base: connectors.Instant},
	"local-timestamp-millis": {Base: connectors.Local}, "local-timestamp-micros": {Base: connectors.Local},
	"local-timestamp-nanos": {Base: connectors.Local}, "uuid": {Base: connectors.UUID}, "duration": {Base: connectors.Text},
}

// typ is the type as columns have it. What refers to itself ends as any value.
func (n *node) typ(open map[*node]bool) connectors.Type {
	if open[n] {
		return connectors.Type{}
	}
	open[n] = true
	defer delete(open, n)
	if n.logical == "decimal" {
		return connectors.Type{Base: connectors.Exact, Precision: n.precision, Scale: n.scale}
	}
	if t, ok := bases[n.logical]; ok {
		return t
	}
	switch n.kind {
	case "array":
		elem := n.elem.typ(open)
		return connectors.Type{Base: connectors.Sequence, Elem: &elem}
	case "map":
		elem := n.elem.typ(open)
		return connectors.Type{Base: connectors.Dictionary, Elem: &elem}
	case "union":
		if inner, ok := n.nullable(); ok {
			t := inner.typ(open)
			t.Nullable = true
			return t
		}
		return connectors.Type{Nullable: true}
	case "record":
		t := connectors.Type{Base: connectors.Struct, Fields: []connectors.Column{}}
		for i := range n.fields {
			if f := &n.fields[i]; !f.skip {
				t.Fields = append(t.Fields, connectors.Column{Name: f.name, Type: f.node.typ(open)})
			}
		}
		return t
	}
	return bases[n.kind]
}

var errNoRecord = errors.New("the schema is of no record: rows have fields")
