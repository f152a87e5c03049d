package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// fields is a scope whose fields are slots by their order; values are given by
// their JSON text.
type fields struct {
	names []string
	types []Type
}

func (f *fields) Field(path []string) (Ref, error) {
	for i, name := range f.names {
		if name == path[0] {
			ref := Ref{Slot: i, Covered: 1, Type: Any}
			if i < len(f.types) {
				ref.Type = f.types[i]
			}
			return ref, nil
		}
	}
	return Ref{}, errors.New("no field is called `" + path[0] + "`")
}

func (f *fields) This() (int, error) { return WholeRaw, nil }

// record makes a batch of one record out of JSON.
func record(t testing.TB, text string) (*fields, *connectors.Batch) {
	t.Helper()
	b := &connectors.Batch{}
	b.Size(1, 0)
	b.Records[0] = connectors.Record{Value: []byte(text), Key: []byte("k1"), Origin: &connectors.Origin{Topic: "bids", Partition: 3}, Offset: 42, Time: 1700000000123,
		Headers: []connectors.Header{{Key: "h", Value: []byte("v1")}, {Key: "h", Value: []byte("v2")}}}
	f := &fields{}
	var values []connectors.Value
	format.Entries([]byte(text), &b.Arena, func(name string, v connectors.Value) bool {
		f.names = append(f.names, strings.Clone(name))
		values = append(values, v)
		return true
	})
	b.SetStride(len(values) + 1)
	copy(b.Slots, values)
	return f, b
}

// eval gives the value of an expression over a record as JSON, or its error.
func eval(t testing.TB, text, rec string) string {
	t.Helper()
	scope, b := record(t, rec)
	p, err := Compile(text, scope, Options{})
	if err != nil {
		return "load: " + err.Error()
	}
	v, fault := p.Eval(NewEnv(), b, 0)
	if fault != nil {
		if fault.Offset < 0 || fault.Offset+fault.Length > len(text) {
			t.Errorf("%s: the position %d+%d is outside the text", text, fault.Offset, fault.Length)
		}
		return "error: " + fault.Reason
	}
	if v.Kind() != connectors.Absent && !p.Type().Has(v.Kind()) {
		t.Errorf("%s: the value is %s, not of the type %s found at load", text, v.Kind(), p.Type())
	}
	out, err := format.AppendValue(nil, v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func check(t *testing.T, rec string, table [][2]string) {
	t.Helper()
	for _, row := range table {
		t.Run(row[0], func(t *testing.T) {
			got := eval(t, row[0], rec)
			if got != row[1] && !(strings.HasSuffix(row[1], "…") && strings.HasPrefix(got, strings.TrimSuffix(row[1], "…"))) {
				t.Errorf("over %s:\n got %s\nwant %s", rec, got, row[1])
			}
		})
	}
}

func TestReferenceExpressions(t *testing.T) {
	check(t, `{"price": 20000, "channel": "Google", "n": null, "f": 1.5}`, [][2]string{
		{`price > 10000 && channel == "Google"`, "true"},
		{`price * 0.908`, "18160"},
		{`lower(channel) + "_x"`, `"google_x"`},
		{`channel matches "^G[a-z]+$"`, "true"},
		{`price > 1e6 ? "a" : price > 1000 ? "b" : "c"`, `"b"`},
		{`channel in ["Google", "Apple"] && price % 2 == 0`, "true"},
		{`n + 1`, "error: n is null and cannot be added; write `n ?? 0` to give it a value"},
		{`(n ?? 3) + 1`, "4"},
		{`filter([1, 2, 3], # > 1)`, "[2,3]"},
		{`map(1..3, # * price)`, "[20000,40000,60000]"},
		{`bitand(7, 5)`, "5"},
		{`decimal("1.10") * 2`, "2.20"},
	})
}
