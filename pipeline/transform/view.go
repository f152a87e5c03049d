package transform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// Base is the table of slots of one chain: the fields that its decoder fills
// and the values that its steps make. Planning adds to it; it is fixed before a
// record flows.
type Base struct {
	fields   []format.Field
	byPath   map[string]int
	converts []Conversion
	slots    int
}

// NewBase makes an empty table.
func NewBase() *Base { return &Base{byPath: map[string]int{}} }

// Fields are what the decoder fills.
func (b *Base) Fields() []format.Field { return b.fields }

// Stride is the number of slots of a record.
func (b *Base) Stride() int { return b.slots }

// NewSlot adds a slot that a step fills.
func (b *Base) NewSlot() int {
	b.slots++
	return b.slots - 1
}

func (b *Base) field(path []string) int {
	key := strings.Join(path, "\x00")
	if slot, ok := b.byPath[key]; ok {
		return slot
	}
	slot := b.NewSlot()
	b.byPath[key] = slot
	b.fields = append(b.fields, format.Field{Path: slices.Clone(path), Slot: slot})
	return slot
}

// View is what is known of the records at one place of the graph: how their
// value is made up and in which slots its fields are. Views are immutable; the
// edits below return new ones. A View is the scope of the expressions of a step
// that reads there.
type View struct {
	base   *Base
	layout connectors.Layout
	made   map[string]expr.Ref     // fields that steps made or that were renamed
	shapes map[string]*schema.Type // what is known of the values of made ones
	raw    []known                 // what is known of the fields of the raw value
	named  bool                    // raw has all fields of the raw value that can be named
	gone   map[string]string       // fields that are not there any more, and why
	only   []string                // the fields that can be there at all; nil for any
	closed bool                    // only holds
	this   int                     // the slot of the whole value once an expression asked for it
	update *Updates                // nil for an append-only stream
}

// Updates is what is known of an updating stream.
type Updates struct {
	// Key are the fields by which rows are told apart: at any time there is at most
	// one row for a key. Empty where rows have no key, as those of a plain join.
	Key []string
	// Spread are the fields by which rows were dealt out among subtasks while changes of
	// them came: a change that moves a row to another value of one of these has its old
	// row and its new row from different subtasks, in any order. A computed one that no
	// field has is its expression.
	Spread []string
}

// Updating is the view of a stream whose records have an Op other than Insert.
func (v *View) Updating(key []string) *View {
	n := v.clone()
	n.this = v.this
	n.update = &Updates{Key: key}
	return n
}

// Spread is the view of an updating stream whose rows changes move between subtasks, see
// Updates.
func (v *View) Spread(names []string) *View {
	n := v.Updating(v.update.Key)
	n.update.Spread = names
	return n
}

// AppendOnly is the view of a stream of inserts.
func (v *View) AppendOnly() *View {
	n := v.clone()
	n.this, n.update = v.this, nil
	return n
}

// Updates tells what is known of an updating stream, nil for an append-only one.
func (v *View) Updates() *Updates { return v.update }

// NewView is the view of records as their source gives them.
func NewView(base *Base) *View { return &View{base: base, this: expr.WholeRaw} }

// Layout says how the value is made up.
func (v *View) Layout() *connectors.Layout { return &v.layout }

// Base is the table of slots that the view refers to.
func (v *View) Base() *Base { return v.base }

// Made lists the fields that have slots of their own, and those slots.
func (v *View) Made() map[string]expr.Ref { return v.made }

// Same reports whether records of both views can be mixed without a change.
func (v *View) Same(o *View) bool {
	return v == o || v.base == o.base && v.layout.Untouched() && o.layout.Untouched()
}

// ThisSlot is the slot in which the expressions compiled so far expect the whole
// value, if any of them reads it and the raw bytes are not it.
func (v *View) ThisSlot() (slot int, needed bool) { return v.this, v.this != expr.WholeRaw }

// Field resolves a field path; it implements expr.Scope.
func (v *View) Field(path []string) (expr.Ref, error) {
	name := path[0]
	if ref, ok := v.made[name]; ok {
		return v.within(name, ref, path)
	}
	if why, ok := v.gone[name]; ok {
		return expr.Ref{}, v.dropped(name, why)
	}
	if v.closed && !slices.Contains(v.only, name) {
		return expr.Ref{}, v.unknown(name)
	}
	if k := v.rawField(name); k != nil {
		return v.declared(k, path)
	}
	if v.named {
		return expr.Ref{}, v.unknown(name)
	}
	return expr.Ref{Slot: v.base.field(path), Covered: len(path)}, nil
}

// dropped says that a field was there and is not any more.
func (v *View) dropped(name, why string) error {
	return fmt.Errorf("field %q is not there any more: %s", name, why)
}

// This resolves the whole value; it implements expr.Scope.
func (v *View) This() (int, error) {
	if v.this == expr.WholeRaw && !v.layout.Untouched() {
		v.this = v.base.NewSlot()
	}
	return v.this, nil
}

func (v *View) clone() *View {
	n := *v
	n.made, n.gone, n.shapes = maps.Clone(v.made), maps.Clone(v.gone), maps.Clone(v.shapes)
	if n.made == nil {
		n.made = map[string]expr.Ref{}
	}
	if n.shapes == nil {
		n.shapes = map[string]*schema.Type{}
	}
	if n.gone == nil {
		n.gone = map[string]string{}
	}
	n.only = slices.Clone(v.only)
	n.layout.Edits = slices.Clone(v.layout.Edits)
	n.this = expr.WholeRaw
	return &n
}

// Set is the view after name became the value of ref.
func (v *View) Set(name string, ref expr.Ref) *View {
	n := v.clone()
	delete(n.gone, name)
	delete(n.shapes, name)
	n.update = n.update.without(name)
	n.made[name] = ref
	if n.closed && !slices.Contains(n.only, name) {
		n.only = append(n.only, name)
	}
	n.layout.Edits = append(n.layout.Edits, connectors.Edit{Kind: connectors.EditSet, Name: name, Slot: ref.Slot})
	return n
}

// known is the view in which a slot holds the value of a field that the raw value
// has as well.
func (v *View) known(name string, slot int, t expr.Type) *View {
	n := v.clone()
	n.this = v.this
	n.made[name] = expr.Ref{Slot: slot, Covered: 1, Type: t}
	return n
}

// Drop is the view after name was removed.
func (v *View) Drop(name, why string) *View {
	n := v.clone()
	n.forget(name, why)
	n.update = n.update.without(name)
	n.layout.Edits = append(n.layout.Edits, connectors.Edit{Kind: connectors.EditDrop, Name: name})
	return n
}

func (v *View) forget(name, why string) {
	delete(v.made, name)
	delete(v.shapes, name)
	v.gone[name] = why
	if i := slices.Index(v.only, name); i >= 0 {
		v.only = slices.Delete(v.only, i, i+1)
	}
}

// Keep is the view in which only names are left.
func (v *View) Keep(names []string) *View {
	n := v.clone()
	maps.DeleteFunc(n.made, func(name string, _ expr.Ref) bool { return !slices.Contains(names, name) })
	n.only = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !v.has(name)
	})
	n.closed = true
	n.update = n.update.within(names)
	n.layout.Edits = append(n.layout.Edits, connectors.Edit{Kind: connectors.EditKeep, Names: slices.Clone(names)})
	return n
}

// has reports whether there can be a field of a name.
func (v *View) has(name string) bool {
	if _, made := v.made[name]; made {
		return true
	}
	_, gone := v.gone[name]
	switch {
	case gone:
		return false
	case v.closed:
		return slices.Contains(v.only, name)
	}
	return !v.named || v.rawField(name) != nil
}

// Rename is the view after a field got another name; ref is where its value is.
func (v *View) Rename(from, to string, ref expr.Ref, why string) *View {
	n := v.clone()
	shape := v.Shape(from)
	n.forget(from, why)
	n.update = n.update.without(to).renamed(from, to)
	delete(n.gone, to)
	n.made[to], n.shapes[to] = ref, shape
	if n.closed && !slices.Contains(n.only, to) {
		n.only = append(n.only, to)
	}
	n.layout.Edits = append(n.layout.Edits, connectors.Edit{Kind: connectors.EditRename, Name: from, To: to})
	return n
}

// Project is the view in which the record is these fields and no others.
func (v *View) Project() *View {
	return &View{
		base: v.base, layout: connectors.Layout{Empty: true}, this: expr.WholeRaw,
		made: map[string]expr.Ref{}, shapes: map[string]*schema.Type{}, gone: map[string]string{}, closed: true, update: v.update,
	}
}
