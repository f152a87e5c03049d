package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
)

// crash is what a failpoint panics with to end a process where it stands.
type crash struct{ point string }

// life is a whole run of a pipeline: a start, two checkpoints with a savepoint of each, the end.
func life(ctx context.Context, s *checkpoint.Store, savepoints string) (done uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			err = fmt.Errorf("%v", r)
		}
	}()
	p, err := begin(ctx, s, checkpoint.Request{})
	if err != nil {
		return 0, err
	}
	for range 2 {
		n, err := p.complete(ctx)
		if err != nil {
			return done, err
		}
		done = n
		if err := p.commit(ctx, n); err != nil {
			return done, err
		}
		if _, err := p.savepoint(ctx, n, savepoints); err != nil {
			return done, err
		}
	}
	return done, p.job.End(ctx, checkpoint.Ended{How: checkpoint.Finished})
}

func TestACrashAtEveryDurableStepLeavesSomethingToGoOnFrom(t *testing.T) {
	for _, point := range checkpoint.StoreFailpoints {
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprint(point, nth), func(t *testing.T) {
				f := mem.New()
				hits := 0
				s := newStore(t, f, checkpoint.StoreOptions{Failpoint: func(name string) {
					if name == point {
						if hits++; hits == nth {
							panic(crash{name})
						}
					}
				}})
				savepoints := t.TempDir()
				done, err := life(t.Context(), s, savepoints)
				if hits == 0 {
					t.Fatal("the step was not reached")
				}
				if err == nil && hits >= nth {
					t.Fatal("it did not crash")
				}
				wantWhole(t, savepoints)
				f.Crash()
				quiet := newStore(t, f, checkpoint.StoreOptions{})
				ended := slices.Contains([]string{"after-ended-file"}, point) && nth == 1 || err == nil
				p, err := begin(t.Context(), quiet, checkpoint.Request{})
				if ended {
					if !errors.Is(err, checkpoint.ErrFinished) {
						t.Fatalf("it had ended: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				p.t = t
				got := uint64(0)
				if p.r.Meta != nil {
					got = p.r.Meta.Number
				}
				// The step after-metadata has completed one that life does not know of.
				if got != done && got != done+1 || got == done+1 && point != "after-metadata-file" {
					t.Fatalf("it restored %d, %d was done", got, done)
				}
				p.take(1)
				if err := p.job.Retain(t.Context()); err != nil {
					t.Fatal(err)
				}
				start(t, quiet, "").wantRestored(p.g, p.last())
			})
		}
	}
}

func TestAPipelineWithoutStorageGoesOnWithinItsProcess(t *testing.T) {
	s := newStore(t, mem.New(), checkpoint.StoreOptions{})
	p := start(t, s, "").take(2)
	g, err := s.TakeAfter(t.Context(), p.g)
	if err != nil {
		t.Fatal(err)
	}
	again, err := own(t.Context(), s, g, checkpoint.Request{})
	if err != nil || again.r.Meta.ID() != id(1, 2) {
		t.Fatalf("got %+v, %v", again, err)
	}
	start(t, newStore(t, mem.New(), checkpoint.StoreOptions{}), "").wantRestored(0, 0)
}

func TestTheCoordinatorGetsWhatItsContractSays(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").claims(1)
	var log checkpoint.Log = p.job
	m, err := p.metadata(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m.Kind = "unknown"
	if err := log.Complete(t.Context(), m); !errors.Is(err, checkpoint.ErrNotWritten) || !connectors.IsPermanent(err) {
		t.Errorf("metadata that cannot be: %v", err)
	}
	m.Kind, m.Number = checkpoint.Periodic, 2
	if err := log.Complete(t.Context(), m); !errors.Is(err, checkpoint.ErrNotWritten) {
		t.Errorf("a number of somebody else: %v", err)
	}
	m.Number = 1
	for range 2 {
		if err := log.Complete(t.Context(), m); err != nil {
			t.Errorf("it cannot be repeated: %v", err)
		}
		if err := log.Proven(t.Context(), 1); err != nil {
			t.Errorf("the proof cannot be repeated: %v", err)
		}
	}
}
