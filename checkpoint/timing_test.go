package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	sec    = time.Second
	minute = time.Minute
)

func TestPeriodicCheckpointsFollowTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute}).start()
		defer r.stop()
		r.after(3*minute + sec)
		r.wantTriggers(minute, 2*minute, 3*minute)
	})
}

func TestNoIntervalMeansNoPeriodicCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}).start()
		defer r.stop()
		r.after(24 * time.Hour)
		r.wantTriggers()
		if got := r.trigger(t.Context(), Periodic); got.err != nil || got.meta == nil {
			t.Errorf("a trigger by hand returned %v", got.err)
		}
	})
}

func TestMinPauseCountsFromTheProofAndStretchesTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: 10 * sec, MinPause: 30 * sec})
		r.on = func(_ context.Context, op string, _ uint64) error {
			if op == "commit" {
				time.Sleep(20 * sec)
			}
			return nil
		}
		r.start()
		defer r.stop()
		r.after(170 * sec)
		r.wantTriggers(30*sec, 80*sec, 130*sec)
	})
}

func TestMinPauseAllowsOneCheckpointAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: sec, MinPause: sec, MaxConcurrent: 4})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(minute)
		r.wantTriggers(sec)
	})
}

func TestCheckpointThatTakesLongerThanTheIntervalIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: 10 * sec})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(45 * sec)
		r.acks(1, 0, 1)
		r.wantTriggers(10*sec, 45*sec)
		r.acks(2, 0, 1)
		r.after(60 * sec)
		r.wantTriggers(10*sec, 45*sec, 55*sec)
	})
}

func TestTimeoutFailsACheckpointAndDropsItsLateAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute, Timeout: 20 * sec, TolerableFailures: 3})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(minute)
		r.acks(1, 0)
		r.after(80*sec - 1)
		r.wantHistory("1 in_progress")
		r.after(80 * sec)
		r.wantHistory("1 failed")
		r.acks(1, 1)
		r.acks(99, 0)
		s := r.c.Stats()
		if s.LateAcks != 1 || s.UnknownAcks != 1 {
			t.Errorf("%d late and %d unknown acknowledgements, want 1 and 1", s.LateAcks, s.UnknownAcks)
		}
		if want := "not acknowledged by all tasks in time: 1 of 2 after 20s"; s.History[0].Failure != want {
			t.Errorf("the reason is %q, want %q", s.History[0].Failure, want)
		}
		r.wantHappened("", "complete", "commit")
		r.after(2 * minute)
		r.acks(2, 0, 1)
		r.wantHistory("1 failed, 2 completed")
	})
}

func TestLateAcksAreToldFromUnknownOnesForTheLast16(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute, Timeout: sec, TolerableFailures: -1})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(17*minute + 2*sec)
		for n := uint64(1); n <= 17; n++ {
			r.acks(n, 0)
		}
		if s := r.c.Stats(); s.LateAcks != 16 || s.UnknownAcks != 1 {
			t.Errorf("%d late and %d unknown acknowledgements, want 16 and 1", s.LateAcks, s.UnknownAcks)
		}
	})
}

func TestWaitingForStorageOrSinksIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("commit", 1)
		r := newRig(t, Config{Interval: minute, Timeout: 10 * sec, MaxConcurrent: 2})
		r.on = g.on
		r.start()
		defer r.stop()
		r.after(time.Hour)
		r.wantHistory("1 committing, 2 in_progress")
		g.release()
		r.wantHappened("commit 1, commit 2, commit 3", "commit")
		if s := r.c.Stats(); s.Failed != 0 {
			t.Errorf("%d checkpoints failed, want none", s.Failed)
		}
	})
}

func TestSlowCommitHoldsBackTheNextTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("commit", 0)
		r := newRig(t, Config{Interval: minute})
		r.on = g.on
		r.start()
		defer r.stop()
		r.after(10*minute + sec)
		r.wantTriggers(minute)
		g.release()
		r.wantTriggers(minute, 10*minute+sec)
	})
}

func TestMaxConcurrentBoundsWhatIsNotProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute, Timeout: time.Hour, MaxConcurrent: 3})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(10 * minute)
		r.wantTriggers(minute, 2*minute, 3*minute)
		r.acks(1, 0, 1)
		r.wantTriggers(minute, 2*minute, 3*minute, 10*minute)
	})
}

func TestNextCheckpointIsNotCommittedBeforeTheOneBeforeIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("proven", 1)
		r := newRig(t, Config{Interval: minute, MaxConcurrent: 2})
		r.on = g.on
		r.start()
		defer r.stop()
		r.after(3 * minute)
		r.wantHappened("trigger 1, commit 1, proven 1, trigger 2", "trigger", "commit", "proven")
		g.release()
		r.wantHappened("commit 1, proven 1, commit 2, proven 2, commit 3, proven 3", "commit", "proven")
	})
}

func TestTolerableFailures(t *testing.T) {
	declined := errors.New("disk is full")
	for _, tc := range []struct {
		name      string
		tolerable int
		outcomes  string // of each checkpoint: f fails, o is fine, s a savepoint that fails
		dies      bool
	}{
		{"the first one fails the job at 0", 0, "f", true},
		{"none fails a job that tolerates it", 1, "f", false},
		{"in a row they add up", 2, "fff", true},
		{"a success in between starts the count anew", 2, "ffoffoff", false},
		{"any number where unlimited", -1, strings.Repeat("f", 40), false},
		{"a savepoint fails towards who asked for it", 0, "sss", false},
		{"a savepoint does not start the count anew by failing", 1, "fsf", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{TolerableFailures: tc.tolerable})
				r.ack = false
				r.start()
				for i, o := range tc.outcomes {
					kind := Periodic
					if o == 's' {
						kind = Savepoint
					}
					got := r.trigger(t.Context(), kind)
					if o == 'o' {
						r.acks(uint64(i+1), 0, 1)
						continue
					}
					r.c.Decline(TaskID{"chain", 1}, r.id(uint64(i+1)), declined)
					synctest.Wait()
					if !errors.Is(got.err, declined) {
						t.Errorf("Trigger %d returned %v, want the task's reason", i+1, got.err)
					}
				}
				if !tc.dies {
					r.stop()
					return
				}
				err := r.ended()
				if !errors.Is(err, ErrTooManyFailures) || !errors.Is(err, declined) {
					t.Errorf("Run returned %v, want too many failures and the last reason", err)
				}
			})
		})
	}
}

func TestTriggerByHandWaitsForItsTurnAndNotForTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: time.Hour, MinPause: minute, Timeout: time.Hour})
		r.ack = false
		r.start()
		defer r.stop()
		first := r.trigger(t.Context(), Periodic)
		second := r.trigger(t.Context(), Periodic)
		save, third := r.trigger(t.Context(), Savepoint), r.trigger(t.Context(), Periodic)
		r.after(minute)
		r.wantTriggers(0)
		r.acks(1, 0, 1)
		if !first.done.Load() || first.err != nil || first.meta.Number != 1 {
			t.Errorf("the first trigger returned %+v", first)
		}
		r.wantTriggers(0, minute)
		r.acks(2, 0, 1)
		if !save.done.Load() || save.meta.Number != 2 || save.meta.Kind != Savepoint || second.done.Load() {
			t.Errorf("the savepoint does not go first: %+v, %+v", save, second)
		}
		r.acks(3, 0, 1)
		if third.done.Load() {
			t.Error("the third trigger goes before the second")
		}
		if !second.done.Load() || second.meta.Number != 3 {
			t.Errorf("the second trigger returned %+v", second)
		}
	})
}

func TestTriggerReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Timeout: time.Hour})
		r.ack = false
		r.start()
		defer r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), minute)
		defer cancel()
		started, queued := r.trigger(ctx, Savepoint), r.trigger(ctx, Savepoint)
		r.after(minute)
		if !errors.Is(started.err, context.DeadlineExceeded) || !errors.Is(queued.err, context.DeadlineExceeded) {
			t.Errorf("Trigger returned %v and %v", started.err, queued.err)
		}
		r.acks(1, 0, 1)
		r.after(time.Hour)
		r.wantHappened("trigger 1, commit 1, proven 1", "trigger", "commit", "proven")
	})
}

func TestTriggerFailsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.ack = false
		r.start()
		pending := r.trigger(t.Context(), Savepoint)
		queued := r.trigger(t.Context(), Final)
		r.stop()
		synctest.Wait()
		after := r.trigger(t.Context(), Periodic)
		for _, got := range []*triggered{pending, queued, after} {
			if !errors.Is(got.err, ErrStopped) || !errors.Is(got.err, context.Canceled) {
				t.Errorf("Trigger returned %v, want that checkpoints have stopped, and why", got.err)
			}
		}
	})
}

func TestFinalCheckpointWaitsForTheOthersAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute, Timeout: 30 * sec, MaxConcurrent: 2, TolerableFailures: 3})
		r.ack = false
		r.start()
		defer r.stop()
		r.after(minute)
		last := &triggered{}
		go func() {
			last.meta, last.err = r.c.Trigger(t.Context(), Order{Kind: Final, Drained: true})
			last.done.Store(true)
		}()
		r.after(minute + 20*sec)
		r.wantTriggers(minute)
		r.acks(1, 0, 1)
		r.wantTriggers(minute, minute+20*sec)
		r.after(minute + 50*sec)
		r.wantHistory("1 completed, 2 failed")
		r.after(minute + 51*sec)
		r.wantTriggers(minute, minute+20*sec, minute+51*sec)
		beside := r.trigger(t.Context(), Savepoint)
		r.wantTriggers(minute, minute+20*sec, minute+51*sec)
		if beside.done.Load() {
			t.Errorf("a savepoint beside the final checkpoint returned %v", beside.err)
		}
		r.acks(3, 0, 1)
		if !last.done.Load() || last.err != nil || last.meta.Number != 3 || !last.meta.Drained || last.meta.Kind != Final {
			t.Errorf("the final checkpoint is %+v, %v", last.meta, last.err)
		}
	})
}

func TestFinalCheckpointNobodyWaitsForIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Timeout: 30 * sec, TolerableFailures: 3})
		r.ack = false
		r.start()
		defer r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		r.trigger(ctx, Final)
		r.after(time.Hour)
		r.wantTriggers(0)
	})
}

func TestSlowCleaningHoldsCheckpointsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("retain", 0)
		r := newRig(t, Config{Interval: minute})
		r.on = g.on
		r.start()
		defer r.stop()
		r.after(10 * minute)
		r.wantTriggers(minute, 2*minute)
		if s := r.c.Stats(); s.Cleaning != 2 {
			t.Errorf("%d checkpoints wait for cleaning, want 2", s.Cleaning)
		}
		g.release()
		r.wantTriggers(minute, 2*minute, 10*minute)
	})
}

func TestEachCleaningMakesRoomForWhatWasProvenBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := make(chan struct{})
		r := newRig(t, Config{Interval: minute})
		r.on = func(ctx context.Context, op string, _ uint64) error {
			if op == "retain" {
				select {
				case pass <- struct{}{}:
				case <-ctx.Done():
				}
			}
			return nil
		}
		r.start()
		defer r.stop()
		r.after(3*minute + sec)
		<-pass
		r.wantTriggers(minute, 2*minute, 3*minute+sec)
		if s := r.c.Stats(); s.Cleaning != 2 {
			t.Errorf("%d checkpoints wait for cleaning, want 2", s.Cleaning)
		}
		<-pass
		synctest.Wait()
		if s := r.c.Stats(); s.Cleaning != 1 {
			t.Errorf("%d checkpoints wait for cleaning, want 1: it was proven during the second pass", s.Cleaning)
		}
	})
}

func TestCleaningThatFailsHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: minute})
		r.on = failing("retain", errDown)
		r.start()
		defer r.stop()
		r.after(3 * minute)
		r.wantHistory("1 completed, 2 completed, 3 completed")
		if s := r.c.Stats(); s.CleanFailures != 3 || s.Cleaning != 0 {
			t.Errorf("%d failures, %d behind, want 3 and 0", s.CleanFailures, s.Cleaning)
		}
	})
}
