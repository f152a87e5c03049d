package pipeline_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

func TestAWindowWaitsForTheResultsOfAStepThatGivesThemOutLater(t *testing.T) {
	tests := []struct{ name, step, want string }{
		{"windows with lateness", "aggregate: {by: [k], window: {tumbling: 1s}, lateness: 30s, select: {n: count()}}", "10"},
		{"sliding windows with lateness", "aggregate: {by: [k], window: {sliding: {size: 2s, every: 1s}}, lateness: 30s, select: {n: count()}}", "20"},
		{"sessions, which close behind their end", "aggregate: {by: {s: t}, window: {session: {gap: 1s}}, select: {n: count()}}", "10"},
		{"groups that a ttl closes", "aggregate: {by: {s: t}, emit: on_close, ttl: 20s, select: {n: count()}}", "10"},
		{"groups that the end closes", "aggregate: {by: {s: t}, emit: on_close, select: {n: count()}}", "10"},
		{"folds that a ttl closes", "reduce: {by: {s: t}, init: {n: 0}, update: {n: state.n + 1}, emit: on_close, ttl: 20s}", "10"},
		{"the best of windows", "top: {by: [k], n: 5, order: [t], window: {tumbling: 10s}}", "10"},
		{"the best of all", "top: {by: [k], n: 1000, order: [t], emit: on_close}", "10"},
		{"last records", "dedup: {by: [t], keep: last, within: 20s, emit: on_close}", "10"},
		{"last records of all", "dedup: {by: [t], keep: last, emit: on_close}", "10"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, `
pipeline: cascade
parallelism: 2
source: {feed: {name: FEED-in}, timestamp: t, watermark: {delay: 0s}}
transforms:
  - {name: first, `+tt.step+`}
  - {set: {n: 'n ?? 1'}}
  - {name: second, aggregate: {by: [], window: {tumbling: 10s}, select: {n: sum(n)}}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1s}
restart: none
`)
				feed := w.Feed("in", 1)
				p := w.Start()
				for i := range 120 {
					feed.Append(0, fmt.Sprintf(`{"k":%d,"t":%d}`, i%2, i*1000))
					if i%30 == 0 {
						time.Sleep(3 * time.Second)
					}
				}
				feed.End()
				if s := ended(t, p); s.Counts.Late != 0 {
					t.Errorf("%d results are late", s.Counts.Late)
				}
				values := w.Target("out").Values()
				if len(values) < 12 {
					t.Fatalf("results of %d windows, want 12: %v", len(values), values)
				}
				for i, v := range values[1:11] {
					if want := fmt.Sprintf(`{"window_start":%d,"window_end":%d,"n":%s}`, (i+1)*10000, (i+2)*10000, tt.want); v != want {
						t.Errorf("got %s, want %s", v, want)
					}
				}
			})
		})
	}
}
