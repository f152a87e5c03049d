package accumulate

import (
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// named is a scope of fields that get a slot each when they are asked for.
type named struct{ names []string }

func (n *named) Field(path []string) (expr.Ref, error) {
	i := slices.Index(n.names, path[0])
	if i < 0 {
		i = len(n.names)
		n.names = append(n.names, path[0])
	}
	return expr.Ref{Slot: i, Covered: 1}, nil
}

func (*named) This() (int, error) { return expr.WholeRaw, nil }

// aggregated is the value, as JSON, of an expression over the sample.
func aggregated(t *testing.T, text string) string {
	t.Helper()
	in := &named{}
	var fns []Function
	agg, err := expr.CompileAggregation(text, in, columns{}, func(i int, call *expr.AggregateCall) (expr.Ref, error) {
		f, err := New(call, Options{})
		fns = append(fns, f)
		return expr.Ref{Slot: i, Covered: 1}, err
	}, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	states := make([][]byte, len(fns))
	env := expr.NewEnv()
	for row, text := range expr.AggregateSample {
		b := &connectors.Batch{}
		b.Size(1, len(in.names))
		b.Records[0] = connectors.Record{Value: []byte(text), Time: int64(row), Origin: origins[0]}
		format.Entries([]byte(text), &b.Arena, func(name string, v connectors.Value) bool {
			if i := slices.Index(in.names, name); i >= 0 {
				b.Slots[i] = v
			}
			return true
		})
		for i, call := range agg.Calls {
			input := &Input{Record: &b.Records[0]}
			if call.If != nil {
				if v, fault := call.If.Eval(env, b, 0); fault != nil || !v.Bool() {
					continue
				}
			}
			for _, p := range call.Args {
				v, fault := p.Eval(env, b, 0)
				if fault != nil {
					t.Fatal(fault)
				}
				input.Args = append(input.Args, v)
			}
			if states[i], err = fns[i].Add(states[i], input); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := &connectors.Batch{}
	out.Size(1, len(fns))
	for i, f := range fns {
		if out.Slots[i], err = f.Result(states[i], &out.Arena); err != nil {
			t.Fatal(err)
		}
	}
	v, fault := agg.Result.Eval(env, out, 0)
	if fault != nil {
		t.Fatal(fault)
	}
	json, err := format.AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}

func TestEveryAggregateFunctionsExampleIsTrue(t *testing.T) {
	for _, f := range expr.AggregateFunctions() {
		if got := aggregated(t, f.Example); got != f.Result {
			t.Errorf("%s gives %s, not %s", f.Example, got, f.Result)
		}
		if makers[f.Name] == nil {
			t.Errorf("%s is only described", f.Name)
		}
	}
	if len(expr.AggregateFunctions()) != len(makers) {
		t.Error("there are functions that are not described")
	}
}

func TestAggregateFunctionsComposeOverRecords(t *testing.T) {
	for text, want := range map[string]string{
		`sum(price) / count()`:                              "4.5",
		`max(price) - min(price) > 3 ? "wide" : "narrow"`:   `"wide"`,
		`count(price != null)`:                              "3",
		`sum_if(ms, item == "a") ?? 0`:                      "43",
		`max_if(price, item == "z") ?? -1`:                  "-1",
		`count_distinct_if(item, ms > 8)`:                   "2",
		`quantile_if(ms, 1, price != null)`:                 "12",
		`map(collect(price), # * 2)`:                        "[6,10,20]",
		`len(collect_if(item, ms < 10))`:                    "2",
		`{top: arg_max(item, price), dear: count(ms > 10)}`: `{"top":"c","dear":2}`,
		`sum(price) * decimal("1.10")`:                      "19.80",
		`round(stddev(ms) * 100) / 100`:                     "10.8",
	} {
		if got := aggregated(t, text); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}
