package avro

import (
	"fmt"
	"slices"

	"github.com/twmb/avro"

	"github.com/sluice-etl/sluice/connectors/format"
)

// resolve makes what reads values of the writer's schema as rows of the reader's.
func resolve(writer, reader *avro.Schema, w, r *node) (*node, error) {
	if err := avro.CheckCompatibility(writer, reader); err != nil {
		return nil, format.Refuse(fmt.Errorf("the schema that the value is written with cannot be read by the schema of the format: %w", err))
	}
	m := matcher{done: map[[2]*node]*node{}}
	n := m.match(w, r)
	if n == nil {
		return nil, format.Refuse(fmt.Errorf("the schema that the value is written with is of %s, and the schema of the format of %s", w.what(), r.what()))
	}
	return n, m.err
}

type matcher struct {
	done map[[2]*node]*node
	err  error
}

// promoted are the types that a reader takes the values of a writer's type as.
var promoted = map[string][]string{
	"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"}, "bytes": {"string"},
}

// match is the node that reads what w wrote as r has it; nil where r cannot take it.
func (m *matcher) match(w, r *node) *node {
	key := [2]*node{w, r}
	if n, ok := m.done[key]; ok {
		return n
	}
	out := &node{}
	m.done[key] = out
	if n := m.make(w, r, out); n != out {
		m.done[key] = n
		return n
	}
	return out
}

func (m *matcher) make(w, r, out *node) *node {
	if w.kind == "union" {
		out.kind = "union"
		for _, b := range w.branches {
			out.branches = append(out.branches, m.match(b, r))
		}
		return out
	}
	if r.kind == "union" {
		for _, b := range r.branches {
			if b.kind == w.kind && (b.name == "" || sameName(w, b)) {
				if n := m.match(w, b); n != nil {
					return n
				}
			}
		}
		for _, b := range r.branches {
			if n := m.match(w, b); n != nil {
				return n
			}
		}
		return nil
	}
	if w.kind != r.kind {
		switch {
		case !slices.Contains(promoted[w.kind], r.kind):
			return nil
		case r.kind == "float" || r.kind == "double":
			// An integer is a number in JSON as it is.
			*out = node{kind: w.kind}
		default:
			*out = *r // the bytes are the same
		}
		return out
	}
	*out = *r
	switch w.kind {
	case "array", "map":
		if out.elem = m.match(w.elem, r.elem); out.elem == nil {
			return nil
		}
	case "enum":
		m.enum(w, r, out)
	case "fixed":
		if w.size != r.size {
			return nil
		}
	case "record":
		return m.record(w, r, out)
	}
	return out
}

func sameName(w, r *node) bool {
	_, a, _ := cutLast(w.name)
	_, b, _ := cutLast(r.name)
	return a == b
}

func (m *matcher) enum(w, r, out *node) {
	out.symbols = slices.Clone(w.symbols)
	for i, s := range out.symbols {
		if !slices.Contains(r.symbols, s) {
			out.symbols[i] = r.spare
		}
	}
}

func (m *matcher) record(w, r, out *node) *node {
	out.fields = nil
	taken := map[int]bool{}
	for _, f := range w.fields {
		at := r.fieldFor(f.name)
		if at < 0 {
			f.skip = true
			out.fields = append(out.fields, f)
			continue
		}
		taken[at] = true
		n := m.match(f.node, r.fields[at].node)
		if n == nil {
			return nil
		}
		f.name, f.key, f.node = r.fields[at].name, r.fields[at].key, n
		out.fields = append(out.fields, f)
	}
	for i := range r.fields {
		if f := &r.fields[i]; !taken[i] {
			if len(out.more) > 0 {
				out.more = append(out.more, ',')
			}
			var err error
			if out.more, err = appendDefault(append(out.more, f.key...), f.node, f.fallback); err != nil {
				m.err = fmt.Errorf("the default of field %s: %w", f.name, err)
			}
		}
	}
	return out
}

// fieldFor finds the reader's field for a writer's, by its name or an alias.
func (n *node) fieldFor(name string) int {
	if i, ok := n.byName[name]; ok {
		return i
	}
	return slices.IndexFunc(n.fields, func(f field) bool { return slices.Contains(f.aliases, name) })
}

// appendDefault appends the default of a field as JSON.
func appendDefault(dst []byte, n *node, v any) (_ []byte, err error) {
	if n.kind == "union" {
		return appendUnionDefault(dst, n, v)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return fmt.Append(dst, v), nil
	case int32:
		return appendInteger(dst, n.logical, int64(v))
	case int64:
		return appendInteger(dst, n.logical, v)
	case float32:
		return appendFloat(dst, float64(v), 32), nil
	case float64:
		return appendFloat(dst, v, 64), nil
	case string:
		return format.AppendString(dst, v), nil
	case []byte:
		d := decoder{dst: dst}
		err := d.binary(n, v)
		return d.dst, err
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendDefault(dst, n.elem, item); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		return appendDefaultMap(dst, n, v)
	}
	return dst, fmt.Errorf("a default of type %T", v)
}

func appendDefaultMap(dst []byte, n *node, v map[string]any) (_ []byte, err error) {
	dst = append(dst, '{')
	open := len(dst)
	member := func(key string, n *node, v any) {
		if err != nil {
			return
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst, err = appendDefault(append(format.AppendString(dst, key), ':'), n, v)
	}
	if n.kind == "map" {
		for key, item := range v {
			member(key, n.elem, item)
		}
		return append(dst, '}'), err
	}
	for i := range n.fields {
		f := &n.fields[i]
		item, given := v[f.name]
		if !given {
			item = f.fallback
		}
		member(f.name, f.node, item)
	}
	return append(dst, '}'), err
}

// defaultFits reports whether a default of a Go type can be of a branch.
func defaultFits(n *node, v any) bool {
	switch v.(type) {
	case nil:
		return n.kind == "null"
	case bool:
		return n.kind == "boolean"
	case int32:
		return n.kind == "int"
	case int64:
		return n.kind == "long"
	case float32:
		return n.kind == "float"
	case float64:
		return n.kind == "double"
	case string:
		return n.kind == "string" || n.kind == "enum"
	case []byte:
		return n.kind == "bytes" || n.kind == "fixed"
	case []any:
		return n.kind == "array"
	case map[string]any:
		return n.kind == "record" || n.kind == "map"
	}
	return false
}

func appendUnionDefault(dst []byte, n *node, v any) ([]byte, error) {
	for _, b := range n.branches {
		if defaultFits(b, v) {
			return appendDefault(dst, b, v)
		}
	}
	return dst, fmt.Errorf("a default of type %T", v)
}
