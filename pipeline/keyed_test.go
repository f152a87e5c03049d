package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const counting = `
pipeline: counting
parallelism: PARALLELISM
max_parallelism: 8
source:
  feed: {name: FEED-in}
  timestamp: t
  watermark: {delay: 1s, idle_after: never, max_future: 1000000h}
transforms:
  - {name: tally, zz-tally: {by: [k], size: 10s}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

// at is a pipeline file at a parallelism; 0 leaves it to the number of processors.
func at(parallelism int, yaml string) string {
	if parallelism == 0 {
		return strings.Replace(yaml, "parallelism: PARALLELISM\n", "", 1)
	}
	return strings.ReplaceAll(yaml, "PARALLELISM", fmt.Sprint(parallelism))
}

// clicks are n records {"k", "t"} of a few keys, in time order but for less than a
// second, from a number on.
func clicks(f *pipelinetest.Feed, partitions, first, n int) {
	r := rand.New(rand.NewPCG(uint64(first), 7))
	for i := first; i < first+n; i++ {
		f.Append(i%partitions, fmt.Sprintf(`{"k":%d,"t":%d}`, r.IntN(17), i*50-r.IntN(900)))
	}
}

// wantClicks is what counting makes of clicks with the given parts.
func wantClicks(parts ...[2]int) []string {
	n := map[[2]int64]int{}
	for _, p := range parts {
		r := rand.New(rand.NewPCG(uint64(p[0]), 7))
		for i := p[0]; i < p[0]+p[1]; i++ {
			k, t := int64(r.IntN(17)), int64(i*50-r.IntN(900))
			end := t - (t%10000+10000)%10000 + 10000
			n[[2]int64{k, end}]++
		}
	}
	var out []string
	for at, count := range n {
		out = append(out, fmt.Sprintf(`{"key":%d,"end":%d,"n0":%d}`, at[0], at[1], count))
	}
	slices.Sort(out)
	return out
}

func TestKeyedCountsAreTheSameAtAnyParallelism(t *testing.T) {
	for _, p := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, at(p, counting))
				feed := w.Feed("in", 4)
				clicks(feed, 4, 0, 3000)
				feed.End()
				s, err := w.Run()
				if err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 3000}))
				if s.Counts.Late != 0 {
					t.Errorf("%d records are late", s.Counts.Late)
				}
			})
		})
	}
}

func TestKeyedStateSurvivesCrashesAtAnotherParallelism(t *testing.T) {
	// More processors than key groups: some subtasks own none.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(12))
	tests := []struct {
		name     string
		settings string
		steps    []int
	}{
		{"in memory, up and down", "", []int{1, 4, 2, 3}},
		{"in memory, more subtasks than key groups", "", []int{4, 1, 0, 2}},
		{"in memory, at the same", "", []int{2, 2}},
		{"at least once", "mode: at_least_once", []int{4, 1, 0, 2}},
		{"on disk", "state: {backend: disk, dir: DIR}", []int{2, 2, 3, 0, 1}},
		{"on disk, all of it each time", "state: {backend: disk, dir: DIR}, incremental: false", []int{2, 2, 3}},
		{"several checkpoints at once", "state: {backend: disk, dir: DIR}, max_concurrent: 4, retained: 1", []int{2, 2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			settings := strings.Replace(tt.settings, "DIR", strconv.Quote(t.TempDir()), 1)
			synctest.Test(t, func(t *testing.T) { surviveCrashes(t, settings, tt.steps) })
		})
	}
}

// surviveCrashes crashes a pipeline with the given checkpoint settings, and goes on
// at one parallelism after the other.
func surviveCrashes(t *testing.T, settings string, parallelism []int) {
	w := pipelinetest.New(t, counting)
	feed := w.Feed("in", 4)
	n := 0
	var parts [][2]int
	for _, p := range parallelism {
		yaml := at(p, counting)
		if settings != "" {
			yaml = strings.Replace(yaml, "interval", settings+", interval", 1)
		}
		w.Redefine(yaml)
		run := w.Start()
		for range 4 {
			clicks(feed, 4, n, 100)
			parts = append(parts, [2]int{n, 100})
			n += 100
			time.Sleep(130 * time.Millisecond)
		}
		run.Crash()
	}
	feed.End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	if got, want := sorted(w.Target("out").Values()), wantClicks(parts...); !strings.Contains(settings, "at_least_once") {
		equal(t, got, want)
	} else if len(got) < len(want) {
		t.Errorf("%d windows, want at least %d", len(got), len(want))
	}
}

// timed is counting with a note of the watermarks, at a parallelism of 1.
const timed = `
pipeline: timed
parallelism: 1
source:
  feed: {name: FEED-in}
  timestamp: t
  watermark: {delay: 1s, idle_after: 10s, max_future: 1000000h}
transforms:
  - {name: tally, zz-tally: {by: [k], size: 10s, spy: SPY}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

func click(f *pipelinetest.Feed, partition int, times ...int) {
	for _, t := range times {
		f.Append(partition, fmt.Sprintf(`{"k":1,"t":%d}`, t))
	}
}

func TestWatermarksOfPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(timed, "SPY", "partitions", 1))
		feed := w.Feed("in", 2)
		seen := func(step string, want ...int64) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := spies.take("partitions"); !slices.Equal(got, want) {
				t.Errorf("%s: the step was told %v, want %v", step, got, want)
			}
		}
		p := w.Start()
		click(feed, 0, 5000)
		seen("one partition without a record")
		click(feed, 1, 3000)
		seen("both have records", 2000)
		click(feed, 0, 9000)
		seen("the other one holds", []int64{}...)
		time.Sleep(11 * time.Second)
		click(feed, 0, 9500)
		seen("the other one is idle", 8000, 8500)
		click(feed, 1, 4000)
		seen("it wakes and holds; time does not go back")
		click(feed, 1, 20000)
		seen("it catches up")
		click(feed, 0, 21000)
		seen("and both move on", 19000)
		p.Crash()
		p = w.Start()
		seen("a restart goes on from where it was", 19000)
		click(feed, 0, 30000)
		click(feed, 1, 31000)
		seen("and further", 29000)
		if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		seen("a stop does not move event time")
		equal(t, sorted(w.Target("out").Values()), []string{`{"key":1,"end":10000,"n0":5}`})
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		seen("the end of the input is the end of time", 29000, 1<<63-1)
	})
}

func TestLateRecordsGoToTheirBranchUnchangedOrAreCounted(t *testing.T) {
	for _, branch := range []bool{true, false} {
		for _, p := range []int{1, 3} {
			t.Run(fmt.Sprint(branch, p), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					yaml := at(p, counting)
					if branch {
						yaml = strings.Replace(yaml, "sink: {collect: {name: TARGET-out}}",
							"sinks:\n  out: {from: tally, collect: {name: TARGET-out}}\n  late: {from: tally.late, collect: {name: TARGET-late}}", 1)
					}
					w := pipelinetest.New(t, yaml)
					feed := w.Feed("in", 2)
					// A record is late by what came before it in its own partition only.
					click(feed, 0, 1000, 25000, 2000, 16000)
					feed.Append(0, `{"k": 1, "t" : 3000, "x": 1.10}`)
					click(feed, 1, 4000, 5000)
					feed.End()
					s, err := w.Run()
					if err != nil {
						t.Fatal(err)
					}
					equal(t, sorted(w.Target("out").Values()), []string{`{"key":1,"end":10000,"n0":3}`, `{"key":1,"end":30000,"n0":1}`})
					late := []string{`{"k": 1, "t" : 3000, "x": 1.10}`, `{"k":1,"t":16000}`, `{"k":1,"t":2000}`}
					if !branch {
						late = nil
					}
					equal(t, sorted(w.Target("late").Values()), late)
					if want := int64(3 - len(late)); s.Counts.Late != want {
						t.Errorf("%d late records are counted, want %d", s.Counts.Late, want)
					}
				})
			})
		}
	}
}
