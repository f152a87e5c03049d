package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func savepointsIn(t *testing.T, dir string) []checkpoint.FoundSavepoint {
	t.Helper()
	found, err := checkpoint.Savepoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPeriodicSavepointsComeInTimeAndOnlyTheyAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := "mem://" + unused("periodic")
		periodic := dir + "/periodic/straight"
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1m, savepoints: {dir: \""+dir+"\", every: 10m, keep: 2}", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := running(w)
		byHand, err := w.Options.Control.Savepoint(t.Context(), "")
		if err != nil || !strings.HasPrefix(byHand.Path, dir+"/savepoint-") {
			t.Fatalf("took %+v, error %v", byHand, err)
		}
		time.Sleep(9 * time.Minute)
		if n := len(savepointsIn(t, periodic)); n > 0 {
			t.Errorf("%d before their time", n)
		}
		time.Sleep(37 * time.Minute) // at 10, 20, 30 and 40 minutes
		found := savepointsIn(t, periodic)
		if len(found) != 2 || found[0].Meta.Completed.Sub(found[1].Meta.Completed).Round(time.Second) != 10*time.Minute {
			t.Errorf("%d are kept, want 2", len(found))
		}
		// A restart does not begin the time anew: the next one is due at 50 minutes.
		p.Crash()
		time.Sleep(time.Minute)
		p = running(w)
		newest := found[0].Meta.Number
		time.Sleep(4 * time.Minute)
		if found = savepointsIn(t, periodic); len(found) != 2 || found[0].Meta.Number <= newest {
			t.Errorf("%d after the restart, the newest %d, before %d", len(found), found[0].Meta.Number, newest)
		}
		if r, err := checkpoint.Verify(t.Context(), byHand.Path); err != nil || len(r.Faults) > 0 {
			t.Errorf("the one by hand: %v, %v", r, err)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished || s.Restarts != 0 {
			t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestAPeriodicSavepointThatFailsIsTriedAgainAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("full")
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1m, tolerable_failures: 0, savepoints: {dir: \"flaky://"+name+"\", every: 10m}", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		faults(t, name, storagetest.Rule{Op: storagetest.OpCreate})
		p := running(w)
		time.Sleep(21 * time.Minute)
		if n := len(savepointsIn(t, "flaky://"+name+"/periodic/straight")); n > 0 {
			t.Errorf("%d are there", n)
		}
		faults(t, name)
		time.Sleep(6 * time.Minute)
		if n := len(savepointsIn(t, "flaky://"+name+"/periodic/straight")); n != 1 {
			t.Errorf("%d are there once they can be, want 1", n)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Outcome != pipeline.Finished || s.Restarts != 0 {
			t.Errorf("outcome %s, %d restarts, error %v", s.Outcome, s.Restarts, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

// A store that removes nothing does not make savepoints come more often, which would fill it.
func TestPeriodicSavepointsComeInTimeWhereNoneCanBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("kept")
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1m, savepoints: {dir: \"flaky://"+name+"\", every: 10m, keep: 1}", 1))
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 100)
		faults(t, name, storagetest.Rule{Op: storagetest.OpRemove})
		p := running(w)
		time.Sleep(45 * time.Minute)
		if n := len(savepointsIn(t, "flaky://"+name+"/periodic/straight")); n != 4 {
			t.Errorf("%d are there after 45 minutes, want 4", n)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Restarts != 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
	})
}

// What another pipeline has in the folder is not this one's to remove.
func TestPeriodicSavepointsOfOthersAreNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := "mem://" + unused("shared")
		other := steered(t, at(2, counting))
		other.Feed("in", 4)
		o := running(other)
		foreign, err := other.Options.Control.Savepoint(t.Context(), dir+"/periodic/straight")
		if err != nil {
			t.Fatal(err)
		}
		o.Crash()
		w := steered(t, strings.Replace(straight, "interval: 100ms", "interval: 1m, savepoints: {dir: \""+dir+"\", every: 10m, keep: 1}", 1))
		w.Feed("in", 2)
		p := running(w)
		time.Sleep(25 * time.Minute)
		if r, err := checkpoint.Verify(t.Context(), foreign.Path); err != nil || len(r.Faults) > 0 {
			t.Errorf("the other's: %v, %v", r, err)
		}
		if n := len(savepointsIn(t, dir+"/periodic/straight")); n != 2 {
			t.Errorf("%d are there, want its own newest and the other's", n)
		}
		p.Crash()
	})
}
