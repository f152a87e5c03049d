package transform

import (
	"slices"

	"github.com/sluice-etl/sluice/pipeline/schema"
)

// Receive is the view of records that come from other chains, of which each view
// is one, and are decoded anew into the slots of base. What is known of their
// fields is what is known in all of them.
func Receive(base *Base, from ...*View) *View {
	v := NewView(base)
	v.update = mixedUpdates(from)
	v.named = len(from) > 0
	closed := v.named
	for _, f := range from {
		v.named = v.named && f.Complete()
		closed = closed && f.closed
	}
	if !v.named {
		return v
	}
	var names []string
	for _, f := range from {
		for _, name := range f.names() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		v.raw = append(v.raw, received(name, from))
	}
	if closed {
		v.closed, v.only = true, names
	}
	return v
}

// mixedUpdates is what is known of updating streams that are mixed: rows of
// several have no key in common.
func mixedUpdates(from []*View) *Updates {
	var mixed *Updates
	for _, f := range from {
		if f.update == nil {
			continue
		}
		if len(from) == 1 {
			return f.update
		}
		if mixed == nil {
			mixed = &Updates{}
		}
		mixed.Spread = append(mixed.Spread, f.update.Spread...)
	}
	return mixed
}

// received is what is known of a field of records that come from several places.
func received(name string, from []*View) known {
	out := known{name: name}
	first, same := true, true
	for _, f := range from {
		if !slices.Contains(f.names(), name) {
			out.typ = out.typ.Nullable()
			if out.shape != nil {
				out.shape = nullable(out.shape)
			}
			continue
		}
		shape, inside := f.origin(name)
		switch {
		case first:
			out.shape, out.inside = shape, inside
			if out.typ.MayBeNull() && shape != nil {
				out.shape = nullable(shape)
			}
		case shape == nil || out.shape == nil || inside != out.inside || shape.Base != out.shape.Base:
			same = false
		default:
			out.shape = schema.Union(out.shape, shape)
		}
		first = false
		out.typ |= f.info(name).Type
	}
	if same {
		return out
	}
	// Nothing is converted here that is not declared alike in all of them, so that
	// values are what they are written as.
	out.shape = nil
	for _, f := range from {
		if shape, inside := f.origin(name); shape != nil && !inside {
			out.typ |= shape.Written()
		}
	}
	return out
}

// origin is what is declared of a field, and whether it was made by a step.
func (v *View) origin(name string) (shape *schema.Type, inside bool) {
	if _, ok := v.made[name]; ok {
		return v.shapes[name], true
	}
	if k := v.rawField(name); k != nil {
		return k.shape, k.inside
	}
	return nil, false
}

func nullable(t *schema.Type) *schema.Type {
	n := *t
	n.Nullable = true
	return &n
}
