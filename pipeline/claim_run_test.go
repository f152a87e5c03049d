package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

// A claimed savepoint carries the new job until its own checkpoints do.
func TestAClaimedSavepointIsGoneOnceTheJobHasItsOwnCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1h, retained: 2", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 50)
		dir := "mem://" + unused("claimed")
		p := running(w)
		end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Savepoint: true, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		w.Options.From, w.Options.Claim = end.Path, true
		w.Options.Control = &pipeline.Control{}
		p = running(w)
		for n, want := range []int{1, 0, 0} {
			fill(feed, 2, 50+10*n, 60+10*n)
			time.Sleep(time.Second)
			if _, err := w.Options.Control.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if left, err := checkpoint.Savepoints(t.Context(), dir); err != nil || len(left) != want {
				t.Errorf("after %d checkpoints of its own %d savepoints are left, want %d, error %v", n+1, len(left), want, err)
			}
		}
		p.Crash()
		feed.End()
		w.Options.From, w.Options.Claim = "", false
		wantRun(t, w, 0)
		equal(t, sorted(out.Values()), wantEven(80))
	})
}

func TestWhatCheckpointsTookIsShownAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 50)
		p := running(w)
		taken, err := w.Options.Control.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := w.Options.Control.Checkpoints()
		p.Crash()
		w.Options.Control = &pipeline.Control{}
		p = running(w)
		after := w.Options.Control.Checkpoints()
		if after.Last == nil || after.Last.ID.Number != taken.Number || len(after.Last.Tasks) != len(before.Last.Tasks) ||
			!after.Last.Triggered.Equal(before.Last.Triggered) || after.Triggered != 0 {
			t.Errorf("after the restart the last one is %+v, before it was %+v", after.Last, before.Last)
		}
		if len(after.History) != 2 || after.History[1].Kind != checkpoint.Initial {
			t.Errorf("the history is %+v", after.History)
		}
		p.Crash()
	})
}
