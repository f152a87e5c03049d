package accumulate

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

const far = math.MaxInt64

func TestSumsAndMeansAreExact(t *testing.T) {
	big := strings.Repeat("9", 38)
	for _, c := range []struct {
		call   string
		values []connectors.Value
		want   string
	}{
		{"sum(x)", nil, "null null"},
		{"sum(x)", []connectors.Value{null()}, "null null"},
		{"sum(x)", []connectors.Value{integer(1), null(), integer(2)}, "int 3"},
		{"sum(x)", []connectors.Value{integer(far), integer(far), integer(-far), integer(-far), integer(5)}, "int 5"},
		{"sum(x)", []connectors.Value{integer(far), integer(1)}, "error: the result of sum() does not fit an int of 64 bits; use sum(decimal(…)) or sum(float(…))"},
		{"sum(x)", []connectors.Value{integer(math.MinInt64), integer(-1), integer(1)}, "int -9223372036854775808"},
		{"sum(x)", []connectors.Value{dec("1.10"), dec("2.20")}, "decimal 3.30"},
		{"sum(x)", []connectors.Value{dec("1.10"), integer(-3)}, "decimal -1.90"},
		{"sum(x)", []connectors.Value{integer(-3), dec("1.1"), dec("0.001")}, "decimal -1.899"},
		{"sum(x)", []connectors.Value{dec("0.00"), dec("-0.0")}, "decimal 0.00"},
		{"sum(x)", []connectors.Value{dec(big), dec(big), dec("-" + big)}, "decimal " + big},
		{"sum(x)", []connectors.Value{dec(big), dec("1")}, "error: the result of sum() needs more than 38 decimal digits; use sum(float(…))"},
		{"sum(x)", []connectors.Value{dec("1e37"), dec("1e-38"), dec("-1E+37")}, "decimal 0.00000000000000000000000000000000000001"},
		{"sum(x)", []connectors.Value{float(0.1), float(0.2), float(-0.3)}, "float 2.7755575615628914e-17"},
		{"sum(x)", []connectors.Value{float(1e16), float(1), float(-1e16)}, "float 1"},
		{"sum(x)", []connectors.Value{float(1e300), float(1), float(-1e300)}, "float 1"},
		{"sum(x)", []connectors.Value{float(1e300), float(1e-300)}, "float 1e+300"},
		{"sum(x)", []connectors.Value{float(0.5), integer(far), integer(far)}, "float 18446744073709552000"},
		{"sum(x)", []connectors.Value{float(0.1), dec("0.2")}, "float 0.3"},
		{"sum(x)", []connectors.Value{float(-0.25), dec("0.2"), integer(-1)}, "float -1.05"},
		{"sum(x)", []connectors.Value{float(math.Inf(1)), float(1)}, "float +Inf"},
		{"sum(x)", []connectors.Value{float(math.Inf(1)), float(math.Inf(-1))}, "float NaN"},
		{"sum(x)", []connectors.Value{float(5e-324), float(5e-324)}, "float 1e-323"},
		{"sum(x)", []connectors.Value{connectors.DurationValue(time.Second), connectors.DurationValue(time.Minute)}, `duration "1m1s"`},
		{"sum(x)", []connectors.Value{connectors.DurationValue(1), integer(1)}, "error: sum() saw durations and numbers, which do not add up"},
		{"avg(x)", nil, "null null"},
		{"avg(x)", []connectors.Value{integer(1), integer(2)}, "float 1.5"},
		{"avg(x)", []connectors.Value{integer(far), integer(far)}, "float 9223372036854776000"},
		{"avg(x)", []connectors.Value{integer(2), integer(4)}, "float 3"},
		{"avg(x)", []connectors.Value{float(3), float(0.1), float(0.2)}, "float 1.1"},
		{"avg(x)", []connectors.Value{dec("1.10"), dec("1.21")}, "decimal 1.155"},
		{"avg(x)", []connectors.Value{dec("1"), integer(0), integer(0)}, "decimal 0.33333333333333333333333333333333333333"},
		{"avg(x)", []connectors.Value{dec(big), dec(big)}, "decimal " + big},
		{"avg(x)", []connectors.Value{connectors.DurationValue(1), connectors.DurationValue(4)}, `duration "2ns"`},
	} {
		t.Run(c.call, func(t *testing.T) {
			for _, o := range []Options{{}, {Updating: true}} {
				if got := of(t, must(t, c.call, o), c.values...); got != c.want {
					t.Errorf("%v of %d values:\n got %s\nwant %s", o, len(c.values), got, c.want)
				}
			}
		})
	}
}

func TestNullsAreLeftOutByAllButCount(t *testing.T) {
	for call, want := range map[string]string{
		"count()": "int 2", "count_distinct(x)": "int 0", "approx_distinct(x)": "int 0", "collect(x)": "list []",
		"sum(x)": "null null", "avg(x)": "null null", "min(x)": "null null", "max(x)": "null null", "first(x)": "null null", "last(x)": "null null",
		"arg_min(x, y)": "null null", "arg_max(x, y)": "null null", "quantile(x, 0.5)": "null null", "stddev(x)": "null null",
	} {
		t.Run(call, func(t *testing.T) {
			f := must(t, call, Options{})
			list := rows(null(), null())
			list[0].values[1] = integer(3)
			if got := result(f, add(t, f, empty(f), list)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got, none := result(f, nil), result(f, empty(f)); got != none {
				t.Errorf("the empty state gives %s, zeros give %s", got, none)
			}
		})
	}
}

func TestExtremesGoByTheOrderOfTheLanguage(t *testing.T) {
	berlin := time.FixedZone("", 3600)
	at := time.Unix(1_700_000_000, 5)
	stamp := connectors.TimestampValue
	for _, c := range []struct {
		values   []connectors.Value
		min, max string
	}{
		{[]connectors.Value{integer(3), integer(-5), integer(4)}, "int -5", "int 4"},
		{[]connectors.Value{float(2.5), integer(2), dec("2.50")}, "int 2", "decimal 2.50"},
		{[]connectors.Value{float(1), integer(1), dec("1.0")}, "int 1", "int 1"},
		{[]connectors.Value{dec("1.10"), dec("1.1"), dec("1.100")}, "decimal 1.1", "decimal 1.1"},
		{[]connectors.Value{float(math.Copysign(0, -1)), float(0)}, "float 0", "float 0"},
		{[]connectors.Value{float(math.NaN()), float(3)}, "float 3", "float NaN"},
		{[]connectors.Value{float(math.NaN()), dec("3")}, "decimal 3", "float NaN"},
		{[]connectors.Value{integer(1<<53 + 1), float(1 << 53)}, "float 9007199254740992", "int 9007199254740993"},
		{[]connectors.Value{text("b"), text("a"), text("")}, `string ""`, `string "b"`},
		{[]connectors.Value{connectors.BytesValue([]byte{2}), connectors.BytesValue([]byte{1, 0})}, `bytes "AQA="`, `bytes "Ag=="`},
		{[]connectors.Value{connectors.DurationValue(time.Hour), connectors.DurationValue(time.Minute)}, `duration "1m0s"`, `duration "1h0m0s"`},
		{[]connectors.Value{stamp(at), stamp(at.Add(time.Second))}, `timestamp "2023-11-14T22:13:20.000000005Z"`, `timestamp "2023-11-14T22:13:21.000000005Z"`},
		{[]connectors.Value{stamp(at.In(berlin)), stamp(at.UTC())}, `timestamp "2023-11-14T22:13:20.000000005Z"`, `timestamp "2023-11-14T22:13:20.000000005Z"`},
		{[]connectors.Value{text("1"), integer(1)}, "error: min() saw values of kinds that have no order, such as a string and a number", "error: max() saw values of kinds that have no order, such as a string and a number"},
	} {
		for _, o := range []Options{{}, {Updating: true}} {
			for _, back := range []bool{false, true} {
				values := c.values
				if back {
					values = nil
					for i := range c.values {
						values = append(values, c.values[len(c.values)-1-i])
					}
				}
				if got := of(t, must(t, "min(x)", o), values...); got != c.min {
					t.Errorf("min, %v, reversed %v: got %s, want %s", o, back, got, c.min)
				}
				if got := of(t, must(t, "max(x)", o), values...); got != c.max {
					t.Errorf("max, %v, reversed %v: got %s, want %s", o, back, got, c.max)
				}
			}
		}
	}
}

func TestOrderIsThatOfTimeTopicPartitionAndOffset(t *testing.T) {
	a, a1, b := &connectors.Origin{Topic: "a"}, &connectors.Origin{Topic: "a", Partition: 1}, &connectors.Origin{Topic: "b"}
	list := []row{
		{[2]connectors.Value{text("p"), integer(1)}, connectors.Record{Time: -5, Origin: b, Offset: 9}},
		{[2]connectors.Value{text("q"), integer(7)}, connectors.Record{Time: 0, Origin: a, Offset: 3}},
		{[2]connectors.Value{text("r"), integer(7)}, connectors.Record{Time: 0, Origin: a, Offset: 4}},
		{[2]connectors.Value{text("s"), integer(1)}, connectors.Record{Time: 0, Origin: a1, Offset: 0}},
		{[2]connectors.Value{text("t"), integer(3)}, connectors.Record{Time: 0, Origin: b, Offset: 0}},
		{[2]connectors.Value{text("u"), integer(2)}, connectors.Record{Time: 1, Origin: a, Offset: 1}},
	}
	want := map[string]string{
		"first(x)": `string "p"`, "last(x)": `string "u"`, "collect(x)": `list ["p","q","r","s","t","u"]`,
		"arg_min(x, y)": `string "p"`, "arg_max(x, y)": `string "q"`,
	}
	orders := [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}}
	for call, want := range want {
		f := must(t, call, Options{})
		for _, order := range orders {
			var shuffled []row
			for _, i := range order {
				shuffled = append(shuffled, list[i])
			}
			if got := result(f, add(t, f, nil, shuffled)); got != want {
				t.Errorf("%s of the order %v: got %s, want %s", call, order, got, want)
			}
		}
	}
}

func TestRecordsOfNoOriginGoByArrivalWhereTheirTimesAreEqual(t *testing.T) {
	list := []row{
		{[2]connectors.Value{text("b"), integer(1)}, connectors.Record{Time: 1}},
		{[2]connectors.Value{text("c"), integer(1)}, connectors.Record{Time: 1}},
		{[2]connectors.Value{text("a"), integer(1)}, connectors.Record{Time: 0}},
	}
	for call, want := range map[string]string{"first(x)": `string "a"`, "last(x)": `string "c"`, "collect(x)": `list ["a","b","c"]`, "arg_max(x, y)": `string "a"`} {
		f := must(t, call, Options{})
		if got := result(f, add(t, f, nil, list)); got != want {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
	}
}

func TestDistinctValuesAreThoseThatTheLanguageCallsEqual(t *testing.T) {
	values := []connectors.Value{integer(1), float(1), dec("1.00"), text("1"), float(0), float(math.Copysign(0, -1)), null(), float(math.NaN()), float(math.NaN()), connectors.BoolValue(true)}
	for _, call := range []string{"count_distinct(x)", "approx_distinct(x)"} {
		if got := of(t, must(t, call, Options{}), values...); got != "int 5" {
			t.Errorf("%s: got %s, want 5", call, got)
		}
	}
}

func TestStandardDeviationIsThatOfASample(t *testing.T) {
	for _, c := range []struct {
		values []connectors.Value
		want   string
	}{
		{[]connectors.Value{integer(3)}, "null null"},
		{[]connectors.Value{integer(3), integer(3), integer(3)}, "float 0"},
		{[]connectors.Value{integer(2), integer(4), integer(4), integer(4), integer(5), integer(5), integer(7), integer(9)}, "float 2.138089935299395"},
		{[]connectors.Value{float(1e9 + 0.25), float(1e9 + 0.75)}, "float 0.3535533905932738"},
		{[]connectors.Value{integer(far), integer(far - 2)}, "float 1.4142135623730951"},
		{[]connectors.Value{dec("1.10"), dec("1.20"), float(1.3)}, "float 0.09999999999999998"},
		{[]connectors.Value{float(1e200), float(3e200)}, "float 1.414213562373095e+200"},
		{[]connectors.Value{float(1e-30), float(3e-30)}, "float 1.414213562373095e-30"},
		{[]connectors.Value{float(1), float(math.Inf(1))}, "float NaN"},
	} {
		if got := of(t, must(t, "stddev(x)", Options{}), c.values...); got != c.want {
			t.Errorf("of %d values: got %s, want %s", len(c.values), got, c.want)
		}
	}
}

func TestQuantilesOfFewValuesAreExact(t *testing.T) {
	values := []connectors.Value{integer(15), float(20), dec("35"), integer(40), integer(50)}
	for q, want := range map[string]string{"0": "float 15", "0.05": "float 15", "0.2": "float 15", "0.3": "float 20", "0.4": "float 20", "0.5": "float 35", "1": "float 50", `decimal("0.5")`: "float 35"} {
		if got := of(t, must(t, "quantile(x, "+q+")", Options{}), values...); got != want {
			t.Errorf("the quantile %s is %s, want %s", q, got, want)
		}
	}
}

func TestFunctionsThatCannotBeAreRefusedAtTheirCall(t *testing.T) {
	for _, c := range []struct{ text, at, want string }{
		{"1 + quantile(x, 99)", "quantile(x, 99)", "the share q of quantile() is a number from 0 to 1; the percentile 99 is written 0.99"},
		{"quantile(x, -0.5)", "quantile(x, -0.5)", "the share q of quantile() is a number from 0 to 1; 0.99 is the 99th percentile"},
		{"quantile(x, y)", "quantile(x, y)", "the share q of quantile() is the same for all records; write a number, as in quantile(x, 0.99)"},
		{"quantile(x)", "quantile(x)", "quantile() does not take these arguments; it is quantile(x number, q number) float|null"},
	} {
		_, err := compile(c.text, Options{})
		var e *expr.Error
		if !errors.As(err, &e) || e.Error() != c.want || c.text[e.Offset:e.Offset+e.Length] != c.at {
			t.Errorf("%s: got %v", c.text, err)
		}
	}
	for _, call := range []string{"first(x)", "last(x)", "arg_min(x, y)", "arg_max(x, y)", "collect(x)", "approx_distinct(x)"} {
		name, _, _ := strings.Cut(call, "(")
		_, err := compile(call, Options{Updating: true})
		want := name + "() cannot take records back, and the input is an updating stream; those that can are count, sum, avg, min, max, stddev, count_distinct, quantile"
		if err == nil || err.Error() != want {
			t.Errorf("%s over an updating stream: got %v", call, err)
		}
		if f := must(t, call, Options{}); f.Retracts() {
			t.Errorf("%s says that it takes records back", call)
		} else if _, err := f.Retract(nil, new(row).input()); err == nil {
			t.Errorf("%s takes a record back", call)
		}
	}
}

func TestValuesThatCannotBeCountedAreRefusedAndLeaveTheStateAsItWas(t *testing.T) {
	long := dec("1." + strings.Repeat("1", 40))
	for _, c := range []struct {
		call string
		v    connectors.Value
		want string
	}{
		{"sum(x)", long, "sum() takes numbers of up to 38 digits, and this one is longer; use sum(float(…))"},
		{"avg(x)", dec("1e400"), "avg() takes numbers of up to 38 digits, and this one is longer; use avg(float(…))"},
		{"sum(x)", text("a"), "sum() does not take string here"},
		{"min(x)", dec("1e99999"), "min() was given a number too long or too large to compare"},
		{"min(x)", connectors.BoolValue(true), "min() does not take bool here"},
		{"arg_min(x, x)", connectors.BoolValue(true), "arg_min() does not take bool here"},
		{"quantile(x, 0.5)", dec("1e400"), "quantile() was given a number beyond what a float can hold"},
		{"stddev(x)", dec("1e400"), "stddev() was given a number beyond what a float can hold"},
		{"collect(x)", float(math.NaN()), "collect() makes JSON, and NaN and infinity cannot be written as JSON"},
	} {
		f := must(t, c.call, Options{})
		b := add(t, f, empty(f), rows(integer(3), integer(4)))
		before := hexed(b)
		r := rows(c.v)[0]
		r.values[1] = c.v
		after, err := f.Add(b, r.input())
		var e *expr.EvalError
		if !errors.As(err, &e) || e.Reason != c.want || e.Kind == "" {
			t.Errorf("%s: got %v, want %s", c.call, err, c.want)
		}
		if hexed(after) != before {
			t.Errorf("%s: the state changed", c.call)
		}
	}
}

func TestListsAreBounded(t *testing.T) {
	f := must(t, "collect(x)", Options{})
	v := text(strings.Repeat("x", 100_000))
	b := add(t, f, nil, rows(v, v, v, v, v, v, v, v, v, v))
	after, err := f.Add(b, rows(v)[0].input())
	if err == nil || !strings.Contains(err.Error(), "at most 1024 KiB") || len(after) != len(b) {
		t.Errorf("got %v and %d bytes", err, len(after))
	}
	if _, err := f.Merge(b, b); err == nil {
		t.Error("more are merged than fit")
	}
}

func TestWhatIsNoNumberCanBeTakenBack(t *testing.T) {
	odd := rows(float(math.Inf(1)), float(math.NaN()), float(math.Inf(-1)))
	for call, want := range map[string]string{"sum(x)": "float 4", "avg(x)": "float 2", "stddev(x)": "float 0.7071067811865476", "max(x)": "float 2.5", "quantile(x, 1)": "float 2.5155279503105588"} {
		f := must(t, call, Options{Updating: true})
		b := add(t, f, empty(f), rows(float(1.5), float(2.5)))
		b = add(t, f, b, odd)
		if got := result(f, b); got != "float NaN" {
			t.Errorf("%s with NaN gives %s", call, got)
		}
		if got := result(f, retract(t, f, b, odd)); got != want {
			t.Errorf("%s without NaN gives %s, want %s", call, got, want)
		}
	}
}

func TestTypesOfResultsAreKnown(t *testing.T) {
	nullable := intType | expr.Of(connectors.Null)
	for _, c := range []struct {
		call string
		in   expr.Type
		want string
	}{
		{"count()", 0, "int"}, {"count(x > 3)", intType, "int"},
		{"sum(x)", intType, "int"}, {"sum(x)", nullable, "int or null"}, {"sum_if(x, x > 3)", intType, "int or null"},
		{"sum(x)", intType | decType, "int or decimal"}, {"sum(x)", 0, "number, duration or null"},
		{"avg(x)", intType, "float"}, {"avg(x)", decType, "decimal"}, {"avg(x)", intType | decType, "float or decimal"},
		{"min(x)", expr.Text, "string"}, {"max(x)", nullable, "int or null"}, {"first(x)", expr.Bool, "bool"},
		{"arg_min(x, y)", expr.Bool, "bool or null"}, {"collect(x)", nullable, "list"},
		{"count_distinct(x)", expr.Any, "int"}, {"approx_distinct(x)", expr.Any, "int"},
		{"quantile(x, 0.5)", intType, "float"}, {"stddev(x)", intType, "float or null"},
	} {
		if got := must(t, c.call, Options{}, c.in).Type().String(); got != c.want {
			t.Errorf("%s over %s gives %s, want %s", c.call, c.in, got, c.want)
		}
	}
}
