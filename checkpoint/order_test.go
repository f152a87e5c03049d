package checkpoint

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestCompletingSubsumesEarlierCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 3, TolerableFailures: 0})
		r.ack = false
		r.start()
		defer r.stop()
		one, two := r.trigger(t.Context(), Periodic), r.trigger(t.Context(), Periodic)
		r.acks(1, 0)
		r.acks(2, 0, 1)
		r.wantHistory("1 subsumed, 2 completed")
		if !one.done.Load() || one.err != nil || one.meta.Number != 2 || two.meta.Number != 2 {
			t.Errorf("who waits for a subsumed one gets %+v, want the later one", one)
		}
		r.acks(1, 1)
		r.wantHappened("complete 2, commit 2, proven 2, abort 1", "complete", "commit", "proven", "abort")
		if s := r.c.Stats(); s.LateAcks != 1 || s.Failed != 0 {
			t.Errorf("%d late, %d failed, want 1 and 0", s.LateAcks, s.Failed)
		}
	})
}

func TestEarlierCheckpointDoesNotCompleteBesideALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("complete", 2)
		r := newRig(t, Config{MaxConcurrent: 2})
		r.ack, r.on = false, g.on
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		r.trigger(t.Context(), Periodic)
		r.acks(2, 0, 1)
		r.acks(1, 0, 1)
		r.wantHappened("complete 2", "complete")
		g.release()
		r.wantHappened("complete 2, commit 2", "complete", "commit")
		r.wantHistory("1 subsumed, 2 completed")
	})
}

func TestSavepointKeepsItsPlaceInTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 3})
		r.ack = false
		r.start()
		defer r.stop()
		for _, k := range []Kind{Periodic, Savepoint, Periodic} {
			r.trigger(t.Context(), k)
		}
		r.acks(2, 0, 1)
		r.acks(3, 0, 1)
		r.wantHappened("", "complete")
		r.acks(1, 0, 1)
		r.wantHappened("commit 1, commit 2, commit 3", "commit")
		r.wantHistory("1 completed, 2 completed, 3 completed")
	})
}

func TestCheckpointBehindASavepointWaitsForItToFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Timeout: minute})
		r.ack = false
		r.start()
		defer r.stop()
		save := r.trigger(t.Context(), Savepoint)
		r.trigger(t.Context(), Periodic)
		r.acks(2, 0, 1)
		r.wantHappened("", "complete")
		r.after(minute)
		r.wantHistory("1 failed, 2 completed")
		if !errors.Is(save.err, ErrTimeout) {
			t.Errorf("the savepoint returned %v", save.err)
		}
	})
}

func TestPublishedCommittablesAreNotListedByAnOverlappingCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Tasks: taskIDs(1), MaxConcurrent: 3})
		r.ack = false
		r.start()
		defer r.stop()
		for range 3 {
			r.trigger(t.Context(), Periodic)
		}
		var prepared []connectors.Committable
		for n := uint64(1); n <= 3; n++ {
			prepared = append(prepared, committable("sink", 7, n, false))
			r.c.Ack(sinkAck(0, r.id(n), prepared...))
			synctest.Wait()
			if got, want := names(r.metas[n-1].Committables), fmt.Sprintf("sink/%d", n); got != want {
				t.Errorf("checkpoint %d lists %s, want only what is not published: %s", n, got, want)
			}
		}
		if len(r.c.published) != 0 {
			t.Errorf("%d published committables are still remembered", len(r.c.published))
		}
	})
}

func TestNothingIsTakenBehindAStopUntilItIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute, MaxConcurrent: 3})
		r.start()
		defer r.stop()
		stop, err := r.c.Trigger(t.Context(), Order{Kind: Savepoint, Stop: true})
		if err != nil || stop.Number != 1 {
			t.Fatalf("the stop's checkpoint is %+v, error %v", stop, err)
		}
		byHand := r.trigger(t.Context(), Periodic)
		r.after(10 * minute)
		r.wantHistory("1 completed")
		r.c.Resume()
		r.wantHistory("1 completed, 2 completed, 3 completed")
		if !byHand.done.Load() || byHand.err != nil {
			t.Errorf("what was asked for meanwhile ended with %v", byHand.err)
		}
	})
}

func TestTheCheckpointOfAStopIsNotSubsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2})
		r.ack = false
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		go func() { _, _ = r.c.Trigger(t.Context(), Order{Kind: Periodic, Stop: true}) }()
		synctest.Wait()
		r.c.Resume()
		r.acks(2, 0, 1)
		r.wantHistory("1 subsumed, 2 completed")
		stop := make(chan error, 1)
		go func() { _, err := r.c.Trigger(t.Context(), Order{Kind: Periodic, Stop: true}); stop <- err }()
		synctest.Wait()
		r.c.Resume()
		r.trigger(t.Context(), Periodic)
		r.acks(4, 0, 1)
		r.wantHistory("1 subsumed, 2 completed, 3 in_progress, 4 in_progress")
		r.c.Decline(TaskID{"chain", 0}, r.id(3), errDown)
		r.wantHistory("1 subsumed, 2 completed, 3 failed, 4 completed")
		if err := <-stop; !errors.Is(err, errDown) {
			t.Errorf("the stop whose checkpoint failed ended with %v", err)
		}
		if s := r.c.Stats(); s.FailedInARow != 0 || s.Failed != 1 {
			t.Errorf("what was asked for and failed counts against the job: %+v", s)
		}
	})
}

// Who waits for a savepoint is told in time; what sinks have been promised is committed all the same.
func TestASavepointWhoseCommitsAreNotProvenInTimeFailsAndIsCommitted(t *testing.T) {
	for _, o := range []Order{{Kind: Savepoint}, {Kind: Savepoint, Stop: true}, {Kind: Periodic, Stop: true}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate("commit", 1)
			r := newRig(t, Config{Timeout: minute})
			r.on = g.on
			r.start()
			defer r.stop()
			_, err := r.c.Trigger(t.Context(), o)
			if !errors.Is(err, ErrNotProven) || time.Since(r.begun) != minute {
				t.Errorf("%+v ended after %s with %v", o, time.Since(r.begun), err)
			}
			r.wantHistory("1 committing")
			g.release()
			r.wantHistory("1 completed")
		})
	}
}

// A drained pipeline cannot go on otherwise than by its commit, and the end of the input neither.
func TestADrainedCheckpointIsWaitedForUntilItIsProven(t *testing.T) {
	for _, o := range []Order{{Kind: Savepoint, Stop: true, Drained: true}, {Kind: Final, Drained: true}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate("commit", 1)
			r := newRig(t, Config{Timeout: minute})
			r.on = g.on
			r.start()
			defer r.stop()
			time.AfterFunc(10*minute, g.release)
			if m, err := r.c.Trigger(t.Context(), o); err != nil || !m.Drained {
				t.Errorf("%+v ended with %+v, %v", o, m, err)
			}
		})
	}
}

func TestTheStateOfAFailedCheckpointIsRemovedAndOfNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 3, Timeout: minute, TolerableFailures: 5})
		r.ack = false
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic) // times out
		r.after(minute)
		r.trigger(t.Context(), Periodic) // is declined
		r.c.Decline(TaskID{"chain", 0}, r.id(2), errDown)
		r.trigger(t.Context(), Periodic) // is subsumed: goes with the cleaning
		r.trigger(t.Context(), Periodic)
		r.acks(4, 0, 1)
		r.wantHistory("1 failed, 2 failed, 3 subsumed, 4 completed")
		r.wantHappened("abandoned 1, abandoned 2", "abandoned") // so the tasks stop writing it
		if got := fmt.Sprint(r.abandoned); got != "[1 2]" {
			t.Errorf("the state of %s was removed, want that of 1 and 2", got)
		}
	})
}

// Whether it was written is not known: a restart finds out, and until then nothing of it goes.
func TestTheStateOfACheckpointOfUnknownOutcomeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Timeout: minute})
		r.on = failing("complete", errDown)
		r.start()
		r.trigger(t.Context(), Periodic)
		if err := r.ended(); !errors.Is(err, ErrUnknownOutcome) || len(r.abandoned) > 0 {
			t.Errorf("it ended with %v, and the state of %v was removed", err, r.abandoned)
		}
	})
}

// What an earlier process could not remove goes at the start, and not only after a
// checkpoint that may never come.
func TestWhatTheRunBeforeLeftIsCleanedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: time.Hour, Restored: &ID{Generation: 6, Number: 1}}).start()
		defer r.stop()
		r.wantHappened("retain", "retain", "abort")
	})
}
