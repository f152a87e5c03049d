package transform_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/schema"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

const left, right = 0, 1

// joining is a join of two inputs by k.
func joining(kind string, change func(c *transform.JoinConfig)) *transform.JoinConfig {
	c := &transform.JoinConfig{Left: "a", Right: "b", On: connectors.Expr{Text: "left.k == right.k"}, Type: kind}
	if kind != "semi" && kind != "anti" {
		c.Select = assign("l", "left.v", "r", "right.v")
	}
	change(c)
	return c
}

func within(before, after time.Duration) func(*transform.JoinConfig) {
	return func(c *transform.JoinConfig) {
		c.Within = &transform.JoinWithin{Before: connectors.TimeSpan(before), After: connectors.TimeSpan(after)}
	}
}

func latest(c *transform.JoinConfig) { c.Latest = true }

func forever(c *transform.JoinConfig) { c.TTL.Forever = true }

func row(json string, time int64) transformtest.Row { return transformtest.Row{JSON: json, Time: time} }

func mustBeEmpty(t *testing.T, k *transformtest.Keyed) {
	t.Helper()
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries of state are left", n)
	}
}

func TestAnIntervalJoinIncludesBothBounds(t *testing.T) {
	k := transformtest.NewKeyed(t, "join", joining("inner", within(10*time.Millisecond, 5*time.Millisecond)), transformtest.Options{})
	k.Feed(right, row(`{"k":1,"v":89}`, 89), row(`{"k":1,"v":90}`, 90), row(`{"k":1.0,"v":100}`, 100))
	k.Feed(left, row(`{"k":1,"v":"l"}`, 100))
	k.Feed(right, row(`{"k":1,"v":105}`, 105), row(`{"k":1,"v":106}`, 106), row(`{"k":"1","v":"text"}`, 100), row(`{"v":"null"}`, 100))
	k.Feed(left, row(`{"k":null,"v":"null"}`, 100))
	same(t, k.TakeJSON(), `{"l":"l","r":90}`, `{"l":"l","r":100}`, `{"l":"l","r":105}`)
	k.Watermark(1000)
	same(t, k.TakeJSON())
	mustBeEmpty(t, k)
}

func TestAnIntervalJoinGivesUnmatchedRowsOnceNoMatchCanCome(t *testing.T) {
	k := transformtest.NewKeyed(t, "join", joining("full", within(10*time.Millisecond, 5*time.Millisecond)), transformtest.Options{})
	k.Feed(left, row(`{"k":1,"v":"a"}`, 100), row(`{"k":2,"v":"b"}`, 100), row(`{"v":"null"}`, 100))
	k.Feed(right, row(`{"k":1,"v":"x"}`, 103), row(`{"k":3,"v":"y"}`, 103))
	same(t, k.TakeJSON(), `{"l":"null","r":null}`, `{"l":"a","r":"x"}`)
	k.Restart()
	k.Watermark(105)
	same(t, k.TakeJSON())
	k.Watermark(106)
	out := k.Take()
	if len(out) != 1 || out[0].JSON != `{"l":"b","r":null}` || out[0].Time != 105 {
		t.Errorf("out %v", out)
	}
	k.Watermark(113)
	same(t, k.TakeJSON())
	k.Watermark(114)
	same(t, k.TakeJSON(), `{"l":null,"r":"y"}`)
	k.Watermark(10_000)
	same(t, k.TakeJSON())
	mustBeEmpty(t, k)
}

func TestWholeRecordsComeOutWithoutSelect(t *testing.T) {
	c := joining("left", forever)
	c.Select = nil
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(left, row(`{"k":1,"x":1.50}`, 5))
	k.Feed(right, row(`{"k":1,"y":[1]}`, 7))
	same(t, k.TakeJSON(), `{"left":{"k":1,"x":1.50},"right":null}`, `update_before {"left":{"k":1,"x":1.50},"right":null}`,
		`update_after {"left":{"k":1,"x":1.50},"right":{"k":1,"y":[1]}}`)
}

func TestSemiAndAntiJoinsGiveLeftRecordsAsTheyAre(t *testing.T) {
	for kind, want := range map[string][]string{"semi": {`{"k": 1,"v":"a"}`, `{"k":1,"v":"b"}`}, "anti": {`{"k":2}`, `{"v":"null"}`}} {
		for name, form := range map[string]func(*transform.JoinConfig){
			"within": within(time.Second, time.Second),
			"window": func(c *transform.JoinConfig) {
				c.Window = transform.Window{Kind: transform.TumblingWindow, Size: 1000}
			},
			"session": func(c *transform.JoinConfig) {
				c.Window = transform.Window{Kind: transform.SessionWindow, Gap: 500}
			},
			"plain": forever,
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				k := transformtest.NewKeyed(t, "join", joining(kind, form), transformtest.Options{})
				k.Feed(left, row(`{"k": 1,"v":"a"}`, 100), row(`{"k":2}`, 100), row(`{"v":"null"}`, 100))
				k.Feed(right, row(`{"k":1,"v":1}`, 150), row(`{"k":1,"v":2}`, 150), row(`{"k":3}`, 150))
				k.Feed(left, row(`{"k":1,"v":"b"}`, 200))
				k.Watermark(state.MaxTime)
				same(t, table(t, k.Take()), want...)
			})
		}
	}
}

// table applies a changelog, and gives what is left in order.
func table(t testing.TB, out []transformtest.Out) []string {
	t.Helper()
	m := multiset{}
	m.apply(t, out)
	return m.list()
}

func TestBoundsOfTheLeftRecordsOwn(t *testing.T) {
	c := joining("left", func(c *transform.JoinConfig) {
		c.Within = &transform.JoinWithin{From: connectors.Expr{Text: "left.meta.timestamp"}, To: connectors.Expr{Text: "left.to"}}
		c.TTL.Span = 5 * time.Millisecond
	})
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(right, row(`{"k":1,"v":99}`, 99), row(`{"k":1,"v":100}`, 100))
	k.Feed(left, row(`{"k":1,"v":"a","to":200}`, 100), row(`{"k":1,"v":"b","to":"1970-01-01T00:00:00.150Z"}`, 100), row(`{"k":1,"v":"c","to":90}`, 100))
	same(t, k.TakeJSON(), `{"l":"a","r":100}`, `{"l":"b","r":100}`)
	k.Feed(left, row(`{"k":1,"v":"d","to":null}`, 100), row(`{"k":1,"v":"e"}`, 100))
	if n := len(k.Failed()); n != 2 || !strings.Contains(k.Failed()[0].Reason, "left.to is null") {
		t.Errorf("failed %v", k.Failed())
	}
	k.Watermark(101)
	same(t, k.TakeJSON(), `{"l":"c","r":null}`)
	k.Watermark(160)
	k.Feed(right, row(`{"k":1,"v":160}`, 160), row(`{"k":1,"v":200}`, 200), row(`{"k":1,"v":201}`, 201))
	same(t, k.TakeJSON(), `{"l":"a","r":160}`, `{"l":"a","r":200}`)
	k.Watermark(1000)
	same(t, k.TakeJSON())
	mustBeEmpty(t, k)
}

func TestARangeThatReachesBackBehindTheTTLIsRefused(t *testing.T) {
	c := joining("inner", func(c *transform.JoinConfig) {
		c.Within = &transform.JoinWithin{From: connectors.Expr{Text: "left.from"}, To: connectors.Expr{Text: "left.from + 100"}}
	})
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(left, row(`{"k":1,"from":999}`, 1000), row(`{"k":1,"from":1000,"v":1}`, 1000))
	k.Feed(right, row(`{"k":1,"v":2}`, 1050))
	same(t, k.TakeJSON(), `{"l":1,"r":2}`)
	if len(k.Failed()) != 1 || !strings.Contains(k.Failed()[0].Reason, "the range begins 1ms before the record's own time, and right records are kept for 0s only: set ttl") {
		t.Errorf("failed %v", k.Failed())
	}
}

func TestALatestJoinTakesTheValueAsOfTheLeftRecordsTime(t *testing.T) {
	k := transformtest.NewKeyed(t, "join", joining("left", latest), transformtest.Options{})
	k.Feed(left, row(`{"k":1,"v":"at 30"}`, 30), row(`{"k":1,"v":"at 10"}`, 10), row(`{"k":1,"v":"at 5"}`, 5), row(`{"k":2,"v":"none"}`, 10))
	k.Feed(right, row(`{"k":1,"v":20}`, 20), row(`{"k":1,"v":10}`, 10))
	k.Watermark(10)
	same(t, k.TakeJSON(), `{"l":"at 5","r":null}`)
	k.Restart()
	k.Feed(right, transformtest.Row{JSON: `{"k":1,"v":11}`, Time: 10, Offset: 5})
	k.Watermark(31)
	same(t, sorted(k.TakeJSON()), `{"l":"at 10","r":11}`, `{"l":"at 30","r":20}`, `{"l":"none","r":null}`)
	k.Feed(left, row(`{"k":1,"v":"late"}`, 30), row(`{"k":1,"v":"on time"}`, 31))
	k.Feed(right, row(`{"k":1,"v":"superseded"}`, 15))
	k.Feed(right, transformtest.Row{JSON: `{"k":1,"v":20}`, Time: 40, Op: connectors.Delete})
	k.Feed(left, row(`{"k":1,"v":"ended"}`, 40))
	k.Watermark(50)
	same(t, k.TakeJSON(), `{"l":"on time","r":20}`, `{"l":"ended","r":null}`)
	if k.Late() != 2 {
		t.Errorf("late %d", k.Late())
	}
	k.Feed(right, row(`{"k":1,"v":"older than the end"}`, 16))
	k.Feed(left, row(`{"k":1,"v":"later"}`, 60))
	k.Watermark(5000)
	same(t, k.TakeJSON(), `{"l":"later","r":null}`)
	k.Watermark(2 * time.Hour.Milliseconds())
	mustBeEmpty(t, k)
}

func TestATombstoneEndsTheValueOfALatestJoin(t *testing.T) {
	c := joining("inner", latest)
	c.On.Text = "left.k == right.meta.key"
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(right, transformtest.Row{JSON: `{"v":1}`, Key: "a", Time: 10}, transformtest.Row{Key: "a", Time: 20}, transformtest.Row{JSON: `{"v":3}`, Key: "a", Time: 30})
	k.Feed(left, row(`{"k":"a","v":"x"}`, 15), row(`{"k":"a","v":"y"}`, 25), row(`{"k":"a","v":"z"}`, 35))
	k.Watermark(100)
	same(t, k.TakeJSON(), `{"l":"x","r":1}`, `{"l":"z","r":3}`)
}

func TestATombstoneWithoutAKeyIsLeftOut(t *testing.T) {
	k := transformtest.NewKeyed(t, "join", joining("inner", latest), transformtest.Options{Updating: map[int][]string{right: {"k"}}})
	k.Feed(right, transformtest.Row{Time: 5}, row(`{"k":1,"v":1}`, 10),
		transformtest.Row{JSON: `{"k":1,"v":1}`, Time: 10, Op: connectors.UpdateBefore}, transformtest.Row{JSON: `{"k":1,"v":2}`, Time: 20, Op: connectors.UpdateAfter})
	k.Feed(left, row(`{"k":1,"v":"x"}`, 15), row(`{"k":1,"v":"y"}`, 25), transformtest.Row{Time: 25})
	k.Watermark(100)
	same(t, k.TakeJSON(), `{"l":"x","r":1}`, `{"l":"y","r":2}`)
}

func TestALatestJoinForgetsKeysThatOutliveTheTTL(t *testing.T) {
	c := joining("left", latest)
	c.TTL.Span = 100 * time.Millisecond
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(right, row(`{"k":1,"v":1}`, 1000), row(`{"k":2,"v":2}`, 1000), row(`{"k":2,"v":3}`, 1090))
	k.Feed(left, row(`{"k":1,"v":"a"}`, 1100), row(`{"k":1,"v":"b"}`, 1101), row(`{"k":2,"v":"c"}`, 1101))
	k.Watermark(1150)
	same(t, sorted(k.TakeJSON()), `{"l":"a","r":1}`, `{"l":"b","r":null}`, `{"l":"c","r":3}`)
	k.Watermark(3000)
	mustBeEmpty(t, k)
}

func TestWindowJoinsPairWhatIsInTheSameWindow(t *testing.T) {
	for name, c := range map[string]struct {
		window transform.Window
		want   []string
	}{
		"tumbling": {transform.Window{Kind: transform.TumblingWindow, Size: 10}, []string{`{"l":"a","r":"x"}`, `{"l":"b","r":null}`, `{"l":null,"r":"y"}`}},
		"sliding": {transform.Window{Kind: transform.SlidingWindow, Size: 10, Every: 5}, []string{
			`{"l":"a","r":"x"}`, `{"l":"a","r":null}`, `{"l":"b","r":"x"}`, `{"l":"b","r":null}`, `{"l":null,"r":"y"}`, `{"l":null,"r":"y"}`}},
		"session": {transform.Window{Kind: transform.SessionWindow, Gap: 5}, []string{`{"l":"a","r":"x"}`, `{"l":"b","r":"x"}`, `{"l":null,"r":"y"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			k := transformtest.NewKeyed(t, "join", joining("full", func(j *transform.JoinConfig) { j.Window = c.window }), transformtest.Options{})
			k.Feed(left, row(`{"k":1,"v":"a"}`, 1))
			k.Feed(left, row(`{"k":1,"v":"b"}`, 11))
			k.Restart()
			k.Feed(right, row(`{"k":1,"v":"x"}`, 6), row(`{"k":1,"v":"y"}`, 30))
			k.Watermark(100)
			same(t, sorted(k.TakeJSON()), c.want...)
			mustBeEmpty(t, k)
			k.Feed(left, row(`{"k":1,"v":"late"}`, 80))
			k.Watermark(200)
			same(t, k.TakeJSON())
			if k.Late() != 1 {
				t.Errorf("late %d", k.Late())
			}
		})
	}
}

func TestResultsOfAWindowJoinReadItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		window transform.Window
		want   string
	}{
		"tumbling": {transform.Window{Kind: transform.TumblingWindow, Size: 10, Offset: 1}, `{"s":1,"n":10}`},
		"calendar": {transform.Window{Kind: transform.TumblingWindow, Unit: window.Day, Zone: time.UTC}, `{"s":0,"n":86400000}`},
		"sliding":  {transform.Window{Kind: transform.SlidingWindow, Size: 10, Every: 10}, `{"s":0,"n":10}`},
		"session":  {transform.Window{Kind: transform.SessionWindow, Gap: 7}, `{"s":3,"n":9}`},
	} {
		t.Run(name, func(t *testing.T) {
			config := joining("inner", func(j *transform.JoinConfig) {
				j.Window = c.window
				j.Select = assign("s", "window_start", "n", "window_end - window_start")
			})
			k := transformtest.NewKeyed(t, "join", config, transformtest.Options{})
			k.Feed(left, row(`{"k":1}`, 3))
			k.Feed(right, row(`{"k":1}`, 5))
			k.Watermark(state.MaxTime)
			same(t, k.TakeJSON(), c.want)
		})
	}
	c := joining("inner", func(j *transform.JoinConfig) { forever(j); j.Select = assign("s", "window_start") })
	if got := transformtest.Faults("join", c, transformtest.Options{}); len(got) == 0 || !strings.Contains(got[0], "`window_start` does not say of which record") {
		t.Errorf("faults %q", got)
	}
}

func TestAnUpdateOfARowIsAnUpdateOfItsPairs(t *testing.T) {
	k := transformtest.NewKeyed(t, "join", joining("left", forever), transformtest.Options{Updating: map[int][]string{right: {"id"}}})
	k.Feed(left, row(`{"k":1,"v":"a"}`, 1), row(`{"k":1,"v":"a"}`, 2))
	k.Feed(right, row(`{"k":1,"v":7}`, 3))
	k.Take()
	k.Feed(right, transformtest.Row{JSON: `{"k":1,"v":7}`, Op: connectors.UpdateBefore, Time: 9}, transformtest.Row{JSON: `{"k":1,"v":8}`, Op: connectors.UpdateAfter, Time: 9})
	same(t, k.TakeJSON(), `update_before {"l":"a","r":7}`, `update_after {"l":"a","r":8}`, `update_before {"l":"a","r":7}`, `update_after {"l":"a","r":8}`)
	k.Feed(right, transformtest.Row{JSON: `{"k":1.0,"v":8.0}`, Op: connectors.Delete, Time: 9})
	same(t, k.TakeJSON(), `update_before {"l":"a","r":8}`, `update_after {"l":"a","r":null}`, `update_before {"l":"a","r":8}`, `update_after {"l":"a","r":null}`)
	k.Feed(right, transformtest.Row{JSON: `{"k":1,"v":99}`, Op: connectors.Delete, Time: 9})
	same(t, k.TakeJSON())
	if k.Late() != 1 {
		t.Errorf("late %d", k.Late())
	}
}

func TestAPlainJoinForgetsByTheTTL(t *testing.T) {
	now := time.UnixMilli(0)
	for name, o := range map[string]transformtest.Options{
		"event time":      {Timestamped: true},
		"processing time": {Now: func() time.Time { return now }},
	} {
		t.Run(name, func(t *testing.T) {
			now = time.UnixMilli(1000)
			k := transformtest.NewKeyed(t, "join", joining("inner", func(c *transform.JoinConfig) { c.TTL.Span = time.Second }), o)
			k.Feed(left, row(`{"k":1,"v":"a"}`, 1000))
			now = time.UnixMilli(1999)
			k.Feed(right, row(`{"k":1,"v":"x"}`, 1999))
			now = time.UnixMilli(2001)
			k.Feed(right, row(`{"k":1,"v":"y"}`, 2001))
			same(t, k.TakeJSON(), `{"l":"a","r":"x"}`)
			now = time.UnixMilli(5000)
			k.Tick()
			k.Watermark(5000)
			mustBeEmpty(t, k)
		})
	}
}

func TestFurtherConditionsAreJudgedByPair(t *testing.T) {
	c := joining("left", within(time.Second, time.Second))
	c.On.Text = "left.k == right.k && right.v > left.v"
	c.Select = assign("l", "left.v", "r", "right.v", "d", "right.v == null ? -1 : right.v - left.v")
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	k.Feed(left, row(`{"k":1,"v":3}`, 1), row(`{"k":1,"v":9}`, 1))
	k.Feed(right, row(`{"k":1,"v":5}`, 2))
	same(t, k.TakeJSON(), `{"l":3,"r":5,"d":2}`)
	k.Feed(right, row(`{"k":1,"v":"text"}`, 2))
	if len(k.Failed()) != 2 || k.Failed()[0].Expr != c.On.Text {
		t.Errorf("failed %v", k.Failed())
	}
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"l":9,"r":null,"d":-1}`)
}

func TestAStreamIsJoinedWithItself(t *testing.T) {
	c := joining("inner", within(5*time.Millisecond, 0))
	c.On.Text = "left.k == right.k && left.v != right.v"
	k := transformtest.NewKeyed(t, "join", c, transformtest.Options{})
	all := []transformtest.Row{row(`{"k":1,"v":1}`, 1), row(`{"k":1,"v":2}`, 5), row(`{"k":1,"v":3}`, 10)}
	k.Feed(left, all...)
	k.Feed(right, all...)
	same(t, sorted(k.TakeJSON()), `{"l":2,"r":1}`, `{"l":3,"r":2}`)
}

func TestFaultsOfAJoin(t *testing.T) {
	for name, c := range map[string]struct {
		config  *transform.JoinConfig
		options transformtest.Options
		want    string
	}{
		"no form":       {config: joining("inner", func(*transform.JoinConfig) {}), want: "ttl: nothing says how long the records of both sides are kept"},
		"two forms":     {config: joining("inner", func(c *transform.JoinConfig) { latest(c); within(1, 1)(c) }), want: "latest: a join is of one form, and this one has within and latest"},
		"needless ttl":  {config: joining("inner", func(c *transform.JoinConfig) { within(time.Second, 0)(c); forever(c) }), want: "ttl: before and after say how long"},
		"count window":  {config: joining("inner", func(c *transform.JoinConfig) { c.Window = transform.Window{Kind: transform.CountWindow, Count: 1} }), want: "window: a window of a number of records"},
		"latest full":   {config: joining("full", latest), want: "type: a latest join is inner or left"},
		"empty bounds":  {config: joining("inner", within(time.Second, -2*time.Second)), want: "within: the bounds are the wrong way round"},
		"fine spans":    {config: joining("inner", within(time.Microsecond, 0)), want: "within.before: it must be in whole milliseconds"},
		"half a range":  {config: joining("inner", func(c *transform.JoinConfig) { c.Within = &transform.JoinWithin{From: connectors.Expr{Text: "left.a"}} }), want: "within.to: the latest time of the right record is missing"},
		"select of one": {config: joining("semi", func(c *transform.JoinConfig) { forever(c); c.Select = assign("x", "left.x") }), want: "select: a semi join gives the left record as it is"},
		"no key":        {config: joining("inner", func(c *transform.JoinConfig) { forever(c); c.On.Text = "left.a > right.a" }), want: "[on]: there is no equality"},
		"bad select":    {config: joining("inner", func(c *transform.JoinConfig) { forever(c); c.Select = assign("x", "y + 1") }), want: "[select x]: `y` does not say of which record"},
		"bad bound": {config: joining("inner", func(c *transform.JoinConfig) {
			c.Within = &transform.JoinWithin{From: connectors.Expr{Text: "right.a"}, To: connectors.Expr{Text: "left.a"}}
		}), want: "[within from]: only the left record is known here"},
		"updating":                         {config: joining("inner", within(time.Second, 0)), options: transformtest.Options{Updating: map[int][]string{left: {"k"}}}, want: "[left]: it is an updating stream"},
		"updating table by something else": {config: joining("inner", latest), options: transformtest.Options{Updating: map[int][]string{right: {"k", "v"}}}, want: "[right]: it is an updating stream of which there may be several rows"},
		"changing select":                  {config: joining("left", func(c *transform.JoinConfig) { forever(c); c.Select = assign("x", "now()") }), want: "[select x]: now() is not allowed here"},
	} {
		t.Run(name, func(t *testing.T) {
			got := transformtest.Faults("join", c.config, c.options)
			if len(got) == 0 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("faults %q, want %q", got, c.want)
			}
		})
	}
	if got := transformtest.Faults("join", joining("inner", latest), transformtest.Options{Updating: map[int][]string{right: {"k"}}}); len(got) > 0 {
		t.Errorf("a table keyed by what it is joined by is refused: %v", got)
	}
}

func TestTheTTLOfAJoinIsASpanOrForever(t *testing.T) {
	for text, want := range map[string]string{"forever": "forever", "30d": "720h0m0s", "1h": "1h0m0s"} {
		var ttl transform.TTL
		if err := ttl.UnmarshalConfig(text); err != nil || ttl.String() != want {
			t.Errorf("%s is %s (%v)", text, ttl, err)
		}
	}
	for _, bad := range []any{"0s", "-1h", "ever", int64(5), "10us"} {
		var ttl transform.TTL
		if err := ttl.UnmarshalConfig(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// declared is the view of a source whose fields are declared.
func declared(t *testing.T, fields ...string) *transform.View {
	t.Helper()
	record := &schema.Type{Base: schema.Map}
	for i := 0; i < len(fields); i += 2 {
		typ, err := schema.Parse(fields[i+1])
		if err != nil {
			t.Fatal(err)
		}
		record.Fields = append(record.Fields, schema.Field{Name: fields[i], Type: typ})
	}
	v, _ := transform.Declare(transform.NewBase(), record)
	return v
}

// typed builds a join of declared inputs.
func typed(t *testing.T, c *transform.JoinConfig) (*transform.KeyedEnv, transform.KeyedStep, []string) {
	t.Helper()
	var faults []string
	in := []*transform.View{declared(t, "k", "int", "v", "string"), declared(t, "k", "int?", "v", "float", "at", "timestamp")}
	env := transform.NewKeyedEnv("j", in, transform.NewView(transform.NewBase()))
	env.Fault = func(keys []string, err error) { faults = append(faults, strings.Join(keys, ".")+": "+err.Error()) }
	spec, _ := transform.Lookup("join")
	return env, spec.BuildKeyed(c, env), faults
}

func TestTypesOfAJoinsResultAreKnown(t *testing.T) {
	plain := assign("a", "left.v", "b", "right.v", "c", "right.at", "d", "left.k + 1")
	for _, c := range []struct {
		kind   string
		fields connectors.Assignments
		want   string
	}{
		{"inner", plain, "a string, b float, c timestamp, d int"},
		{"left", plain, "a string, b float or null, c timestamp or null, d int"},
		{"right", assign("a", "left.v", "b", "right.v"), "a string or null, b float"},
		{"full", assign("a", "left.v", "b", "right.v"), "a string or null, b float or null"},
		{"semi", nil, "k int, v string"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			env, _, faults := typed(t, joining(c.kind, func(j *transform.JoinConfig) { forever(j); j.Select = c.fields }))
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			var got []string
			for _, f := range env.Outputs()[0].Fields() {
				got = append(got, f.Name+" "+f.Type.String())
			}
			if g := strings.Join(got, ", "); g != c.want {
				t.Errorf("got %s, want %s", g, c.want)
			}
		})
	}
	env, _, _ := typed(t, joining("left", func(j *transform.JoinConfig) { forever(j); j.Select = nil }))
	if got := env.Outputs()[0].Shape("right").String(); got != "{k: int?, v: float, at: timestamp}?" {
		t.Errorf("right is %s", got)
	}
	for text, want := range map[string]string{
		"left.k == right.v0":                       "on: unknown field \"v0\"",
		"left.v == right.k":                        "on: string and int or null never match",
		"left.k == right.k && left.v > right.v":    "on: `>` does not compare string with float",
		"left.k == right.k && right.v in left.v.x": "on: v is string and has no field `x`",
	} {
		_, _, faults := typed(t, joining("inner", func(j *transform.JoinConfig) { forever(j); j.On.Text = text }))
		if len(faults) == 0 || !strings.HasPrefix(faults[0], want) {
			t.Errorf("%s: %q, want %q", text, faults, want)
		}
	}
}

func TestTheDefinitionOfAJoinIsWhatItsStateMeans(t *testing.T) {
	text := func(c *transform.JoinConfig) string {
		_, step, faults := typed(t, c)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return step.(interface{ Definition() string }).Definition()
	}
	base := text(joining("inner", forever))
	if want := "inner join on left.k == right.k ttl forever by processing time true keeps left v right v"; base != want {
		t.Errorf("definition is %q, want %q", base, want)
	}
	for name, c := range map[string]*transform.JoinConfig{
		"type": joining("left", forever), "form": joining("inner", latest), "bounds": joining("inner", within(time.Second, 0)),
		"fields": joining("inner", func(c *transform.JoinConfig) { forever(c); c.Select = assign("l", "left.v", "r", "right.at") }),
		"on":     joining("inner", func(c *transform.JoinConfig) { forever(c); c.On.Text = "right.k == left.k" }),
	} {
		if text(c) == base {
			t.Errorf("another %s has the same definition", name)
		}
	}
	if other := text(joining("inner", func(c *transform.JoinConfig) { forever(c); c.Select = assign("x", "left.v", "y", "right.v + 1") })); other != base {
		t.Errorf("what is made of the same fields changes the definition: %s", other)
	}
}
