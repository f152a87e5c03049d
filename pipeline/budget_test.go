package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// keeping is a pipeline whose state grows by a key for each record.
const keeping = `
pipeline: keeping
parallelism: 1
source: {feed: {name: FEED-in}}
transforms:
  - {name: once, dedup: {by: [k], within: 1h}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1h}
`

// many appends records of so many keys, which nothing else has.
func many(f *pipelinetest.Feed, n int) {
	for i := range n {
		f.Append(0, fmt.Sprintf(`{"k":"%s-%d"}`, strings.Repeat("x", 100), i))
	}
}

func TestStateBeyondTheBudgetFailsThePipelineThatHasTooMuchOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := pipeline.NewBudget(4 << 20)
		worlds := []*pipelinetest.World{steered(t, keeping), steered(t, keeping)}
		var processes []*pipelinetest.Process
		for i, n := range []int{500, 40000} {
			w := worlds[i]
			w.Options.Budget = budget
			many(w.Feed("in", 1), n)
			processes = append(processes, running(w))
		}
		s, err := processes[1].Wait()
		if !connectors.IsPermanent(err) || s.Restarts > 0 || !strings.Contains(err.Error(), "checkpoint.state.backend: disk") || !strings.Contains(err.Error(), "4.0 MiB, over 2 pipelines") {
			t.Errorf("the one with too much: %d restarts, error %v", s.Restarts, err)
		}
		time.Sleep(time.Minute)
		many(worlds[0].Feed("in", 1), 500) // all are known by now
		worlds[0].Feed("in", 1).End()
		if s, err := processes[0].Wait(); err != nil || s.Restarts > 0 || s.Counts.Read != 1000 || s.Counts.Written != 500 {
			t.Errorf("the other: %+v, error %v", s, err)
		}
	})
}

func TestAPipelineMayUseWhatTheOthersLeaveOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := pipeline.NewBudget(64 << 20)
		var processes []*pipelinetest.Process
		for _, n := range []int{10, 10, 10, 40000} { // more than a quarter of the half
			w := steered(t, keeping)
			w.Options.Budget = budget
			many(w.Feed("in", 1), n)
			processes = append(processes, running(w))
		}
		time.Sleep(time.Minute)
		if used := budget.Used(); used <= budget.Total()/2 || used > budget.Total() {
			t.Errorf("%d bytes of %d are used", used, budget.Total())
		}
		for _, p := range processes {
			if _, err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
		if used := budget.Used(); used != 0 {
			t.Errorf("%d bytes are used by nobody", used)
		}
	})
}
