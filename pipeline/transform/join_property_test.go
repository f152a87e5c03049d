package transform_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// multiset counts equal rows of a table.
type multiset map[string]int

// apply applies a changelog and demands that it can be.
func (m multiset) apply(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, out []transformtest.Out) {
	t.Helper()
	for i, o := range out {
		if o.Op == connectors.UpdateBefore && (i+1 == len(out) || out[i+1].Op != connectors.UpdateAfter) {
			t.Fatalf("the new row of an update does not follow: %v", out)
		}
		if o.Op == connectors.UpdateAfter && (i == 0 || out[i-1].Op != connectors.UpdateBefore) {
			t.Fatalf("the old row of an update is missing: %v", out)
		}
		if o.Op.Retracts() {
			if m[o.JSON]--; m[o.JSON] < 0 {
				t.Fatalf("%v takes back what is not there: %v", o, out)
			}
			continue
		}
		m[o.JSON]++
	}
}

func (m multiset) list() (out []string) {
	for json, n := range m {
		for range n {
			out = append(out, json)
		}
	}
	return sorted(out)
}

func (m multiset) String() string { return fmt.Sprint(strings.Join(m.list(), " ")) }

// joinEvent is a record of one side of a join.
type joinEvent struct {
	side, split int
	key         int // 0 is null
	v           int
	t, mark     int64
	offset      int64
	op          connectors.Op
}

func (e *joinEvent) json() string {
	if e.key == 0 {
		return fmt.Sprintf(`{"k":null,"v":%d}`, e.v)
	}
	return fmt.Sprintf(`{"k":%d,"v":%d}`, e.key, e.v)
}

// seen is how far the event's split had come, or its own time where that is later.
func (e *joinEvent) seen() int64 { return max(e.t, e.mark) }

const joinSplits = 4 // the even ones are left

// drawJoin draws events by split, in the order in which their splits hold them. Those
// of a side in punctual are never behind the watermark.
func drawJoin(t *rapid.T, delay int64, punctual func(side int) bool) (splits [joinSplits][]*joinEvent) {
	var clock [joinSplits]int64
	for i := range rapid.IntRange(1, 40).Draw(t, "records") {
		s := rapid.IntRange(0, joinSplits-1).Draw(t, "split")
		e := &joinEvent{side: s % 2, split: s, mark: connectors.NoMark, offset: int64(i)}
		if n := len(splits[s]); n > 0 {
			e.mark = clock[s] - delay
		}
		most := 3 * delay
		if punctual(e.side) {
			most = delay
		}
		e.t = clock[s] + rapid.Int64Range(-most, 15).Draw(t, "step")
		e.key, e.v = rapid.IntRange(0, 2).Draw(t, "key"), rapid.IntRange(0, 3).Draw(t, "value")
		clock[s] = max(clock[s], e.t)
		splits[s] = append(splits[s], e)
	}
	return splits
}

// playJoin feeds the events in an order that is drawn, with the watermark that their
// splits make, and gives what comes out.
func playJoin(t *rapid.T, k *transformtest.Keyed, splits [joinSplits][]*joinEvent, delay int64) []transformtest.Out {
	var next [joinSplits]int
	var clock [joinSplits]int64
	var pending []transformtest.Row
	side, wm := 0, int64(math.MinInt64)
	flush := func() {
		if len(pending) > 0 {
			k.Feed(side, pending...)
		}
		pending = nil
		low := int64(math.MaxInt64)
		for s := range splits {
			switch {
			case next[s] == len(splits[s]):
			case next[s] == 0:
				low = math.MinInt64
			default:
				low = min(low, clock[s]-delay)
			}
		}
		if low > wm && rapid.Bool().Draw(t, "advance") {
			wm = low
			k.Watermark(wm)
		}
		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			k.Restart()
		}
	}
	for {
		var ready []int
		for s := range splits {
			if next[s] < len(splits[s]) {
				ready = append(ready, s)
			}
		}
		if len(ready) == 0 {
			break
		}
		s := rapid.SampledFrom(ready).Draw(t, "from")
		e := splits[s][next[s]]
		if e.side != side || rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
			flush()
			side = e.side
		}
		pending = append(pending, transformtest.Row{JSON: e.json(), Time: e.t, Mark: &e.mark, Offset: e.offset, Partition: int32(e.split), Op: e.op})
		clock[s] = max(clock[s], e.t)
		if next[s] == 0 {
			clock[s] = e.t
		}
		next[s]++
	}
	flush()
	k.Watermark(state.MaxTime)
	return k.Take()
}

// joinModel joins by trying all pairs.
type joinModel struct {
	kind string
	rest bool
	out  []string
}

const modelRest = " && (left.v + right.v) % 3 != 0"

func (m *joinModel) matches(l, r *joinEvent) bool {
	return l.key != 0 && l.key == r.key && (!m.rest || (l.v+r.v)%3 != 0)
}

// join adds the results of rows that are together, where meet says which can match.
func (m *joinModel) join(events []*joinEvent, meet func(l, r *joinEvent) bool) {
	hit := map[*joinEvent]bool{}
	for _, l := range events {
		for _, r := range events {
			if l.side == left && r.side == right && m.matches(l, r) && meet(l, r) {
				hit[l], hit[r] = true, true
				if m.kind != "semi" && m.kind != "anti" {
					m.out = append(m.out, fmt.Sprintf(`{"l":%d,"r":%d}`, l.v, r.v))
				}
			}
		}
	}
	for _, e := range events {
		switch m.kind {
		case "semi":
			if e.side == left && hit[e] {
				m.out = append(m.out, e.json())
			}
		case "anti":
			if e.side == left && !hit[e] {
				m.out = append(m.out, e.json())
			}
		default:
			if e.side == left && !hit[e] && (m.kind == "left" || m.kind == "full") {
				m.out = append(m.out, fmt.Sprintf(`{"l":%d,"r":null}`, e.v))
			}
			if e.side == right && !hit[e] && (m.kind == "right" || m.kind == "full") {
				m.out = append(m.out, fmt.Sprintf(`{"l":null,"r":%d}`, e.v))
			}
		}
	}
}

// joinTypes are the types, two to a test.
var joinTypes = [][]string{{"inner", "anti"}, {"left", "right"}, {"full", "semi"}}

// checkJoin compares a join with the model.
func checkJoin(t *testing.T, kinds [][]string, form func(t *rapid.T, c *transform.JoinConfig), timestamped bool, punctual func(side int) bool,
	prepare func(t *rapid.T, splits [joinSplits][]*joinEvent), model func(m *joinModel, c *transform.JoinConfig, events []*joinEvent) (late int)) {
	for _, pair := range kinds {
		t.Run(strings.Join(pair, " "), func(tt *testing.T) {
			rapid.Check(tt, func(t *rapid.T) {
				const delay = 6
				kind := rapid.SampledFrom(pair).Draw(t, "type")
				c := joining(kind, func(c *transform.JoinConfig) { form(t, c) })
				m := &joinModel{kind: kind, rest: rapid.Bool().Draw(t, "rest")}
				if m.rest {
					c.On.Text += modelRest
				}
				splits := drawJoin(t, delay, punctual)
				if prepare != nil {
					prepare(t, splits)
				}
				k := transformtest.NewKeyed(tt, "join", c, transformtest.Options{Timestamped: timestamped})
				got := multiset{}
				got.apply(t, playJoin(t, k, splits, delay))
				late := model(m, c, slices.Concat(splits[0], splits[1], splits[2], splits[3]))
				if g, w := got.String(), strings.Join(sorted(m.out), " "); g != w {
					t.Fatalf("got  %s\nwant %s", g, w)
				}
				if late >= 0 && k.Late() != late {
					t.Fatalf("%d rows are late, want %d", k.Late(), late)
				}
				if n := k.Store().Usage().Keys; n != 0 && !c.Latest {
					t.Fatalf("%d entries of state are left", n)
				}
			})
		})
	}
}

func anyTime(int) bool { return false }

func TestAnIntervalJoinIsWhatTryingAllPairsGives(t *testing.T) {
	var before, after int64
	checkJoin(t, joinTypes, func(t *rapid.T, c *transform.JoinConfig) {
		before = rapid.Int64Range(-10, 20).Draw(t, "before")
		after = rapid.Int64Range(max(-10, -before), 20).Draw(t, "after")
		within(time.Duration(before)*time.Millisecond, time.Duration(after)*time.Millisecond)(c)
	}, true, anyTime, nil, func(m *joinModel, _ *transform.JoinConfig, all []*joinEvent) (late int) {
		return m.near(all, before, after)
	})
}

// near joins rows whose times are near each other, none of which came too late for
// the other.
func (m *joinModel) near(all []*joinEvent, before, after int64) (late int) {
	var events []*joinEvent
	for _, e := range all {
		if e.seen() > e.t+before+after {
			late++
		} else {
			events = append(events, e)
		}
	}
	m.join(events, func(l, r *joinEvent) bool { return l.seen()-before <= r.t && r.seen() <= l.t+after })
	return late
}

func TestAPlainJoinByEventTimeIsWhatTryingAllPairsGives(t *testing.T) {
	checkJoin(t, joinTypes, func(t *rapid.T, c *transform.JoinConfig) {
		c.TTL.Span = time.Duration(rapid.IntRange(1, 30).Draw(t, "ttl")) * time.Millisecond
	}, true, anyTime, nil, func(m *joinModel, c *transform.JoinConfig, all []*joinEvent) (late int) {
		// A null key is judged by nothing: it cannot be too late for a match.
		for _, e := range all {
			if e.key == 0 {
				e.mark = e.t
			}
		}
		return m.near(all, c.TTL.Span.Milliseconds(), c.TTL.Span.Milliseconds())
	})
}

func TestARangeJoinIsWhatTryingAllPairsGives(t *testing.T) {
	checkJoin(t, joinTypes, func(t *rapid.T, c *transform.JoinConfig) {
		c.Within = &transform.JoinWithin{
			From: connectors.Expr{Text: `unix_ms(left.meta.timestamp) + left.v - 1`}, To: connectors.Expr{Text: `unix_ms(left.meta.timestamp) + 8 * left.v - 4`},
		}
		c.TTL.Span = time.Duration(rapid.IntRange(1, 20).Draw(t, "ttl")) * time.Millisecond
	}, true, anyTime, nil, func(m *joinModel, c *transform.JoinConfig, all []*joinEvent) (late int) {
		ttl := c.TTL.Span.Milliseconds()
		var events []*joinEvent
		bounds := func(l *joinEvent) (int64, int64) {
			return max(l.t+int64(l.v)-1, l.seen()-ttl), l.t + 8*int64(l.v) - 4
		}
		for _, e := range all {
			if from, to := bounds(e); e.side == left && from > to && e.t+int64(e.v)-1 <= to {
				continue
			}
			events = append(events, e)
		}
		m.join(events, func(l, r *joinEvent) bool {
			from, to := bounds(l)
			return from <= r.t && r.seen() <= to
		})
		return -1
	})
}

func TestWindowJoinsAreWhatTryingAllPairsGives(t *testing.T) {
	for name, draw := range map[string]func(t *rapid.T) transform.Window{
		"tumbling": func(t *rapid.T) transform.Window {
			size := rapid.Int64Range(1, 20).Draw(t, "size")
			return transform.Window{Kind: transform.TumblingWindow, Size: size, Offset: rapid.Int64Range(0, size-1).Draw(t, "offset")}
		},
		"sliding": func(t *rapid.T) transform.Window {
			every := rapid.Int64Range(1, 10).Draw(t, "every")
			return transform.Window{Kind: transform.SlidingWindow, Size: every + rapid.Int64Range(0, 12).Draw(t, "more"), Every: every}
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkJoin(t, joinTypes, func(t *rapid.T, c *transform.JoinConfig) { c.Window = draw(t) }, true, anyTime, nil,
				func(m *joinModel, c *transform.JoinConfig, all []*joinEvent) (late int) {
					w := c.Window
					every := max(w.Every, 0)
					if every == 0 {
						every = w.Size
					}
					windows := map[int64][]*joinEvent{}
					for _, e := range all {
						open := false
						for start := e.t - window.FloorMod(e.t-w.Offset, every); start > e.t-w.Size; start -= every {
							if start+w.Size > e.mark {
								windows[start] = append(windows[start], e)
								open = true
							}
						}
						if !open {
							late++
						}
					}
					for _, events := range windows {
						m.join(events, func(l, r *joinEvent) bool { return true })
					}
					return late
				})
		})
	}
}

func TestASessionJoinIsWhatTryingAllPairsGives(t *testing.T) {
	checkJoin(t, joinTypes, func(t *rapid.T, c *transform.JoinConfig) {
		c.Window = transform.Window{Kind: transform.SessionWindow, Gap: rapid.Int64Range(1, 15).Draw(t, "gap")}
	}, true, anyTime, nil, func(m *joinModel, c *transform.JoinConfig, all []*joinEvent) (late int) {
		var keys [3][]*joinEvent
		for _, e := range all {
			if e.t < e.mark {
				late++
			} else {
				keys[e.key] = append(keys[e.key], e)
			}
		}
		for _, events := range keys {
			slices.SortFunc(events, func(a, b *joinEvent) int { return cmp.Compare(a.t, b.t) })
			for len(events) > 0 {
				n, end := 1, events[0].t+c.Window.Gap
				for n < len(events) && events[n].t <= end {
					end = events[n].t + c.Window.Gap
					n++
				}
				m.join(events[:n], func(l, r *joinEvent) bool { return true })
				events = events[n:]
			}
		}
		return late
	})
}

func TestALatestJoinIsWhatTryingAllVersionsGives(t *testing.T) {
	checkJoin(t, [][]string{{"inner", "left"}}, func(t *rapid.T, c *transform.JoinConfig) {
		latest(c)
		if rapid.Bool().Draw(t, "expires") {
			c.TTL.Span = time.Duration(rapid.IntRange(1, 30).Draw(t, "ttl")) * time.Millisecond
		}
	}, true, anyTime, func(t *rapid.T, splits [joinSplits][]*joinEvent) {
		for _, e := range slices.Concat(splits[1], splits[3]) {
			if rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
				e.op = connectors.Delete
			}
		}
	}, func(m *joinModel, c *transform.JoinConfig, all []*joinEvent) (late int) {
		for _, l := range all {
			if l.side == right {
				continue
			}
			if l.t < l.mark {
				late++
				continue
			}
			var newest *joinEvent
			for _, r := range all {
				if r.side == right && r.key == l.key && l.key != 0 && r.seen() <= l.t && (newest == nil || placed(newest) < placed(r)) {
					newest = r
				}
			}
			if newest != nil && (newest.op == connectors.Delete || c.TTL.Span > 0 && newest.t+c.TTL.Span.Milliseconds() < l.t) {
				newest = nil
			}
			together := []*joinEvent{l}
			if newest != nil {
				together = append(together, newest)
			}
			m.join(together, func(l, r *joinEvent) bool { return true })
		}
		if c.TTL.Span > 0 { // what hides a late version may be forgotten
			return -1
		}
		for _, r := range all {
			if r.side == right && r.key != 0 && r.t < r.mark && slices.ContainsFunc(all, func(o *joinEvent) bool {
				return o.side == right && o.key == r.key && o.seen() <= r.seen() && placed(r) < placed(o)
			}) {
				late++
			}
		}
		return late
	})
}

// placed orders versions by time, partition and offset.
func placed(e *joinEvent) int64 { return (e.t+1000)<<32 | int64(e.split)<<16 | e.offset }

func TestAChangelogIsJoinedRightAtEveryPoint(t *testing.T) {
	for _, pair := range joinTypes {
		t.Run(strings.Join(pair, " "), func(tt *testing.T) {
			rapid.Check(tt, func(t *rapid.T) {
				kind := rapid.SampledFrom(pair).Draw(t, "type")
				updating := map[int][]string{}
				for side := range 2 {
					if rapid.Bool().Draw(t, "updating") {
						updating[side] = nil
					}
				}
				c := joining(kind, forever)
				m := &joinModel{kind: kind, rest: rapid.Bool().Draw(t, "rest")}
				if m.rest {
					c.On.Text += modelRest
				}
				k := transformtest.NewKeyed(tt, "join", c, transformtest.Options{Updating: updating, Timestamped: rapid.Bool().Draw(t, "timestamped")})
				var rows [2][]*joinEvent
				table := multiset{}
				for range rapid.IntRange(1, 25).Draw(t, "batches") {
					side := rapid.IntRange(0, 1).Draw(t, "side")
					_, changes := updating[side]
					var feed []transformtest.Row
					for range rapid.IntRange(1, 4).Draw(t, "changes") {
						feed = append(feed, drawChange(t, side, &rows[side], changes)...)
					}
					k.Feed(side, feed...)
					if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
						k.Restart()
					}
					out := k.Take()
					if kind == "inner" && len(updating) == 0 || kind == "semi" && len(updating) == 0 {
						for _, o := range out {
							if o.Op != connectors.Insert {
								t.Fatalf("append-only inputs give %v", o)
							}
						}
					}
					table.apply(t, out)
					m.out = nil
					m.join(slices.Concat(rows[left], rows[right]), func(l, r *joinEvent) bool { return true })
					if g, w := table.String(), strings.Join(sorted(m.out), " "); g != w {
						t.Fatalf("got  %s\nwant %s", g, w)
					}
				}
				if k.Late() != 0 {
					t.Fatalf("%d late", k.Late())
				}
			})
		})
	}
}

// drawChange changes the rows of a side.
func drawChange(t *rapid.T, side int, rows *[]*joinEvent, changes bool) []transformtest.Row {
	fresh := &joinEvent{side: side, key: rapid.IntRange(0, 2).Draw(t, "key"), v: rapid.IntRange(0, 3).Draw(t, "value")}
	what := "insert"
	if changes && len(*rows) > 0 {
		what = rapid.SampledFrom([]string{"insert", "insert", "delete", "update"}).Draw(t, "what")
	}
	if what == "insert" {
		*rows = append(*rows, fresh)
		return []transformtest.Row{{JSON: fresh.json()}}
	}
	i := rapid.IntRange(0, len(*rows)-1).Draw(t, "row")
	old := (*rows)[i]
	*rows = slices.Delete(*rows, i, i+1)
	if what == "delete" {
		return []transformtest.Row{{JSON: old.json(), Op: connectors.Delete}}
	}
	if rapid.Bool().Draw(t, "same key") {
		fresh.key = old.key
	}
	*rows = append(*rows, fresh)
	return []transformtest.Row{{JSON: old.json(), Op: connectors.UpdateBefore}, {JSON: fresh.json(), Op: connectors.UpdateAfter}}
}
