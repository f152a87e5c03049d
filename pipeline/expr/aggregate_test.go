package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// aggregateOver compiles over records with these fields and the keys auction and
// window_end; the results are ints in slots from 2 on.
func aggregateOver(text string) (*Aggregation, error) {
	in := &fields{names: []string{"price", "item", "tags", "any"}, types: []Type{intBit | nullBit, textBit, listBit, Any}}
	keys := &fields{names: []string{"auction", "window_end"}, types: []Type{intBit, intBit}}
	return CompileAggregation(text, in, keys, func(i int, call *AggregateCall) (Ref, error) {
		if call.Name == "stddev" {
			return Ref{}, errors.New("there is no such thing")
		}
		if call.Name == "collect" {
			return Ref{Slot: 2 + i, Covered: 1, Type: listBit}, nil
		}
		return Ref{Slot: 2 + i, Covered: 1, Type: intBit}, nil
	}, Options{})
}

// calls writes the calls of an aggregation, each with its arguments.
func calls(a *Aggregation) string {
	var list []string
	for _, c := range a.Calls {
		s := c.Name + "("
		for i, p := range c.Args {
			if i > 0 {
				s += ", "
			}
			s += p.Text()
		}
		s += ")"
		if c.If != nil {
			s += " if " + c.If.Text()
		}
		list = append(list, s)
	}
	return strings.Join(list, "; ")
}

func TestAggregateFunctionsCompose(t *testing.T) {
	for _, row := range [][2]string{
		{`count()`, "count()"},
		{`count(price > 3)`, "count() if price > 3"},
		{`count_if(price > 3)`, "count() if price > 3"},
		{`sum_if(price * 2, item == "x")`, `sum(price * 2) if item == "x"`},
		{`sum(price) / count() + sum( price )`, "sum(price); count()"},
		{`max(price) - min(price) > 3 ? "x" : "y"`, "max(price); min(price)"},
		{`(min(price) ?? auction) + window_end`, "min(price)"},
		{`arg_max(item, price)`, "arg_max(item, price)"},
		{`quantile(price, 0.5) - quantile(price, .50)`, "quantile(price, 0.5); quantile(price, .50)"},
		{`sum(len(filter(tags, # != item)))`, "sum(len(filter(tags, # != item)))"},
		{`sum(::max(price, 0))`, "sum(max(price, 0))"},
		{`price | sum()`, "sum(price)"},
		{`filter(collect(price), # > max(price))`, "collect(price); max(price)"},
		{`::count(collect(price), # > 1)`, "collect(price)"},
		{`last(this)`, "last(this)"},
		{`max(meta.offset)`, "max(meta.offset)"},
		{`let k = 3; sum(price * k) + sum(price)`, "sum(let k = 3; sum(price * k); sum(let k = 3; sum(price * k) + sum(price)"},
		{`auction`, ""},
		{`"é" + string(sum(price)) + string(count())`, "sum(price); count()"},
	} {
		t.Run(row[0], func(t *testing.T) {
			a, err := aggregateOver(row[0])
			if err != nil {
				t.Fatal(err)
			}
			if got := calls(a); got != row[1] {
				t.Errorf("the calls are %q, want %q", got, row[1])
			}
		})
	}
}

func TestResultsOfAggregateFunctionsAreComputedWith(t *testing.T) {
	a, err := aggregateOver(`max(price) - min(price) > 3 ? auction : count()`)
	if err != nil {
		t.Fatal(err)
	}
	b := &connectors.Batch{}
	b.Size(2, 5)
	for i, v := range []int64{7, 0, 10, 5, 3, 8, 0, 10, 9, 3} {
		b.Slots[i] = connectors.IntValue(v)
	}
	for row, want := range []int64{7, 3} {
		v, fault := a.Result.Eval(NewEnv(), b, row)
		if fault != nil || v.Int() != want {
			t.Errorf("row %d gives %v, %v, want %d", row, v.Int(), fault, want)
		}
	}
}

func TestArgumentsFailWithTheirOwnPlace(t *testing.T) {
	a, err := aggregateOver(`"ö" + string(sum(any))`)
	if err != nil {
		t.Fatal(err)
	}
	b := &connectors.Batch{}
	b.Size(1, 4)
	b.Slots[3] = connectors.StringValue("x")
	p := a.Calls[0].Args[0]
	if _, fault := p.Eval(NewEnv(), b, 0); fault == nil || p.Text()[fault.Offset:fault.Offset+fault.Length] != "any" ||
		fault.Reason != "any is a string, but must be number, duration or null" {
		t.Errorf("the fault is %v", fault)
	}
	b.Slots[3] = connectors.NullValue()
	if _, fault := p.Eval(NewEnv(), b, 0); fault != nil {
		t.Errorf("null is refused: %v", fault)
	}
}

func TestMistakesAroundAggregateFunctionsAreExplained(t *testing.T) {
	const isSum = "it is sum(x number|duration) number|duration|null"
	const counts = "count() counts records, count(x != null) those with a value, count_distinct(x) different values"
	for _, row := range [][3]string{
		{`price`, "price", "`price` stands outside of an aggregate function and is no key: no field is called `price`; put it into an aggregate function, as in `first(price)`, or into `by`"},
		{`max(price) + item`, "item", "`item` stands outside of an aggregate function and is no key: no field is called `item`; put it into an aggregate function, as in `first(item)`, or into `by`"},
		{`this`, "this", "`this` is a record, and outside of an aggregate function there is a group of them; as in `first(this)`"},
		{`meta.key`, "meta.key", "meta belongs to a record, and outside of an aggregate function there is a group of them; as in `first(meta.key)`"},
		{`1 + sum(item)`, "item", "sum() takes number or duration for `x`, and item is string; " + isSum},
		{`sum(price, 2)`, "sum(price, 2)", "sum() does not take these arguments; " + isSum},
		{`sum()`, "sum()", "sum() does not take these arguments; " + isSum},
		{`sum_if(price)`, "sum_if(price)", "sum_if() does not take these arguments; it is sum_if(x number|duration, condition bool) number|duration|null"},
		{`sum_if(price, item)`, "item", "a condition must be a bool, and item is string; compare it, as in `item != \"\"`"},
		{`count(tags)`, "tags", "a condition must be a bool, and tags is list; " + counts},
		{`count(price, 2)`, "count(price, 2)", "count() does not take these arguments; it is count(condition bool?) int; " + counts},
		{`count_if( ) + 1`, "count_if( )", "count_if() does not take these arguments; it is count_if(condition bool) int; " + counts},
		{`sum(max(price))`, "max(price)", "max() cannot stand in an argument of sum(); here `max` is the aggregate function; that of lists is written `::max(…)`"},
		{`sum(1 + count())`, "count()", "count() cannot stand in an argument of sum(); here `count` is the aggregate function; that of lists is written `::count(…)`"},
		{`sum_if(price, price > avg(price))`, "avg(price)", "avg() cannot stand in an argument of sum(); a value per record is made by a step before it"},
		{`count(tags, # > 1)`, "#", "unexpected `#`; `#` stands for an element of a list; here count, sum and the like are the aggregate functions, and those of lists are written `::count(…)`"},
		{`summ(price)`, "summ", "no function is called `summ`; did you mean `sum`?"},
		{`count_distnct(price)`, "count_distnct", "no function is called `count_distnct`; did you mean `count_distinct`?"},
		{`percentile(price, 0.99)`, "percentile", "no function is called `percentile`; write `quantile(x, 0.99)`"},
		{`1 + mean(price)`, "price", "`price` stands outside of an aggregate function and is no key: no field is called `price`; mean() is about a list; over the records of a group write `avg(x)`"},
		{`count(*)`, "*", "unexpected `*`; count() counts all records"},
		{`sum(lne(item))`, "lne", "no function is called `lne`; did you mean `len`?"},
		{`let k = max(price); sum(price * k)`, "k", "`k` is made of results, and an argument of an aggregate function is about single records"},
		{`sum(prices)`, "prices", "no field is called `prices`"},
		{`"ü" + string(sum(item))`, "item", "sum() takes number or duration for `x`, and item is string; " + isSum},
		{`1 + stddev(price)`, "stddev(price)", "there is no such thing"},
		{`sum(price`, "e", "the expression ends too early"},
		{`sum(price / 0 * int("x"))`, `int("x")`, "the text given to int() is no whole number that fits 64 bits; this is so for every record"},
	} {
		t.Run(row[0], func(t *testing.T) {
			_, err := aggregateOver(row[0])
			var all Errors
			if !errors.As(err, &all) || len(all) != 1 {
				t.Fatalf("got %v", err)
			}
			if at := row[0][all[0].Offset : all[0].Offset+all[0].Length]; at != row[1] || all[0].Error() != row[2] {
				t.Errorf("got  %q at %q\nwant %q at %q", all[0].Error(), at, row[2], row[1])
			}
		})
	}
}

func TestAggregateFunctionsElsewhereAreExplained(t *testing.T) {
	const elsewhere = " is an aggregate function, and those stand only in the `select` of an `aggregate` step"
	const meant = "; as an aggregate function it stands only in the `select` of an `aggregate` step"
	check(t, `{"price": 5, "item": "x"}`, [][2]string{
		{`count()`, "load: a list and an expression for its elements are missing; the aggregate functions count() and sum() stand only in the `select` of an `aggregate` step; `having` goes by the names given there"},
		{`count(price > 3) > 2`, "load: count() goes through a list, and price > 3 is bool" + meant},
		{`sum(price) > 3`, "error: price must be a list, and is an int" + meant},
		{`first(price)`, "error: first() takes list for `list`, and price is an int" + meant},
		{`avg(price)`, "load: avg()" + elsewhere},
		{`count_distinct(price)`, "load: count_distinct()" + elsewhere},
		{`sum_if(price, true)`, "load: sum_if()" + elsewhere},
	})
}

func TestEveryAggregateFunctionIsDescribed(t *testing.T) {
	for _, f := range AggregateFunctions() {
		if f.Doc == "" || f.Example == "" || f.Result == "" || !strings.HasPrefix(f.Signature, f.Name+"(") {
			t.Errorf("%+v is incomplete", f)
		}
		if functions[f.Name+conditional] != nil {
			t.Errorf("%s is a function of its own", f.Name+conditional)
		}
	}
}

func TestTextThatIsNoAggregationIsRefusedWithAPlaceInIt(t *testing.T) {
	for _, text := range []string{"", "sum(", ")", "sum(sum(sum(price)))", "count(((", "é sum(", "let sum = 1; sum(price)", "sum", "sum.x", "tags.sum()", "sum(let a = 1; a + item)", strings.Repeat("sum(", 300)} {
		_, err := aggregateOver(text)
		var all Errors
		if !errors.As(err, &all) {
			if text != "let sum = 1; sum(price)" {
				t.Errorf("%q is taken: %v", text, err)
			}
			continue
		}
		for _, e := range all {
			if e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) {
				t.Errorf("%q: the place %d+%d of %v is outside", text, e.Offset, e.Length, e)
			}
		}
	}
}

// What a constant costs at load is bounded for the whole expression: those beyond are
// computed for each record.
func TestConstantsInArgumentsAreBoundedTogether(t *testing.T) {
	a, err := aggregateOver("sum(len(1..1500000)) + sum(len(1..1400000))")
	if err != nil {
		t.Fatal(err)
	}
	folded := 0
	for _, c := range a.Calls {
		if _, ok := c.Args[0].Constant(); ok {
			folded++
		}
	}
	if folded != 1 {
		t.Errorf("%d of 2 arguments are computed at load", folded)
	}
}

func FuzzCompileAggregation(f *testing.F) {
	for _, s := range []string{`sum(price) / count()`, `count(price > 3)`, `let k = 3; sum_if(price * k, item == "é")`, `filter(collect(tags), # in last(tags))`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := aggregateOver(text)
		var all Errors
		if err != nil && !errors.As(err, &all) {
			t.Fatalf("%v is no list of faults", err)
		}
		for _, e := range all {
			if e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) {
				t.Fatalf("the place %d+%d of %v is outside", e.Offset, e.Length, e)
			}
			if strings.Contains(e.Msg, "cannot be compiled") {
				t.Fatal(e)
			}
		}
		if a != nil {
			_ = fmt.Sprint(calls(a))
		}
	})
}

func TestValuesAreOrderedAsByTheOperators(t *testing.T) {
	i, f, d, s := connectors.IntValue, connectors.FloatValue, connectors.DecimalValue, connectors.StringValue
	nan := f(nanValue())
	for _, row := range []struct {
		a, b connectors.Value
		want int
		ok   bool
	}{
		{i(1), i(2), -1, true},
		{i(1), f(1), 0, true},
		{i(1 << 60), f(1 << 60), 0, true},
		{f(0.1), d("0.1"), 0, true},
		{d("1.10"), d("1.1"), 0, true},
		{d("-3"), i(-2), -1, true},
		{nan, i(1), 1, true},
		{nan, d("1"), 1, true},
		{nan, nan, 0, true},
		{s("a"), s("b"), -1, true},
		{s("1"), i(1), 0, false},
		{connectors.NullValue(), i(1), 0, false},
		{connectors.BoolValue(true), connectors.BoolValue(false), 0, false},
		{d("1e99999"), i(1), 0, false},
		{connectors.DurationValue(1), connectors.DurationValue(2), -1, true},
	} {
		c, ok := Compare(row.a, row.b)
		back, _ := Compare(row.b, row.a)
		if c != row.want || ok != row.ok || back != -c {
			t.Errorf("%s %s: got %d, %v and %d backwards, want %d, %v", row.a.Kind(), row.b.Kind(), c, ok, back, row.want, row.ok)
		}
	}
}

func nanValue() float64 { zero := 0.0; return zero / zero }
