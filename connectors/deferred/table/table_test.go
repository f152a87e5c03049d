package table

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
)

func column(name string, base connectors.Base, def bool) Column {
	return Column{Column: connectors.Column{Name: name, Type: connectors.Type{Base: base}}, Default: def}
}

type row struct {
	value, key string
	op         connectors.Op
}

func rowsOf(list ...row) *connectors.Rows {
	b := new(connectors.Batch)
	b.Size(len(list), 1)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i, r := range list {
		b.Records[i] = connectors.Record{Key: []byte(r.key), Op: r.op}
		b.Slots[i] = connectors.StringValue("slot")
		var value []byte
		if r.value != "" {
			value = []byte(r.value)
		}
		rows.Sel, rows.Values = append(rows.Sel, uint16(i)), append(rows.Values, value)
	}
	return rows
}

// what says what a mapper makes of row i: its operation and its first column.
func what(t *testing.T, m *Mapper, i int) string {
	t.Helper()
	op, err := m.Op(i)
	var refused *deferred.Refused
	if errors.As(err, &refused) {
		return refused.Kind
	}
	if err != nil {
		t.Fatal(err)
	}
	v := m.Value(i, 0)
	if v.Kind() == connectors.Int {
		return string(op) + " int"
	}
	return string(op) + " " + v.Text()
}

func TestOperationsAndKeys(t *testing.T) {
	cols := []Column{column("id", connectors.Text, false), column("n", connectors.Integer, true)}
	tests := []struct {
		name string
		opts Options
		row  row
		want string
	}{
		{"a row", Options{Mode: Insert}, row{value: `{"id": "a"}`}, "w a"},
		{"a tombstone that inserts cannot take", Options{Mode: Insert}, row{key: "a"}, "tombstone"},
		{"a tombstone with a key of text", Options{Mode: Upsert, Key: []string{"id"}}, row{key: "a"}, "d a"},
		{"a tombstone with a key of digits", Options{Mode: Upsert, Key: []string{"id"}}, row{key: "12"}, "d 12"},
		{"a tombstone with a key of JSON", Options{Mode: Upsert, Key: []string{"id"}}, row{key: `"a b"`}, "d a b"},
		{"a tombstone with an empty key", Options{Mode: Upsert, Key: []string{"id"}}, row{key: ""}, "d "},
		{"a tombstone with a key of fields", Options{Mode: Upsert, Key: []string{"id", "n"}}, row{key: `{"n": 1, "id": "a"}`}, "d a"},
		{"a tombstone with too little of a key", Options{Mode: Upsert, Key: []string{"id", "n"}}, row{key: "a"}, "key"},
		{"a retracted row", Options{Mode: Upsert, Key: []string{"id"}}, row{value: `{"id": "a"}`, op: connectors.UpdateBefore}, "d a"},
		{"a change", Options{Mode: Changelog, Key: []string{"id"}, Op: "op"}, row{value: `{"id": "a", "op": "Delete"}`}, "d a"},
		{"a change of no kind", Options{Mode: Changelog, Key: []string{"id"}, Op: "op"}, row{value: `{"id": "a", "op": 1}`}, "op"},
		{"a field that has no column", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"id": "a", "x": 1}`}, "unknown_field"},
		{"a field without a name", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"id": "a", "": 1}`}, "unknown_field"},
		{"a field that has no column, twice", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"x": 1, "id": "a", "x": 1}`}, "unknown_field"},
		{"as many fields as columns, one that has none", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"id": "a", "id": "b", "x": 1}`}, "unknown_field"},
		{"fields below one that has a column", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"id": "a", "n": {"x": 1}}`}, "w a"},
		{"names with escapes", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"\u0069d": "a"}`}, "w a"},
		{"a field that has no column, ignored", Options{Mode: Insert}, row{value: `{"id": "a", "x": 1}`}, "w a"},
		{"a name that is there twice", Options{Mode: Insert, RefuseUnknown: true}, row{value: `{"id": "a", "id": "b"}`}, "w b"},
		{"the field of the operation is known", Options{Mode: Changelog, Key: []string{"id"}, Op: "op", RefuseUnknown: true}, row{value: `{"id": "a", "op": "c"}`}, "w a"},
		{"beside a name that is there twice", Options{Mode: Changelog, Key: []string{"id"}, Op: "op", RefuseUnknown: true}, row{value: `{"id": "a", "id": "b", "op": "d"}`}, "d b"},
		{"a change that says nothing", Options{Mode: Changelog, Key: []string{"id"}, Op: "op"}, row{value: `{"id": "a"}`}, "w a"},
		{"a change of null", Options{Mode: Changelog, Key: []string{"id"}, Op: "op"}, row{value: `{"id": "a", "op": null}`}, "w a"},
		{"no JSON", Options{Mode: Insert}, row{value: `{"id": "a"`}, "decode"},
		{"a tombstone with expressions", Options{Mode: Upsert, Key: []string{"id"}, Values: connectors.Assignments{{Name: "id"}, {Name: "n"}}}, row{key: "a"}, "d slot"},
		{"no object", Options{Mode: Insert}, row{value: ` [1]`}, "decode"},
		{"an expression", Options{Mode: Insert, Values: connectors.Assignments{{Name: "id"}, {Name: "n"}}}, row{value: `{}`}, "w slot"},
	}
	for _, tt := range tests {
		m, err := NewMapper(cols, tt.opts)
		if err != nil {
			t.Fatal(err)
		}
		m.Begin(rowsOf(tt.row))
		if got := what(t, m, 0); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRowsDoNotHangOnThoseBefore(t *testing.T) {
	m, err := NewMapper([]Column{column("id", connectors.Text, false)}, Options{Mode: Upsert, Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	m.Begin(rowsOf(row{value: `{"id": `}, row{key: "a"}, row{value: `{"id": "b"}`}))
	for i, want := range []string{"decode", "d a", "w b"} {
		if got := what(t, m, i); got != want {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}
	m.Begin(rowsOf(row{value: `{"id": "c"}`}))
	if got := what(t, m, 0); got != "w c" {
		t.Errorf("in the next batch: %q", got)
	}
}

func TestMoreDefaultsThanAShapeTellsApart(t *testing.T) {
	var cols []Column
	var values connectors.Assignments
	for i := range maxDefaults + 1 {
		name := fmt.Sprint("c", i)
		cols, values = append(cols, column(name, connectors.Text, true)), append(values, connectors.Assignment{Name: name})
	}
	if _, err := NewMapper(cols, Options{Mode: Insert}); err == nil || !strings.Contains(err.Error(), "65 columns") {
		t.Errorf("error %v", err)
	}
	for name, err := range map[string]error{
		"one less":    errorOf(NewMapper(cols[1:], Options{Mode: Insert})),
		"expressions": errorOf(NewMapper(cols, Options{Mode: Insert, Values: values})),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func errorOf(_ *Mapper, err error) error { return err }

func TestTheFieldWithoutAColumnIsNamed(t *testing.T) {
	m, err := NewMapper([]Column{column("id", connectors.Text, false)}, Options{Mode: Changelog, Key: []string{"id"}, Op: "op", RefuseUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	m.Begin(rowsOf(row{value: `{"op": "c", "id": "a", "t\u0079po": 1}`}, row{value: `{"op": "c", "id": "a"}`}))
	if _, err := m.Op(0); err == nil || !strings.Contains(err.Error(), "the field typo") {
		t.Errorf("error %v", err)
	}
	if _, err := m.Op(1); err != nil {
		t.Errorf("the row behind it: %v", err)
	}
}

func TestShapesSayWhichColumnsAreLeftToTheTable(t *testing.T) {
	m, err := NewMapper([]Column{column("a", connectors.Text, false), column("b", connectors.Text, true), column("c", connectors.Text, true)}, Options{Mode: Insert})
	if err != nil {
		t.Fatal(err)
	}
	m.Begin(rowsOf(row{value: `{"b": null}`}))
	if _, err := m.Op(0); err != nil {
		t.Fatal(err)
	}
	shape := m.Shape(0)
	if !m.Has(shape, 0) || !m.Has(shape, 1) || m.Has(shape, 2) {
		t.Errorf("shape %b", shape)
	}
}

func TestDeadLettersAreTakenByName(t *testing.T) {
	m, err := NewMapper([]Column{column("reason", connectors.Text, false)}, Options{Mode: Insert, Values: connectors.Assignments{{Name: "reason"}}})
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(row{value: `{"reason": "bad"}`})
	rows.DeadLetter = []*connectors.RecordError{{}}
	m.Begin(rows)
	if got := what(t, m, 0); got != "w bad" {
		t.Errorf("%q", got)
	}
	if err := Check(Insert, nil, "", connectors.Assignments{{Name: ""}}, ""); err == nil || !strings.Contains(err.Error(), "columns") {
		t.Errorf("error %v", err)
	}
}
