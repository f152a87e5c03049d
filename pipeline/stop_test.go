package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// steered is a world whose runs are steered, with checkpoints only on demand.
func steered(t *testing.T, yaml string) *pipelinetest.World {
	w := pipelinetest.New(t, strings.Replace(yaml, "interval: 100ms", "interval: 1h", 1))
	w.Options.Control = &pipeline.Control{}
	return w
}

// running starts a run and waits until it has read what is there.
func running(w *pipelinetest.World) *pipelinetest.Process {
	p := w.Start()
	time.Sleep(time.Second)
	return p
}

// wantRun runs what is left, up to the end of the input.
func wantRun(t *testing.T, w *pipelinetest.World, read int64) {
	t.Helper()
	s, err := w.Run()
	if err != nil || s.Outcome != pipeline.Finished || s.Counts.Read != read {
		t.Fatalf("the next run: outcome %s, %d read, want %d, error %v", s.Outcome, s.Counts.Read, read, err)
	}
}

func TestAStopEndsTheJobAndTheNextRunIsANewOneFromIt(t *testing.T) {
	for name, o := range map[string]pipeline.StopOptions{
		"checkpoint": {}, "savepoint": {Savepoint: true, Dir: "mem://" + unused("stop")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, straight)
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				p := running(w)
				got, err := w.Options.Control.Stop(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				s, err := p.Wait()
				if err != nil || s.Outcome != pipeline.Stopped || s.Ended == nil || *s.Ended != *got {
					t.Errorf("outcome %s, error %v, ended with %+v, told %+v", s.Outcome, err, s.Ended, got)
				}
				if o.Savepoint != strings.HasPrefix(got.Path, o.Dir+"/savepoint-") || o.Savepoint == strings.Contains(got.Path, "/chk-") {
					t.Errorf("it lies at %s", got.Path)
				}
				equal(t, sorted(out.Values()), wantEven(100))
				fill(feed, 2, 100, 150)
				feed.End()
				wantRun(t, w, 50)
				equal(t, sorted(out.Values()), wantEven(150))
				if st := w.Options.Control.Status(); st.Job == got.Job || st.Restored.Path != got.Path {
					t.Errorf("the next run is job %s from %s, after job %s at %s", st.Job, st.Restored.Path, got.Job, got.Path)
				}
			})
		})
	}
}

func TestAStopThatIsNotProvenInTimeIsWithdrawn(t *testing.T) {
	for name, save := range map[string]bool{"checkpoint": false, "savepoint": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1m, timeout: 10s", 1))
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				var up atomic.Bool
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if up.Load() {
						return nil
					}
					return errors.New("target is down")
				}
				p := running(w)
				dir := "mem://" + unused("late")
				asked := time.Now()
				_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Savepoint: save, Dir: dir})
				if err == nil || time.Since(asked) != 10*time.Second {
					t.Errorf("after %s the stop says: %v", time.Since(asked), err)
				}
				// Sources go on, and the checkpoint is committed all the same.
				fill(feed, 2, 100, 150)
				time.Sleep(time.Second)
				if n := w.Options.Control.Progress().Counts.Read; n != 150 {
					t.Errorf("%d records are read", n)
				}
				up.Store(true)
				time.Sleep(10 * time.Second)
				equal(t, sorted(out.Values()), wantEven(100))
				feed.End()
				s, err := p.Wait()
				if err != nil || s.Outcome != pipeline.Finished || s.Restarts != 0 {
					t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
				}
				equal(t, sorted(out.Values()), wantEven(150))
				wantEmpty(t, dir)
			})
		})
	}
}

// wantEmpty wants nothing at an address.
func wantEmpty(t *testing.T, address string) {
	t.Helper()
	fs, err := storage.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	if files, err := fs.List(t.Context(), ""); err != nil || len(files) > 0 {
		t.Errorf("%d files are left in %s, error %v", len(files), address, err)
	}
}

func TestAStopWhoseCheckpointFailsLeavesThePipelineRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		var failed atomic.Bool
		out.AfterPrepare = func(connectors.CheckpointID) error {
			if failed.CompareAndSwap(false, true) {
				return errors.New("no room")
			}
			return nil
		}
		fill(feed, 2, 0, 100)
		p := running(w)
		if _, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{}); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("the stop says: %v", err)
		}
		fill(feed, 2, 100, 150)
		time.Sleep(time.Second)
		if _, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{}); err != nil {
			t.Errorf("the second stop says: %v", err)
		}
		if s, err := p.Wait(); err != nil || s.Restarts != 0 || s.Counts.Read != 150 {
			t.Errorf("%d restarts, %d read, error %v", s.Restarts, s.Counts.Read, err)
		}
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

// A stop whose barrier comes in the middle of a batch leaves the rest of the batch to
// the next run, or to this one where it is withdrawn.
func TestABatchThatAStopCutsIsNotLost(t *testing.T) {
	for name, withdrawn := range map[string]bool{"stopped": false, "withdrawn": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, strings.NewReplacer("name: FEED-in", "name: FEED-in, batch: 200",
					"- filter: n % 2 == 0", "- throttle: {records_per_second: 10}\n  - filter: n % 2 == 0", "interval: 100ms", "interval: 1h, timeout: 5s").Replace(straight))
				feed, out := w.Feed("in", 1), w.Target("out")
				var down atomic.Bool
				down.Store(withdrawn)
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if down.Load() {
						return errors.New("target is down")
					}
					return nil
				}
				fill(feed, 1, 0, 200)
				feed.End()
				p := running(w)
				var waited atomic.Bool
				go func() {
					time.Sleep(time.Second)
					before := w.Options.Control.Progress().Counts.Written
					time.Sleep(3 * time.Second)
					waited.Store(before == w.Options.Control.Progress().Counts.Written)
				}()
				_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{})
				if withdrawn && !waited.Load() {
					t.Error("records are handed on behind the barrier of the stop")
				}
				if (err != nil) != withdrawn {
					t.Fatalf("the stop says: %v", err)
				}
				down.Store(false)
				s, err := p.Wait()
				if err != nil {
					t.Fatal(err)
				}
				if n := len(out.Values()); !withdrawn {
					if s.Outcome != pipeline.Stopped || n == 0 || n > 20 {
						t.Errorf("outcome %s, %d rows after a second at 10 a second", s.Outcome, n)
					}
					if s, err := w.Run(); err != nil || s.Outcome != pipeline.Finished {
						t.Errorf("the next run: outcome %s, error %v", s.Outcome, err)
					}
				}
				equal(t, sorted(out.Values()), wantEven(200))
			})
		})
	}
}

func TestAStopThatNobodyWaitsForIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		var up atomic.Bool
		out.BeforeCommit = func(connectors.CheckpointID) error {
			if up.Load() {
				return nil
			}
			return errors.New("target is down")
		}
		p := running(w)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.Options.Control.Stop(ctx, pipeline.StopOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stop says: %v", err)
		}
		up.Store(true)
		fill(feed, 2, 100, 150)
		time.Sleep(10 * time.Second)
		if n := w.Options.Control.Progress().Counts.Read; n != 150 {
			t.Errorf("%d records are read after the stop was given up", n)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
	})
}

func TestOneStopAtATimeAndNoneAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		c := w.Options.Control
		var phase *pipeline.PhaseError
		if _, err := c.Checkpoint(t.Context()); !errors.As(err, &phase) {
			t.Errorf("before the start: %v", err)
		}
		var up atomic.Bool
		out.BeforeCommit = func(connectors.CheckpointID) error {
			if up.Load() {
				return nil
			}
			return errors.New("target is down")
		}
		fill(feed, 2, 0, 100)
		p := running(w)
		first := make(chan error, 1)
		go func() {
			_, err := c.Stop(t.Context(), pipeline.StopOptions{})
			first <- err
		}()
		time.Sleep(time.Second)
		for what, err := range map[string]error{
			"a stop":       second(c.Stop(t.Context(), pipeline.StopOptions{})),
			"a savepoint":  second(c.Savepoint(t.Context(), "mem://x")),
			"a checkpoint": second(c.Checkpoint(t.Context())),
		} {
			if !errors.As(err, &phase) || phase.Phase != pipeline.Stopping {
				t.Errorf("%s during a stop: %v", what, err)
			}
		}
		up.Store(true)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := c.Stop(t.Context(), pipeline.StopOptions{}); !errors.As(err, &phase) || phase.Phase != pipeline.Ended || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("after the end: %v", err)
		}
	})
}

func second(_ *pipeline.Taken, err error) error { return err }

// A process that is killed at any step of a stop leaves a job that goes on, or one
// that has ended; nothing is lost and nothing published twice.
func TestAStopSurvivesACrashAtEachStep(t *testing.T) {
	steps := []string{
		"before-claim", "after-claim", "before-metadata", "after-metadata", "before-commit", "after-commit", "before-proven", "after-proven",
		"before-savepoint-file", "after-savepoint-file", "before-ended-file", "after-ended-file",
	}
	for _, step := range steps {
		for name, o := range map[string]pipeline.StopOptions{"checkpoint": {}, "savepoint": {Savepoint: true}, "drain": {Drain: true}, "savepoint and drain": {Savepoint: true, Drain: true}} {
			if !o.Savepoint && strings.Contains(step, "savepoint") {
				continue
			}
			t.Run(step+" of a stop with "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { crashInStop(t, step, o) })
			})
		}
	}
}

func crashInStop(t *testing.T, step string, o pipeline.StopOptions) {
	name := unused("crash")
	w := steered(t, on(name))
	feed, out := w.Feed("in", 2), w.Target("out")
	fill(feed, 2, 0, 100)
	if o.Savepoint {
		o.Dir = "mem://" + unused("crash-savepoint")
	}
	var armed atomic.Bool
	hit, go_on := make(chan struct{}), make(chan struct{})
	w.Options.Failpoint = func(at string) {
		if at == step && armed.CompareAndSwap(true, false) {
			faults(t, name, storagetest.Rule{Op: storagetest.OpAny, Effect: storagetest.FailBefore}) // the process is gone
			close(hit)
			<-go_on
		}
	}
	p := running(w)
	armed.Store(true)
	go func() { _, _ = w.Options.Control.Stop(t.Context(), o) }()
	<-hit
	go func() {
		time.Sleep(time.Millisecond)
		close(go_on)
	}()
	p.Crash()
	faults(t, name)
	fill(feed, 2, 100, 150)
	feed.End()
	w.Options.AllowDrained = true
	s, err := w.Run()
	if err == nil && s.Outcome == pipeline.Stopped { // it was drained: the stop is finished first, and nothing is read
		if !o.Drain || s.Counts.Read != 0 || s.Ended == nil {
			t.Errorf("the next run is stopped: %d read, ended %+v", s.Counts.Read, s.Ended)
		}
		s, err = w.Run()
	}
	if err != nil || s.Outcome != pipeline.Finished {
		t.Fatalf("outcome %s, error %v", s.Outcome, err)
	}
	equal(t, sorted(out.Values()), wantEven(150))
}

func TestTheEndOfTheProgramDuringAStopLeavesTheJobToTheNextStart(t *testing.T) {
	for _, drain := range []bool{false, true} {
		t.Run(fmt.Sprint("drain ", drain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1h, timeout: 10m", 1))
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				var up atomic.Bool
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if up.Load() {
						return nil
					}
					return errors.New("target is down")
				}
				p := running(w)
				told := make(chan error, 1)
				go func() {
					_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Drain: drain})
					told <- err
				}()
				time.Sleep(time.Minute)
				s, err := p.Stop()
				if err != nil || s.Outcome != pipeline.Stopped || s.Ended != nil {
					t.Errorf("outcome %s, ended %+v, error %v", s.Outcome, s.Ended, err)
				}
				if err := <-told; err == nil || !strings.Contains(err.Error(), "has not ended") {
					t.Errorf("who asked is told: %v", err)
				}
				up.Store(true)
				fill(feed, 2, 100, 150)
				feed.End()
				if drain {
					s, err := w.Run()
					if err != nil || s.Outcome != pipeline.Stopped || s.Counts.Read != 0 || s.Ended == nil || !s.Ended.Drained {
						t.Fatalf("the next start: outcome %s, %d read, ended %+v, error %v", s.Outcome, s.Counts.Read, s.Ended, err)
					}
					equal(t, sorted(out.Values()), wantEven(100))
					if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "--allow-drained") {
						t.Errorf("the start after a drained stop: %v", err)
					}
					w.Options.AllowDrained = true
				}
				wantRun(t, w, 50)
				equal(t, sorted(out.Values()), wantEven(150))
			})
		})
	}
}

// Where nobody knows whether the end of the job was written, the pipeline starts again,
// which makes it void, and goes on.
func TestAStopThatCannotBeRecordedIsUndone(t *testing.T) {
	for name, effect := range map[string]storagetest.Effect{"not written": storagetest.FailBefore, "reply lost": storagetest.FailAfter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				name := unused("unrecorded")
				w := steered(t, on(name))
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				p := running(w)
				// Reading it back fails too, so that it cannot be told what became of it.
				faults(t, name,
					storagetest.Rule{Op: storagetest.OpCreate, Glob: "ended.json", Effect: storagetest.FailBefore, Nth: 2},
					storagetest.Rule{Op: storagetest.OpCreate, Glob: "ended.json", Effect: storagetest.FailBefore, Nth: 3},
					storagetest.Rule{Op: storagetest.OpClose, Glob: "ended.json", Effect: effect},
					storagetest.Rule{Op: storagetest.OpOpen, Glob: "ended.json"},
				)
				_, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{})
				if err == nil || !strings.Contains(err.Error(), "goes on from its last checkpoint") {
					t.Errorf("the stop says: %v", err)
				}
				faults(t, name)
				fill(feed, 2, 100, 150)
				time.Sleep(time.Minute)
				p.Crash()
				feed.End()
				s, err := w.Run()
				if err != nil || s.Outcome != pipeline.Finished {
					t.Errorf("outcome %s, error %v", s.Outcome, err)
				}
				equal(t, sorted(out.Values()), wantEven(150))
			})
		})
	}
}
