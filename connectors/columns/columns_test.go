package columns

import (
	"math"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func TestDeclaredColumnsKeepTheirOrder(t *testing.T) {
	var l List
	err := l.UnmarshalConfig([]any{
		map[string]any{"z": "int"}, map[string]any{"a": "decimal(10, 2)?"},
		map[string]any{"tags": []any{"string"}}, map[string]any{"at": []any{map[string]any{"lat": "float"}, map[string]any{"lon": "float"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(l) != 4 || l[0].Name != "z" || l[1].Type.Precision != 10 || !l[1].Type.Nullable ||
		l[2].Type.Elem.Base != connectors.Text || len(l[3].Type.Fields) != 2 {
		t.Errorf("columns %+v", l)
	}
}

func TestReaderGivesColumns(t *testing.T) {
	r, err := NewReader([]connectors.Column{{Name: "b"}, {Name: "d", Type: connectors.Type{Base: connectors.Exact}}, {Name: "none"}})
	if err != nil {
		t.Fatal(err)
	}
	var failed []int
	r.Read([][]byte{[]byte(`{"d": 1.10, "b": true}`), []byte(`{"b": `), nil}, func(i int, _ *format.SyntaxError) { failed = append(failed, i) })
	if len(failed) != 1 || failed[0] != 1 {
		t.Fatalf("failed %v", failed)
	}
	if v := r.Value(0, 0); !v.Bool() {
		t.Errorf("b is %v", v.Kind())
	}
	d, err := Decimal(r.Value(0, 1), 10, 3)
	if err != nil || d.Text('f') != "1.100" {
		t.Errorf("d is %v, %v", d, err)
	}
	if k := r.Value(0, 2).Kind(); k != connectors.Absent {
		t.Errorf("none is %v", k)
	}
}

func TestDecimalsLoseNoDigit(t *testing.T) {
	for text, want := range map[string]string{
		"1.5": "1.50", "-0.10": "-0.10", "12345.67": "12345.67", "123456.78": "", "0.001": "", "1e3": "1000.00",
	} {
		d, err := Decimal(connectors.DecimalValue(text), 7, 2)
		if want == "" {
			if err == nil {
				t.Errorf("%s is taken as %s", text, d.Text('f'))
			}
			continue
		}
		if err != nil || d.Text('f') != want {
			t.Errorf("%s: %v, %v, want %s", text, d, err, want)
		}
	}
}

func TestEpochMillisecondsAreTimesAsTheyAreReadBack(t *testing.T) {
	for typ, want := range map[string]string{"timestamp": "2026-01-31T23:59:59.5Z", "timestamp_local": "2026-01-31T23:59:59.5", "date": "2026-01-31"} {
		parsed, err := ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		got, err := TextOf(nil, parsed, connectors.IntValue(1769903999500))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", typ, got, err, want)
		}
		for _, v := range []connectors.Value{connectors.IntValue(math.MaxInt64), connectors.BoolValue(true)} {
			if got, err := TextOf(nil, parsed, v); err == nil {
				t.Errorf("%s: %q", typ, got)
			}
		}
	}
}
