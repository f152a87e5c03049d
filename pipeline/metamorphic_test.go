package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// closing are steps whose results are final; of each must come the same ones however
// a pipeline is run. Each reads left and right, or the first of them.
var closing = map[string]string{
	"tumbling windows":      "{name: s, from: left, aggregate: {by: [k], window: {tumbling: 10s}, select: {n: count(), l: collect(v), d: count_distinct(v % 3)}, lateness: 500ms}}",
	"sliding windows":       "{name: s, from: left, aggregate: {by: [k], window: {sliding: {size: 9s, every: 2s}}, select: {n: count(), first: first(v), best: 'arg_max(v, v % 7)'}}}",
	"sessions":              "{name: s, from: left, aggregate: {by: [k], window: {session: {gap: 1500ms, max: 20s}}, select: {n: count(), l: collect(v)}, lateness: 1s}}",
	"hours of a zone":       "{name: s, from: left, aggregate: {by: [k], window: {tumbling: hour, zone: Asia/Kolkata}, select: {n: count(), s: sum(v)}}}",
	"windows of windows":    "{name: a, from: left, aggregate: {by: [k], window: {tumbling: 2s}, select: {n: count()}, lateness: 3s}}, {name: s, aggregate: {by: {odd: k % 2}, window: {tumbling: 10s}, select: {n: sum(n), w: count()}}}",
	"the best of windows":   "{name: a, from: left, aggregate: {by: [k], window: {sliding: {size: 6s, every: 2s}}, select: {n: count()}}}, {name: s, top: {by: [window_end], n: 2, order: [{n: desc}, {k: asc}], rank: r, window: {tumbling: 2s}}}",
	"a join of windows":     "{name: s, join: {left: left, right: right, on: left.k == right.k, window: {tumbling: 3s}, type: full, select: {a: left.v, b: right.v}}}",
	"an interval join":      "{name: s, join: {left: left, right: right, on: left.k == right.k, within: {before: 1s, after: 500ms}, type: full, select: {a: left.v, b: right.v}}}",
	"an anti join":          "{name: s, join: {left: left, right: right, on: left.k == right.k && left.v % 2 == right.v % 2, within: {before: 1s, after: 500ms}, type: anti}}",
	"the latest value":      "{name: s, join: {left: left, right: right, on: left.k == right.k, latest: true, type: left, select: {a: left.v, b: right.v}}}",
	"the last of each":      "{name: s, from: left, dedup: {by: [k], keep: last, emit: on_close}}",
	"a total at the end":    "{name: s, from: left, aggregate: {by: [k], select: {n: count(), s: sum(v)}, emit: on_close, ttl: forever}}",
	"joined, then windowed": "{name: j, join: {left: left, right: right, on: left.k == right.k, within: {before: 1s, after: 1s}, type: left, select: {k: left.k, b: right.v ?? 0}}}, {name: s, aggregate: {by: [k], window: {tumbling: 5s}, select: {n: count(), s: sum(b)}}}",
}

// way is how a pipeline is run.
type way struct {
	parallelism []int // of one life after the other; all but the last one crash
	batch       int
	interval    time.Duration
	backend     string
	shuffle     uint64 // how the partitions' records are mixed
}

func (w way) String() string {
	return fmt.Sprintf("parallelism %v, batches of %d, a checkpoint every %v, %s, mixed by %d", w.parallelism, w.batch, w.interval, w.backend, w.shuffle)
}

func randomWay(r *rand.Rand) way {
	w := way{
		batch: 1 + r.IntN(20), interval: time.Duration(20+r.IntN(300)) * time.Millisecond, shuffle: r.Uint64(),
		backend: []string{"memory", "disk"}[r.IntN(2)],
	}
	for range 1 + r.IntN(4) {
		w.parallelism = append(w.parallelism, 1+r.IntN(4))
	}
	return w
}

// feeding is one record of one partition of a feed.
type feeding struct {
	feed      string
	partition int
	value     string
}

// outOfOrder makes records, many of them out of order and some late, by partition.
func outOfOrder(r *rand.Rand) [][]feeding {
	const partitions = 3
	lists := make([][]feeding, 2*partitions)
	for i := range lists {
		feed := []string{"left", "right"}[i%2]
		now := r.Int64N(4000) - 20_000
		for n := range 60 + r.IntN(60) {
			now += r.Int64N(900)
			at := now - r.Int64N(1200)
			if r.IntN(15) == 0 {
				at -= r.Int64N(12_000)
			}
			value := fmt.Sprintf(`{"k":%d,"v":%d,"t":%d}`, r.IntN(5), 1000*i+n, at)
			lists[i] = append(lists[i], feeding{feed, i / 2, value})
		}
	}
	return lists
}

func TestFinalResultsAreTheSameHoweverAPipelineIsRun(t *testing.T) {
	plain := way{parallelism: []int{1}, batch: 1000, interval: time.Hour, backend: "memory"}
	for name, steps := range closing {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, 11))
				lists := outOfOrder(r)
				var want, wantLate []string
				synctest.Test(t, func(t *testing.T) { want, wantLate = plain.run(t, steps, lists) })
				if len(want) == 0 {
					t.Fatal("no results")
				}
				other := randomWay(r)
				synctest.Test(t, func(t *testing.T) {
					got, late := other.run(t, steps, lists)
					if !slices.Equal(got, want) || !slices.Equal(late, wantLate) {
						t.Errorf("seed %d, %v: %d results and %d late, want %d and %d; %v", seed, other, len(got), len(late), len(want), len(wantLate), difference(got, want))
					}
				})
			}
		})
	}
}

// run feeds the lists in, mixed, over the lives of a pipeline, and gives its results
// and what was late.
func (w way) run(t *testing.T, steps string, lists [][]feeding) (results, late []string) {
	state := ""
	if w.backend == "disk" {
		state = fmt.Sprintf(", state: {backend: disk, dir: %q, memory: 16MiB}", t.TempDir())
	}
	branch := ""
	if strings.Contains(steps, "name: s, from: left, aggregate") && strings.Contains(steps, "window") {
		branch = "  late: {from: s.late, collect: {name: TARGET-late}}"
	}
	yaml := func(parallelism int) string {
		source := "feed: {name: FEED-in, batch: %[2]d}, timestamp: t, watermark: {delay: 1s, idle_after: never}"
		return fmt.Sprintf(`
pipeline: closing
parallelism: %[1]d
max_parallelism: 16
sources:
  left: {`+strings.ReplaceAll(source, "FEED-in", "FEED-left")+`}
  right: {`+strings.ReplaceAll(source, "FEED-in", "FEED-right")+`}
transforms: [%[3]s]
sinks:
  out: {from: s, collect: {name: TARGET-out}}
  rest: {from: right, blackhole: {}}
%[4]s
checkpoint: {storage: STORAGE, interval: %[5]v%[6]s}
restart: none
`, parallelism, w.batch, steps, branch, w.interval, state)
	}
	world := pipelinetest.New(t, yaml(1))
	feeds := map[string]*pipelinetest.Feed{"left": world.Feed("left", 3), "right": world.Feed("right", 3)}
	mixed := mix(rand.New(rand.NewPCG(w.shuffle, 1)), lists)
	for i, p := range w.parallelism {
		world.Redefine(yaml(p))
		run := world.Start()
		part := mixed[i*len(mixed)/len(w.parallelism) : (i+1)*len(mixed)/len(w.parallelism)]
		for n, f := range part {
			feeds[f.feed].Append(f.partition, f.value)
			if n%(w.batch+3) == 0 && len(w.parallelism) > 1 {
				time.Sleep(7 * time.Millisecond)
			}
		}
		if i < len(w.parallelism)-1 {
			time.Sleep(w.interval / 2)
			run.Crash()
			continue
		}
		feeds["left"].End()
		feeds["right"].End()
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	return sorted(world.Target("out").Values()), sorted(world.Target("late").Values())
}

// mix gives the records of all lists, those of each in their order.
func mix(r *rand.Rand, lists [][]feeding) (out []feeding) {
	lists = slices.Clone(lists)
	for len(lists) > 0 {
		i := r.IntN(len(lists))
		n := min(1+r.IntN(10), len(lists[i]))
		out = append(out, lists[i][:n]...)
		if lists[i] = lists[i][n:]; len(lists[i]) == 0 {
			lists = slices.Delete(lists, i, i+1)
		}
	}
	return out
}

// difference shows a few rows that only one of two sorted lists has.
func difference(got, want []string) string {
	only := func(a, b []string) []string {
		var out []string
		for _, row := range a {
			if i, found := slices.BinarySearch(b, row); !found {
				out = append(out, row)
			} else if i < len(b) && row != b[i] {
				out = append(out, row)
			}
		}
		return out[:min(5, len(out))]
	}
	return fmt.Sprintf("too many %v, missing %v", only(got, want), only(want, got))
}
