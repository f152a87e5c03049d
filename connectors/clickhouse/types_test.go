package clickhouse

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Bytes stand in JSON as base64, text as it is: which of them a value is, its own field says.
func TestTypesOfRowsAreFoundByNameInATuple(t *testing.T) {
	row := connectors.Type{Base: connectors.Struct, Fields: []connectors.Column{
		{Name: "a", Type: connectors.Type{Base: connectors.Binary}}, {Name: "b", Type: connectors.Type{Base: connectors.Text}},
	}}
	var arena connectors.Arena
	v, err := format.ParseValue([]byte(`{"a": "QUI=", "b": "QUI="}`), &arena)
	if err != nil {
		t.Fatal(err)
	}
	got, err := newCodec("Tuple(b String, a String)", "UTC", row).write(nil, v)
	if want := "\x04QUI=\x02AB"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestTheTypeOfAnExpressionIsThatOfItsFieldOnly(t *testing.T) {
	target := &target{}
	target.env.Columns = []connectors.Column{{Name: "note", Type: connectors.Type{Base: connectors.Binary}}}
	target.config.Columns = connectors.Assignments{
		{Name: "note", Expr: connectors.Expr{Text: "string(id)"}}, {Name: "raw", Expr: connectors.Expr{Text: "note"}},
	}
	if got := target.rowType("note"); got.Base != connectors.Dynamic {
		t.Errorf("an expression for the column has the type of the field of its name: %+v", got)
	}
	if got := target.rowType("raw"); got.Base != connectors.Binary {
		t.Errorf("the field's type is not known: %+v", got)
	}
}
