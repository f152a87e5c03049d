package transform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// known is what is known of a field that is read out of the record's raw value.
type known struct {
	name  string
	typ   expr.Type    // 0 for anything
	shape *schema.Type // nil where nothing is declared of what is in it
	// inside says that the value was made by a step: what is in it has the types that
	// it is written in, and is not converted.
	inside bool
}

// Conversion is a field that a decoder fills and that is declared to be of
// another type than the one it is written in.
type Conversion struct {
	Slot int
	Type *schema.Type
}

// Conversions are what is to be done to the fields after they are decoded.
func (b *Base) Conversions() []Conversion { return b.converts }

// Declare is the view of a source's records whose fields are declared. Each of
// them is decoded; check does so with records that have been.
func Declare(base *Base, record *schema.Type) (view *View, check *schema.Checker) {
	return Known(base, record), schema.NewChecker(record, base.exactField)
}

// Known is the view of a source's records whose fields are as record says, since their
// format makes them so. They are decoded where something reads them.
func Known(base *Base, record *schema.Type) *View {
	v := NewView(base)
	v.named = true
	for _, f := range record.Fields {
		v.raw = append(v.raw, known{name: f.Name, typ: f.Type.Decoded(), shape: f.Type})
	}
	return v
}

// exactField is field, of which numbers can be wanted as their text.
func (b *Base) exactField(path []string, exact bool) int {
	slot := b.field(path)
	for i := range b.fields {
		if b.fields[i].Slot == slot {
			b.fields[i].Exact = b.fields[i].Exact || exact
		}
	}
	return slot
}

// declared resolves a path of which something is known.
func (v *View) declared(k *known, path []string) (expr.Ref, error) {
	if len(path) > 1 && k.shape == nil && k.typ != 0 && !k.typ.Has(connectors.Map) {
		return expr.Ref{}, &expr.Error{Msg: fmt.Sprintf("%s is %s and has no field `%s`", k.name, k.typ, path[1])}
	}
	ref := expr.Ref{Covered: len(path)}
	typ := k.shape
	if typ == nil {
		if len(path) == 1 {
			ref.Type = k.typ
		}
		ref.Slot = v.base.field(path)
		return ref, nil
	}
	if len(path) > 1 {
		// The name itself counts: what it holds may be null as a whole.
		holder := &schema.Type{Base: schema.Map, Fields: []schema.Field{{Name: k.name, Type: k.shape}}}
		t, found, err := holder.At(path)
		if err != nil {
			return expr.Ref{}, err
		}
		if !found {
			ref.Slot = v.base.field(path)
			return ref, nil
		}
		typ = t
	}
	if k.inside {
		ref.Slot, ref.Type = v.base.field(path), typ.Written()
		if len(path) == 1 {
			ref.Type = k.typ
		}
		return ref, nil
	}
	ref.Slot, ref.Type = v.base.exactField(path, typ.Base == schema.Decimal), typ.Decoded()
	if len(path) == 1 {
		ref.Type = k.typ
	}
	v.base.convert(ref.Slot, typ)
	return ref, nil
}

// convert notes that a decoded field is to be converted.
func (b *Base) convert(slot int, t *schema.Type) {
	done := func(c Conversion) bool { return c.Slot == slot }
	if t.Converts() && !slices.ContainsFunc(b.converts, done) {
		b.converts = append(b.converts, Conversion{slot, t})
	}
}

// within resolves a path of which a step made the first name.
func (v *View) within(name string, ref expr.Ref, path []string) (expr.Ref, error) {
	shape := v.shapes[name]
	if shape == nil || len(path) <= ref.Covered {
		return ref, nil
	}
	holder := &schema.Type{Base: schema.Map, Fields: []schema.Field{{Name: name, Type: shape}}}
	t, found, err := holder.At(path)
	if err != nil {
		return expr.Ref{}, err
	}
	if found {
		ref.Inner = t.Written()
	}
	return ref, nil
}

// Shape is what is declared of the value of a field, nil where nothing is.
func (v *View) Shape(name string) *schema.Type {
	if _, ok := v.made[name]; ok {
		return v.shapes[name]
	}
	if k := v.rawField(name); k != nil {
		return k.shape
	}
	return nil
}

// shapeOf is what is declared of the value of a program that is nothing but a field.
func (v *View) shapeOf(p *expr.Program) *schema.Type {
	paths := p.Fields()
	if _, bare := p.Slot(); !bare || len(paths) != 1 {
		return nil
	}
	shape := v.Shape(paths[0][0])
	if shape == nil || len(paths[0]) == 1 {
		return shape
	}
	shape, _, _ = shape.At(paths[0][1:])
	return shape
}

// SetShaped is Set for a value of which shape is known.
func (v *View) SetShaped(name string, ref expr.Ref, shape *schema.Type) *View {
	n := v.Set(name, ref)
	n.shapes[name] = shape
	return n
}

func (v *View) rawField(name string) *known {
	for i := range v.raw {
		if v.raw[i].name == name {
			return &v.raw[i]
		}
	}
	return nil
}

// names lists the fields that can be named, for messages.
func (v *View) names() []string {
	var out []string
	for _, f := range v.Fields() {
		out = append(out, f.Name)
	}
	return out
}

// unknown says that there is no field of a name.
func (v *View) unknown(name string) error {
	names := v.names()
	e := &expr.Error{Msg: fmt.Sprintf("unknown field %q", name), Help: "no field is left here"}
	if c := connectors.Nearest(name, names); c != "" {
		e.Help = fmt.Sprintf("did you mean %q?", c)
	} else if len(names) > 0 {
		e.Help = "there are " + listed(names)
	}
	return e
}

// listed is the first of some names, for messages.
func listed(names []string) string {
	const most = 12
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// FieldInfo is what is known of one field.
type FieldInfo struct {
	Name string
	// Type is Any where nothing is known.
	Type expr.Type
	// Shape is what is declared of the value, nil where nothing is.
	Shape *schema.Type
}

// Complete reports whether the fields of the view are all that an expression can
// name.
func (v *View) Complete() bool { return v.closed || v.named }

// Fields lists what is known of the fields, in the order that they have in the
// record's value.
func (v *View) Fields() []FieldInfo {
	var names []string
	if !v.layout.Empty {
		for i := range v.raw {
			names = append(names, v.raw[i].name)
		}
	}
	without := func(name string) {
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
	for _, e := range v.layout.Edits {
		switch e.Kind {
		case connectors.EditSet:
			if !slices.Contains(names, e.Name) {
				names = append(names, e.Name)
			}
		case connectors.EditDrop:
			without(e.Name)
		case connectors.EditKeep:
			names = kept(names, e.Names, v.named || v.layout.Empty)
		case connectors.EditRename:
			without(e.To)
			if i := slices.Index(names, e.Name); i >= 0 {
				names[i] = e.To
			} else {
				names = append(names, e.To)
			}
		}
	}
	out := make([]FieldInfo, len(names))
	for i, name := range names {
		out[i] = v.info(name)
	}
	return out
}

// kept are the names of a keep: those there are, and where that is not known, all.
func kept(names, keep []string, complete bool) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(keep, n) })
	for _, n := range keep {
		if !complete && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (v *View) info(name string) FieldInfo {
	f := FieldInfo{Name: name, Type: expr.Any, Shape: v.Shape(name)}
	if ref, ok := v.made[name]; ok {
		f.Type = ref.Type
	} else if k := v.rawField(name); k != nil {
		f.Type = k.typ
	}
	if f.Type == 0 {
		f.Type = expr.Any
	}
	return f
}
