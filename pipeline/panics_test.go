package pipeline_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// A panic, wherever it is, is a failure of its pipeline, which starts again and publishes
// everything once. Another pipeline in the process hears nothing of it.
func TestAPanicIsAFailureOfItsPipelineAlone(t *testing.T) {
	for name, plant := range map[string]func(w *pipelinetest.World, explode func()){
		"open a sink": func(w *pipelinetest.World, explode func()) {
			w.Target("out").BeforeOpen = func() error { explode(); return nil }
		},
		"write": func(w *pipelinetest.World, explode func()) {
			w.Target("out").BeforeWrite = func(string) error { explode(); return nil }
		},
		"refuse": func(w *pipelinetest.World, explode func()) {
			w.Target("out").Refuse = func(string) string { explode(); return "" }
		},
		"prepare": func(w *pipelinetest.World, explode func()) {
			w.Target("out").AfterPrepare = func(connectors.CheckpointID) error { explode(); return nil }
		},
		"commit": func(w *pipelinetest.World, explode func()) {
			w.Target("out").BeforeCommit = func(connectors.CheckpointID) error { explode(); return nil }
		},
		"after a commit": func(w *pipelinetest.World, explode func()) {
			w.Target("out").AfterCommit = func(connectors.CheckpointID) error { explode(); return nil }
		},
		"write a checkpoint": func(w *pipelinetest.World, explode func()) {
			w.Options.Failpoint = func(at string) {
				if at == "before-metadata" {
					explode()
				}
			}
		},
		"claim a checkpoint": func(w *pipelinetest.World, explode func()) {
			w.Options.Failpoint = func(at string) {
				if at == "after-claim" {
					explode()
				}
			}
		},
		"start": func(w *pipelinetest.World, explode func()) { w.Options.Running = explode },
		"read":  func(w *pipelinetest.World, explode func()) { w.Feed("in", 2).BeforeRead = explode },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := pipelinetest.New(t, straight)
				calm := other.Feed("in", 2)
				fill(calm, 2, 0, 100)
				beside := running(other)

				w := pipelinetest.New(t, straight)
				feed, log := w.Feed("in", 2), logTo(w)
				fill(feed, 2, 0, 100)
				var exploded atomic.Bool
				plant(w, func() {
					if exploded.CompareAndSwap(false, true) {
						panic("planted")
					}
				})
				p := running(w)
				time.Sleep(time.Minute)
				feed.End()
				s, err := p.Wait()
				if err != nil || s.Outcome != pipeline.Finished || s.Restarts != 1 {
					t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
				}
				equal(t, sorted(w.Target("out").Values()), wantEven(100))
				if got := log.String(); !strings.Contains(got, "panic: planted") || !strings.Contains(got, "panics_test.go") {
					t.Errorf("the log has no stack:\n%s", got)
				}
				calm.End()
				if s, err := beside.Wait(); err != nil || s.Restarts != 0 {
					t.Errorf("the other: %d restarts, error %v", s.Restarts, err)
				}
			})
		})
	}
}
