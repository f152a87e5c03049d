package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// What follows adds savepoints, claims and cancelled jobs to the random histories.

// pinned is a checkpoint that is being copied.
type pinned struct {
	meta    *checkpoint.Metadata
	release func()
}

// savepoints are those that were taken, on a storage of their own.
type savepoints struct {
	dir       string
	fs        *storagetest.FaultyFS
	claimed   map[string]bool // by path
	cancelled bool            // some job was
}

func newSavepoints() savepoints {
	name := checkpoint.NewJobID()
	s := savepoints{dir: "unsound://" + name, fs: storagetest.Faulty(mem.New(), 1), claimed: map[string]bool{}}
	faultyPlaces.Store(name, addressed{s.fs, s.dir})
	return s
}

// wish draws what a user starts from: mostly nothing in particular.
func (s *savepoints) wish(t *rapid.T) (from string, claim bool) {
	all := slices.Sorted(maps.Keys(s.claimed))
	if len(all) == 0 || rapid.IntRange(0, 2).Draw(t, "from a savepoint") > 0 {
		return "", false
	}
	return rapid.SampledFrom(all).Draw(t, "savepoint"), rapid.Bool().Draw(t, "claim")
}

func (s *savepoints) claim(path string) { s.claimed[path] = true }

// check looks that every savepoint is whole, and that only claimed ones are gone.
func (s *savepoints) check(t *rapid.T) {
	s.fs.Set()
	found, err := checkpoint.Savepoints(context.Background(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, f := range found {
		r, err := checkpoint.Verify(context.Background(), f.Path)
		if err != nil || len(r.Faults) > 0 {
			t.Fatalf("savepoint %s is not whole: %v, %+v", f.Path, err, r)
		}
		if _, known := s.claimed[f.Path]; !known {
			t.Fatalf("a savepoint that failed is there: %s", f.Path)
		}
		left[f.Path] = true
	}
	for path, claimed := range s.claimed {
		if !claimed && !left[path] {
			t.Fatalf("savepoint %s is gone, and nobody claimed it", path)
		}
	}
}

// pin keeps the newest proven checkpoint of a process for a savepoint.
func (w *world) pin(t *rapid.T) {
	r := w.runner(t)
	if r.proven == nil || r.pinned != nil {
		t.Skip("nothing to pin")
	}
	r.pinned = &pinned{r.proven, r.job.Pin(r.proven.Number)}
}

// savepoint copies what is pinned, on storages that fail. The process may have been
// fenced since, or be dead in all but this.
func (w *world) savepoint(t *rapid.T) {
	i := slices.IndexFunc(w.procs, func(r *runner) bool { return r.pinned != nil })
	if i < 0 {
		t.Skip("nothing is pinned")
	}
	r := w.procs[i]
	if p := rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "savepoint fault probability"); p > 0 {
		w.saves.fs.Set(
			storagetest.Rule{Op: storagetest.OpClose, Probability: p, Effect: storagetest.FailAfter},
			storagetest.Rule{Op: storagetest.OpWrite, Probability: p, Effect: storagetest.Partial},
			storagetest.Rule{Op: storagetest.OpOpen, Probability: p})
	}
	path, err := r.job.Savepoint(context.Background(), r.pinned.meta, w.saves.dir)
	w.saves.fs.Set()
	if err == nil {
		w.saves.claimed[path] = false
	}
	r.pinned.release()
	r.pinned = nil
	w.saves.check(t)
}

// cancel ends the job of a process and removes its checkpoints.
func (w *world) cancel(t *rapid.T) {
	r := w.runner(t)
	if r.steps != 2 || r.pending != nil || r.pinned != nil || rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		t.Skip("it goes on")
	}
	w.saves.cancelled = true
	r.dead = true
	err := r.job.End(context.Background(), checkpoint.Ended{How: checkpoint.Cancelled})
	if err != nil {
		return
	}
	err = r.job.Discard(context.Background())
	if errors.Is(err, connectors.ErrFenced) {
		return
	}
	quiet, storeErr := checkpoint.NewStore(w.below, "orders", checkpoint.StoreOptions{Log: discard})
	if storeErr != nil {
		t.Fatal(storeErr)
	}
	jobs, listErr := quiet.List(context.Background())
	if listErr != nil {
		t.Fatal(listErr)
	}
	for _, j := range jobs {
		if j.ID == r.job.ID() && err == nil && len(j.Checkpoints) > 0 {
			t.Fatalf("of the discarded job are left %+v", j.Checkpoints)
		}
	}
}

// chosenByUser reports whether a user said what a job begins with.
func (w *world) chosenByUser(t *rapid.T, job string) bool {
	quiet, err := checkpoint.NewStore(w.below, "orders", checkpoint.StoreOptions{Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	sv, err := quiet.Survey(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range sv.Owners {
		if o.Job == job && o.ChosenBy == checkpoint.ByUser {
			return true
		}
	}
	return false
}

// rollBack lets a new job begin where its user wants: what the sink has beyond that is
// published again, as asked for.
func (w *world) rollBack(t *rapid.T, r *runner) {
	r.pos = 0
	if m := r.r.Meta; m != nil {
		cut, known := w.cuts[m.ID()]
		if !known || len(m.Committables) > 0 || !strings.Contains(r.r.Path, "/savepoint-") {
			t.Fatalf("it restored %s: %s", r.r.Path, fmt.Sprint(m.ID()))
		}
		r.pos = cut
	}
	r.cut = r.pos
	w.sink.commits = []published{{to: r.pos}}
	w.sink.generation = max(w.sink.generation, r.g)
}
