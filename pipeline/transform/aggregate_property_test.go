package transform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// event is a record of the model.
type event struct {
	split   int
	key     int
	t, v    int64
	mark    int64
	at      int64 // its offset
	counted bool
}

// drawEvents makes records of some splits, each with the watermark of its split
// before it, in an order that keeps that of each split.
func drawEvents(t *rapid.T, delay int64) []*event {
	splits := rapid.IntRange(1, 3).Draw(t, "splits")
	n := rapid.IntRange(1, 60).Draw(t, "records")
	base := rapid.Int64Range(-200, 0).Draw(t, "base")
	clock, high, offset := make([]int64, splits), make([]int64, splits), make([]int64, splits)
	for i := range high {
		clock[i], high[i] = base, math.MinInt64
	}
	var all []*event
	for range n {
		s := rapid.IntRange(0, splits-1).Draw(t, "split")
		clock[s] += rapid.Int64Range(0, 15).Draw(t, "step")
		e := &event{split: s, key: rapid.IntRange(0, 2).Draw(t, "key"), t: clock[s] - rapid.Int64Range(0, 30).Draw(t, "behind"), v: rapid.Int64Range(0, 9).Draw(t, "value"), mark: math.MinInt64, at: offset[s]}
		if high[s] != math.MinInt64 {
			e.mark = high[s] - delay
		}
		high[s] = max(high[s], e.t)
		offset[s]++
		all = append(all, e)
	}
	return all
}

// result is a row of an aggregate.
type result struct {
	K    int     `json:"k"`
	From int64   `json:"window_start"`
	To   int64   `json:"window_end"`
	N    int     `json:"n"`
	S    int64   `json:"s"`
	L    []int64 `json:"l"`
}

// fold makes a result of records.
func fold(key int, from, to int64, events []*event) result {
	r := result{K: key, From: from, To: to, N: len(events)}
	slices.SortStableFunc(events, func(a, b *event) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.split, b.split), cmp.Compare(a.at, b.at))
	})
	for _, e := range events {
		r.S += e.v
		r.L = append(r.L, e.v)
		e.counted = true
	}
	return r
}

// alignedModel computes windows of a size that begin every so often.
func alignedModel(all []*event, size, every, offset, lateness int64) (out []result) {
	type group struct {
		key int
		end int64
	}
	groups := map[group][]*event{}
	for _, e := range all {
		end := e.t - mod(e.t-offset-size, every) + every
		for ; end-size <= e.t; end += every {
			if e.mark == math.MinInt64 || end+lateness > e.mark {
				groups[group{e.key, end}] = append(groups[group{e.key, end}], e)
			}
		}
	}
	for g, events := range groups {
		out = append(out, fold(g.key, g.end-size, g.end, events))
	}
	return out
}

func mod(a, b int64) int64 { return ((a % b) + b) % b }

// sessionModel computes sessions.
func sessionModel(all []*event, gap, limit, lateness int64) (out []result) {
	keys := map[int][]*event{}
	for _, e := range all {
		if e.mark == math.MinInt64 || e.t+lateness >= e.mark {
			keys[e.key] = append(keys[e.key], e)
		}
	}
	for key, events := range keys {
		slices.SortStableFunc(events, func(a, b *event) int { return cmp.Compare(a.t, b.t) })
		for len(events) > 0 {
			n := 1
			for n < len(events) && events[n].t <= events[n-1].t+gap {
				n++
			}
			from, to := events[0].t, events[n-1].t+gap
			if limit > 0 && to-from > limit {
				slice := max(1, limit/8)
				cut := from + limit - mod(from+limit, slice)
				if i := slices.IndexFunc(events[:n], func(e *event) bool { return e.t >= cut }); i >= 0 {
					n = i
				}
				to = min(events[n-1].t+gap, cut)
			}
			out = append(out, fold(key, from, to, slices.Clone(events[:n])))
			events = events[n:]
		}
	}
	return out
}

// play runs the records through a step, in batches that are cut anywhere, with
// watermarks and restarts between them.
func play(t *rapid.T, tb testing.TB, c *transform.AggregateConfig, all []*event, delay int64) (out []result, late int) {
	k := transformtest.NewKeyed(tb, "aggregate", c, transformtest.Options{Groups: 16, Timestamped: true})
	left := map[int][]*event{}
	high := map[int]int64{}
	for _, e := range all {
		left[e.split] = append(left[e.split], e)
		high[e.split] = math.MinInt64
	}
	wm := int64(math.MinInt64)
	for count := len(all); count > 0; {
		var batch []transformtest.Row
		for range rapid.IntRange(1, 8).Draw(t, "batch") {
			var open []int
			for s, events := range left {
				if len(events) > 0 {
					open = append(open, s)
				}
			}
			if len(open) == 0 {
				break
			}
			slices.Sort(open)
			s := rapid.SampledFrom(open).Draw(t, "next")
			e := left[s][0]
			left[s] = left[s][1:]
			count--
			high[s] = max(high[s], e.t)
			mark := e.mark
			batch = append(batch, transformtest.Row{
				JSON: fmt.Sprintf(`{"k":%d,"v":%d}`, e.key, e.v), Time: e.t, Mark: &mark, Partition: int32(s), Offset: e.at,
			})
		}
		k.Feed(0, batch...)
		least := int64(math.MaxInt64)
		for _, h := range high {
			least = min(least, h)
		}
		if least != math.MinInt64 && least-delay > wm && rapid.Bool().Draw(t, "advance") {
			wm = least - delay
			k.Watermark(wm)
		}
		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			k.Restart()
		}
	}
	k.Watermark(state.MaxTime)
	for _, o := range k.Take() {
		var r result
		if err := json.Unmarshal([]byte(o.JSON), &r); err != nil {
			t.Fatal(err)
		}
		if o.Time != r.To-1 {
			t.Fatalf("a row of the window up to %d has the time %d", r.To, o.Time)
		}
		out = append(out, r)
	}
	k.Restart()
	if u := k.Store().Usage(); u.Keys > 0 {
		t.Fatalf("%d entries are left behind", u.Keys)
	}
	return out, k.Late()
}

func byWindow(a, b result) int {
	return cmp.Or(cmp.Compare(a.K, b.K), cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
}

func TestWindowsAreTheSameHoweverRecordsAreBatchedAndMixed(t *testing.T) {
	spans := func(ms int64) string { return fmt.Sprintf("%dms", ms) }
	rapid.Check(t, func(rt *rapid.T) {
		delay, lateness := rapid.Int64Range(0, 20).Draw(rt, "delay"), rapid.Int64Range(0, 20).Draw(rt, "lateness")
		all := drawEvents(rt, delay)
		c := &transform.AggregateConfig{By: by("k"), Select: assign("n", "count()", "s", "sum(v)", "l", "collect(v)")}
		c.Lateness.UnmarshalConfig(spans(lateness))
		var want []result
		switch rapid.SampledFrom([]string{"tumbling", "sliding", "session"}).Draw(rt, "kind") {
		case "tumbling":
			size := rapid.Int64Range(1, 40).Draw(rt, "size")
			offset := rapid.Int64Range(0, size-1).Draw(rt, "offset")
			setWindow(t, c, map[string]any{"tumbling": spans(size), "offset": spans(offset)})
			want = alignedModel(all, size, size, offset, lateness)
		case "sliding":
			every := rapid.Int64Range(1, 12).Draw(rt, "every")
			size := every + rapid.Int64Range(0, 30).Draw(rt, "longer")
			setWindow(t, c, map[string]any{"sliding": map[string]any{"size": spans(size), "every": spans(every)}})
			want = alignedModel(all, size, every, 0, lateness)
		default:
			gap := rapid.Int64Range(1, 15).Draw(rt, "gap")
			limit := rapid.SampledFrom([]int64{0, gap, gap + 3, 2 * gap, 5 * gap}).Draw(rt, "max")
			session := map[string]any{"gap": spans(gap)}
			if limit > 0 {
				session["max"] = spans(limit)
			}
			setWindow(t, c, map[string]any{"session": session})
			want = sessionModel(all, gap, limit, lateness)
		}
		got, late := play(rt, t, c, all, delay)
		if c.Window.Kind != transform.SessionWindow && !slices.IsSortedFunc(got, func(a, b result) int { return cmp.Compare(a.To, b.To) }) {
			rt.Fatalf("windows do not close in the order of their ends: %v", got)
		}
		slices.SortFunc(got, byWindow)
		slices.SortFunc(want, byWindow)
		if a, b := lines(got), lines(want); a != b {
			rt.Fatalf("window %s lateness %d gives\n%s\nnot\n%s", c.Window.String(), lateness, a, b)
		}
		missed := 0
		for _, e := range all {
			if !e.counted {
				missed++
			}
		}
		if late != missed {
			rt.Fatalf("%d rows are late, not %d", late, missed)
		}
	})
}

func lines(rows []result) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

func setWindow(t testing.TB, c *transform.AggregateConfig, form map[string]any) {
	t.Helper()
	c.Window = transform.Window{}
	if err := c.Window.UnmarshalConfig(form); err != nil {
		t.Fatal(err)
	}
}
