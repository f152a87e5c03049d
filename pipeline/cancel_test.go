package pipeline_test

import (
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

func TestACancelledJobEndsAtOnceAndTheNextRunHasToBeToldFromWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		c := w.Options.Control
		taken, err := c.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fill(feed, 2, 100, 150)
		time.Sleep(time.Second)
		began := time.Now()
		end, err := c.Cancel(t.Context())
		if err != nil || end.Path != taken.Path || time.Since(began) > time.Second {
			t.Errorf("after %s it left %+v, want %s, error %v", time.Since(began), end, taken.Path, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "-s "+end.Path) || !strings.Contains(err.Error(), "--from none") {
			t.Errorf("the next run: %v", err)
		}
		feed.End()
		w.Options.From = end.Path
		wantRun(t, w, 50)
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

func TestACancelledJobsCheckpointsGoWhereTheFileSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1h, on_cancel: delete", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		c := w.Options.Control
		saved, err := c.Savepoint(t.Context(), "mem://"+unused("kept"))
		if err != nil {
			t.Fatal(err)
		}
		end, err := c.Cancel(t.Context())
		if err != nil || end.Path != "" || end.Warning != "" {
			t.Errorf("it left %+v, error %v", end, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		files, err := w.Storage().List(t.Context(), "straight")
		for _, f := range files {
			if strings.Contains(f.Name, "/chk-") || strings.Contains(f.Name, "/shared/") {
				t.Errorf("%s is left", f.Name)
			}
		}
		if _, runErr := w.Run(); err != nil || !connectors.IsPermanent(runErr) || strings.Contains(runErr.Error(), "-s ") {
			t.Errorf("the next run: %v, %v", runErr, err)
		}
		fill(feed, 2, 100, 150)
		feed.End()
		w.Options.From = saved.Path // savepoints are not the system's to delete
		wantRun(t, w, 50)
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

// What a complete checkpoint promised is published before the job is over, and what is
// beyond it is taken away: it is not left to a run that may never come.
func TestACancelFinishesTheCommitsOfTheNewestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		var tries atomic.Int64
		out.BeforeCommit = func(connectors.CheckpointID) error {
			if tries.Add(1) < 12 {
				return errors.New("target is down")
			}
			return nil
		}
		p := running(w)
		go func() { _, _ = w.Options.Control.Checkpoint(t.Context()) }()
		time.Sleep(time.Second)
		end, err := w.Options.Control.Cancel(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		feed.End()
		w.Options.From = end.Path
		wantRun(t, w, 0)
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestACancelDoesNotWaitForASinkThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		w.Options.Grace = 10 * time.Second
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		var down atomic.Bool
		fail := func() error {
			if down.Load() {
				return errors.New("target is down")
			}
			return nil
		}
		out.BeforeOpen = fail
		out.BeforeCommit = func(connectors.CheckpointID) error { return fail() }
		p := running(w)
		down.Store(true)
		go func() { _, _ = w.Options.Control.Checkpoint(t.Context()) }()
		time.Sleep(time.Second)
		began := time.Now()
		end, err := w.Options.Control.Cancel(t.Context())
		if err != nil || !strings.Contains(end.Path, "/chk-") || time.Since(began) > 20*time.Second {
			t.Fatalf("after %s the cancel left %+v, error %v", time.Since(began), end, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		down.Store(false)
		if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "-s "+end.Path) {
			t.Fatalf("the next run: %v", err)
		}
		w.Options.From = end.Path
		feed.End()
		wantRun(t, w, 0)
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

// A new job that never came to a checkpoint of its own leaves what it was to begin with.
func TestACancelOfAJobThatHasNotBegunLeavesWhatItRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("not-begun")
		w := steered(t, on(name))
		w.Options.Grace = 10 * time.Second
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		saved, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Savepoint: true, Dir: "mem://" + unused("restored")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		faults(t, name, storagetest.Rule{Op: storagetest.OpCreate, Glob: "_metadata"})
		var opened atomic.Int64
		out.BeforeOpen = func() error {
			if opened.Add(1) > 1 {
				return errors.New("target is down")
			}
			return nil
		}
		p = running(w)
		end, err := w.Options.Control.Cancel(t.Context())
		if err != nil || end.Path != saved.Path {
			t.Fatalf("the cancel left %+v, want %s, error %v", end, saved.Path, err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		faults(t, name)
		out.BeforeOpen = nil
		if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "-s "+end.Path) {
			t.Fatalf("the next run: %v", err)
		}
		w.Options.From = end.Path
		feed.End()
		wantRun(t, w, 0)
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestACancelTakesThePlaceOfAStopThatHangsAndOfARestart(t *testing.T) {
	for name, fail := range map[string]bool{"stop": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, straight+"restart: {fixed: {attempts: 10, delay: 1h}}\n")
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				var down atomic.Bool
				down.Store(!fail)
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if down.Load() {
						return errors.New("target is down")
					}
					return nil
				}
				p := running(w)
				stopped := make(chan error, 1)
				if fail {
					feed.FailNext(errors.New("connection reset"))
					stopped <- errors.New("none was asked for")
				} else {
					go func() { stopped <- second(w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: true})) }()
				}
				time.Sleep(time.Minute)
				down.Store(false)
				began := time.Now()
				if _, err := w.Options.Control.Cancel(t.Context()); err != nil || time.Since(began) > 30*time.Second {
					t.Errorf("after %s the cancel says: %v", time.Since(began), err)
				}
				if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
					t.Errorf("outcome %s, error %v", s.Outcome, err)
				}
				if err := <-stopped; err == nil {
					t.Error("the stop says that it worked")
				}
			})
		})
	}
}

// The cancel after one that did not work finishes the commits as the first one would have.
func TestACancelThatIsAskedForAgainFinishesTheCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("again")
		w := steered(t, on(name))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		faults(t, name, storagetest.Rule{Op: storagetest.OpAny, Glob: "ended.json"}, storagetest.Rule{Op: storagetest.OpCreate, Glob: "*ended*"})
		if _, err := w.Options.Control.Cancel(t.Context()); err == nil {
			t.Error("the first one says that it worked")
		}
		faults(t, name)
		time.Sleep(time.Minute) // it runs again
		var tries atomic.Int64
		out.BeforeCommit = func(connectors.CheckpointID) error {
			if tries.Add(1) < 12 {
				return errors.New("target is down")
			}
			return nil
		}
		go func() { _, _ = w.Options.Control.Checkpoint(t.Context()) }()
		time.Sleep(time.Second)
		if _, err := w.Options.Control.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Cancelled {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

// A cancel that cannot be recorded is told, and the pipeline goes on.
func TestACancelThatCannotBeRecordedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("cancel")
		w := steered(t, on(name))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		faults(t, name, storagetest.Rule{Op: storagetest.OpAny, Glob: "ended.json"}, storagetest.Rule{Op: storagetest.OpCreate, Glob: "*ended*"})
		if _, err := w.Options.Control.Cancel(t.Context()); err == nil || !strings.Contains(err.Error(), "record") {
			t.Errorf("the cancel says: %v", err)
		}
		faults(t, name)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}
