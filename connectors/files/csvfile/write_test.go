package csvfile

import (
	"bytes"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// Readers pass over empty lines.
func TestEmptyTextIsNoEmptyLine(t *testing.T) {
	cols := []connectors.Column{{Name: "f", Type: connectors.Type{Base: connectors.Text, Nullable: true}}}
	o := NewOptions()
	o.Null, o.Columns = `\N`, cols
	e, err := NewEncoder(o, cols)
	if err != nil {
		t.Fatal(err)
	}
	e.Begin([][]byte{[]byte(`{"f":""}`)})
	out, err := e.Append(Head(o, cols), 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(out), o, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Next(nil); err != nil || string(got) != `{"f":""}` {
		t.Errorf("%q became %s, %v", out, got, err)
	}
}
