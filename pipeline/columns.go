package pipeline

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// checkRows refuses a configuration that does not fit the rows.
func (b *planner) checkRows(sink *sinkNode) {
	if s := sink.spec; s.Spec.Check != nil {
		if err := s.Spec.Check(s.Config, sink.columns); err != nil {
			b.fault(s.ConfigPath(), err)
		}
	}
}

// columnsOf are the fields of a view with their types; nil where there can be others,
// or what one of them holds is not known.
func columnsOf(v *transform.View) []connectors.Column {
	if !v.Complete() {
		return nil
	}
	var cols []connectors.Column
	for _, f := range v.Fields() {
		t, ok := columnType(f)
		if !ok {
			return nil
		}
		cols = append(cols, connectors.Column{Name: f.Name, Type: t})
	}
	return cols
}

func columnType(f transform.FieldInfo) (connectors.Type, bool) {
	if f.Shape != nil {
		return declaredType(f.Shape, f.Type.MayBeNull())
	}
	return inferredType(f.Type)
}

// inferredType is the type of a value that an expression makes.
func inferredType(t expr.Type) (connectors.Type, bool) {
	kind, one := t.NonNull().Kind()
	out := connectors.Type{Base: kindBases[kind], Nullable: t.MayBeNull()}
	return out, one && out.Base != connectors.Dynamic
}

// kindBases are the bases of the kinds that say all about a value.
var kindBases = [connectors.Map + 1]connectors.Base{
	connectors.Bool: connectors.Boolean, connectors.Int: connectors.Integer, connectors.Float: connectors.Real,
	connectors.Decimal: connectors.Exact, connectors.String: connectors.Text, connectors.Bytes: connectors.Binary,
	connectors.Timestamp: connectors.Instant, connectors.Duration: connectors.Span,
}

// shapeBases are the bases of declared types that hold no others.
var shapeBases = [schema.Map + 1]connectors.Base{
	schema.Bool: connectors.Boolean, schema.Int: connectors.Integer, schema.Float: connectors.Real,
	schema.Decimal: connectors.Exact, schema.String: connectors.Text, schema.Bytes: connectors.Binary,
	schema.Timestamp: connectors.Instant, schema.Duration: connectors.Span,
}

// declaredType is the type of a field that is declared.
func declaredType(t *schema.Type, nullable bool) (connectors.Type, bool) {
	out := connectors.Type{Base: shapeBases[t.Base], Nullable: nullable || t.Nullable}
	switch {
	case t.Base == schema.List && t.Elem != nil:
		elem, ok := declaredType(t.Elem, false)
		out.Base, out.Elem = connectors.Sequence, &elem
		return out, ok
	case t.Base == schema.Map && t.Fields != nil:
		out.Base = connectors.Struct
		for _, f := range t.Fields {
			inner, ok := declaredType(f.Type, false)
			if !ok {
				return out, false
			}
			out.Fields = append(out.Fields, connectors.Column{Name: f.Name, Type: inner})
		}
		return out, true
	}
	return out, out.Base != connectors.Dynamic
}

// letterColumns are the fields of a dead letter's row, see deadLetterRow.
func letterColumns() []connectors.Column {
	text, maybe := connectors.Type{Base: connectors.Text}, connectors.Type{Base: connectors.Text, Nullable: true}
	flag, number := connectors.Type{Base: connectors.Boolean, Nullable: true}, connectors.Type{Base: connectors.Integer, Nullable: true}
	header := connectors.Type{Base: connectors.Struct, Fields: []connectors.Column{{Name: "key", Type: text}, {Name: "value", Type: maybe}, {Name: "base64", Type: flag}}}
	return []connectors.Column{
		{Name: "topic", Type: maybe}, {Name: "partition", Type: number}, {Name: "offset", Type: number},
		{Name: "key", Type: maybe}, {Name: "key_base64", Type: flag}, {Name: "value", Type: maybe}, {Name: "value_base64", Type: flag},
		{Name: "headers", Type: connectors.Type{Base: connectors.Sequence, Elem: &header}},
		{Name: "timestamp", Type: connectors.Type{Base: connectors.Instant, Nullable: true}},
		{Name: "step", Type: text}, {Name: "expression", Type: text}, {Name: "reason", Type: text}, {Name: "kind", Type: text},
		{Name: "time", Type: connectors.Type{Base: connectors.Instant}}, {Name: "attempt", Type: connectors.Type{Base: connectors.Integer}},
	}
}
