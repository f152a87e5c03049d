package checkpoint_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestARestartGoesOnFromTheNewestCheckpoint(t *testing.T) {
	_, s := memory(t)
	one := start(t, s, "").wantRestored(0, 0)
	if !one.r.NewJob || one.g != 1 || one.r.NextNumber != 1 {
		t.Fatalf("the first start is %+v", one.r)
	}
	one.take(3)
	two := start(t, s, "").wantRestored(1, 3)
	if two.r.NewJob || two.job.ID() != one.job.ID() || two.r.NextNumber != 4 || !two.r.Committed || two.r.ChosenBy != checkpoint.ByItself {
		t.Fatalf("the restart is %+v", two.r)
	}
	if len(two.r.Meta.Committables) != 1 {
		t.Fatal("the committables to resolve are missing")
	}
	two.take(1)
	start(t, s, "").wantRestored(2, 4)
}

func TestTheOlderProcessIsFencedAndIsToldByWhom(t *testing.T) {
	f, s := memory(t)
	old := start(t, s, "").take(2)
	n, err := old.complete(t.Context()) // complete and not committed when it falls asleep
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, "").wantRestored(1, 3).take(1)
	err = old.commit(t.Context(), n)
	var fenced *checkpoint.FencedError
	if !errors.Is(err, connectors.ErrFenced) || !errors.As(err, &fenced) || fenced.Generation != 2 || fenced.By == nil || fenced.By.Host == "" {
		t.Fatalf("got %v", err)
	}
	wantSays(t, err, "taken over", "generation 2", fenced.By.Host)
	if err := old.job.Retain(t.Context()); err == nil {
		t.Error("it removes files of the newer one")
	}
	if err := old.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Finished}); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("it ends the job of the newer one: %v", err)
	}
	if slices.Contains(names(t, f, "orders/"+old.job.ID()), "orders/"+old.job.ID()+"/ended.json") {
		t.Error("the job is ended")
	}
	if _, err := s.TakeAfter(t.Context(), old.g); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("its restart in the process got %v", err)
	}
}

// A process falls asleep, another goes on, also from something older, and the first
// one wakes at each of its steps.
func TestAZombieNeverCommitsAndItsCheckpointsAreOrphans(t *testing.T) {
	for _, c := range []struct {
		name string
		// asleep is what the older process had done beyond two whole checkpoints, awake
		// what it does after the other took over.
		asleep, awake func(p *process) error
		restored      uint64 // by the newer process
	}{
		{"before its claim", nil, func(p *process) error {
			if _, err := p.claim(p.t.Context()); !errors.Is(err, connectors.ErrFenced) {
				return fmt.Errorf("it claimed a number: %w", err)
			}
			return nil
		}, 2},
		{"after its claim", func(p *process) error { _, err := p.claim(p.t.Context()); return err },
			func(p *process) error { return p.finish(p.t.Context(), 3) }, 2},
		{"after its metadata", func(p *process) error { _, err := p.complete(p.t.Context()); return err }, func(*process) error { return nil }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s := memory(t)
			old := start(t, s, "").take(2)
			if c.asleep != nil {
				if err := c.asleep(old); err != nil {
					t.Fatal(err)
				}
			}
			newer := start(t, s, "").wantRestored(1, c.restored)
			if err := c.awake(old); err != nil {
				t.Fatal(err) // it does not know yet
			}
			if err := old.commit(t.Context(), 3); !errors.Is(err, connectors.ErrFenced) {
				t.Fatalf("the older process committed: %v", err)
			}
			newer.take(1)
			start(t, s, "").wantRestored(2, newer.last())
		})
	}
}

func TestAnOrphanIsNeverChosen(t *testing.T) {
	_, s := memory(t)
	old := start(t, s, "").take(2).claims(2)
	newer := start(t, s, "").wantRestored(1, 2)
	// The older one wakes and completes two more; the newer one has none yet.
	for n := uint64(3); n <= 4; n++ {
		if err := old.finish(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	third := start(t, s, "").wantRestored(1, 2)
	if third.r.NextNumber != 5 {
		t.Errorf("it begins with %d, a number that is used", third.r.NextNumber)
	}
	wantSays(t, refused(t, s, checkpoint.Request{From: old.path(4)}), "_committed", "older checkpoint")
	newer.t = t
	if err := newer.commit(t.Context(), 2); !errors.Is(err, connectors.ErrFenced) {
		t.Fatalf("the second is not fenced: %v", err)
	}
}

func TestAnOrphanWithItsMarkCanBeNamed(t *testing.T) {
	_, s := memory(t)
	old := start(t, s, "").take(4)
	back := start(t, s, old.path(2)).wantRestored(1, 2)
	if !back.r.NewJob || back.job.ID() == old.job.ID() || back.r.NextNumber != 3 || back.r.ChosenBy != checkpoint.ByUser {
		t.Fatalf("the start is %+v", back.r)
	}
	back.take(1)
	forth := start(t, s, old.path(4)).wantRestored(1, 4)
	forth.take(1)
	start(t, s, "").wantRestored(3, 5)
}

func TestGenerationsHaveNoGapsWhateverTheirOutcome(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []storagetest.Rule
		want  uint64
	}{
		{"taken at once", nil, 3},
		{"failed and taken again", []storagetest.Rule{{Op: storagetest.OpClaim, Glob: "owner-3", Nth: 1}}, 3},
		{"made, but the answer was lost", []storagetest.Rule{{Op: storagetest.OpClaim, Glob: "owner-3", Nth: 1, Effect: storagetest.FailAfter}}, 4},
		{"lost twice", []storagetest.Rule{{Op: storagetest.OpClaim, Glob: "owner-*", Nth: 1, Effect: storagetest.FailAfter},
			{Op: storagetest.OpClaim, Glob: "owner-4", Nth: 1, Effect: storagetest.FailAfter}}, 5},
	} {
		for _, how := range []string{"start", "restart in the process"} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				f := storagetest.Faulty(mem.New(), 1)
				s := newStore(t, f, checkpoint.StoreOptions{})
				start(t, s, "")
				start(t, s, "")
				f.Set(c.rules...)
				var g uint64
				var err error
				if how == "start" {
					var sv *checkpoint.Survey
					if sv, err = s.Survey(t.Context()); err == nil {
						g, err = s.TakeNext(t.Context(), sv)
					}
				} else {
					g, err = s.TakeAfter(t.Context(), 2)
				}
				if err != nil || g != c.want {
					t.Fatalf("took %d, %v; want %d", g, err, c.want)
				}
				all := names(t, f, "orders")
				for n := uint64(1); n <= g; n++ {
					if !slices.Contains(all, "orders/owner-"+string(rune('0'+n))) {
						t.Errorf("generation %d is missing: %q", n, all)
					}
				}
				if err := s.CheckOwner(t.Context(), 2); !errors.Is(err, connectors.ErrFenced) {
					t.Errorf("the older one is not fenced: %v", err)
				}
				if err := s.CheckOwner(t.Context(), g); err != nil {
					t.Errorf("the newest is fenced: %v", err)
				}
			})
		}
	}
}

func TestAStorageThatIsDownTakesNoGeneration(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpClaim})
	s := newStore(t, f, checkpoint.StoreOptions{})
	if g, err := s.TakeAfter(t.Context(), 1); err == nil || errors.Is(err, connectors.ErrFenced) || connectors.IsPermanent(err) {
		t.Fatalf("took %d, error %v; want one worth a retry", g, err)
	}
}

func TestARestartInTheProcessTakesItsSuccessorAndNoOther(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(1)
	g, err := s.TakeAfter(t.Context(), p.g)
	if err != nil || g != 2 {
		t.Fatalf("took %d, %v", g, err)
	}
	again, err := own(t.Context(), s, g, checkpoint.Request{})
	if err != nil {
		t.Fatal(err)
	}
	again.t = t
	again.wantRestored(1, 1).take(1)
	if _, err := s.TakeAfter(t.Context(), p.g); !errors.Is(err, connectors.ErrFenced) {
		t.Fatalf("a second restart of the same generation got %v", err)
	}
}

func TestTwoStartsAtOnceBothSeeTheOther(t *testing.T) {
	_, s := memory(t)
	start(t, s, "").take(1)
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.TakeNext(t.Context(), sv)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.TakeNext(t.Context(), sv) // which has seen the same
	if err != nil || second != first+1 {
		t.Fatalf("took %d and %d, %v", first, second, err)
	}
	if err := s.CheckOwner(t.Context(), first); !errors.Is(err, connectors.ErrFenced) {
		t.Fatalf("the older of the two is not fenced: %v", err)
	}
	// The older one goes on to write its record, later than the newer one.
	late, err := own(t.Context(), s, second, checkpoint.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own(t.Context(), s, first, checkpoint.Request{}); err != nil {
		t.Fatal(err)
	}
	late.t = t
	late.take(1)
	start(t, s, "").wantRestored(3, 2)
}

func TestAProcessWhoseCheckpointsSomebodyRemovedStops(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	if err := f.RemoveAll(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	err := p.commit(t.Context(), 1)
	if !errors.Is(err, connectors.ErrFenced) {
		t.Fatalf("got %v", err)
	}
	wantSays(t, err, "somebody removed")
}

func TestRecordsAreWrittenOnceAndCanBeRepeated(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1)
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "")
	o := p.r.Owner()
	o.Host, o.PID, o.Time = "h", 1, sample().Completed
	f.Set(storagetest.Rule{Op: storagetest.OpClose, Glob: "owner-2.json", Effect: storagetest.FailAfter})
	if err := s.WriteOwner(t.Context(), 2, o); err != nil {
		t.Fatalf("a lost answer was not resolved: %v", err)
	}
	if err := s.WriteOwner(t.Context(), 2, o); err != nil {
		t.Fatalf("the same again: %v", err)
	}
	o.PID = 2
	if err := s.WriteOwner(t.Context(), 2, o); err == nil {
		t.Fatal("a record was replaced")
	}
}

// A start that a user told what to restore falls asleep between its generation and its
// record. It cannot take away what a newer one has gone on from.
func TestARecordThatComesTooLateChangesNothing(t *testing.T) {
	_, s := memory(t)
	old := start(t, s, "").take(3)
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asleep, err := s.TakeNext(t.Context(), sv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Choose(t.Context(), sv, checkpoint.Request{From: old.path(1)})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, "").wantRestored(1, 3)
	if err := s.WriteOwner(t.Context(), asleep, r.Owner()); err != nil {
		t.Fatal(err)
	}
	next := start(t, s, "").wantRestored(1, 3)
	if next.job.ID() != old.job.ID() || next.r.NewJob {
		t.Errorf("it went on as job %s, new %v", next.job.ID(), next.r.NewJob)
	}
	sv, err = s.Survey(t.Context())
	if err != nil || sv.Owners.LeftBehind(id(1, 3)) || !sv.Owners.Behind(id(1, 2), id(1, 3)) {
		t.Errorf("what was published since counts no more: %v", err)
	}
}

// A process looks for a newer owner, falls asleep, and wakes when the newer one has
// ended the job: what that wrote stays.
func TestTheEndThatANewerProcessRecordedIsNotReplaced(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(1)
	asleep := newStore(t, f, checkpoint.StoreOptions{Failpoint: func(name string) {
		if name == "before-ended-file" {
			newer := start(t, s, "")
			if err := newer.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Finished}); err != nil {
				t.Error(err)
			}
		}
	}})
	err := asleep.Job(p.job.ID(), p.g).End(t.Context(), checkpoint.Ended{How: checkpoint.Cancelled})
	if !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("got %v", err)
	}
	sv, err := s.Survey(t.Context())
	if err != nil || sv.Ended == nil || sv.Ended.How != checkpoint.Finished || sv.Ended.Generation != 2 {
		t.Errorf("the job ended as %+v, %v", sv.Ended, err)
	}
}
