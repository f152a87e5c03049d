package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// churning are steps that forget within half a minute of event time.
var churning = map[string]string{
	"a running aggregate":  "{name: s, from: in, aggregate: {by: [k], select: {n: count(), d: count_distinct(t)}, ttl: 20s}}",
	"first records":        "{name: s, from: in, dedup: {by: [k], within: 20s}}",
	"last records":         "{name: s, from: in, dedup: {by: [k], keep: last, within: 20s, emit: on_close}}",
	"a fold":               "{name: s, from: in, reduce: {by: [k], init: {n: 0}, update: {n: state.n + 1}, ttl: 20s}}",
	"sessions":             "{name: s, from: in, aggregate: {by: [k], window: {session: {gap: 20s}}, select: {n: count()}}}",
	"sliding windows":      "{name: s, from: in, aggregate: {by: [k], window: {sliding: {size: 20s, every: 5s}}, select: {n: count()}}}",
	"the best of a window": "{name: s, from: in, top: {by: [k], n: 3, order: [{t: desc}], window: {tumbling: 20s}}}",
	"counts with a ttl":    "{name: s, from: in, aggregate: {by: [k], window: {count: 1000}, select: {n: count()}, ttl: 20s}}",
	"a plain join":         "{name: s, join: {left: in, right: in, on: left.k == right.k, ttl: 20s, type: full, select: {a: left.k, b: right.t}}}",
	"the latest value":     "{name: s, join: {left: in, right: in, on: left.k == right.k, latest: true, ttl: 20s, select: {a: left.k, b: right.t}}}",
	"an interval join":     "{name: s, join: {left: in, right: in, on: left.k == right.k, within: {before: 10s, after: 10s}, type: left, select: {a: left.k, b: right.t}}}",
	"a join of windows":    "{name: s, join: {left: in, right: in, on: left.k == right.k, window: {tumbling: 20s}, select: {a: left.k, b: right.t}}}",
}

func TestStateOfKeysThatComeAndGoStaysAtItsLevel(t *testing.T) {
	for name, step := range churning {
		for _, backend := range []string{"memory", "disk"} {
			t.Run(name+" in "+backend, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { churn(t, step, backend) })
			})
		}
	}
}

// churn gives a step records of new keys all the time, over many times its ttl, and
// compares how much it keeps.
func churn(t *testing.T, step, backend string) {
	state := ""
	if backend == "disk" {
		state = fmt.Sprintf(", state: {backend: disk, dir: %q, memory: 16MiB}", t.TempDir())
	}
	w := pipelinetest.New(t, strings.NewReplacer("STEP", step, "STATE", state).Replace(`
pipeline: churn
parallelism: 2
sources: {in: {feed: {name: FEED-in, batch: 100}, timestamp: t, watermark: {delay: 1s}}}
transforms: [STEP]
sink: {from: s, blackhole: {}}
checkpoint: {storage: STORAGE, interval: 4sSTATE}
restart: none
`))
	w.Options.Control = &pipeline.Control{}
	feed := w.Feed("in", 2)
	p := w.Start()
	at := 0
	// level is the most that was kept at the end of any second, over a time.
	level := func(seconds int) (keys int64) {
		for range seconds {
			for range 100 { // two records of a key, and 5 s of event time
				feed.Append(at%2, fmt.Sprintf(`{"k":"key %d","t":%d}`, at/100, at))
				at += 50
			}
			time.Sleep(time.Second)
			synctest.Wait()
			sum := int64(0)
			for _, s := range w.Options.Control.Progress().Steps {
				sum += s.State.Keys
			}
			keys = max(keys, sum)
		}
		return keys
	}
	level(8)
	before := level(8)
	level(16)
	after := level(8)
	if before == 0 || after > before+before/10 {
		t.Errorf("%d entries are kept, and after many more keys %d", before, after)
	}
	feed.End()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}
