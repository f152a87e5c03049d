package pipeline_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestAPipelineThatIsRestartingIsStoppedWithItsNewestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight+"restart: {fixed: {attempts: 10, delay: 1h}}\n")
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		taken, err := w.Options.Control.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fill(feed, 2, 100, 150)
		time.Sleep(time.Second)
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(time.Minute)
		if s := w.Options.Control.Status(); s.Phase != pipeline.Restarting || !strings.Contains(s.Failure, "connection reset") {
			t.Fatalf("it is %s, after %q", s.Phase, s.Failure)
		}
		var phase *pipeline.PhaseError
		if _, err := w.Options.Control.Savepoint(t.Context(), "mem://"+unused("none")); !errors.As(err, &phase) || !strings.Contains(err.Error(), "connection reset") {
			t.Errorf("a savepoint of it: %v", err)
		}
		began := time.Now()
		end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{})
		if err != nil || end.Path != taken.Path || time.Since(began) > time.Minute {
			t.Errorf("after %s it ended with %+v, want %s, error %v", time.Since(began), end, taken.Path, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		feed.End()
		wantRun(t, w, 50)
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

// A stop while a sink cannot be connected waits for its turn, and is withdrawn when
// that does not come.
func TestAStopOfAPipelineThatCannotStartIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1h, timeout: 10s", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		var down atomic.Bool
		out.BeforeOpen = func() error {
			if down.Load() {
				return errors.New("target is down")
			}
			return nil
		}
		p := running(w)
		down.Store(true)
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(time.Minute)
		_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{})
		if err == nil || !strings.Contains(err.Error(), "restarting") {
			t.Errorf("the stop says: %v", err)
		}
		down.Store(false)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

// What a restarting pipeline has is no savepoint and not drained: such a stop waits until
// it runs.
func TestAStopThatNeedsABarrierWaitsUntilThePipelineRuns(t *testing.T) {
	for name, o := range map[string]pipeline.StopOptions{
		"drain":     {Drain: true},
		"savepoint": {Savepoint: true, Dir: "mem://" + unused("waits")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, straight+"restart: {fixed: {attempts: 10, delay: 1h}}\n")
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				p := running(w)
				if _, err := w.Options.Control.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				fill(feed, 2, 100, 150)
				feed.FailNext(errors.New("connection reset"))
				time.Sleep(time.Minute)
				end, err := w.Options.Control.Stop(t.Context(), o)
				if err != nil || end.Drained != o.Drain || strings.HasPrefix(end.Path, o.Dir+"/savepoint-") != o.Savepoint {
					t.Errorf("it ended with %+v, error %v", end, err)
				}
				if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped {
					t.Errorf("outcome %s, error %v", s.Outcome, err)
				}
				feed.End()
				w.Options.AllowDrained = o.Drain
				if _, err := w.Run(); err != nil {
					t.Error(err)
				}
				equal(t, sorted(out.Values()), wantEven(150))
			})
		})
	}
}

// Who ends a job wants to see all that it wrote; a checkpoint in between leaves files open.
func TestSinksLeaveNothingUnpublishedBehindAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		taken, err := w.Options.Control.Checkpoint(t.Context())
		if err != nil || out.Rolled.Load() {
			t.Errorf("a checkpoint rolls: error %v", err)
		}
		if s := w.Options.Control.Status(); s.Last != taken.Path {
			t.Errorf("the newest checkpoint is %q, want %q", s.Last, taken.Path)
		}
		if _, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{}); err != nil || !out.Rolled.Load() {
			t.Errorf("a stop does not roll: error %v", err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
	})
}

// A stop cuts the wait for a restart short once, and not each time that the start fails.
func TestAStopMakesAPipelineThatCannotStartTryOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("hurry")
		w := steered(t, strings.Replace(on(name), "interval: 100ms", "interval: 1h, timeout: 10s", 1)+"restart: {fixed: {attempts: 20, delay: 1h}}\n")
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		faults(t, name, storagetest.Rule{Op: storagetest.OpClaim, Glob: "owner-*"})
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(time.Minute)
		before := w.Options.Control.Status().Restarts
		if _, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{}); err == nil {
			t.Error("the stop says that it worked")
		}
		if after := w.Options.Control.Status().Restarts; after != before+1 {
			t.Errorf("it tried %d times to start for it, want once", after-before)
		}
		faults(t, name)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}
