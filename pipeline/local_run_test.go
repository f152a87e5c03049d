package pipeline_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// With local copies a restart reads its state from them, as long as they are there.
func TestStateIsReadFromLocalCopiesWhereTheyAre(t *testing.T) {
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoreFromCopies(t, backend) })
		})
	}
}

func restoreFromCopies(t *testing.T, backend string) {
	dir := t.TempDir()
	w := pipelinetest.New(t, fmt.Sprintf(`
pipeline: copied
parallelism: 2
source: {feed: {name: FEED-in, batch: 5}}
transforms:
  - {name: counts, aggregate: {by: [k], select: {n: count()}, emit: on_close, ttl: forever}}
sink: {from: counts, collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 100ms, local_recovery: %q%s}
restart: none
`, dir, backend))
	feed := w.Feed("in", 1)
	life := func() checkpoint.LocalStats {
		w.Options.Control = &pipeline.Control{}
		run := w.Start()
		for k := range 50 {
			feed.Append(0, fmt.Sprintf(`{"k":%d}`, k))
		}
		time.Sleep(250 * time.Millisecond)
		run.Crash()
		st, on := w.Options.Control.LocalRecovery()
		if !on {
			t.Fatal("there are no local copies")
		}
		return st
	}
	if st := life(); st != (checkpoint.LocalStats{}) {
		t.Errorf("the first start counts %+v", st)
	}
	if st := life(); st.Hits == 0 || st.Misses > 0 || st.Failures > 0 {
		t.Errorf("with copies are counted %+v", st)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if st := life(); st.Hits > 0 || st.Misses == 0 || st.Failures > 0 {
		t.Errorf("without copies are counted %+v", st)
	}
	feed.End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	rows := w.Target("out").Values()
	for _, row := range rows {
		if !strings.HasSuffix(row, `,"n":3}`) {
			t.Errorf("a result is %s", row)
		}
	}
	if len(rows) != 50 {
		t.Errorf("%d results, want 50", len(rows))
	}
}
