package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestADiscardedJobLeavesOnlyHowItEnded(t *testing.T) {
	below := mem.New()
	f := storagetest.Faulty(below, 1)
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(2)
	p.attempt(t)
	if err := p.job.Discard(t.Context()); err == nil {
		t.Fatal("a job that goes on was discarded")
	}
	if err := p.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Cancelled}); err != nil {
		t.Fatal(err)
	}
	release := p.job.Pin(2)
	if err := p.job.Discard(t.Context()); err == nil {
		t.Fatal("a checkpoint that is being copied was discarded")
	}
	release()
	for n := 1; n <= 4; n++ { // wherever it is cut off, what is left is whole
		f.Set(storagetest.Rule{Op: storagetest.OpRemove, Nth: n}, storagetest.Rule{Op: storagetest.OpRemoveAll, Nth: n})
		_ = p.job.Discard(t.Context())
		f.Set()
		sv, err := s.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range sv.Checkpoints {
			if c.Complete {
				if r, err := checkpoint.Verify(t.Context(), c.Path); err == nil && len(r.Faults) > 0 {
					t.Errorf("after a removal that failed, %s has %v", c.Path, r.Faults)
				}
			}
		}
	}
	for range 2 {
		if err := p.job.Discard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := what(t, f, p); got != "ended.json" {
		t.Errorf("left are %s", got)
	}
	if err := refused(t, s, checkpoint.Request{}); !errors.Is(err, checkpoint.ErrCancelled) {
		t.Errorf("the next start says %v", err)
	}
	start(t, s, checkpoint.FromNone).take(1)
	if err := p.job.Discard(t.Context()); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("a job with a newer owner was discarded: %v", err)
	}
}

// What sinks have prepared for a complete checkpoint can be published by way of its
// metadata alone.
func TestAJobWhoseLastOutputIsNotProvenIsNotDiscarded(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	if _, err := p.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := what(t, f, p)
	if err := p.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Cancelled}); err != nil {
		t.Fatal(err)
	}
	wantSays(t, p.job.Discard(t.Context()), "not proven", "-s "+p.path(2))
	if got := what(t, f, p); got != before+" ended.json" {
		t.Errorf("left are %s", got)
	}
	if q := start(t, s, p.path(2)); len(q.r.Meta.Committables) == 0 {
		t.Error("it cannot be published any more")
	}
}

func TestAJobThatWentOnAfterItsEndIsNotDiscarded(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	if err := p.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Stopped}); err != nil {
		t.Fatal(err)
	}
	g, err := s.TakeAfter(t.Context(), p.g)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Job(p.job.ID(), g).Discard(t.Context()); err == nil {
		t.Error("it was discarded")
	}
	if got := what(t, f, p); got != "1-1 chk-1 ended.json" {
		t.Errorf("left are %s", got)
	}
}
