package transform_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// parts are the single faults of a joined error.
func parts(err error) (out []string) {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range list.Unwrap() {
			out = append(out, parts(one)...)
		}
		return out
	}
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

// mention checks that each fault is there once, by a part of its text.
func mention(t *testing.T, got []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(g string) bool { return !strings.Contains(g, w) })); n != 1 {
			t.Errorf("%q is mentioned %d times in\n%s", w, n, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d faults, not %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

func TestFaultsOfAWindowComeTogetherWithTheirKeys(t *testing.T) {
	for name, c := range map[string]struct {
		form any
		want []string
	}{
		"no map":          {"10s", []string{"a window is a kind with its size"}},
		"nothing":         {map[string]any{}, []string{"the kind of window is missing"}},
		"unknown kind":    {map[string]any{"tumblin": "10s"}, []string{`tumblin: a window has no such key (did you mean "tumbling"?)`}},
		"kind elsewhere":  {map[string]any{"hop": "10s"}, []string{`hop: a window has no such key (did you mean "sliding"?)`}},
		"key elsewhere":   {map[string]any{"sliding": map[string]any{"size": "1m", "slide": "1h"}}, []string{`sliding.slide: there is no such key (did you mean "every"?)`, "sliding.every: it must be how often"}},
		"two kinds":       {map[string]any{"tumbling": "10s", "count": int64(1)}, []string{"a window is of one kind, and these are count and tumbling"}},
		"no size":         {map[string]any{"tumbling": "0s"}, []string{"tumbling: it must be above zero"}},
		"part of a ms":    {map[string]any{"tumbling": "1500us"}, []string{"tumbling: it must be in whole milliseconds"}},
		"unknown unit":    {map[string]any{"tumbling": "days"}, []string{`tumbling: there is no unit "days" (did you mean "day"?)`}},
		"a number":        {map[string]any{"tumbling": int64(10)}, []string{"tumbling: it must be a duration such as 10s, or one of hour, day, week, month"}},
		"offset":          {map[string]any{"tumbling": "10s", "offset": "10s"}, []string{"offset: it must be less than 10s"}},
		"offset of a day": {map[string]any{"tumbling": "day", "offset": "-24h"}, []string{"offset: it must be less than 24h"}},
		"zone":            {map[string]any{"tumbling": "10s", "zone": "Europe/Berlin", "time": "wall"}, []string{"zone: only windows by the calendar", "time: it cannot be wall"}},
		"unknown zone":    {map[string]any{"tumbling": "day", "zone": "Europe/Berln", "offset": "x"}, []string{"zone: Europe/Berln is no time zone", "offset: it must be a duration"}},
		"local zone":      {map[string]any{"tumbling": "day", "zone": "Local"}, []string{"zone: Local is no time zone"}},
		"sliding":         {map[string]any{"sliding": map[string]any{"size": "1m", "evry": "1h"}}, []string{`sliding.evry: there is no such key (did you mean "every"?)`, "sliding.every: it must be how often"}},
		"gaps":            {map[string]any{"sliding": map[string]any{"size": "1m", "every": "1h"}}, []string{"sliding.every: it is longer than the size"}},
		"too many panes":  {map[string]any{"sliding": map[string]any{"size": "1h", "every": "59999ms"}}, []string{"sliding: a window would consist of 3600000 panes of 1ms"}},
		"sliding text":    {map[string]any{"sliding": "1h"}, []string{"sliding: it takes keys with values"}},
		"session":         {map[string]any{"session": map[string]any{"gap": "10m", "max": "5m"}, "offset": "1s"}, []string{"session.max: it is shorter than the gap"}},
		"session offset":  {map[string]any{"session": map[string]any{"gap": "10m"}, "offset": "1s"}, []string{"offset: only tumbling and sliding windows"}},
		"no gap":          {map[string]any{"session": map[string]any{}}, []string{"session.gap: it must be the time without a record"}},
		"count":           {map[string]any{"count": int64(0), "time": "event"}, []string{"count: it must be a number of records from 1", "time: a window of a number of records"}},
	} {
		t.Run(name, func(t *testing.T) {
			var w transform.Window
			mention(t, parts(w.UnmarshalConfig(c.form)), c.want...)
		})
	}
}

func TestAWindowIsWrittenAsItIsRead(t *testing.T) {
	for want, form := range map[string]map[string]any{
		"{tumbling: 10s, offset: 3s}":                             {"tumbling": "10s", "offset": "-7s"},
		"{tumbling: week, zone: Europe/Berlin, offset: -24h0m0s}": {"tumbling": "week", "zone": "Europe/Berlin", "offset": "-1d"},
		"{sliding: {size: 1h0m0s, every: 1m0s}}":                  {"sliding": map[string]any{"size": "1h", "every": "1m"}},
		"{session: {gap: 10m0s, max: 2h0m0s}, time: processing}":  {"session": map[string]any{"gap": "10m", "max": "2h"}, "time": "processing"},
		"{count: 5}": {"count": int64(5)},
	} {
		var w transform.Window
		if err := w.UnmarshalConfig(form); err != nil || w.String() != want {
			t.Errorf("%v is %s, %v", form, w.String(), err)
		}
	}
}

func TestFaultsOfAnAggregateComeTogetherWithTheirKeys(t *testing.T) {
	sliding, day := map[string]any{"sliding": map[string]any{"size": "2s", "every": "1s"}}, map[string]any{"tumbling": "day"}
	session, count := map[string]any{"session": map[string]any{"gap": "2s"}}, map[string]any{"count": int64(2)}
	hour := transform.TTL{Span: time.Hour}
	for name, c := range map[string]struct {
		window map[string]any
		change func(c *transform.AggregateConfig)
		opts   transformtest.Options
		want   []string
	}{
		"names": {day, func(c *transform.AggregateConfig) {
			c.By = append(by("k"), assign("window_end", "1")...)
			c.Select = assign("k", "count()", "window_start", "count()", "n", "count()", "n", "count()")
		}, transformtest.Options{}, []string{"by.window_end: the result has a field", "select.k: the result has a field of that name from by", "select.window_start: the result has", "select.n: it is there twice"}},
		"nothing selected":           {day, func(c *transform.AggregateConfig) { c.Select = nil }, transformtest.Options{}, []string{"select: there is no field in it"}},
		"sliding changes":            {sliding, func(c *transform.AggregateConfig) { c.Emit = emit(t, "on_change") }, transformtest.Options{}, []string{"emit: a sliding window gives each result once"}},
		"session changes":            {session, func(c *transform.AggregateConfig) { c.Emit = emit(t, map[string]any{"every": "1s"}) }, transformtest.Options{}, []string{"emit: a session gives its result once"}},
		"count changes and lateness": {count, func(c *transform.AggregateConfig) { c.Emit, c.Lateness = emit(t, "on_change"), 1 }, transformtest.Options{}, []string{"emit: a window of a number of records", "lateness: only windows by the time of records"}},
		"negative lateness":          {nil, func(c *transform.AggregateConfig) { c.Lateness = -1 }, transformtest.Options{}, []string{"lateness: it cannot be negative"}},
		"ttl of a window":            {day, func(c *transform.AggregateConfig) { c.TTL = hour }, transformtest.Options{}, []string{"ttl: the state of a window goes when"}},
		"window over updates":        {day, func(c *transform.AggregateConfig) {}, transformtest.Options{Updating: map[int][]string{0: {"k"}}}, []string{"[window]: the input is an updating stream"}},
		"functions over updates": {nil, func(c *transform.AggregateConfig) { c.Select = assign("a", "first(v) + sum(v)", "b", "collect(v)") },
			transformtest.Options{Updating: map[int][]string{0: {"k"}}}, []string{"[select a]: first() cannot take records back", "[select b]: collect() cannot take records back"}},
		"offsets over updates": {nil, func(c *transform.AggregateConfig) {
			c.Select = assign("a", "sum(meta.offset)", "b", "count(meta.offset > 1)")
		},
			transformtest.Options{Updating: map[int][]string{0: {"k"}}}, []string{"[select a]: ", "[select b]: "}},
		"expressions": {nil, func(c *transform.AggregateConfig) {
			c.By, c.Select, c.Having = assign2(), assign("a", "cont()", "b", "v + 1"), connectors.Expr{Text: "c > 1"}
		}, transformtest.Options{}, []string{"[by k]: ", "[select a]: ", "[select b]: `v` stands outside of an aggregate function", `[having]: unknown field "c"`}},
		"having of no bool":      {nil, func(c *transform.AggregateConfig) { c.Having = connectors.Expr{Text: "n + 1"} }, transformtest.Options{}, []string{"[having]: "}},
		"having of this":         {nil, func(c *transform.AggregateConfig) { c.Having = connectors.Expr{Text: `len(this) > 1`} }, transformtest.Options{}, []string{"[having]: `this` is not there yet"}},
		"the clock in an update": {nil, func(c *transform.AggregateConfig) { c.Select = assign("n", "unix_ms(now()) + count()") }, transformtest.Options{}, []string{"[select n]: "}},
	} {
		t.Run(name, func(t *testing.T) {
			config := counted(t, c.window)
			c.change(config)
			got := transformtest.Faults("aggregate", config, c.opts)
			if err := config.Validate(); err != nil {
				got = append(got[1:], parts(err)...)
			}
			mention(t, got, c.want...)
		})
	}
}

func assign2() connectors.Keys { return connectors.Keys(assign("k", "now()")) }

func TestTheDefinitionIsWhatTheStateHangsOn(t *testing.T) {
	define := func(change func(c *transform.AggregateConfig)) string {
		c := counted(t, map[string]any{"tumbling": "10s"}, "s", "sum(v) / count()")
		change(c)
		var step transform.KeyedStep
		spec, _ := transform.Lookup("aggregate")
		env := transform.NewKeyedEnv("x", []*transform.View{transform.NewView(transform.NewBase())}, transform.NewView(transform.NewBase()))
		env.Fault = func(_ []string, err error) { t.Fatal(err) }
		env.Reads = func(string) bool { return false }
		if step = spec.BuildKeyed(c, env); step == nil {
			t.Fatal(errors.New("no step"))
		}
		return step.(interface{ Definition() string }).Definition()
	}
	same := define(func(*transform.AggregateConfig) {})
	for name, change := range map[string]func(c *transform.AggregateConfig){
		"an outer expression": func(c *transform.AggregateConfig) { c.Select[1].Expr.Text = "sum(v) + count()" },
		"a name":              func(c *transform.AggregateConfig) { c.Select[1].Name = "other" },
		"having":              func(c *transform.AggregateConfig) { c.Having = connectors.Expr{Text: "n > 1"} },
		"the lateness":        func(c *transform.AggregateConfig) { c.Lateness = 1e9 },
	} {
		if define(change) != same {
			t.Errorf("%s changes the definition: %s", name, define(change))
		}
	}
	for name, change := range map[string]func(c *transform.AggregateConfig){
		"a key":                func(c *transform.AggregateConfig) { c.By = by("v") },
		"the window":           func(c *transform.AggregateConfig) { setWindow(t, c, map[string]any{"tumbling": "11s"}) },
		"a function":           func(c *transform.AggregateConfig) { c.Select[1].Expr.Text = "max(v) / count()" },
		"an argument":          func(c *transform.AggregateConfig) { c.Select[1].Expr.Text = "sum(w) / count()" },
		"updates out of it":    func(c *transform.AggregateConfig) { c.Emit = emit(t, "on_change") },
		"a function's removal": func(c *transform.AggregateConfig) { c.Select = c.Select[:1] },
	} {
		if define(change) == same {
			t.Errorf("%s does not change the definition: %s", name, same)
		}
	}
}
