package transform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

func by(names ...string) (keys connectors.Keys) {
	for _, n := range names {
		keys = append(keys, connectors.Assignment{Name: n, Expr: connectors.Expr{Text: n}})
	}
	return keys
}

func assign(pairs ...string) (out connectors.Assignments) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, connectors.Assignment{Name: pairs[i], Expr: connectors.Expr{Text: pairs[i+1]}})
	}
	return out
}

// rows makes records whose field t is their event time.
func rows(t *testing.T, jsons ...string) (out []transformtest.Row) {
	t.Helper()
	for i, j := range jsons {
		r := transformtest.Row{JSON: j, Offset: int64(i)}
		if _, after, ok := strings.Cut(j, `"t":`); ok {
			if _, err := fmt.Sscan(strings.Trim(strings.SplitN(after, ",", 2)[0], "} "), &r.Time); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, r)
	}
	return out
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// clock is a processing time that tests advance.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func TestDedupDropsRepeatsWithinASpanOfEventTime(t *testing.T) {
	c := &transform.DedupConfig{By: by("id"), Keep: "first", Within: transform.TTL{Span: 10 * time.Millisecond}}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":100}`, `{"id":1,"t":109}`, `{"id":1.0,"t":95}`, `{"id":"1","t":100}`, `{"id":null,"t":1}`, `{"t":2}`)...)
	same(t, k.TakeJSON(), `{"id":1,"t":100}`, `{"id":"1","t":100}`, `{"id":null,"t":1}`)
	if k.Dropped() != 3 {
		t.Errorf("%d records are counted as left out, want 3", k.Dropped())
	}
	k.Restart()
	k.Watermark(109)
	k.Feed(0, rows(t, `{"id":1,"t":109}`)...)
	same(t, k.TakeJSON())
	k.Watermark(110)
	k.Feed(0, rows(t, `{"id":1,"t":110}`, `{"id":1,"t":119}`)...)
	same(t, k.TakeJSON(), `{"id":1,"t":110}`)
	k.Watermark(1000)
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left of keys whose time is over", n)
	}
}

func TestDedupWithoutATimestampGoesByProcessingTime(t *testing.T) {
	now := &clock{time.UnixMilli(1000)}
	c := &transform.DedupConfig{By: by("id"), Keep: "first", Within: transform.TTL{Span: 10 * time.Millisecond}}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Now: now.Now})
	k.Feed(0, rows(t, `{"id":1}`, `{"id":1}`)...)
	now.now = now.now.Add(10 * time.Millisecond)
	k.Tick()
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left of keys whose time is over", n)
	}
	k.Feed(0, rows(t, `{"id":1}`)...)
	same(t, k.TakeJSON(), `{"id":1}`, `{"id":1}`)
}

func TestDedupByTheMessagesKeySeesTombstones(t *testing.T) {
	keys := connectors.Keys{{Name: "k", Expr: connectors.Expr{Text: "meta.key"}}}
	k := transformtest.NewKeyed(t, "dedup", &transform.DedupConfig{By: keys, Keep: "first"}, transformtest.Options{})
	k.Feed(0, transformtest.Row{Key: "a"}, transformtest.Row{Key: "a", JSON: `{"x":1}`}, transformtest.Row{Key: "b", JSON: `{"x":2}`})
	same(t, k.TakeJSON(), ``, `{"x":2}`)
	k = transformtest.NewKeyed(t, "dedup", &transform.DedupConfig{By: by("id"), Keep: "first"}, transformtest.Options{})
	k.Feed(0, transformtest.Row{Key: "a"}, transformtest.Row{JSON: `{"id":2}`})
	same(t, k.TakeJSON(), `{"id":2}`)
}

func TestDedupKeepsTheLastByEventTime(t *testing.T) {
	c := &transform.DedupConfig{By: by("id"), Keep: "last"}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":5,"v":"a"}`, `{"id":1,"t":3,"v":"b"}`)...)
	k.Restart()
	k.Feed(0, rows(t, `{"id":1,"t":9,"v":"c"}`)...)
	same(t, k.TakeJSON(), `{"id":1,"t":5,"v":"a"}`, `update_before {"id":1,"t":5,"v":"a"}`, `update_after {"id":1,"t":9,"v":"c"}`)
}

func TestDedupGivesTheLastOutOnce(t *testing.T) {
	c := &transform.DedupConfig{By: by("id"), Keep: "last", Within: transform.TTL{Span: 10 * time.Millisecond}, Emit: transform.Emit{Mode: transform.EmitOnClose}}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":5}`, `{"id":1,"t":15}`, `{"id":1,"t":14}`)...)
	k.Watermark(14)
	k.Restart()
	same(t, k.TakeJSON())
	k.Watermark(15)
	same(t, k.TakeJSON(), `{"id":1,"t":14}`)
	k.Watermark(25)
	same(t, k.TakeJSON(), `{"id":1,"t":15}`)
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON())
	forever := &transform.DedupConfig{By: by("id"), Keep: "last", Emit: transform.Emit{Mode: transform.EmitOnClose}}
	k = transformtest.NewKeyed(t, "dedup", forever, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":5}`, `{"id":1,"t":4}`)...)
	k.Watermark(1000)
	same(t, k.TakeJSON())
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"id":1,"t":5}`)
}

func TestDedupGathersChanges(t *testing.T) {
	now := &clock{time.UnixMilli(0)}
	c := &transform.DedupConfig{By: by("id"), Keep: "last", Emit: transform.Emit{Mode: transform.EmitEvery, Every: time.Second}}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true, Now: now.Now})
	k.Tick()
	k.Feed(0, rows(t, `{"id":1,"t":5}`, `{"id":1,"t":6}`)...)
	same(t, k.TakeJSON())
	now.now = now.now.Add(time.Second)
	k.Tick()
	same(t, k.TakeJSON(), `{"id":1,"t":6}`)
	k.Feed(0, rows(t, `{"id":1,"t":7}`, `{"id":1,"t":8}`)...)
	k.Restart()
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `update_before {"id":1,"t":6}`, `update_after {"id":1,"t":8}`)
}

// TestDedupWhateverTheOrder repeats records that come out of order by more than the
// span.
func TestDedupWhateverTheOrder(t *testing.T) {
	ten := transform.TTL{Span: 10 * time.Millisecond}
	c := &transform.DedupConfig{By: by("id"), Keep: "first", Within: ten}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":100}`, `{"id":1,"t":50}`, `{"id":1,"t":51}`, `{"id":1,"t":101}`, `{"id":1,"t":50}`)...)
	k.Restart()
	k.Watermark(55)
	k.Feed(0, rows(t, `{"id":1,"t":50}`, `{"id":1,"t":100}`)...)
	same(t, k.TakeJSON(), `{"id":1,"t":100}`, `{"id":1,"t":50}`)
	k.Watermark(60)
	k.Feed(0, rows(t, `{"id":1,"t":109}`)...)
	same(t, k.TakeJSON())
	k.Watermark(110)
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left of keys whose time is over", n)
	}
	c = &transform.DedupConfig{By: by("id"), Keep: "last", Within: ten}
	k = transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":100}`, `{"id":1,"t":50}`, `{"id":1,"t":51}`, `{"id":1,"t":101}`)...)
	same(t, k.TakeJSON(), `{"id":1,"t":100}`, `{"id":1,"t":50}`, `update_before {"id":1,"t":50}`, `update_after {"id":1,"t":51}`,
		`update_before {"id":1,"t":100}`, `update_after {"id":1,"t":101}`)
}

func TestDedupLeavesOutWhatItCannotTellARepeatAnyMore(t *testing.T) {
	for _, keep := range []string{"first", "last"} {
		c := &transform.DedupConfig{By: by("id"), Keep: keep, Within: transform.TTL{Span: 10 * time.Millisecond}}
		k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
		mark := int64(20)
		k.Feed(0, transformtest.Row{JSON: `{"id":1}`, Time: 10, Mark: &mark}, transformtest.Row{JSON: `{"id":2}`, Time: 11, Mark: &mark})
		same(t, k.TakeJSON(), `{"id":2}`)
		k.Watermark(21)
		k.Feed(0, transformtest.Row{JSON: `{"id":2}`, Time: 11})
		same(t, k.TakeJSON())
		if k.Late() != 2 {
			t.Errorf("%d records are late, want 2", k.Late())
		}
	}
}

func TestDedupOfRowsThatStepsMadeHangsOnNoOrder(t *testing.T) {
	for _, order := range [][2]string{{`{"id":1,"v":1}`, `{"id":1,"v":2}`}, {`{"id":1,"v":2}`, `{"id":1,"v":1}`}} {
		c := &transform.DedupConfig{By: by("id"), Keep: "last", Emit: transform.Emit{Mode: transform.EmitOnClose}}
		k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
		k.Feed(0, transformtest.Row{JSON: order[0], Made: true}, transformtest.Row{JSON: order[1], Made: true})
		k.Watermark(state.MaxTime)
		same(t, k.TakeJSON(), `{"id":1,"v":2}`)
	}
}

func TestDedupFaultsAreNamed(t *testing.T) {
	c := &transform.DedupConfig{By: connectors.Keys{}, Keep: "first", Emit: transform.Emit{Mode: transform.EmitOnClose}}
	faults := strings.Join(transformtest.Faults("dedup", c, transformtest.Options{}), "\n")
	for _, want := range []string{"nothing to tell repeats by", "the first record is given out as it comes"} {
		if !strings.Contains(faults, want) {
			t.Errorf("the faults are %q, want one with %q", faults, want)
		}
	}
}

// TestDefinitionsOfStepsThatKeepRecords checks what makes state unfit for a changed
// file, and what does not.
func TestDefinitionsOfStepsThatKeepRecords(t *testing.T) {
	every, hour := transform.Emit{Mode: transform.EmitEvery, Every: time.Second}, transform.TTL{Span: time.Hour}
	dedup := func(change func(c *transform.DedupConfig)) string {
		c := &transform.DedupConfig{By: by("id"), Keep: "last"}
		change(c)
		return transformtest.NewKeyed(t, "dedup", c, transformtest.Options{}).Definition()
	}
	reduce := func(change func(c *transform.ReduceConfig)) string {
		c := &transform.ReduceConfig{By: by("id"), Init: assign("n", "0"), Update: assign("n", "state.n + 1")}
		change(c)
		return transformtest.NewKeyed(t, "reduce", c, transformtest.Options{}).Definition()
	}
	top := func(change func(c *transform.TopConfig), o transformtest.Options) string {
		c := &transform.TopConfig{By: by("id"), N: 2, Order: descending("n"), Ties: "cut"}
		change(c)
		return transformtest.NewKeyed(t, "top", c, o).Definition()
	}
	updating := transformtest.Options{Updating: map[int][]string{0: nil}}
	for _, tt := range []struct {
		name      string
		was, is   string
		unchanged bool
	}{
		{"dedup: emit", dedup(func(*transform.DedupConfig) {}), dedup(func(c *transform.DedupConfig) { c.Emit = every }), false},
		{"dedup: within", dedup(func(*transform.DedupConfig) {}), dedup(func(c *transform.DedupConfig) { c.Within = hour }), false},
		{"dedup: forever as the file says it", dedup(func(*transform.DedupConfig) {}), dedup(func(c *transform.DedupConfig) { c.Within.Forever = true }), true},
		{"reduce: emit", reduce(func(*transform.ReduceConfig) {}), reduce(func(c *transform.ReduceConfig) { c.Emit = every }), false},
		{"reduce: a ttl", reduce(func(*transform.ReduceConfig) {}), reduce(func(c *transform.ReduceConfig) { c.TTL = hour }), false},
		{"reduce: another ttl", reduce(func(c *transform.ReduceConfig) { c.TTL = hour }), reduce(func(c *transform.ReduceConfig) { c.TTL = transform.TTL{Span: time.Minute} }), true},
		{"reduce: first values", reduce(func(*transform.ReduceConfig) {}), reduce(func(c *transform.ReduceConfig) { c.Init = assign("n", "7") }), true},
		{"top: emit", top(func(*transform.TopConfig) {}, transformtest.Options{}), top(func(c *transform.TopConfig) { c.Emit = every }, transformtest.Options{}), false},
		{"top: updates", top(func(*transform.TopConfig) {}, transformtest.Options{}), top(func(*transform.TopConfig) {}, updating), false},
		{"top: rank", top(func(*transform.TopConfig) {}, transformtest.Options{}), top(func(c *transform.TopConfig) { c.Rank = "r" }, transformtest.Options{}), true},
	} {
		if (tt.was == tt.is) != tt.unchanged {
			t.Errorf("%s:\n  %s\n  %s", tt.name, tt.was, tt.is)
		}
	}
}

func TestReduceFoldsRecordsIntoAState(t *testing.T) {
	c := &transform.ReduceConfig{By: by("acc"), Init: assign("total", "0", "last", "null"), Update: assign("total", "state.total + amount", "last", "amount")}
	k := transformtest.NewKeyed(t, "reduce", c, transformtest.Options{})
	k.Feed(0, rows(t, `{"acc":"a","amount":5}`, `{"acc":"b","amount":0}`, `{"acc":"a","amount":null}`)...)
	k.Restart()
	k.Feed(0, rows(t, `{"acc":"a","amount":2}`, `{"acc":"b","amount":0}`)...)
	same(t, k.TakeJSON(),
		`{"acc":"a","total":5,"last":5}`, `{"acc":"b","total":0,"last":0}`,
		`update_before {"acc":"a","total":5,"last":5}`, `update_after {"acc":"a","total":7,"last":2}`)
	if f := k.Failed(); len(f) != 1 || f[0].Expr != "state.total + amount" {
		t.Errorf("the records that failed are %v, want one that names the expression", f)
	}
}

func TestReduceForgetsAfterItsTTL(t *testing.T) {
	c := &transform.ReduceConfig{By: by("acc"), Init: assign("n", "0"), Update: assign("n", "state.n + 1"),
		TTL: transform.TTL{Span: 10 * time.Millisecond}, Emit: transform.Emit{Mode: transform.EmitOnClose}}
	k := transformtest.NewKeyed(t, "reduce", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"acc":"a","t":0}`, `{"acc":"a","t":8}`)...)
	k.Watermark(17)
	same(t, k.TakeJSON())
	k.Restart()
	k.Watermark(18)
	same(t, k.TakeJSON(), `{"acc":"a","n":2}`)
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left of keys whose time is over", n)
	}
	k.Feed(0, rows(t, `{"acc":"a","t":20}`)...)
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"acc":"a","n":1}`)
}

func TestReduceBeginsAnewOnceTheTTLHasPassed(t *testing.T) {
	for _, seen := range []bool{false, true} { // whether the step was told before the record came
		c := &transform.ReduceConfig{By: by("acc"), Init: assign("n", "0"), Update: assign("n", "state.n + 1"),
			TTL: transform.TTL{Span: 10 * time.Millisecond}, Emit: transform.Emit{Mode: transform.EmitOnClose}}
		k := transformtest.NewKeyed(t, "reduce", c, transformtest.Options{Timestamped: true})
		k.Feed(0, rows(t, `{"acc":"a","t":0}`, `{"acc":"a","t":8}`)...)
		mark := int64(18)
		if seen {
			k.Watermark(mark)
		}
		k.Feed(0, transformtest.Row{JSON: `{"acc":"a"}`, Time: 22, Mark: &mark})
		k.Watermark(100)
		same(t, k.TakeJSON(), `{"acc":"a","n":2}`, `{"acc":"a","n":1}`)
		if n := k.Store().Usage().Keys; n != 0 {
			t.Errorf("%d entries are left of keys whose time is over", n)
		}
	}
}

func TestReduceFaultsAreNamed(t *testing.T) {
	for want, c := range map[string]*transform.ReduceConfig{
		"did you mean total?":       {By: by("a"), Init: assign("total", "0"), Update: assign("totl", "1")},
		"did you mean state.total?": {By: by("a"), Init: assign("total", "0"), Update: assign("total", "state.totl + 1")},
		"must be the same":          {By: by("a"), Init: assign("total", "now()"), Update: assign("total", "1")},
		"no record yet":             {By: by("a"), Init: assign("total", "x"), Update: assign("total", "1")},
		"the state has no field":    {By: by("a")},
		"no record would change":    {By: by("a"), Init: assign("total", "0")},
		"by has a field":            {By: by("a"), Init: assign("a", "0"), Update: assign("a", "1")},
		"write state.total":         {By: by("a"), Init: assign("total", "0"), Update: assign("total", "state")},
	} {
		faults := transformtest.Faults("reduce", c, transformtest.Options{})
		if !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("the faults are %q, want one with %q", faults, want)
		}
	}
}
