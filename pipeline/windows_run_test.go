package pipeline_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// windowed runs one step over records with an event time t, and another over what
// is too late for it.
const windowed = `
pipeline: windowed
parallelism: PARALLELISM
source:
  feed: {name: FEED-in, batch: 5}
  timestamp: t
  watermark: {delay: 1s, idle_after: never, max_future: 1000000h}
transforms:
  - name: counts
    aggregate: AGGREGATE
sinks:
  out: {from: counts, collect: {name: TARGET-out}}
LATE
checkpoint: {storage: STORAGE, interval: 100ms STATE}
restart: none
`

// backends are settings of checkpoints by the name of the backend.
func backends(t *testing.T) map[string]string {
	return map[string]string{
		"in memory": "",
		"on disk":   fmt.Sprintf(", state: {backend: disk, dir: %q, memory: 16MiB}", t.TempDir()),
	}
}

func windowedAt(parallelism int, backend, aggregate string, late bool) string {
	branch := ""
	if late {
		branch = "  late: {from: counts.late, collect: {name: TARGET-late}}"
	}
	return strings.NewReplacer("AGGREGATE", aggregate, " STATE", backend, "LATE", branch).Replace(at(parallelism, windowed))
}

// crashed runs a world's pipeline at one parallelism after the other, each of which
// is given a part of the records and crashes, and a last one that reads to the end.
func crashed(t *testing.T, w *pipelinetest.World, feed *pipelinetest.Feed, yaml func(parallelism int) string, parts ...func()) {
	t.Helper()
	for i, part := range parts {
		w.Redefine(yaml([]int{2, 3, 1, 4}[i%4]))
		run := w.Start()
		part()
		time.Sleep(350 * time.Millisecond) // three checkpoints
		run.Crash()
	}
	feed.End()
	w.Redefine(yaml(2))
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
}

func TestDaysOfAZoneHaveTheHoursThatTheClockShowsAcrossRestarts(t *testing.T) {
	zones := []struct {
		zone string
		days map[string]int // local dates on which the clock changes, and the half hours that they have
	}{
		{"Europe/Berlin", map[string]int{"2024-03-31": 46, "2024-10-27": 50}},
		{"America/New_York", map[string]int{"2024-03-10": 46, "2024-11-03": 50}},
		{"Australia/Lord_Howe", map[string]int{"2024-04-07": 49, "2024-10-06": 47}}, // half an hour
		{"America/Sao_Paulo", map[string]int{"2018-11-04": 46, "2019-02-16": 50}},   // at midnight
	}
	for _, z := range zones {
		t.Run(z.zone, func(t *testing.T) {
			loc, err := time.LoadLocation(z.zone)
			if err != nil {
				t.Fatal(err)
			}
			for day, halfHours := range z.days {
				synctest.Test(t, func(t *testing.T) { oneDay(t, loc, day, halfHours) })
			}
		})
	}
}

// oneDay counts a record every half hour over a day of a zone and those beside it.
func oneDay(t *testing.T, loc *time.Location, day string, halfHours int) {
	y := func(p int) string {
		return windowedAt(p, "", "{by: [k], window: {tumbling: day, zone: "+loc.String()+"}, select: {n: count()}}", false)
	}
	w := pipelinetest.New(t, y(1))
	feed := w.Feed("in", 2)
	noon, err := time.ParseInLocation("2006-01-02 15:04", day+" 12:00", loc)
	if err != nil {
		t.Fatal(err)
	}
	first := noon.Add(-36 * time.Hour)
	want := map[string]int{}
	n := 0
	part := func(count int) func() {
		return func() {
			for range count {
				at := first.Add(time.Duration(n) * 30 * time.Minute)
				feed.Append(n%2, fmt.Sprintf(`{"k":1,"t":%d}`, at.UnixMilli()))
				want[at.In(loc).Format(time.DateOnly)]++
				n++
			}
		}
	}
	crashed(t, w, feed, y, part(70), part(1), part(73))
	got := map[string]int{}
	for _, row := range w.Target("out").Values() {
		var r struct {
			Start int64 `json:"window_start"`
			N     int   `json:"n"`
		}
		if err := json.Unmarshal([]byte(row), &r); err != nil {
			t.Fatal(err)
		}
		start := time.UnixMilli(r.Start).In(loc)
		// A day begins at the first moment of its date.
		if start.Add(-time.Millisecond).Day() == start.Day() {
			t.Errorf("a window begins at %v", start)
		}
		if _, twice := got[start.Format(time.DateOnly)]; twice {
			t.Errorf("the day %v is there twice", start)
		}
		got[start.Format(time.DateOnly)] = r.N
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || got[day] != halfHours {
		t.Errorf("records of the days are %v, want %v, and %d on %s", got, want, halfHours, day)
	}
}

func TestSessionsMergeAcrossRestartsAndLateRecords(t *testing.T) {
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := func(p int) string {
					return windowedAt(p, backend, "{by: [k], window: {session: {gap: 10s}}, select: {n: count(), l: collect(v)}, lateness: 30s}", true)
				}
				w := pipelinetest.New(t, y(1))
				feed := w.Feed("in", 1)
				add := func(rows ...string) func() { return func() { feed.Append(0, rows...) } }
				crashed(t, w, feed, y,
					add(`{"k":"a","v":1,"t":0}`, `{"k":"a","v":2,"t":20000}`, `{"k":"b","v":9,"t":1000}`),
					add(`{"k":"a","v":3,"t":10000}`), // late, and makes one of two
					add(`{"k":"a","v":4,"t":-10000}`, `{"k":"c","v":5,"t":-10001}`, `{"k":"c","v":6,"t":-12001}`), // the last one is beyond
					add(`{"k":"b","v":7,"t":90000}`),
				)
				equal(t, sorted(w.Target("out").Values()), []string{
					`{"k":"a","window_start":-10000,"window_end":30000,"n":4,"l":[4,1,3,2]}`,
					`{"k":"b","window_start":1000,"window_end":11000,"n":1,"l":[9]}`,
					`{"k":"b","window_start":90000,"window_end":100000,"n":1,"l":[7]}`,
					`{"k":"c","window_start":-10001,"window_end":-1,"n":1,"l":[5]}`,
				})
				equal(t, w.Target("late").Values(), []string{`{"k":"c","v":6,"t":-12001}`})
			})
		})
	}
}

func TestWindowsSpanRestarts(t *testing.T) {
	for name, backend := range backends(t) {
		for kind, window := range map[string]string{
			"tumbling": "{tumbling: 1h, offset: -7m}", "sliding": "{sliding: {size: 1h, every: 10m}}", "hours": "{tumbling: hour, zone: Asia/Kolkata}",
			"sessions": "{session: {gap: 3m, max: 1h}}", "counts": "{count: 30}",
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					y := func(p int) string {
						return windowedAt(p, backend, "{by: [k], window: "+window+", select: {n: count(), s: sum(v), l: collect(v), d: count_distinct(v % 5)}}", false)
					}
					result := func(parts int) []string {
						w := pipelinetest.New(t, y(1))
						feed := w.Feed("in", 1) // counts go by arrival
						r := rand.New(rand.NewPCG(3, 4))
						n := 0
						more := func(count int) func() {
							return func() {
								for range count {
									feed.Append(0, fmt.Sprintf(`{"k":%d,"v":%d,"t":%d}`, r.IntN(3), n, -3_600_000+n*30_000-r.IntN(1000)))
									n++
								}
							}
						}
						var all []func()
						for range parts {
							all = append(all, more(600/parts))
						}
						crashed(t, w, feed, y, all...)
						return sorted(w.Target("out").Values())
					}
					got, want := result(6), result(1)
					if len(want) < 6 {
						t.Fatalf("only %d windows", len(want))
					}
					equal(t, got, want)
				})
			})
		}
	}
}

func TestAKeyWithNearlyAllRecordsIsCountedRight(t *testing.T) {
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := func(p int) string {
					return windowedAt(p, backend, "{by: [k], window: {tumbling: 10s}, select: {n: count()}}", false)
				}
				w := pipelinetest.New(t, y(1))
				feed := w.Feed("in", 4)
				want := map[string]int{}
				n := 0
				part := func() {
					for range 1500 {
						key := 0
						if n%10 == 0 {
							key = n
						}
						feed.Append(n%4, fmt.Sprintf(`{"k":%d,"t":%d}`, key, n*10))
						want[fmt.Sprintf(`{"k":%d,"window_start":%d,"window_end":%d`, key, n*10/10000*10000, n*10/10000*10000+10000)]++
						n++
					}
				}
				crashed(t, w, feed, y, part, part)
				var rows []string
				for window, n := range want {
					rows = append(rows, fmt.Sprintf(`%s,"n":%d}`, window, n))
				}
				slices.Sort(rows)
				equal(t, sorted(w.Target("out").Values()), rows)
			})
		})
	}
}

func TestKeysAreEqualByValueOverExchangesAndRestarts(t *testing.T) {
	large := strconv.Quote(strings.Repeat("x", 1<<20))
	keys := []struct{ values, shown string }{
		{`1 1.0 10e-1`, `1`}, {`"1"`, `"1"`}, {`0 -0.0 0.0 -0`, `0`}, {`null`, `null`}, {`"null"`, `"null"`}, {`""`, `""`},
		{`9007199254740993`, `9007199254740993`}, {`9007199254740992 9007199254740992.0`, `9007199254740992`},
		{`true`, `true`}, {`"true"`, `"true"`}, {`[1,2.0] [1.0,2]`, ``}, {`[1,"2"]`, `[1,"2"]`}, {large, large},
	}
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := func(p int) string {
					return windowedAt(p, backend, `{by: {k: k, "on": 't % 2', c: c}, window: {tumbling: 10s}, select: {n: count()}}`, false)
				}
				w := pipelinetest.New(t, y(1))
				feed := w.Feed("in", 2)
				n := 0
				part := func() {
					for _, k := range keys {
						for _, v := range strings.Fields(k.values) {
							for i, c := range []string{`,"c":null`, ``, `,"c":"x"`} { // null, absent, and another key
								feed.Append((n+i)%2, fmt.Sprintf(`{"k":%s,"t":100%s}`, v, c))
							}
							n++
						}
					}
				}
				crashed(t, w, feed, y, part, part)
				got := map[string]int{}
				for _, row := range w.Target("out").Values() {
					var r struct {
						K, C json.RawMessage
						N    int
					}
					if err := json.Unmarshal([]byte(row), &r); err != nil {
						t.Fatal(err)
					}
					got[string(r.K)+" "+string(r.C)] += r.N
				}
				for _, k := range keys {
					shown := k.shown
					if shown == "" {
						shown = `[1,2.0]`
						if _, other := got["[1.0,2] null"]; other {
							shown = `[1.0,2]`
						}
						if _, other := got["[1,2] null"]; other {
							shown = `[1,2]`
						}
					}
					count := len(strings.Fields(k.values)) * 2
					if got[shown+" null"] != 2*count || got[shown+` "x"`] != count {
						t.Errorf("key %.40s: %d and %d records, want %d and %d", k.values, got[shown+" null"], got[shown+` "x"`], 2*count, count)
					}
				}
				if len(got) != 2*len(keys) {
					t.Errorf("%d groups, want %d", len(got), 2*len(keys))
				}
			})
		})
	}
}
