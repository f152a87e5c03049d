package schema

import "github.com/sluice-etl/sluice/connectors"

// OfColumns is the type of records with such fields.
func OfColumns(cols []connectors.Column) *Type {
	t := &Type{Base: Map, Fields: make([]Field, len(cols))}
	for i, c := range cols {
		t.Fields[i] = Field{Name: c.Name, Type: ofColumn(c.Type)}
	}
	return t
}

// ofBase are the types in which columns come to expressions. A base that is not there
// comes as the text that it has in JSON.
var ofBase = map[connectors.Base]Base{
	connectors.Dynamic: Any, connectors.Document: Any, connectors.Boolean: Bool, connectors.Integer: Int, connectors.Real: Float,
	connectors.Exact: Decimal, connectors.Binary: Bytes, connectors.Instant: Timestamp, connectors.Span: Duration,
	connectors.Sequence: List, connectors.Struct: Map, connectors.Dictionary: Map,
}

func ofColumn(c connectors.Type) *Type {
	base, ok := ofBase[c.Base]
	if !ok {
		base = String
	}
	if c.Unsigned && (c.Bits == 0 || c.Bits == 64) {
		base = Number
	}
	t := &Type{Base: base, Nullable: c.Nullable}
	switch {
	case c.Base == connectors.Sequence && c.Elem != nil:
		t.Elem = ofColumn(*c.Elem)
	case c.Base == connectors.Struct && c.Fields != nil:
		t.Fields = OfColumns(c.Fields).Fields
	}
	return t
}
