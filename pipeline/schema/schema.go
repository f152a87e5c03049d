// Package schema holds what a user declares of a source's records: which fields
// they have and of which types. It reads JSON Schema, tells the types to the
// compiler of expressions, and checks and converts the fields of records.
package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Base is a type without what it holds.
type Base uint8

// The bases. Decimal, Timestamp, Duration and Bytes have no form of their own in
// JSON and are made of numbers and texts.
const (
	Any       Base = iota
	Bool           // true or false
	Int            // a whole number of 64 bits
	Float          // any number, as a double
	Number         // any number, as it is written
	Decimal        // a number or a text with one, exactly
	String         // text
	Bytes          // text in base64
	Timestamp      // epoch milliseconds or RFC 3339 text
	Duration       // text such as 1h30m
	List           // a list
	Map            // a map of named fields
)

var baseNames = [...]string{"any", "bool", "int", "float", "number", "decimal", "string", "bytes", "timestamp", "duration", "list", "map"}

// String is the word for the base in a pipeline file.
func (b Base) String() string { return baseNames[b] }

// Names lists the words for bases.
func Names() []string { return baseNames[:] }

// decoded are the kinds of a field's value once its record is read, written those
// that it has in JSON.
var decoded, written [Map + 1]expr.Type

func init() {
	of := func(kinds ...connectors.Kind) (t expr.Type) {
		for _, k := range kinds {
			t |= expr.Of(k)
		}
		return t
	}
	for b, k := range map[Base]connectors.Kind{
		Bool: connectors.Bool, Int: connectors.Int, Float: connectors.Float, Decimal: connectors.Decimal, String: connectors.String,
		Bytes: connectors.Bytes, Timestamp: connectors.Timestamp, Duration: connectors.Duration, List: connectors.List, Map: connectors.Map,
	} {
		decoded[b], written[b] = of(k), of(k)
	}
	decoded[Any], written[Any] = expr.Any, expr.Any
	decoded[Number], written[Number], written[Float] = expr.Number, expr.Number, expr.Number
	written[Decimal] = expr.Number | expr.Text
	written[Timestamp] = of(connectors.Int, connectors.String)
	written[Bytes], written[Duration] = expr.Text, expr.Text
}

// Type is the declared type of a value.
type Type struct {
	Base     Base
	Nullable bool    // null, or not there at all
	Elem     *Type   // of the elements of a list; nil for any
	Fields   []Field // of a map, in the order of the declaration; nil for any
}

// Field is a declared field.
type Field struct {
	Name string
	Type *Type
}

// Parse reads the word for a type, such as "int" or "string?".
func Parse(text string) (*Type, error) {
	name, nullable := strings.CutSuffix(text, "?")
	i := slices.Index(baseNames[:], name)
	if i < 0 {
		help := "; there are " + strings.Join(baseNames[:], ", ")
		if c := connectors.Nearest(strings.ToLower(name), baseNames[:]); c != "" {
			help = fmt.Sprintf("; did you mean %q?", c)
		}
		return nil, fmt.Errorf("there is no type %q%s", name, help)
	}
	return &Type{Base: Base(i), Nullable: nullable}, nil
}

// String is the type in the words of a pipeline file. Fields of maps are in braces.
func (t *Type) String() string {
	s := t.Base.String()
	switch {
	case t.Elem != nil:
		s = "[" + t.Elem.String() + "]"
	case t.Fields != nil:
		parts := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			parts[i] = f.Name + ": " + f.Type.String()
		}
		s = "{" + strings.Join(parts, ", ") + "}"
	}
	if t.Nullable && t.Base != Any {
		s += "?"
	}
	return s
}

// Field finds a declared field of a map.
func (t *Type) Field(name string) *Type {
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return t.Fields[i].Type
		}
	}
	return nil
}

// Names lists the declared fields of a map.
func (t *Type) Names() []string {
	names := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		names[i] = f.Name
	}
	return names
}

// Decoded is the type of the value as expressions see it, where it is a field that
// was read out of its record by itself.
func (t *Type) Decoded() expr.Type { return t.null(decoded[t.Base]) }

// Written is the type of the value as it is written: in a list, in a map that an
// expression looks into, or in a record of which nothing is declared.
func (t *Type) Written() expr.Type { return t.null(written[t.Base]) }

// Converts reports whether the value, read by itself, is of another type than it
// is written in.
func (t *Type) Converts() bool { return decoded[t.Base] != written[t.Base] }

func (t *Type) null(typ expr.Type) expr.Type {
	if t.Nullable {
		return typ.Nullable()
	}
	return typ
}

// Union is the type of values that are of t or of u.
func Union(t, u *Type) *Type {
	if t.Base != u.Base {
		return &Type{Base: commonBase(t.Base, u.Base), Nullable: t.Nullable || u.Nullable}
	}
	out := &Type{Base: t.Base, Nullable: t.Nullable || u.Nullable}
	if t.Elem != nil && u.Elem != nil {
		out.Elem = Union(t.Elem, u.Elem)
	}
	if t.Fields != nil && u.Fields != nil {
		out.Fields = unionFields(t, u)
	}
	return out
}

// commonBase is the narrowest base for both of two that differ.
func commonBase(a, b Base) Base {
	numbers := func(x Base) bool { return x == Int || x == Float || x == Number }
	if numbers(a) && numbers(b) {
		return Number
	}
	return Any
}

// unionFields are the fields of either map: null where one of them has it not.
func unionFields(t, u *Type) []Field {
	var out []Field
	for _, f := range t.Fields {
		if other := u.Field(f.Name); other != nil {
			out = append(out, Field{f.Name, Union(f.Type, other)})
			continue
		}
		out = append(out, Field{f.Name, optional(f.Type)})
	}
	for _, f := range u.Fields {
		if t.Field(f.Name) == nil {
			out = append(out, Field{f.Name, optional(f.Type)})
		}
	}
	return out
}

func optional(t *Type) *Type {
	n := *t
	n.Nullable = true
	return &n
}

// At follows a path of field names. known is false where the declarations end
// before the path does; t is then nil. The error says that the path cannot exist.
func (t *Type) At(path []string) (typ *Type, known bool, err error) {
	nullable := false
	for i, name := range path {
		if t.Base == Any || t.Base == Map && t.Fields == nil {
			return nil, false, nil
		}
		where := strings.Join(path[:i], ".")
		if t.Base != Map {
			return nil, false, &expr.Error{Msg: fmt.Sprintf("%s is %s and has no field `%s`", where, t.Base, name)}
		}
		next := t.Field(name)
		if next == nil {
			return nil, false, &expr.Error{Msg: unknown(where, name), Help: nearest(name, t.Names())}
		}
		nullable = nullable || next.Nullable
		t = next
	}
	if nullable && !t.Nullable {
		t = optional(t)
	}
	return t, true, nil
}

func unknown(where, name string) string {
	if where == "" {
		return fmt.Sprintf("unknown field %q", name)
	}
	return fmt.Sprintf("%s has no field %q", where, name)
}

// nearest suggests a name, or lists those there are.
func nearest(name string, names []string) string {
	if c := connectors.Nearest(name, names); c != "" {
		return fmt.Sprintf("did you mean %q?", c)
	}
	const most = 12
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return "there are " + strings.Join(names, ", ") + more
}
