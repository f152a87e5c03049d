package accumulate

import (
	"encoding/json"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// form is that of the subject's function.
func (s subject) form(t testing.TB) (form Form) {
	t.Helper()
	var types columns
	if s.in != connectors.Absent {
		types = columns{1 << s.in, 1 << s.in}
	}
	_, err := expr.CompileAggregation(s.call, types, columns{}, func(_ int, call *expr.AggregateCall) (expr.Ref, error) {
		form = FormOf(call, s.o)
		return expr.Ref{}, nil
	}, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return form
}

// A function that is made of its form, as a checkpoint has it, reads the states of the
// one that wrote them.
func TestAFunctionIsMadeAgainOfItsForm(t *testing.T) {
	for _, s := range subjects() {
		fn, form := s.make(t), s.form(t)
		text, err := json.Marshal(form)
		if err != nil {
			t.Fatal(err)
		}
		var read Form
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		again, err := read.Function()
		if err != nil {
			t.Errorf("%s: %s: %v", s.name(), text, err)
			continue
		}
		b := add(t, fn, empty(fn), goldenRows(s.in, 70))
		if again.Size() != fn.Size() || again.Retracts() != fn.Retracts() || result(again, b) != result(fn, b) {
			t.Errorf("%s: the one made of %s gives %s, not %s", s.name(), text, result(again, b), result(fn, b))
		}
	}
	for _, bad := range []Form{{}, {Name: "median", Args: []string{"int"}}, {Name: "sum"}, {Name: "sum", Args: []string{"number"}}, {Name: "sum", Args: []string{"bool"}}} {
		if fn, err := bad.Function(); err == nil {
			t.Errorf("%v makes %v", bad, fn)
		}
	}
}
