package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestADrainedStopFiresEveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting))
		feed, out := w.Feed("in", 4), w.Target("out")
		clicks(feed, 4, 0, 3000)
		p := running(w)
		if n := len(out.Values()); n > 0 {
			t.Fatalf("%d results are published before a checkpoint", n)
		}
		end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: true, Savepoint: true, Dir: "mem://" + unused("drained")})
		if err != nil || !end.Drained {
			t.Fatalf("it ended with %+v, error %v", end, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantClicks([2]int{0, 3000}))
		for _, from := range []string{"", end.Path} {
			w.Options.From = from
			if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "--allow-drained") {
				t.Errorf("a start from %q: %v", from, err)
			}
		}
		w.Options.From, w.Options.AllowDrained = "", true
		clicks(feed, 4, 3000, 500)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Counts.Read != 500 || s.Counts.Late != 500 {
			t.Errorf("%d read, %d late, want 500 of both, error %v", s.Counts.Read, s.Counts.Late, err)
		}
	})
}

func TestAStopWithoutDrainLeavesEventTimeWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting))
		feed, out := w.Feed("in", 4), w.Target("out")
		clicks(feed, 4, 0, 1000)
		p := running(w)
		if _, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		clicks(feed, 4, 1000, 2000)
		feed.End()
		if s, err := w.Run(); err != nil || s.Counts.Late != 0 {
			t.Errorf("%d late, error %v", s.Counts.Late, err)
		}
		equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}, [2]int{1000, 2000}))
	})
}

// Before the metadata of its checkpoint is there, a drained pipeline starts again from the
// checkpoint before, as if nothing had fired, whatever the restart strategy.
func TestADrainedStopThatFailsIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting)+"restart: {none: {}}\n")
		feed, out := w.Feed("in", 4), w.Target("out")
		clicks(feed, 4, 0, 1000)
		p := running(w)
		if _, err := w.Options.Control.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		var failed atomic.Bool
		out.AfterPrepare = func(connectors.CheckpointID) error {
			if failed.CompareAndSwap(false, true) {
				return errors.New("no room")
			}
			return nil
		}
		_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: true})
		if err == nil || !strings.Contains(err.Error(), "as if nothing had fired") {
			t.Errorf("the stop says: %v", err)
		}
		clicks(feed, 4, 1000, 2000)
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Outcome != pipeline.Finished || s.Restarts != 1 || s.Counts.Late != 0 {
			t.Errorf("outcome %s, %d restarts, %d late, error %v", s.Outcome, s.Restarts, s.Counts.Late, err)
		}
		equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}, [2]int{1000, 2000}))
	})
}

// The barrier of a drained stop that was withdrawn while its number was claimed does
// not drive event time for the stop after it.
func TestABarrierThatComesLateDoesNotDrainForAnotherStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("late-barrier")
		w := steered(t, strings.Replace(at(2, counting), "STORAGE", "flaky://"+name, 1))
		feed, out := w.Feed("in", 4), w.Target("out")
		clicks(feed, 4, 0, 1000)
		p := running(w)
		faults(t, name, storagetest.Rule{Op: storagetest.OpClaim, Effect: storagetest.Slow, Delay: 10 * time.Second, Nth: 1})
		leaves, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := w.Options.Control.Stop(leaves, pipeline.StopOptions{Drain: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the drained stop says: %v", err)
		}
		time.Sleep(time.Second)
		end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{})
		if err != nil || end.Drained {
			t.Fatalf("the other ended with %+v, error %v", end, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		clicks(feed, 4, 1000, 2000)
		feed.End()
		if s, err := w.Run(); err != nil || s.Counts.Late != 0 {
			t.Errorf("%d late, error %v", s.Counts.Late, err)
		}
		equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}, [2]int{1000, 2000}))
	})
}

// After the metadata is there it never runs on: it commits, beyond the timeout and over
// a restart.
func TestADrainedStopCommitsUntilThatIsProven(t *testing.T) {
	for name, fault := range map[string]func() error{
		"target down": func() error { return errors.New("target is down") },
		"panic":       func() error { panic("a fault of the sink") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, at(2, strings.Replace(counting, "interval: 100ms", "interval: 1h, timeout: 10s", 1)))
				feed, out := w.Feed("in", 4), w.Target("out")
				clicks(feed, 4, 0, 1000)
				began := time.Now()
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if time.Since(began) < time.Minute {
						return fault()
					}
					return nil
				}
				p := running(w)
				end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: true})
				if err != nil || time.Since(began) < time.Minute {
					t.Errorf("after %s it ended with %+v, error %v", time.Since(began), end, err)
				}
				if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped || s.Counts.Read != 1000 {
					t.Errorf("outcome %s, %d read, error %v", s.Outcome, s.Counts.Read, err)
				}
				equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}))
			})
		})
	}
}

func TestADrainedStopWhoseSavepointCannotBeWrittenEndsWithItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting))
		feed, out := w.Feed("in", 4), w.Target("out")
		clicks(feed, 4, 0, 1000)
		p := running(w)
		full := unused("full")
		faults(t, full, storagetest.Rule{Op: storagetest.OpCreate})
		_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: true, Savepoint: true, Dir: "flaky://" + full})
		if err == nil || !strings.Contains(err.Error(), "is stopped, but its savepoint") || !strings.Contains(err.Error(), "/chk-") {
			t.Errorf("the stop says: %v", err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Stopped || s.Ended == nil || !strings.Contains(s.Ended.Path, "/chk-") {
			t.Errorf("outcome %s, ended %+v, error %v", s.Outcome, s.Ended, err)
		}
		equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}))
	})
}

// A crash after the last checkpoint of a bounded input leaves it to the next start to
// record the end.
func TestABoundedInputWhoseEndWasNotRecordedIsFinishedByTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		feed.End()
		hit, goOn := make(chan struct{}), make(chan struct{})
		w.Options.Failpoint = func(at string) {
			if at == "before-commit" {
				close(hit)
				<-goOn
			}
		}
		p := w.Start()
		<-hit
		go func() {
			time.Sleep(time.Millisecond)
			close(goOn)
		}()
		p.Crash()
		w.Options.Failpoint = nil
		s, err := w.Run()
		if err != nil || s.Outcome != pipeline.Finished || s.Counts.Read != 0 {
			t.Errorf("outcome %s, %d read, error %v", s.Outcome, s.Counts.Read, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		if s, err := w.Run(); err != nil || s.Outcome != pipeline.AlreadyFinished {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
	})
}
