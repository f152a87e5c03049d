package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// crossing is a graph in which ways of records meet in all the manners there are: two
// edges of one sender to a join, a diamond over a keyed step, a late branch that
// another keyed step reads, unions before and behind exchanges, a gate, and two
// sources that wait for each other.
const crossing = `
pipeline: crossing
parallelism: PARALLELISM
max_parallelism: 12
sources:
  a: {feed: {name: FEED-a, batch: BATCH}, timestamp: t, watermark: {delay: 500ms, idle_after: 30s, max_future: 1000000h, max_drift: DRIFT}}
  b: {feed: {name: FEED-b, batch: BATCH}, timestamp: t, watermark: {delay: 500ms, idle_after: 30s, max_future: 1000000h, max_drift: DRIFT}}
transforms:
  - {name: self, join: {left: a, right: a, on: left.k == right.k && left.v != right.v, window: {tumbling: 1s}, type: left, select: {k: left.k, l: left.v, r: right.v}}}
  - {name: counts, from: a, aggregate: {by: [k], window: {tumbling: 1s}, select: {n: count(), s: sum(v), p: max(pad)}}}
  - {name: diamond, join: {left: a, right: counts, on: left.k == right.k, window: {tumbling: 1s}, type: full, select: {k: left.k, v: left.v, n: right.n, s: right.s}}}
  - {name: slow, from: [a, b], throttle: {records_per_second: RATE}}
  - {name: once, dedup: {by: [k, v], within: 2s}}
  - {name: near, join: {left: once, right: b, on: left.k == right.k, within: {before: 1s, after: 1s}, type: left, select: {k: left.k, l: left.v, r: right.v}}}
  - {name: late, from: counts.late, aggregate: {by: [k], select: {n: count(), s: sum(v)}, emit: on_close}}
  - {name: both, from: [self, diamond], set: {x: 1}}
  - {name: best, from: both, top: {by: [k], n: 2, order: [{k: asc}], ties: keep, window: {tumbling: 2s}}}
sinks:
  to-self: {from: self, collect: {name: TARGET-self}}
  to-counts: {from: counts, collect: {name: TARGET-counts, prepare_ms: 30}}
  to-diamond: {from: diamond, collect: {name: TARGET-diamond}}
  to-near: {from: near, collect: {name: TARGET-near}}
  to-late: {from: late, collect: {name: TARGET-late}}
  to-best: {from: best, collect: {name: TARGET-best}}
checkpoint: {storage: STORAGE, MORE}
`

// crossingRun is how a crossing is run: with crashes, each followed by a start at
// another parallelism, and with so little memory that queues are full all the time.
type crossingRun struct {
	parallelism, batch, rate int
	drift, checkpoint        string
	crashes, pad             int
}

func (c crossingRun) yaml() string {
	return strings.NewReplacer("PARALLELISM", strconv.Itoa(c.parallelism), "BATCH", strconv.Itoa(c.batch), "RATE", strconv.Itoa(c.rate),
		"DRIFT", c.drift, "MORE", c.checkpoint).Replace(crossing)
}

// results runs to the end, and gives what was published by target.
func (c crossingRun) results(t *testing.T, seed uint64) map[string][]string {
	w := pipelinetest.New(t, c.yaml())
	w.Options.Memory = 1
	a, b := w.Feed("a", 3), w.Feed("b", 2)
	r := rand.New(rand.NewPCG(seed, 1))
	pad := strings.Repeat("x", c.pad)
	for i := range 500 {
		ms := i*20 - r.IntN(400)
		if r.IntN(50) == 0 {
			ms -= 5000 // late
		}
		row := fmt.Sprintf(`{"k":%d,"t":%d,"v":%d,"pad":%q}`, r.IntN(9), ms, i, pad)
		if r.IntN(3) > 0 {
			a.Append(r.IntN(3), row)
		} else {
			b.Append(r.IntN(2), row)
		}
	}
	for range c.crashes {
		p := w.Start()
		time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
		p.Crash()
		c.parallelism = 1 + r.IntN(5)
		w.Redefine(c.yaml())
	}
	a.End()
	b.End()
	p := w.Start()
	hangs := time.AfterFunc(10*time.Minute, func() { panic("the pipeline hangs") })
	defer hangs.Stop()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, s := range []string{"self", "counts", "diamond", "near", "late", "best"} {
		out[s] = sorted(w.Target(s).Values())
	}
	return out
}

func TestWaysThatCrossNeitherHangNorChangeTheResults(t *testing.T) {
	tests := []crossingRun{
		{parallelism: 4, batch: 1, rate: 200, drift: "1s", checkpoint: "interval: 10ms"},
		{parallelism: 3, batch: 40, rate: 1000000, drift: "1000h", checkpoint: "interval: 10ms, max_concurrent: 3", crashes: 3, pad: 20000},
		{parallelism: 4, batch: 7, rate: 1000, drift: "1ms", checkpoint: "interval: 50ms", crashes: 2, pad: 3000},
		{parallelism: 2, batch: 30, rate: 1000000, drift: "1s", checkpoint: "interval: 300ms, state: {backend: disk, dir: DIR}", crashes: 2},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tt.checkpoint = strings.Replace(tt.checkpoint, "DIR", strconv.Quote(t.TempDir()), 1)
			seed := uint64(i)
			synctest.Test(t, func(t *testing.T) {
				plain := crossingRun{parallelism: 1, batch: 7, rate: 1000000, drift: "1000h", checkpoint: "interval: 1h", pad: tt.pad}
				want, got := plain.results(t, seed), tt.results(t, seed)
				for name, rows := range want {
					if len(rows) == 0 {
						t.Errorf("%s: there is no result to compare", name)
					}
					if strings.Join(got[name], "\n") != strings.Join(rows, "\n") {
						t.Errorf("%s: %d rows that differ from the %d of a plain run", name, len(got[name]), len(rows))
					}
				}
			})
		})
	}
}
