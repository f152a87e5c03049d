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
	c := &transform.DedupConfig{By: by("id"), Keep: "first", Within: connectors.TimeSpan(10 * time.Millisecond)}
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
	c := &transform.DedupConfig{By: by("id"), Keep: "first", Within: connectors.TimeSpan(10 * time.Millisecond)}
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
	c := &transform.DedupConfig{By: by("id"), Keep: "last", Within: connectors.TimeSpan(10 * time.Millisecond), Emit: transform.Emit{Mode: transform.EmitOnClose}}
	k := transformtest.NewKeyed(t, "dedup", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"id":1,"t":5}`, `{"id":1,"t":14}`, `{"id":1,"t":15}`)...)
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
		TTL: connectors.TimeSpan(10 * time.Millisecond), Emit: transform.Emit{Mode: transform.EmitOnClose}}
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

func TestReduceFaultsAreNamed(t *testing.T) {
	for want, c := range map[string]*transform.ReduceConfig{
		"did you mean total?":       {By: by("a"), Init: assign("total", "0"), Update: assign("totl", "1")},
		"did you mean state.total?": {By: by("a"), Init: assign("total", "0"), Update: assign("total", "state.totl + 1")},
		"must be the same":          {By: by("a"), Init: assign("total", "now()"), Update: assign("total", "1")},
		"no record yet":             {By: by("a"), Init: assign("total", "x"), Update: assign("total", "1")},
		"by has a field":            {By: by("a"), Init: assign("a", "0"), Update: assign("a", "1")},
		"write state.total":         {By: by("a"), Init: assign("total", "0"), Update: assign("total", "state")},
	} {
		faults := transformtest.Faults("reduce", c, transformtest.Options{})
		if !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("the faults are %q, want one with %q", faults, want)
		}
	}
}
