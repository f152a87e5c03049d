package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestStepsOfACheckpointHappenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var points []string
		r := newRig(t, Config{Failpoint: func(name string) { points = append(points, name) }})
		r.start()
		defer r.stop()
		if got := r.trigger(t.Context(), Periodic); got.err != nil {
			t.Fatal(got.err)
		}
		r.wantHappened("claim 1, trigger 1, complete 1, owner, commit 1, owner, proven 1, completed 1, retain")
		if !slices.Equal(points, Failpoints) {
			t.Errorf("failpoints passed are %v, want %v", points, Failpoints)
		}
	})
}

func TestTakenNumbersAreSkippedAndNoneIsUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{First: 5, TolerableFailures: -1})
		r.taken[5], r.taken[6] = true, true
		r.on = func(_ context.Context, op string, n uint64) error {
			if op == "claim" && n == 8 {
				return errDown // perhaps claimed
			}
			return nil
		}
		r.start()
		defer r.stop()
		for range 3 {
			r.trigger(t.Context(), Periodic)
		}
		r.wantHappened("taken 5, taken 6, claim 7, claim 8, claim 9", "taken", "claim")
		r.wantHistory("7 completed, 8 failed, 9 completed")
	})
}

func TestAnEndlessRowOfTakenNumbersFailsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TolerableFailures: -1})
		for n := range uint64(maxClaims + 1) {
			r.taken[n+1] = true
		}
		r.start()
		defer r.stop()
		got := r.trigger(t.Context(), Periodic)
		if got.err == nil || !strings.Contains(got.err.Error(), "1024 numbers up to 1024 are taken") {
			t.Errorf("Trigger returned %v", got.err)
		}
		if got = r.trigger(t.Context(), Periodic); got.err != nil || got.meta.Number != maxClaims+2 {
			t.Errorf("the next one returned %v", got.err)
		}
	})
}

func TestClaimThatHangsTimesOutAndItsNumberIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Timeout: minute, TolerableFailures: -1})
		r.on = func(_ context.Context, op string, n uint64) error {
			if op == "claim" && n == 1 {
				time.Sleep(2 * minute) // whatever its context says
			}
			return nil
		}
		r.start()
		defer r.stop()
		hung, next := r.trigger(t.Context(), Periodic), r.trigger(t.Context(), Periodic)
		r.after(minute)
		if !errors.Is(hung.err, context.DeadlineExceeded) {
			t.Errorf("Trigger returned %v", hung.err)
		}
		r.after(2 * minute)
		if next.err != nil || next.meta == nil || next.meta.Number != 2 {
			t.Errorf("the next one returned %v", next.err)
		}
		r.wantHappened("trigger 2, abort 1", "trigger", "abort")
	})
}

func TestMetadataIsWrittenAgainUntilItsOutcomeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newRig(t, Config{})
		r.on = func(_ context.Context, op string, _ uint64) error {
			if op == "complete" {
				if tries++; tries < 4 {
					return errDown
				}
			}
			return nil
		}
		r.start()
		defer r.stop()
		got := r.trigger(t.Context(), Periodic)
		r.after(minute)
		if got.err != nil || got.meta.Number != 1 {
			t.Errorf("Trigger returned %v", got.err)
		}
		r.wantHappened("complete 1, complete 1, complete 1, complete 1, commit 1", "complete", "commit")
		if want := r.begun.Add(0).UTC(); !got.meta.Completed.Equal(want) {
			t.Errorf("a repeated write has other metadata: completed %s, want %s", got.meta.Completed, want)
		}
	})
}

func TestMetadataOfUnknownOutcomeRestartsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Timeout: minute, TolerableFailures: -1})
		r.on = failing("complete", errDown)
		r.start()
		r.trigger(t.Context(), Periodic)
		err := r.ended()
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, errDown) {
			t.Errorf("Run returned %v, want an unknown outcome and why", err)
		}
		if d := time.Since(r.begun); d < minute || d > minute+lastRetry {
			t.Errorf("it gave up after %s, want about the timeout", d)
		}
		r.wantHappened("", "commit", "abort")
	})
}

func TestMetadataThatIsCertainlyNotThereFailsTheCheckpointOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TolerableFailures: 1})
		r.on = func(_ context.Context, op string, n uint64) error {
			if op == "complete" && n == 1 {
				return fmt.Errorf("create _metadata: %w: %w", ErrNotWritten, errDown)
			}
			return nil
		}
		r.start()
		defer r.stop()
		if got := r.trigger(t.Context(), Periodic); !errors.Is(got.err, errDown) {
			t.Errorf("Trigger returned %v", got.err)
		}
		if got := r.trigger(t.Context(), Periodic); got.err != nil || got.meta.Number != 2 {
			t.Errorf("the next one returned %v", got.err)
		}
		r.wantHappened("commit 2, proven 2, abort 1, retain", "commit", "proven", "abort", "retain")
	})
}

func TestStorageThatIsDownIsWaitedForAfterTheMetadata(t *testing.T) {
	for _, op := range []string{"owner", "proven"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{Timeout: minute})
				r.on = func(_ context.Context, o string, _ uint64) error {
					if o == op && time.Since(r.begun) < time.Hour {
						return errDown
					}
					return nil
				}
				r.start()
				defer r.stop()
				got := r.trigger(t.Context(), Periodic)
				r.after(time.Hour - 1)
				if got.done.Load() {
					t.Fatalf("Trigger returned %v while storage was down", got.err)
				}
				r.after(time.Hour + lastRetry)
				if got.err != nil {
					t.Errorf("Trigger returned %v", got.err)
				}
			})
		})
	}
}

// TestFenced has a newer owner appear at each step.
func TestFenced(t *testing.T) {
	for _, tc := range []struct{ step, want string }{
		{"claim", "claim 1"},
		{"complete", "claim 1, trigger 1, complete 1"},
		{"owner", "claim 1, trigger 1, complete 1, owner"},
		{"commit", "claim 1, trigger 1, complete 1, owner, commit 1, owner"},
		{"proven", "claim 1, trigger 1, complete 1, owner, commit 1, owner, proven 1"},
	} {
		t.Run("at "+tc.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{TolerableFailures: -1})
				there := false
				r.on = func(_ context.Context, op string, _ uint64) error {
					there = there || op == tc.step
					if there {
						return fmt.Errorf("%s: %w", op, connectors.ErrFenced)
					}
					return nil
				}
				r.start()
				r.trigger(t.Context(), Periodic)
				if err := r.ended(); !errors.Is(err, connectors.ErrFenced) {
					t.Errorf("Run returned %v, want that it is fenced", err)
				}
				r.wantHappened(tc.want)
			})
		})
	}
}

func TestNewerOwnerDuringTheCommitKeepsItFromBeingMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		newer := false
		r.on = func(_ context.Context, op string, _ uint64) error {
			newer = newer || op == "commit"
			if newer && op == "owner" {
				return connectors.ErrFenced
			}
			return nil
		}
		r.start()
		r.trigger(t.Context(), Periodic)
		if err := r.ended(); !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("Run returned %v, want that it is fenced", err)
		}
		r.wantHappened("", "proven", "completed")
	})
}

func TestSinkThatRefusesWithoutANewerOwnerIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.on = failing("commit", fmt.Errorf("end transaction: %w", connectors.ErrFenced))
		r.start()
		r.trigger(t.Context(), Periodic)
		err := r.ended()
		if err == nil || errors.Is(err, connectors.ErrFenced) || !strings.Contains(err.Error(), "no newer owner") {
			t.Errorf("Run returned %v, want a fault that is no fencing", err)
		}
	})
}

func TestCommitThatCannotSucceedEndsTheJobUnmarked(t *testing.T) {
	for _, cause := range []error{connectors.ErrLost, connectors.ErrAmbiguous, errors.New("no such topic")} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{TolerableFailures: -1})
				r.on = failing("commit", cause)
				r.start()
				got := r.trigger(t.Context(), Periodic)
				if err := r.ended(); !errors.Is(err, cause) {
					t.Errorf("Run returned %v, want %v", err, cause)
				}
				synctest.Wait()
				if !errors.Is(got.err, cause) || !errors.Is(got.err, ErrStopped) {
					t.Errorf("Trigger returned %v, want the cause", got.err)
				}
				r.wantHappened("", "proven", "abort", "retain")
			})
		})
	}
}

func TestStatesThatContradictFailTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TolerableFailures: -1, MaxConcurrent: 2})
		r.ack = false
		r.start()
		defer r.stop()
		got := r.trigger(t.Context(), Savepoint)
		r.trigger(t.Context(), Periodic)
		r.acks(2, 0, 1)
		for s := range 2 {
			r.c.Ack(Ack{Task: TaskID{"chain", s}, Checkpoint: r.id(1), Operators: []OperatorState{
				{UID: "in", Splits: []connectors.Split{{ID: "orders/0"}}}}})
			synctest.Wait()
		}
		synctest.Wait()
		if got.err == nil || !strings.Contains(got.err.Error(), "split orders/0 is read by two subtasks") {
			t.Errorf("Trigger returned %v", got.err)
		}
		r.wantHappened("complete 2", "complete")
	})
}

func TestAcksThatNobodyWaitsForChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.ack = false
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		r.acks(1, 0, 0)                                                                  // twice
		r.acks(1, 5)                                                                     // no such task
		r.c.Ack(Ack{Task: TaskID{"chain", 1}, Checkpoint: ID{Generation: 6, Number: 1}}) // another generation's
		r.c.Decline(TaskID{"chain", 1}, r.id(4), errDown)
		r.wantHistory("1 in_progress")
		if s := r.c.Stats(); s.UnknownAcks != 3 || s.History[0].Acked != 1 {
			t.Errorf("%d unknown, %d acknowledged, want 3 and 1", s.UnknownAcks, s.History[0].Acked)
		}
		r.acks(1, 1)
		r.wantHistory("1 completed")
	})
}

func TestAbandonedNumbersAreCleanedAfterALaterProofAndAgainIfThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TolerableFailures: -1})
		r.ack = false
		r.on = func(_ context.Context, op string, n uint64) error {
			if op == "abort" && n == 1 && !strings.Contains(strings.Join(r.journal, " "), "proven 4") {
				return errDown
			}
			return nil
		}
		r.start()
		defer r.stop()
		for n := uint64(1); n <= 2; n++ {
			r.trigger(t.Context(), Periodic)
			r.c.Decline(TaskID{"chain", 0}, r.id(n), errDown)
		}
		r.wantHappened("", "abort")
		for n := uint64(3); n <= 5; n++ {
			r.trigger(t.Context(), Periodic)
			r.acks(n, 0, 1)
		}
		r.wantHappened("proven 3, abort 1, abort 2, proven 4, abort 1, proven 5", "proven", "abort")
	})
}

func TestWhatFailedAfterTheProvenOneIsNotCleanedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("commit", 1)
		r := newRig(t, Config{MaxConcurrent: 2, TolerableFailures: -1})
		r.ack, r.on = false, g.on
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		r.acks(1, 0, 1)
		r.trigger(t.Context(), Periodic)
		r.c.Decline(TaskID{"chain", 0}, r.id(2), errDown)
		g.release()
		r.wantHappened("proven 1, retain", "proven", "abort", "retain")
		r.trigger(t.Context(), Periodic)
		r.acks(3, 0, 1)
		r.wantHappened("proven 1, retain, proven 3, abort 2, retain", "proven", "abort", "retain")
	})
}

func TestInitialCheckpointIsWrittenWithoutTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restored := &ID{Generation: 3, Number: 41}
		r := newRig(t, Config{First: 42, Restored: restored, Pipeline: "p", Job: "j", Definition: "sha256:d", Mode: "exactly_once", MaxParallelism: 128})
		r.taken[42] = true
		m, err := r.c.WriteInitial(t.Context(), []Operator{{UID: "in"}})
		if err != nil {
			t.Fatal(err)
		}
		r.wantHappened("taken 42, claim 43, complete 43, owner, proven 43")
		if m.Number != 43 || m.Kind != Initial || m.Job != "j" || m.Pipeline != "p" || m.Definition != "sha256:d" ||
			m.Mode != "exactly_once" || m.MaxParallelism != 128 || m.Restored != restored || m.Generation != 7 ||
			m.Committables == nil || len(m.Operators) != 1 || m.Format != FormatVersion {
			t.Errorf("the metadata is %+v", m)
		}
		r.start()
		defer r.stop()
		if got := r.trigger(t.Context(), Periodic); got.err != nil || got.meta.Number != 44 {
			t.Errorf("the next one returned %v", got.err)
		}
		if got := r.trigger(t.Context(), Initial); got.err == nil {
			t.Error("an initial checkpoint can be triggered")
		}
	})
}

func TestInitialCheckpointOfAFencedProcessIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.on = failing("owner", connectors.ErrFenced)
		if _, err := r.c.WriteInitial(t.Context(), nil); !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("WriteInitial returned %v", err)
		}
		r.wantHappened("claim 1, complete 1, owner")
	})
}

func TestRunEndsQuietlyInTheMiddleOfAnything(t *testing.T) {
	for _, op := range []string{"claim", "complete", "owner", "commit", "proven", "retain"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				r.on = newGate(op, 0).on
				r.start()
				r.trigger(t.Context(), Periodic)
				before := r.happened("trigger")
				r.stop()
				r.wantHappened(before, "trigger")
			})
		})
	}
}

func TestClaimThatSucceedsAfterTheEndSendsNoBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.on = func(ctx context.Context, op string, _ uint64) error {
			if op == "claim" {
				<-ctx.Done()
			}
			return nil
		}
		r.start()
		r.trigger(t.Context(), Periodic)
		r.stop()
		r.wantHappened("claim 1")
	})
}

func TestProofThatComesWithTheEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.on = func(_ context.Context, op string, _ uint64) error {
			if op == "proven" {
				r.cancel()
			}
			return nil
		}
		r.start()
		got := r.trigger(t.Context(), Final)
		r.stop()
		synctest.Wait()
		if got.err != nil || got.meta == nil {
			t.Errorf("Trigger returned %v although the checkpoint is proven", got.err)
		}
	})
}
