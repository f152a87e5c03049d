package accumulate

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// columns is a scope with the fields x and y, of these types.
type columns []expr.Type

func (c columns) Field(path []string) (expr.Ref, error) {
	slot := 0
	switch path[0] {
	case "x":
	case "y":
		slot = 1
	default:
		return expr.Ref{}, fmt.Errorf("no field is called `%s`", path[0])
	}
	ref := expr.Ref{Slot: slot, Covered: 1}
	if slot < len(c) {
		ref.Type = c[slot]
	}
	return ref, nil
}

func (columns) This() (int, error) { return expr.WholeRaw, nil }

// compile makes the function of the only call in text.
func compile(text string, o Options, types ...expr.Type) (f Function, err error) {
	_, err = expr.CompileAggregation(text, columns(types), columns{}, func(_ int, call *expr.AggregateCall) (expr.Ref, error) {
		var err error
		f, err = New(call, o)
		return expr.Ref{}, err
	}, expr.Options{})
	return f, err
}

func must(t testing.TB, text string, o Options, types ...expr.Type) Function {
	t.Helper()
	f, err := compile(text, o, types...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// row is a record with values for x and y.
type row struct {
	values [2]connectors.Value
	record connectors.Record
}

func (r *row) input() *Input { return &Input{Args: r.values[:], Record: &r.record} }

// rows are records one after the other in time, with these values for x.
func rows(values ...connectors.Value) []row {
	origin := &connectors.Origin{Topic: "t"}
	list := make([]row, len(values))
	for i, v := range values {
		list[i] = row{values: [2]connectors.Value{v}, record: connectors.Record{Time: int64(i), Origin: origin, Offset: int64(i)}}
	}
	return list
}

func empty(f Function) []byte { return make([]byte, max(f.Size(), 0)) }

// add adds rows to a state, in memory that it shares with nothing.
func add(t testing.TB, f Function, b []byte, list []row) []byte {
	t.Helper()
	for i := range list {
		var err error
		if b, err = f.Add(b, list[i].input()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func retract(t testing.TB, f Function, b []byte, list []row) []byte {
	t.Helper()
	for i := range list {
		var err error
		if b, err = f.Retract(b, list[i].input()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// result is the kind and the JSON of a state's result, or why there is none.
func result(f Function, b []byte) string {
	var a connectors.Arena
	v, err := f.Result(b, &a)
	if err != nil {
		return "error: " + err.Error()
	}
	text, err := format.AppendValue(nil, v)
	if err != nil {
		return fmt.Sprint(v.Kind(), " ", v.Float())
	}
	if v.Kind() != connectors.Null && !f.Type().Has(v.Kind()) {
		return fmt.Sprintf("%s %s is not of the type %s", v.Kind(), text, f.Type())
	}
	return v.Kind().String() + " " + string(text)
}

func of(t testing.TB, f Function, values ...connectors.Value) string {
	t.Helper()
	return result(f, add(t, f, empty(f), rows(values...)))
}

func hexed(b []byte) string { return hex.EncodeToString(b) }

var (
	integer = connectors.IntValue
	float   = connectors.FloatValue
	dec     = connectors.DecimalValue
	text    = connectors.StringValue
	null    = connectors.NullValue
)

const (
	intType   = expr.Type(1 << connectors.Int)
	floatType = expr.Type(1 << connectors.Float)
	decType   = expr.Type(1 << connectors.Decimal)
)
