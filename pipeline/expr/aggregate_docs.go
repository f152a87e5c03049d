package expr

import (
	"cmp"
	"slices"
)

const countName = "count"

// aggregates are the aggregate functions. What they do is in package accumulate;
// here is what the compiler has to know.
var aggregates = map[string]*function{}

// ordered is the types that have an order.
const ordered = "number|string|bytes|timestamp|duration"

// AggregateSample are the records that the examples of AggregateFunctions are over,
// in JSON and in the order of their time.
var AggregateSample = []string{
	`{"item": "a", "price": 3, "ms": 12}`,
	`{"item": "b", "price": 5, "ms": 8}`,
	`{"item": "a", "price": null, "ms": 31}`,
	`{"item": "c", "price": 10, "ms": 9}`,
}

func init() {
	for _, d := range []Function{
		doc("count(condition bool?) int", "counts the records, or those for which a condition holds", `count()`, `4`),
		doc("sum(x number|duration) number|duration|null", "adds up", `sum(price)`, `18`),
		doc("avg(x number|duration) float|decimal|duration|null", "gives the mean: of ints a float, of decimals a decimal", `avg(price)`, `6`),
		doc("min(x "+ordered+") any", "gives the smallest value", `min(price)`, `3`),
		doc("max(x "+ordered+") any", "gives the largest value", `max(item)`, `"c"`),
		doc("first(x any) any", "gives the value of the first record by event time, topic, partition and offset", `first(price)`, `3`),
		doc("last(x any) any", "gives the value of the last record by event time, topic, partition and offset", `last(price)`, `10`),
		doc("arg_min(x any, by "+ordered+") any", "gives x of the record with the smallest value of by, of several the first", `arg_min(item, ms)`, `"b"`),
		doc("arg_max(x any, by "+ordered+") any", "gives x of the record with the largest value of by, of several the first", `arg_max(item, price)`, `"c"`),
		doc("collect(x any) list", "makes a list, in the order of event time, topic, partition and offset", `collect(price)`, `[3,5,10]`),
		doc("count_distinct(x any) int", "counts different values, exactly", `count_distinct(item)`, `3`),
		doc("approx_distinct(x any) int", "counts different values, with a standard error of 0.8 % above some thousands, in at most 12 KiB", `approx_distinct(item)`, `3`),
		doc("quantile(x number, q number) float|null", "gives the value that a share q of all values, a constant from 0 to 1, does not exceed; exact for up to 64 values, otherwise within 0.8 % of it", `quantile(ms, 0.5)`, `9`),
		doc("stddev(x number) float|null", "gives the standard deviation of a sample; of fewer than two values it is null", `stddev(price)`, `3.605551275463989`),
	} {
		f := &function{Function: d}
		f.parse()
		aggregates[f.Name] = f
	}
}

// AggregateFunctions lists the aggregate functions, sorted by name. Their examples
// are over AggregateSample. Each is there also with _if at the end of its name and
// a condition as its last argument.
func AggregateFunctions() []Function {
	var list []Function
	for _, f := range aggregates {
		list = append(list, f.Function)
	}
	return slices.SortedFunc(slices.Values(list), func(a, b Function) int { return cmp.Compare(a.Name, b.Name) })
}
