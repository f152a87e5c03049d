package pipeline_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestASavepointIsWholeAndThePipelineRunsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		dir := "mem://" + unused("savepoints")
		got, err := w.Options.Control.Savepoint(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(100)) // its commits are proven
		o, err := checkpoint.Inspect(t.Context(), got.Path)
		if err != nil || o.Meta.Kind != checkpoint.Savepoint || len(o.Meta.Committables) > 0 || o.Meta.Drained {
			t.Errorf("it holds %+v, error %v", o, err)
		}
		if r, err := checkpoint.Verify(t.Context(), got.Path); err != nil || len(r.Faults) > 0 {
			t.Errorf("it is not whole: %v, %v", r, err)
		}
		fill(feed, 2, 100, 150)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished || s.Restarts != 0 {
			t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
		}
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

func TestASavepointNeedsToKnowWhereItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("own")
		w := steered(t, on(name))
		w.Feed("in", 2)
		p := running(w)
		// The pipeline's own folder has what the pipeline removes.
		for _, dir := range []string{"", "nowhere://x", "flaky://" + name + "/straight", "flaky://" + name + "/straight/" + w.Options.Control.Status().Job} {
			_, err := w.Options.Control.Savepoint(t.Context(), dir)
			_, stopErr := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Savepoint: true, Dir: dir, Drain: true})
			if !errors.Is(err, pipeline.ErrNoSavepointDir) || !errors.Is(stopErr, pipeline.ErrNoSavepointDir) {
				t.Errorf("into %q: %v, %v", dir, err, stopErr)
			}
		}
		if s, err := p.Stop(); err != nil || s.Checkpoints != 1 {
			t.Errorf("%d checkpoints were taken, error %v", s.Checkpoints, err)
		}
	})
}

func TestASavepointThatFailsLeavesNothingAndThePipelineRunsOn(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, w *pipelinetest.World, full string) context.Context{
		"its folder is full": func(t *testing.T, _ *pipelinetest.World, full string) context.Context {
			faults(t, full, storagetest.Rule{Op: storagetest.OpCreate, Glob: "_metadata"}, storagetest.Rule{Op: storagetest.OpClose, Glob: "_metadata*"})
			return t.Context()
		},
		"a sink cannot prepare": func(t *testing.T, w *pipelinetest.World, _ string) context.Context {
			var failed atomic.Bool
			w.Target("out").AfterPrepare = func(connectors.CheckpointID) error {
				if failed.CompareAndSwap(false, true) {
					return errors.New("no room")
				}
				return nil
			}
			return t.Context()
		},
		"nobody waits for it": func(t *testing.T, w *pipelinetest.World, _ string) context.Context {
			began := time.Now()
			w.Target("out").BeforeCommit = func(connectors.CheckpointID) error {
				if time.Since(began) < time.Minute {
					return errors.New("target is down")
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, at(2, counting))
				feed, out, full := w.Feed("in", 4), w.Target("out"), unused("failing")
				clicks(feed, 4, 0, 1000)
				p := running(w)
				ctx := fail(t, w, full)
				if _, err := w.Options.Control.Savepoint(ctx, "flaky://"+full); err == nil {
					t.Error("it says that it worked")
				}
				time.Sleep(2 * time.Minute)
				faults(t, full)
				wantEmpty(t, "flaky://"+full)
				feed.End()
				if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished || s.Restarts != 0 {
					t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
				}
				equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}))
			})
		})
	}
}

// A copy that takes long keeps neither a pipeline that failed from starting again, nor one
// that has read its input and is asked to end.
func TestASavepointThatTakesLongHoldsNothingUp(t *testing.T) {
	for name, end := range map[string]func(feed *pipelinetest.Feed, p *pipelinetest.Process){
		"failure": func(feed *pipelinetest.Feed, _ *pipelinetest.Process) {
			feed.FailNext(errors.New("connection reset"))
			time.Sleep(time.Minute)
			feed.End()
		},
		"end": func(feed *pipelinetest.Feed, p *pipelinetest.Process) {
			feed.End()
			time.Sleep(time.Minute)
			_, _ = p.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, at(2, counting))
				feed, slow := w.Feed("in", 4), unused("slow")
				clicks(feed, 4, 0, 1000)
				p := running(w)
				faults(t, slow, storagetest.Rule{Op: storagetest.OpCreate, Effect: storagetest.Slow, Delay: 100 * time.Hour})
				began, refused := time.Now(), make(chan error, 1)
				go func() { refused <- second(w.Options.Control.Savepoint(t.Context(), "flaky://"+slow)) }()
				time.Sleep(time.Second)
				end(feed, p)
				if err := <-refused; err == nil || !strings.Contains(err.Error(), "have ended") {
					t.Errorf("the savepoint says: %v", err)
				}
				if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished || time.Since(began) > 10*time.Minute {
					t.Errorf("outcome %s after %s, error %v", s.Outcome, time.Since(began), err)
				}
			})
		})
	}
}

// What a savepoint is copied from stays while that takes, however many checkpoints
// come meanwhile.
func TestASavepointThatTakesLongIsNotOvertakenByRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, at(8, strings.Replace(counting, "interval: 100ms", "interval: 100ms, retained: 1", 1)))
		w.Options.Control = &pipeline.Control{}
		feed, slow := w.Feed("in", 4), unused("slow")
		clicks(feed, 4, 0, 1000)
		p := running(w)
		faults(t, slow, storagetest.Rule{Op: storagetest.OpCreate, Effect: storagetest.Slow, Delay: 10 * time.Second})
		began := w.Options.Control.Checkpoints().Completed
		if _, err := w.Options.Control.Savepoint(t.Context(), "flaky://"+slow); err != nil {
			t.Error(err)
		}
		if n := w.Options.Control.Checkpoints().Completed - began; n < 50 {
			t.Errorf("%d checkpoints came meanwhile", n)
		}
		if s, err := p.Stop(); err != nil || s.Restarts != 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
	})
}

// A savepoint of one backend goes on in the other, at another parallelism, in another
// pipeline's folder and storage.
func TestASavepointGoesOnInAnotherBackendFolderAndParallelism(t *testing.T) {
	disk := "state: {backend: disk, dir: " + strconv.Quote(t.TempDir()) + "}"
	for name, backends := range map[string][2]string{"from disk to memory": {disk, "mode: exactly_once"}, "from memory to disk": {"mode: exactly_once", disk}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				yaml := func(parallelism int, backend string) string {
					return at(parallelism, strings.Replace(counting, "interval: 100ms", "interval: 100ms, retained: 1, "+backend, 1))
				}
				w := pipelinetest.New(t, yaml(3, backends[0]))
				w.Options.Control = &pipeline.Control{}
				feed, out := w.Feed("in", 4), w.Target("out")
				clicks(feed, 4, 0, 1000)
				p := running(w)
				end, err := w.Options.Control.Stop(t.Context(), pipeline.StopOptions{Savepoint: true, Dir: "mem://" + unused("moved")})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Wait(); err != nil {
					t.Fatal(err)
				}
				w.Redefine(strings.NewReplacer("pipeline: counting", "pipeline: moved", "STORAGE", "mem://"+unused("elsewhere")).Replace(yaml(2, backends[1])))
				w.Options.From = end.Path
				p = w.Start()
				clicks(feed, 4, 1000, 1000)
				time.Sleep(time.Second)
				p.Crash()
				w.Options.From = "" // by itself it goes on with its own
				clicks(feed, 4, 2000, 1000)
				feed.End()
				if s, err := w.Run(); err != nil || s.Outcome != pipeline.Finished || s.Counts.Late != 0 {
					t.Errorf("outcome %s, %d late, error %v", s.Outcome, s.Counts.Late, err)
				}
				equal(t, sorted(out.Values()), wantClicks([2]int{0, 1000}, [2]int{1000, 1000}, [2]int{2000, 1000}))
			})
		})
	}
}

// What the disk backend uploads after savepoints is whole, though they do not count
// among the retained checkpoints.
func TestIncrementalCheckpointsAfterSavepointsAreWhole(t *testing.T) {
	dir := strconv.Quote(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, strings.Replace(counting, "interval: 100ms", "interval: 1h, retained: 1, state: {backend: disk, dir: "+dir+"}", 1)))
		feed, out, c := w.Feed("in", 4), w.Target("out"), w.Options.Control
		clicks(feed, 4, 0, 1000)
		p := running(w)
		var last *pipeline.Taken
		parts := [][2]int{{0, 1000}}
		for i := range 4 {
			if _, err := c.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range i { // several in a row push out what came before
				if _, err := c.Savepoint(t.Context(), "mem://"+unused("row")); err != nil {
					t.Fatal(err)
				}
			}
			part := [2]int{1000 + 200*i, 200}
			clicks(feed, 4, part[0], part[1])
			parts = append(parts, part)
			time.Sleep(time.Second)
			var err error
			if last, err = c.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if r, err := checkpoint.Verify(t.Context(), last.Path); err != nil || len(r.Faults) > 0 {
				t.Fatalf("after %d savepoints checkpoint %d is not whole: %v %v", i, last.Number, r, err)
			}
		}
		p.Crash()
		feed.End()
		if s, err := w.Run(); err != nil || s.Counts.Late != 0 {
			t.Errorf("%d late, error %v", s.Counts.Late, err)
		}
		equal(t, sorted(out.Values()), wantClicks(parts...))
	})
}

// The job's own checkpoint that a savepoint is copied from is one like others: a crash
// before its commit loses nothing.
func TestACrashBeforeTheCommitOfASavepointLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("uncommitted")
		w := steered(t, on(name))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		out.BeforeCommit = func(connectors.CheckpointID) error { return errors.New("target is down") }
		p := running(w)
		go func() { _, _ = w.Options.Control.Savepoint(t.Context(), "mem://"+unused("never")) }()
		time.Sleep(time.Second)
		p.Crash()
		out.BeforeCommit = nil
		feed.End()
		wantRun(t, w, 0)
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestACheckpointIsTakenOnDemandAndRememberedOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		feed, out, c := w.Feed("in", 2), w.Target("out"), w.Options.Control
		fill(feed, 2, 0, 100)
		p := running(w)
		one, err := c.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		feed.FailNext(errors.New("connection reset"))
		fill(feed, 2, 100, 110)
		time.Sleep(time.Minute)
		two, err := c.Checkpoint(t.Context())
		if err != nil || two.Job != one.Job || two.Number <= one.Number {
			t.Errorf("%+v after %+v, error %v", two, one, err)
		}
		s, st := c.Checkpoints(), c.Status()
		if s.Completed != 3 || len(s.History) != 3 || s.Last == nil || s.Last.ID.Number != two.Number { // with the first of the job
			t.Errorf("%d completed, %d remembered, the last %+v", s.Completed, len(s.History), s.Last)
		}
		if st.Phase != pipeline.Running || st.Restarts != 1 || st.Restored == nil || st.Restored.Path != one.Path || st.Last != two.Path {
			t.Errorf("the status is %+v", st)
		}
		feed.End()
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
	})
}
