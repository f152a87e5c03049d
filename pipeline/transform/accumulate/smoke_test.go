package accumulate

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

type scope struct{ t expr.Type }

func (s scope) Field(path []string) (expr.Ref, error) {
	return expr.Ref{Slot: 0, Covered: len(path), Type: s.t}, nil
}
func (s scope) This() (int, error) { return expr.WholeRaw, nil }

func TestSmoke(t *testing.T) {
	for _, n := range []string{"sum(x)", "avg(x)", "min(x)", "max(x)"} {
		var f Function
		_, err := expr.CompileAggregation(n, scope{}, scope{}, func(_ int, c *expr.AggregateCall) (expr.Ref, error) {
			var err error
			f, err = New(c, Options{})
			return expr.Ref{}, err
		}, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, vs := range [][]connectors.Value{{connectors.IntValue(3), connectors.FloatValue(0.1), connectors.FloatValue(0.2)}, {connectors.DecimalValue("1.10"), connectors.IntValue(-3)}, {connectors.DecimalValue("1.10"), connectors.FloatValue(-0.3)}, {connectors.IntValue(-4), connectors.IntValue(-3)}} {
			b := make([]byte, max(f.Size(), 0))
			for _, v := range vs {
				if b, err = f.Add(b, &Input{Args: []connectors.Value{v}}); err != nil {
					t.Fatal(err)
				}
			}
			var a connectors.Arena
			v, err := f.Result(b, &a)
			out, _ := format.AppendValue(nil, v)
			t.Log(n, f.Size(), v.Kind(), string(out), err)
		}
	}
}
