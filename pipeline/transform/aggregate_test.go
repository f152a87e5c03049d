package transform_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// counted is the configuration of a count by k.
func counted(t testing.TB, window map[string]any, more ...string) *transform.AggregateConfig {
	t.Helper()
	c := &transform.AggregateConfig{By: by("k"), Select: assign(append([]string{"n", "count()"}, more...)...)}
	if window != nil {
		setWindow(t, c, window)
	}
	return c
}

func emit(t testing.TB, form any) (e transform.Emit) {
	t.Helper()
	if err := e.UnmarshalConfig(form); err != nil {
		t.Fatal(err)
	}
	return e
}

// at makes records of key "a" with these times.
func at(times ...int64) (out []transformtest.Row) {
	for i, t := range times {
		out = append(out, transformtest.Row{JSON: fmt.Sprintf(`{"k":"a","v":%d}`, i+1), Time: t, Offset: int64(i)})
	}
	return out
}

func millis(t testing.TB, text string) int64 {
	t.Helper()
	x, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return x.UnixMilli()
}

func TestAWindowClosesOnceTheWatermarkHasPassedItsEndAndTheLateness(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "10ms"})
	c.Lateness = connectors.TimeSpan(5 * time.Millisecond)
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Reads: []string{"late"}})
	k.Feed(0, at(3, 9, 10, -1)...)
	k.Watermark(14)
	same(t, k.TakeJSON(), `{"k":"a","window_start":-10,"window_end":0,"n":1}`)
	k.Feed(0, at(5)...) // late, but within the lateness
	k.Watermark(15)
	out := k.Take()
	if len(out) != 1 || out[0].JSON != `{"k":"a","window_start":0,"window_end":10,"n":3}` || out[0].Time != 9 {
		t.Errorf("%v", out)
	}
	k.Feed(0, at(6, 11)...)
	out = k.Take()
	if len(out) != 1 || out[0].Output != 1 || out[0].JSON != `{"k":"a","v":1}` || out[0].Time != 6 {
		t.Errorf("the late branch has %v", out)
	}
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"a","window_start":10,"window_end":20,"n":2}`)
	if k.Late() != 0 || k.Store().Usage().Keys != 0 {
		t.Errorf("late %d, left behind %d", k.Late(), k.Store().Usage().Keys)
	}
}

func TestARowIsLateByTheWatermarkOfItsOwnSplit(t *testing.T) {
	k := transformtest.NewKeyed(t, "aggregate", counted(t, map[string]any{"tumbling": "10ms"}), transformtest.Options{})
	mark := int64(10)
	late := at(5)[0]
	late.Mark = &mark
	k.Feed(0, append(at(4), late)...)
	k.Watermark(10)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":1}`)
	if k.Late() != 1 {
		t.Errorf("%d rows are late", k.Late())
	}
}

func TestDaysGoByTheWallClock(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "day", "zone": "Europe/Berlin"})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	spring, summer := millis(t, "2024-03-31T00:00:00+01:00"), millis(t, "2024-04-01T00:00:00+02:00")
	k.Feed(0, at(spring, summer-1, summer)...)
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(),
		fmt.Sprintf(`{"k":"a","window_start":%d,"window_end":%d,"n":2}`, spring, summer),
		fmt.Sprintf(`{"k":"a","window_start":%d,"window_end":%d,"n":1}`, summer, summer+24*3600_000))
	if summer-spring != 23*3600_000 {
		t.Error("the day is not the one that is meant")
	}
}

func TestSlidingWindowsHaveARowInEachOfThem(t *testing.T) {
	c := counted(t, map[string]any{"sliding": map[string]any{"size": "10ms", "every": "4ms"}}, "s", "sum(v)", "l", "collect(v)")
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(0, 9)...)
	k.Watermark(6)
	k.Restart()
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(),
		`{"k":"a","window_start":-8,"window_end":2,"n":1,"s":1,"l":[1]}`,
		`{"k":"a","window_start":-4,"window_end":6,"n":1,"s":1,"l":[1]}`,
		`{"k":"a","window_start":0,"window_end":10,"n":2,"s":3,"l":[1,2]}`,
		`{"k":"a","window_start":4,"window_end":14,"n":1,"s":2,"l":[2]}`,
		`{"k":"a","window_start":8,"window_end":18,"n":1,"s":2,"l":[2]}`)
}

func TestARowThatIsLateForSomeWindowsCountsForTheOthers(t *testing.T) {
	c := counted(t, map[string]any{"sliding": map[string]any{"size": "10ms", "every": "5ms"}})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Reads: []string{"late"}})
	k.Feed(0, at(1)...)
	k.Watermark(10)
	k.Feed(0, at(6)...)  // in the windows to 10 and to 15
	k.Feed(0, at(-1)...) // in those to 0 and to 5... and to 10
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(),
		`{"k":"a","window_start":-5,"window_end":5,"n":1}`, `{"k":"a","window_start":0,"window_end":10,"n":1}`,
		`{"k":"a","v":1}`, `{"k":"a","window_start":5,"window_end":15,"n":1}`)
}

func TestSessionsThatTouchAreOne(t *testing.T) {
	c := counted(t, map[string]any{"session": map[string]any{"gap": "10s"}}, "first", "first(v)", "all", "collect(v)")
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(0, 10_000, 40_000, 25_000)...)
	k.Watermark(20_000)
	same(t, k.TakeJSON()) // the session to 20000 may still get a record of just that time
	k.Feed(0, transformtest.Row{JSON: `{"k":"a","v":9}`, Time: 32_000, Offset: 9})
	k.Watermark(20_001)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":20000,"n":2,"first":1,"all":[1,2]}`)
	k.Restart()
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"a","window_start":25000,"window_end":50000,"n":3,"first":4,"all":[4,9,3]}`)
}

func TestASessionIsNoLongerThanItsMax(t *testing.T) {
	c := counted(t, map[string]any{"session": map[string]any{"gap": "10ms", "max": "80ms"}})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	for i := range int64(30) {
		k.Feed(0, at(3+i*5)...)
		k.Watermark(i * 5)
	}
	first := k.TakeJSON()
	k.Watermark(state.MaxTime)
	same(t, append(first, k.TakeJSON()...),
		`{"k":"a","window_start":3,"window_end":80,"n":16}`, `{"k":"a","window_start":83,"window_end":158,"n":14}`)
	if len(first) != 1 {
		t.Errorf("what is cut comes when time has passed the cut: %v", first)
	}
}

func TestCountWindowsCloseWhenTheyAreFull(t *testing.T) {
	c := counted(t, map[string]any{"count": int64(2)}, "l", "collect(v)")
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(7, 5, 1)...)
	k.Restart()
	k.Feed(0, at(2)...)
	out := k.Take()
	if len(out) != 2 || out[0].String() != `{"k":"a","n":2,"l":[2,1]}` || out[0].Time != 7 || out[1].String() != `{"k":"a","n":2,"l":[3,1]}` || out[1].Time != 2 {
		t.Errorf("%v", out)
	}
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON())
}

func TestProcessingTimeWindowsGoByTheClock(t *testing.T) {
	for _, form := range []map[string]any{
		{"tumbling": "10ms", "time": "processing"},
		{"sliding": map[string]any{"size": "10ms", "every": "10ms"}, "time": "processing"},
	} {
		now := &clock{now: time.UnixMilli(5)}
		k := transformtest.NewKeyed(t, "aggregate", counted(t, form), transformtest.Options{Now: now.Now})
		k.Watermark(1_000_000)
		k.Feed(0, at(-5, 1000)...)
		k.Tick()
		same(t, k.TakeJSON())
		now.now = time.UnixMilli(10)
		k.Restart()
		k.Tick()
		same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":2}`)
	}
	now := &clock{now: time.UnixMilli(5)}
	k := transformtest.NewKeyed(t, "aggregate", counted(t, map[string]any{"session": map[string]any{"gap": "10ms"}, "time": "processing"}), transformtest.Options{Now: now.Now})
	k.Feed(0, at(1)...)
	now.now = time.UnixMilli(15)
	k.Feed(0, at(2)...)
	now.now = time.UnixMilli(26)
	k.Tick()
	same(t, k.TakeJSON(), `{"k":"a","window_start":5,"window_end":25,"n":2}`)
}

func TestChangesComeOncePerBatchAsUpdates(t *testing.T) {
	for name, store := range map[string]state.Store{"model": statetest.NewModel(128), "memory": memory(t)} {
		t.Run(name, func(t *testing.T) {
			c := counted(t, nil, "top", "max(v)", "names", "collect(v)")
			c.Having = connectors.Expr{Text: "n != 3"}
			k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Store: store})
			k.Feed(0, at(1, 2)...)
			same(t, k.TakeJSON(), `{"k":"a","n":2,"top":2,"names":[1,2]}`)
			k.Restart()
			k.Feed(0, transformtest.Row{JSON: `{"k":"a","v":7}`, Time: 9})
			same(t, k.TakeJSON(), `delete {"k":"a","n":2,"top":2,"names":[1,2]}`)
			k.Feed(0, transformtest.Row{JSON: `{"k":"a","v":1}`, Time: 10}, transformtest.Row{JSON: `{"k":"b","v":1}`})
			same(t, k.TakeJSON(), `{"k":"a","n":4,"top":7,"names":[1,2,7,1]}`, `{"k":"b","n":1,"top":1,"names":[1]}`)
			k.Feed(0, transformtest.Row{JSON: `{"k":"b","v":3}`, Time: 5})
			same(t, k.TakeJSON(), `update_before {"k":"b","n":1,"top":1,"names":[1]}`, `update_after {"k":"b","n":2,"top":3,"names":[1,3]}`)
		})
	}
}

func TestTombstonesAreNoRows(t *testing.T) {
	k := transformtest.NewKeyed(t, "aggregate", counted(t, map[string]any{"tumbling": "10ms"}), transformtest.Options{Reads: []string{"late"}})
	k.Feed(0, transformtest.Row{}, transformtest.Row{JSON: `{"k":"a"}`})
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":1}`)
	if k.Dropped() != 1 {
		t.Errorf("%d rows are left out", k.Dropped())
	}
}

func TestWhatDoesNotChangeIsNotGivenOutAgain(t *testing.T) {
	c := &transform.AggregateConfig{By: by("k"), Select: assign("top", "max(v)")}
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(1)...)
	k.Take()
	k.Feed(0, at(2)...)
	same(t, k.TakeJSON())
}

func TestMoreGroupsThanABatchHoldsAllGetTheirUpdate(t *testing.T) {
	k := transformtest.NewKeyed(t, "aggregate", counted(t, nil), transformtest.Options{})
	for round := range 2 {
		var rows []transformtest.Row
		for i := range 1024 {
			rows = append(rows, transformtest.Row{JSON: fmt.Sprintf(`{"k":%d}`, i)})
		}
		k.Feed(0, rows...)
		if n := len(k.Take()); n != (round+1)*1024 {
			t.Errorf("%d rows come out in round %d", n, round)
		}
	}
}

func TestWindowsThatEmitOnChangeAreUpdatedUntilTheyClose(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "10ms"})
	c.Emit, c.Lateness = emit(t, "on_change"), connectors.TimeSpan(10*time.Millisecond)
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(1, 2, 11)...)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":2}`, `{"k":"a","window_start":10,"window_end":20,"n":1}`)
	k.Watermark(19)
	k.Feed(0, at(3)...)
	same(t, k.TakeJSON(), `update_before {"k":"a","window_start":0,"window_end":10,"n":2}`, `update_after {"k":"a","window_start":0,"window_end":10,"n":3}`)
	k.Watermark(20)
	k.Feed(0, at(3)...)
	same(t, k.TakeJSON())
	if k.Late() != 1 || k.Store().Usage().Keys != 1 {
		t.Errorf("late %d, entries %d", k.Late(), k.Store().Usage().Keys)
	}
}

func TestChangesAreGatheredOverASpan(t *testing.T) {
	now := &clock{now: time.UnixMilli(0)}
	c := counted(t, nil)
	c.Emit = emit(t, map[string]any{"every": "10ms"})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Now: now.Now})
	tick := func(ms int64) []string {
		now.now = time.UnixMilli(ms)
		k.Tick()
		return k.TakeJSON()
	}
	tick(0)
	k.Feed(0, at(1)...)
	k.Feed(0, at(2)...)
	same(t, tick(9))
	same(t, tick(10), `{"k":"a","n":2}`)
	k.Feed(0, at(3)...)
	k.Restart() // the span begins anew
	k.Feed(0, at(4)...)
	same(t, tick(20))
	same(t, tick(30), `update_before {"k":"a","n":2}`, `update_after {"k":"a","n":4}`)
	same(t, tick(40))
	k.Feed(0, at(5)...)
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `update_before {"k":"a","n":4}`, `update_after {"k":"a","n":5}`)
}

func TestAWindowThatClosesGivesOutWhatIsGathered(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "10ms"})
	c.Emit = emit(t, map[string]any{"every": "1h"})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, at(1, 12)...)
	k.Watermark(10)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":1}`)
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"a","window_start":10,"window_end":20,"n":1}`)
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left behind", n)
	}
}

func TestRowsThatAreTakenBackLeaveTheirGroup(t *testing.T) {
	for _, form := range []any{"on_change", map[string]any{"every": "10ms"}} {
		c := counted(t, nil, "s", "sum(v)", "d", "count_distinct(v)", "top", "max(v)")
		c.Emit = emit(t, form)
		now := &clock{now: time.UnixMilli(0)}
		k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Updating: map[int][]string{0: {"id"}}, Now: now.Now})
		k.Tick()
		feed := func(rows ...string) []string {
			var batch []transformtest.Row
			for _, r := range rows {
				op, value, _ := strings.Cut(r, " ")
				ops := map[string]connectors.Op{"+": connectors.Insert, "-": connectors.Delete, "<": connectors.UpdateBefore, ">": connectors.UpdateAfter}
				batch = append(batch, transformtest.Row{JSON: value, Op: ops[op]})
			}
			k.Feed(0, batch...)
			now.now = now.now.Add(10 * time.Millisecond)
			k.Tick()
			return k.TakeJSON()
		}
		same(t, feed(`+ {"k":"a","v":1}`, `+ {"k":"a","v":5}`, `+ {"k":"b","v":2}`), `{"k":"a","n":2,"s":6,"d":2,"top":5}`, `{"k":"b","n":1,"s":2,"d":1,"top":2}`)
		same(t, feed(`< {"k":"a","v":5}`, `> {"k":"b","v":5}`),
			`update_before {"k":"a","n":2,"s":6,"d":2,"top":5}`, `update_after {"k":"a","n":1,"s":1,"d":1,"top":1}`,
			`update_before {"k":"b","n":1,"s":2,"d":1,"top":2}`, `update_after {"k":"b","n":2,"s":7,"d":2,"top":5}`)
		same(t, feed(`- {"k":"a","v":1}`), `delete {"k":"a","n":1,"s":1,"d":1,"top":1}`)
		same(t, feed(`< {"k":"b","v":2}`, `< {"k":"b","v":5}`, `> {"k":"b","v":4}`),
			`update_before {"k":"b","n":2,"s":7,"d":2,"top":5}`, `update_after {"k":"b","n":1,"s":4,"d":1,"top":4}`)
		same(t, feed(`- {"k":"b","v":4}`, `- {"k":"never","v":4}`), `delete {"k":"b","n":1,"s":4,"d":1,"top":4}`)
		if k.Dropped() != 1 || k.Store().Usage().Keys != 0 {
			t.Errorf("dropped %d, left behind %d", k.Dropped(), k.Store().Usage().Keys)
		}
	}
}

func TestGroupsGoAfterTheirTTL(t *testing.T) {
	c := counted(t, nil, "l", "collect(v)")
	c.TTL = transform.TTL{Span: 64 * time.Millisecond}
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Timestamped: true})
	k.Feed(0, at(1)...)
	k.Watermark(60)
	k.Feed(0, at(50)...)
	k.Take()
	k.Restart()
	k.Watermark(113)
	if k.Store().Usage().Keys == 0 {
		t.Error("the group goes too early")
	}
	k.Watermark(115)
	same(t, k.TakeJSON()) // without a delete
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left behind", n)
	}
	k.Feed(0, at(120)...)
	same(t, k.TakeJSON(), `{"k":"a","n":1,"l":[1]}`)
}

func TestGroupsThatEmitOnCloseDoSoAfterTheirTTLOrAtTheEnd(t *testing.T) {
	now := &clock{now: time.UnixMilli(0)}
	c := counted(t, nil)
	c.Emit, c.TTL = emit(t, "on_close"), transform.TTL{Span: 10 * time.Millisecond}
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Now: now.Now})
	k.Feed(0, at(5, 3)...)
	now.now = time.UnixMilli(8)
	k.Feed(0, transformtest.Row{JSON: `{"k":"b"}`, Time: 7})
	now.now = time.UnixMilli(11)
	k.Tick()
	out := k.Take()
	if len(out) != 1 || out[0].String() != `{"k":"a","n":2}` || out[0].Time != 5 {
		t.Errorf("%v", out)
	}
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"b","n":1}`)
}

func TestKeysAreEqualWhereTheirValuesAre(t *testing.T) {
	c := &transform.AggregateConfig{By: append(by("k"), assign("f", "x ?? 0")...), Select: assign("n", "count()")}
	setWindow(t, c, map[string]any{"tumbling": "10ms"})
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	for _, v := range []string{`1`, `1.0`, `"1"`, `null`, `-0.0`, `0`, `1e2`, `100`, `[1,2]`, `true`} {
		k.Feed(0, transformtest.Row{JSON: `{"k":` + v + `}`})
	}
	k.Feed(0, transformtest.Row{JSON: `{}`}, transformtest.Row{JSON: `{"k":1,"x":1}`})
	k.Watermark(state.MaxTime)
	got := k.TakeJSON()
	for i := range got {
		got[i] = strings.Replace(got[i], `,"window_start":0,"window_end":10`, "", 1)
	}
	slices.Sort(got)
	same(t, got, `{"k":"1","f":0,"n":1}`, `{"k":0,"f":0,"n":2}`, `{"k":1,"f":0,"n":2}`, `{"k":1,"f":1,"n":1}`, `{"k":100,"f":0,"n":2}`,
		`{"k":[1,2],"f":0,"n":1}`, `{"k":null,"f":0,"n":2}`, `{"k":true,"f":0,"n":1}`)
}

func TestAKeyMayBeLargeAndWithoutKeysThereIsOneGroup(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	k := transformtest.NewKeyed(t, "aggregate", counted(t, nil), transformtest.Options{Store: memory(t)})
	for range 2 {
		k.Feed(0, transformtest.Row{JSON: `{"k":"` + large + `"}`})
	}
	if out := k.TakeJSON(); len(out) != 3 || out[2] != `update_after {"k":"`+large+`","n":2}` {
		t.Errorf("%d rows", len(out))
	}
	k = transformtest.NewKeyed(t, "aggregate", &transform.AggregateConfig{Select: assign("n", "count()")}, transformtest.Options{})
	k.Feed(0, at(1, 2)...)
	same(t, k.TakeJSON(), `{"n":2}`)
}

func TestARowThatOneFunctionRefusesIsNotCountedByAnother(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "10ms"}, "l", "collect(v)", "s", "sum(v)", "half", "sum_if(v / w, w != 0)")
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, transformtest.Row{JSON: `{"k":"b","v":"x","w":1}`}, transformtest.Row{JSON: `{"k":"a","v":4,"w":2}`}, transformtest.Row{JSON: `{"k":"a","v":"text","w":0}`}, transformtest.Row{JSON: `{"k":"a","v":6,"w":0}`})
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"a","window_start":0,"window_end":10,"n":2,"l":[4,6],"s":10,"half":2}`)
	if len(k.Failed()) != 2 {
		t.Errorf("%d rows are refused", len(k.Failed()))
	}
}

func TestAResultThatHasNoValueGoesToOnError(t *testing.T) {
	c := counted(t, map[string]any{"tumbling": "10ms"}, "share", "1 / sum(v)")
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
	k.Feed(0, transformtest.Row{JSON: `{"k":"a","v":0}`}, transformtest.Row{JSON: `{"k":"b","v":2}`})
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"k":"b","window_start":0,"window_end":10,"n":1,"share":0.5}`)
	if f := k.Failed(); len(f) != 1 || f[0].Expr != "1 / sum(v)" {
		t.Errorf("%v", f)
	}
	k = transformtest.NewKeyed(t, "aggregate", counted(t, nil, "share", "1 / sum(v)"), transformtest.Options{})
	k.Feed(0, transformtest.Row{JSON: `{"k":"b","v":2}`})
	k.Feed(0, transformtest.Row{JSON: `{"k":"b","v":-2}`})
	k.Feed(0, transformtest.Row{JSON: `{"k":"b","v":4}`})
	same(t, k.TakeJSON(), `{"k":"b","n":1,"share":0.5}`, `delete {"k":"b","n":1,"share":0.5}`, `{"k":"b","n":3,"share":0.25}`)
	if len(k.Failed()) != 1 {
		t.Errorf("%d rows are refused", len(k.Failed()))
	}
}

func TestAggregatingDoesNotAllocate(t *testing.T) {
	for name, c := range map[string]*transform.AggregateConfig{
		"tumbling": counted(t, map[string]any{"tumbling": "10s"}),
		"sliding":  counted(t, map[string]any{"sliding": map[string]any{"size": "1h", "every": "1m"}}),
		"session":  counted(t, map[string]any{"session": map[string]any{"gap": "10s"}}),
		"none":     counted(t, nil, "s", "sum(v)"),
	} {
		t.Run(name, func(t *testing.T) {
			k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Store: memory(t), Discard: true})
			var rows []transformtest.Row
			for i := range 500 {
				rows = append(rows, transformtest.Row{JSON: fmt.Sprintf(`{"k":%d,"v":1}`, i%50), Time: int64(i)})
			}
			b, sel := k.Batch(0, rows...)
			work := make([]uint16, len(sel))
			n := testing.AllocsPerRun(20, func() {
				copy(work, sel)
				if err := k.Instance().Process(context.Background(), 0, b, work); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%.0f allocations for 500 rows", n)
			}
		})
	}
}

func TestRingsThatMoveToAnotherSubtaskGiveNoWindowOutTwice(t *testing.T) {
	c := counted(t, map[string]any{"sliding": map[string]any{"size": "10ms", "every": "5ms"}})
	merged := statetest.NewModel(128)
	for key, wm := range map[string]int64{"a": 5, "b": 10} {
		k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{})
		k.Feed(0, transformtest.Row{JSON: `{"k":"` + key + `"}`, Time: 1}, transformtest.Row{JSON: `{"k":"` + key + `"}`, Time: 12})
		k.Watermark(wm)
		k.Restart()
		for _, name := range []string{"groups", "rings", "closed"} {
			from := k.Store().Table(name)
			for _, ns := range from.Namespaces(nil, state.MinTime, state.MaxTime) {
				from.Scan(ns, func(k state.Key, value []byte) bool {
					merged.Table(name).Put(ns, k, value)
					return true
				})
			}
		}
	}
	k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Store: merged})
	k.Watermark(15)
	got := k.TakeJSON()
	slices.Sort(got)
	same(t, got, `{"k":"a","window_start":0,"window_end":10,"n":1}`, `{"k":"a","window_start":5,"window_end":15,"n":1}`, `{"k":"b","window_start":5,"window_end":15,"n":1}`)
}

func TestLargeStatesChangeInPlaceAndRefuseWhatDoesNotFit(t *testing.T) {
	forms := map[string]map[string]any{
		"tumbling": {"tumbling": "1h"}, "none": nil, "session": {"session": map[string]any{"gap": "1h"}},
		"sliding": {"sliding": map[string]any{"size": "1h", "every": "1h"}},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			c := counted(t, form, "d", "count_distinct(id)", "m", "max(id)", "size", "len(collect(text))")
			c.Emit, c.TTL.Forever = emit(t, "on_close"), form == nil
			k := transformtest.NewKeyed(t, "aggregate", c, transformtest.Options{Store: memory(t)})
			long := strings.Repeat("x", 200<<10)
			for i := range 8 {
				var rows []transformtest.Row
				for j := range 500 {
					rows = append(rows, transformtest.Row{JSON: fmt.Sprintf(`{"k":"a","id":%d}`, i*250+j), Time: int64(j), Offset: int64(j)})
				}
				rows = append(rows, transformtest.Row{JSON: fmt.Sprintf(`{"k":"a","id":1,"text":"%s"}`, long), Time: 1})
				k.Feed(0, rows...)
			}
			k.Watermark(state.MaxTime)
			out := k.TakeJSON()
			if len(out) != 1 || !strings.HasSuffix(out[0], `"n":4005,"d":2250,"m":2249,"size":5}`) || len(k.Failed()) != 3 {
				t.Errorf("%v, %d refused", out, len(k.Failed()))
			}
		})
	}
}
