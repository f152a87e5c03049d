package transform_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// shown is what can be told of a step's state by the layout alone: table, window, key
// and value of each entry.
func shown(t testing.TB, kind string, k *transformtest.Keyed) (out []string) {
	t.Helper()
	k.Restart() // its barrier has everything go to the store
	view := transform.ViewState(kind, k.Layout())
	k.Store().(*statetest.Model).Entries(func(e state.Entry) {
		s := view.Show(&e)
		if s.Value == nil || !json.Valid(s.Value) || !json.Valid(s.Key) {
			t.Errorf("%s %d: key %s, value %s: %s", e.Table, e.NS, s.Key, s.Value, s.Reason)
		}
		at := ""
		if s.Span != nil {
			at = fmt.Sprintf(" %s %d..%d", s.Span.What, s.Span.Start, s.Span.End)
		}
		out = append(out, fmt.Sprintf("%s%s %s %s", e.Table, at, s.Key, s.Value))
	})
	return out
}

// iso is how a time is shown.
func iso(ms int64) string {
	return `"` + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") + `"`
}

// with puts times into what is wanted: <5> is that of 5 ms.
func with(lines ...string) []string {
	for i, l := range lines {
		for {
			from := strings.IndexByte(l, '<')
			to := strings.IndexByte(l, '>')
			if from < 0 || to < from {
				break
			}
			var ms int64
			if _, err := fmt.Sscan(l[from+1:to], &ms); err != nil {
				panic(err)
			}
			l = l[:from] + iso(ms) + l[to+1:]
		}
		lines[i] = l
	}
	return lines
}

func TestAnAggregatesStateIsShown(t *testing.T) {
	sums := []string{"s", "sum(v)", "low", "min(v)", "d", "count_distinct(v)", "q", "quantile(v, 0.5)"}
	for name, c := range map[string]struct {
		window any
		change func(c *transform.AggregateConfig)
		opts   transformtest.Options
		want   []string
	}{
		"without a window": {want: []string{
			`call-2 {"k":"a"} {"min(v)":1}`, `call-3 {"k":"a"} {"count_distinct(v)":2}`, `call-4 {"k":"a"} {"quantile(v, 0.5)":1}`,
			`groups {"k":"a"} {"rows":2,"newest":<12>,"count()":2,"sum(v)":3}`,
		}},
		"with a ttl": {change: func(c *transform.AggregateConfig) { c.TTL = transform.TTL{Span: time.Second} }, opts: transformtest.Options{Timestamped: true}, want: []string{
			`call-2 {"k":"a"} {"min(v)":1}`, `call-3 {"k":"a"} {"count_distinct(v)":2}`, `call-4 {"k":"a"} {"quantile(v, 0.5)":1}`,
			`groups {"k":"a"} {"rows":2,"newest":<12>,"touched":<12>,"expires":<1012>,"count()":2,"sum(v)":3}`,
			`timers {"k":"a"} {"timers":[<1005>]}`,
		}},
		"every so often": {change: func(c *transform.AggregateConfig) {
			c.Emit = transform.Emit{Mode: transform.EmitEvery, Every: time.Minute}
			c.Select = assign("n", "count()", "m", "count() + 1")
		}, want: []string{`dirty {"k":"a"} {"given":null}`, `groups {"k":"a"} {"rows":2,"newest":<12>,"count()":2}`}},
		"over updates": {opts: transformtest.Options{Updating: map[int][]string{0: {"k"}}}, change: func(c *transform.AggregateConfig) {
			c.Select = assign("n", "count()", "s", "sum(v)", "low", "min(v)", "d", "count_distinct(v)")
		}, want: []string{
			`call-1 {"k":"a"} {"sum(v)":3}`, `call-2 {"k":"a"} {"min(v)":1}`, `call-3 {"k":"a"} {"count_distinct(v)":2}`,
			`groups {"k":"a"} {"rows":2,"newest":<12>,"count()":2}`,
		}},
		"tumbling": {window: map[string]any{"tumbling": "10ms"}, want: []string{
			`call-2 window 0..10 {"k":"a"} {"min(v)":1}`, `call-2 window 10..20 {"k":"a"} {"min(v)":2}`,
			`call-3 window 0..10 {"k":"a"} {"count_distinct(v)":1}`, `call-3 window 10..20 {"k":"a"} {"count_distinct(v)":1}`,
			`call-4 window 0..10 {"k":"a"} {"quantile(v, 0.5)":1}`, `call-4 window 10..20 {"k":"a"} {"quantile(v, 0.5)":2}`,
			`groups window 0..10 {"k":"a"} {"count()":1,"sum(v)":1}`, `groups window 10..20 {"k":"a"} {"count()":1,"sum(v)":2}`,
		}},
		"by the calendar, as updates": {window: map[string]any{"tumbling": "day", "zone": "Europe/Berlin"}, change: func(c *transform.AggregateConfig) {
			c.Emit = transform.Emit{Mode: transform.EmitOnChange}
			c.Select = assign("n", "count()")
		}, want: []string{`groups window -3600000..82800000 {"k":"a"} {"rows":2,"newest":<0>,"count()":2}`}},
		"a count": {window: map[string]any{"count": int64(3)}, change: func(c *transform.AggregateConfig) { c.Select = assign("n", "count()") },
			want: []string{`groups {"k":"a"} {"rows":2,"newest":<12>,"count()":2}`}},
		"sessions": {window: map[string]any{"session": map[string]any{"gap": "5ms"}}, change: func(c *transform.AggregateConfig) {
			c.Select = assign("n", "count()", "d", "count_distinct(v)")
		}, want: []string{
			`call-1 {"k":"a"} {"session":<3>,"count_distinct(v)":1}`, `call-1 {"k":"a"} {"session":<12>,"count_distinct(v)":1}`,
			`groups {"k":"a"} {"timer":<9>,"sessions":[{"start":<3>,"end":<8>,"session":<3>,"count()":1},{"start":<12>,"end":<17>,"session":<12>,"count()":1}]}`,
			`timers {"k":"a"} {"timers":[<9>]}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var form map[string]any
			if c.window != nil {
				form = c.window.(map[string]any)
			}
			config := counted(t, form, sums...)
			if c.change != nil {
				c.change(config)
			}
			k := transformtest.NewKeyed(t, "aggregate", config, c.opts)
			k.Feed(0, at(3, 12)...)
			same(t, shown(t, "aggregate", k), with(c.want...)...)
		})
	}
}

func TestSlidingWindowsAreShownByTheirPanes(t *testing.T) {
	config := counted(t, map[string]any{"sliding": map[string]any{"size": "20ms", "every": "10ms"}}, "d", "count_distinct(v)")
	k := transformtest.NewKeyed(t, "aggregate", config, transformtest.Options{})
	k.Feed(0, at(3, 12, 13)...)
	same(t, shown(t, "aggregate", k), with(
		`call-1 pane 0..10 {"k":"a"} {"count_distinct(v)":1}`, `call-1 pane 10..20 {"k":"a"} {"count_distinct(v)":2}`,
		`groups pane 0..10 {"k":"a"} {"count()":1}`, `groups pane 10..20 {"k":"a"} {"count()":2}`)...)
	k.Watermark(20) // the windows that end at 10 and at 20 are over
	k.Feed(0, at(15)...)
	same(t, shown(t, "aggregate", k), with(
		`behind {"k":"a"} {"counts_from_window_ending":<30>,"panes":[{"pane_end":<20>,"count()":1,"count_distinct(v)":1}]}`,
		`call-1 pane 10..20 {"k":"a"} {"count_distinct(v)":2}`, `closed null {"closed_until":<20>}`,
		`rings {"k":"a"} {"pane_ends":[<20>],"count()":2}`)...)
}

func TestAJoinsStateIsShown(t *testing.T) {
	left := []transformtest.Row{{JSON: `{"id":1,"a":"x"}`, Time: 1000}}
	right := []transformtest.Row{{JSON: `{"id":1,"b":2.5}`, Time: 2000}, {JSON: `{"id":1,"b":3}`, Time: 4000, Offset: 1}}
	pick := assign("a", "left.a", "b", "right.b")
	for name, c := range map[string]struct {
		config transform.JoinConfig
		opts   transformtest.Options
		want   []string
	}{
		"plain": {config: transform.JoinConfig{Type: "left", TTL: transform.TTL{Span: time.Minute}, Select: pick}, opts: transformtest.Options{Timestamped: true}, want: []string{
			`left bucket 0..15000 {"id":1} {"rows":[{"time":<1000>,"expires":<61000>,"matches":2,"fields":{"a":"x"}}]}`,
			`right bucket 0..15000 {"id":1} {"rows":[{"time":<2000>,"expires":<62000>,"fields":{"b":2.5}},{"time":<4000>,"expires":<64000>,"fields":{"b":3}}]}`,
		}},
		"plain by processing time, with whole left records": {config: transform.JoinConfig{Type: "anti", TTL: transform.TTL{Span: time.Minute}}, want: []string{
			`left bucket 0..15000 {"id":1} {"rows":[{"time":<0>,"event_time":<1000>,"expires":<60000>,"matches":0,"record":{"topic":"t","partition":0,"offset":0,"time":<1000>,"value":{"id":1,"a":"x"}}}]}`,
		}},
		"within": {config: transform.JoinConfig{Type: "full", Within: &transform.JoinWithin{Before: connectors.TimeSpan(time.Second), After: connectors.TimeSpan(2 * time.Second)}, Select: pick}, want: []string{
			`left bucket 750..1500 {"id":1} {"timer":<3000>,"rows":[{"time":<1000>,"expires":<3000>,"matches":1,"fields":{"a":"x"}}]}`,
			`right bucket 1500..2250 {"id":1} {"timer":null,"rows":[{"time":<2000>,"expires":<3000>,"matches":1,"fields":{"b":2.5}}]}`,
			`right bucket 3750..4500 {"id":1} {"timer":<5000>,"rows":[{"time":<4000>,"expires":<5000>,"matches":0,"fields":{"b":3}}]}`,
			`timers {"id":1} {"timers":[<3000>]}`, `timers {"id":1} {"timers":[<5000>]}`,
		}},
		"windows": {config: transform.JoinConfig{Type: "inner", Window: transform.Window{Kind: transform.TumblingWindow, Size: 3000}, Select: pick}, want: []string{
			`left window 0..3000 {"id":1} {"rows":[{"fields":{"a":"x"}}]}`,
			`right window 0..3000 {"id":1} {"rows":[{"fields":{"b":2.5}}]}`, `right window 3000..6000 {"id":1} {"rows":[{"fields":{"b":3}}]}`,
		}},
		"sliding windows": {config: transform.JoinConfig{Type: "inner", Window: transform.Window{Kind: transform.SlidingWindow, Size: 2000, Every: 1500}, Select: assign("a", "left.a")}, want: []string{
			`left window 0..2000 {"id":1} {"rows":[{"fields":{"a":"x"}}]}`,
			`right window 1500..3500 {"id":1} {"rows":[{"fields":{}}]}`, `right window 3000..5000 {"id":1} {"rows":[{"fields":{}}]}`,
		}},
		"sessions": {config: transform.JoinConfig{Type: "inner", Window: transform.Window{Kind: transform.SessionWindow, Gap: 1500}, Select: pick}, want: []string{
			`left {"id":1} {"rows":[{"time":<1000>,"fields":{"a":"x"}}]}`,
			`right {"id":1} {"rows":[{"time":<2000>,"fields":{"b":2.5}},{"time":<4000>,"fields":{"b":3}}]}`,
			`spans {"id":1} {"timer":<2501>,"sessions":[{"start":<1000>,"end":<3500>},{"start":<4000>,"end":<5500>}]}`,
			`timers {"id":1} {"timers":[<2501>]}`,
		}},
		"latest": {config: transform.JoinConfig{Type: "inner", Latest: true, TTL: transform.TTL{Span: time.Minute}, Select: pick}, want: []string{
			`timers {"id":1} {"timers":[<4096>]}`, `timers {"id":1} {"timers":[<63750>]}`,
			`versions {"id":1} {"versions":[{"from":<2000>,"time":<2000>,"expires":<62000>,"fields":{"b":2.5}},{"from":<4000>,"time":<4000>,"expires":<64000>,"fields":{"b":3}}]}`,
			`waiting bucket 896..1024 {"id":1} {"rows":[{"time":<1000>,"fields":{"a":"x"}}]}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.On = connectors.Expr{Text: "left.id == right.id"}
			k := transformtest.NewKeyed(t, "join", &c.config, c.opts)
			k.Feed(0, left...)
			if c.config.Type != "anti" {
				k.Feed(1, right...)
			}
			same(t, shown(t, "join", k), with(c.want...)...)
		})
	}
}

func TestADedupsStateIsShown(t *testing.T) {
	forever := &transform.DedupConfig{By: by("id"), Keep: "first"}
	k := transformtest.NewKeyed(t, "dedup", forever, transformtest.Options{})
	k.Feed(0, rows(t, `{"id":"x"}`, `{"id":[1,2]}`)...)
	same(t, shown(t, "dedup", k), `kept {"id":"x"} {}`, `kept {"id":[1,2]} {}`)

	within := &transform.DedupConfig{By: by("id"), Keep: "first", Within: transform.TTL{Span: 100 * time.Millisecond}}
	k = transformtest.NewKeyed(t, "dedup", within, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":"x","t":5}`)...)
	same(t, shown(t, "dedup", k), with(`kept {"id":"x"} {"records":[{"seen":<5>,"expires":<105>}]}`, `timers {"id":"x"} {"timers":[<105>]}`)...)

	last := &transform.DedupConfig{By: by("id"), Keep: "last", Emit: transform.Emit{Mode: transform.EmitEvery, Every: time.Minute}}
	k = transformtest.NewKeyed(t, "dedup", last, transformtest.Options{Timestamped: true})
	k.Feed(0, transformtest.Row{JSON: `{"id":"x"}`, Time: 5, Key: "k", Headers: []connectors.Header{{Key: "h", Value: []byte("1")}}})
	record := `{"topic":"t","partition":0,"offset":0,"time":<5>,"key":"k","headers":[{"h":"1"}],"value":{"id":"x"}}`
	same(t, shown(t, "dedup", k), with(`dirty {"id":"x"} {"changed":true}`, `kept {"id":"x"} {"records":[{"first_seen":<5>,"last":`+record+`}]}`)...)
}

func TestATopsStateIsShown(t *testing.T) {
	record := func(json string, offset, t int) string {
		return fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"time":<%d>,"value":%s}`, offset, t, json)
	}
	c := &transform.TopConfig{By: by("a"), N: 2, Order: descending("p"), Ties: "cut", Window: transform.Window{Kind: transform.TumblingWindow, Size: 10, Zone: time.UTC}}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"a":1,"p":5,"t":3}`, `{"a":1,"p":7,"t":4}`)...)
	same(t, shown(t, "top", k), with(`rows window 0..10 {"a":1} {"rows":[{"order":{"p":7},"record":`+record(`{"a":1,"p":7,"t":4}`, 1, 4)+`},{"order":{"p":5},"record":`+record(`{"a":1,"p":5,"t":3}`, 0, 3)+`}]}`)...)

	c = &transform.TopConfig{N: 1, Order: descending("p"), Ties: "cut", Emit: transform.Emit{Mode: transform.EmitEvery, Every: time.Minute}}
	k = transformtest.NewKeyed(t, "top", c, transformtest.Options{Updating: map[int][]string{0: {"id"}}})
	var many []transformtest.Row
	for i := range 300 { // more than one chunk
		many = append(many, transformtest.Row{JSON: fmt.Sprintf(`{"id":%d,"p":1}`, i)})
	}
	k.Feed(0, many...)
	list := shown(t, "top", k)
	if len(list) != 4 || list[0] != `dirty {} {"given":[]}` || list[1] != `rows {} {"parts":2}` || strings.Count(list[2]+list[3], `"record"`) != 300 {
		t.Errorf("%.300q", list)
	}
}

func TestAReducesStateIsShown(t *testing.T) {
	c := &transform.ReduceConfig{By: by("k"), Init: assign("total", "0", "list", "[]"), Update: assign("total", "state.total + v"),
		TTL: transform.TTL{Span: time.Second}, Emit: transform.Emit{Mode: transform.EmitEvery, Every: time.Minute}}
	k := transformtest.NewKeyed(t, "reduce", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"k":"a","v":2,"t":5}`, `{"k":"a","v":3,"t":7}`)...)
	same(t, shown(t, "reduce", k), with(`dirty {"k":"a"} {"changed":true}`,
		`state {"k":"a"} {"state":{"total":5,"list":[]},"newest":<7>,"touched":<7>,"expires":<1007>}`, `timers {"k":"a"} {"timers":[<1005>]}`)...)
}

// Where the checkpoint says nothing of how a step keeps its state, the keys are shown all
// the same, and the reason why values are not.
func TestStateWithoutALayoutIsShownByItsKeys(t *testing.T) {
	e := state.Entry{Table: "groups", Key: state.MakeKey(state.AppendKey(state.AppendKey(nil, connectors.IntValue(5)), connectors.NullValue()), 128), Value: []byte{1}}
	for _, v := range []*transform.StateView{transform.ViewState("aggregate", nil), transform.ViewState("aggregate", []byte(`{"calls":3}`)),
		transform.ViewState("other", []byte(`{}`)), transform.ViewState("aggregate", []byte(`{"calls":[{"text":"count()","form":{"name":"count"},"size":9}]}`))} {
		if s := v.Show(&e); string(s.Key) != "[5,null]" || s.Value != nil || s.Reason == "" {
			t.Errorf("%s %s %q", s.Key, s.Value, s.Reason)
		}
	}
}

// FuzzShow gives the readers of all steps state and layouts that nobody wrote: they may
// refuse them, and must neither panic nor make what is no JSON.
func FuzzShow(f *testing.F) {
	add := func(kind string, k *transformtest.Keyed) {
		k.Restart()
		k.Store().(*statetest.Model).Entries(func(e state.Entry) {
			f.Add(kind, k.Layout(), e.Table, e.NS, e.Key.Bytes, e.Value)
		})
	}
	for _, window := range []map[string]any{nil, {"tumbling": "10ms"}, {"tumbling": "month", "zone": "Europe/Berlin"},
		{"session": map[string]any{"gap": "5ms"}}, {"sliding": map[string]any{"size": "20ms", "every": "10ms"}}} {
		c := counted(f, window, "d", "count_distinct(v)", "s", "sum(v)", "low", "min(v)", "q", "quantile(v, 0.5)", "x", "stddev(v)", "l", "last(v)", "c", "collect(v)")
		k := transformtest.NewKeyed(f, "aggregate", c, transformtest.Options{})
		k.Feed(0, at(3, 12, 13)...)
		add("aggregate", k)
		k.Watermark(20)
		k.Feed(0, at(15)...)
		add("aggregate", k)
	}
	for _, c := range []*transform.JoinConfig{{Type: "full", TTL: transform.TTL{Span: time.Minute}}, {Type: "semi", TTL: transform.TTL{Span: time.Minute}},
		{Type: "inner", Latest: true, TTL: transform.TTL{Forever: true}}, {Type: "inner", Window: transform.Window{Kind: transform.SessionWindow, Gap: 1500}},
		{Type: "inner", Window: transform.Window{Kind: transform.TumblingWindow, Size: 3000}}} {
		c.On = connectors.Expr{Text: "left.id == right.id"}
		k := transformtest.NewKeyed(f, "join", c, transformtest.Options{Timestamped: true})
		k.Feed(0, transformtest.Row{JSON: `{"id":1,"a":"x"}`, Time: 1000})
		k.Feed(1, transformtest.Row{JSON: `{"id":1,"b":2.5}`, Time: 2000})
		add("join", k)
	}
	dedup := transformtest.NewKeyed(f, "dedup", &transform.DedupConfig{By: by("id"), Keep: "last"}, transformtest.Options{})
	dedup.Feed(0, transformtest.Row{JSON: `{"id":1}`, Time: 5, Key: "k", Headers: []connectors.Header{{Key: "h"}}})
	add("dedup", dedup)
	top := transformtest.NewKeyed(f, "top", &transform.TopConfig{N: 2, Order: descending("p")}, transformtest.Options{Updating: map[int][]string{0: nil}})
	top.Feed(0, transformtest.Row{JSON: `{"p":1}`})
	add("top", top)
	reduce := transformtest.NewKeyed(f, "reduce", &transform.ReduceConfig{By: by("k"), Init: assign("n", "0.5"), Update: assign("n", "state.n + 1")}, transformtest.Options{})
	reduce.Feed(0, transformtest.Row{JSON: `{"k":1}`})
	add("reduce", reduce)
	f.Fuzz(func(t *testing.T, kind string, layout []byte, table string, ns int64, key, value []byte) {
		view := transform.ViewState(kind, layout)
		for _, table := range []string{table, "groups", "left", "timers"} {
			s := view.Show(&state.Entry{Table: table, NS: ns, Key: state.MakeKey(key, 128), Value: value})
			if !json.Valid(s.Key) || s.Value != nil && !json.Valid(s.Value) || s.Value == nil && s.Reason == "" {
				t.Errorf("%s %s: key %q, value %q, reason %q", kind, table, s.Key, s.Value, s.Reason)
			}
		}
	})
}
