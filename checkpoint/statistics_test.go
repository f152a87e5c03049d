package checkpoint

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
)

func TestWhatIsRememberedOfACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, TolerableFailures: -1})
		r.start()
		r.trigger(t.Context(), Periodic)
		r.ack = false
		r.trigger(t.Context(), Periodic)
		r.acks(2, 0)
		r.c.Decline(TaskID{"chain", 1}, r.id(2), errors.New(strings.Repeat("ä", maxFailure)))
		r.ack = true
		got := r.trigger(t.Context(), Savepoint)
		r.stop() // at once: the last one's are kept all the same
		if len(r.remembered) != 2 || got.meta == nil {
			t.Fatalf("%d checkpoints are remembered, want 2", len(r.remembered))
		}
		list := r.remembered[1]
		if want := r.c.Stats().History[0]; !reflect.DeepEqual(list[0], want) || want.Kind != Savepoint || len(want.Tasks) != 2 {
			t.Errorf("of the checkpoint itself is remembered %+v, want %+v", list[0], want)
		}
		failed, first := list[1], list[2]
		if failed.Status != Failed || len(failed.Tasks) != 2 || !failed.Tasks[0].Acked || failed.Tasks[1].Acked || len(failed.Failure) > maxFailure+10 {
			t.Errorf("of the failed one is remembered %+v", failed)
		}
		if first.ID != r.id(1) || first.Status != Completed || first.Tasks != nil {
			t.Errorf("of the first one is remembered %+v", first)
		}
	})
}

func TestStatisticsThatCannotBeKeptHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Interval: 10 * sec})
		hang := hangingLog{rigLog{r}}
		r.c.log = hang
		r.start()
		r.after(minute + sec)
		r.stop()
		if s := r.c.Stats(); s.Completed != 6 || s.Failed > 0 {
			t.Errorf("%d completed, %d failed", s.Completed, s.Failed)
		}
	})
}

// hangingLog never remembers anything.
type hangingLog struct{ rigLog }

func (hangingLog) Remember(ctx context.Context, _ uint64, _ []AttemptStats) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestHistoryGoesOnFromTheRunBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		past := []AttemptStats{
			{ID: ID{Generation: 6, Number: 5}, Status: InProgress}, {ID: ID{Generation: 6, Number: 4}, Status: Committing},
			{ID: ID{Generation: 6, Number: 3}, Status: Failed, Failure: "once"}, {ID: ID{Generation: 6, Number: 2}, Status: Completed},
		}
		r := newRig(t, Config{First: 6, History: 4, Restored: &ID{Generation: 6, Number: 4}, Past: past}).start()
		defer r.stop()
		s := r.c.Stats()
		if s.Last == nil || s.Last.ID.Number != 4 || s.Triggered != 0 || s.Completed != 0 {
			t.Errorf("before the first one the totals are %+v", s)
		}
		r.wantHistory("2 completed, 3 failed, 4 completed, 5 failed")
		r.trigger(t.Context(), Periodic)
		r.wantHistory("3 failed, 4 completed, 5 failed, 6 completed")
		if past[0].Status != InProgress {
			t.Error("it changed what it was given")
		}
	})
}

// statsJob is a job in memory with the given checkpoints, all proven.
func statsJob(t *testing.T, numbers ...uint64) (storage.FS, *Job) {
	t.Helper()
	f, err := local.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(f, "orders", StoreOptions{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.TakeGeneration(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	j := s.Job(NewJobID(), 1)
	for _, n := range numbers {
		m := &Metadata{Format: FormatVersion, Pipeline: "orders", Job: j.ID(), Generation: 1, Number: n, Kind: Periodic}
		if mine, err := j.Claim(t.Context(), n); err != nil || !mine {
			t.Fatal(err)
		}
		if err := errors.Join(j.Complete(t.Context(), m), j.Proven(t.Context(), n)); err != nil {
			t.Fatal(err)
		}
	}
	return f, j
}

func entry(n uint64, status Status, tasks int) AttemptStats {
	s := AttemptStats{ID: ID{Generation: 1, Number: n}, Status: status, Tasks: []TaskStats{}, Triggered: time.Unix(int64(n), 0).UTC()}
	for i := range tasks {
		s.Tasks = append(s.Tasks, TaskStats{Task: TaskID{"chain", i}, Acked: true, Sync: time.Duration(n)})
	}
	return s
}

func TestStatisticsSurviveARestart(t *testing.T) {
	f, j := statsJob(t, 1, 2, 3)
	brief := entry(1, Completed, 0)
	for n, list := range map[uint64][]AttemptStats{
		1: {entry(1, Completed, 2)},
		2: {entry(2, Completed, 2), brief},
		3: {entry(3, Completed, 2), entry(2, Completed, 0), brief},
	} {
		if err := j.Remember(t.Context(), n, list); err != nil {
			t.Fatal(err)
		}
	}
	again := j.store.Job(j.id, 2)
	want := []AttemptStats{entry(3, Completed, 2), entry(2, Completed, 2), entry(1, Completed, 2)}
	if got := again.Past(t.Context()); !reflect.DeepEqual(got, want) {
		t.Errorf("the past is\n%+v\nwant\n%+v", got, want)
	}
	r, err := Verify(t.Context(), j.Path(3))
	if err != nil || len(r.Warnings) > 0 {
		t.Fatalf("it found %+v, error %v", r, err)
	}
	if got, err := r.Statistics(t.Context()); err != nil || len(got) != 3 || !reflect.DeepEqual(got[0], want[0]) {
		t.Errorf("by its path they are %+v, error %v", got, err)
	}

	// The newest is damaged, and the next missing: what is left is taken, and no checkpoint suffers.
	data, err := storage.ReadFile(t.Context(), f, j.dir(3)+"/_statistics", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	err = errors.Join(f.Remove(t.Context(), j.dir(3)+"/_statistics", j.dir(2)+"/_statistics"),
		storage.WriteFile(t.Context(), f, j.dir(3)+"/_statistics", data))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(t.Context(), j.Path(3)); err != nil || len(r.Faults) > 0 || len(r.Warnings) != 1 {
		t.Errorf("it found %+v, error %v", r, err)
	}
	if got := again.Past(t.Context()); !reflect.DeepEqual(got, want[2:]) {
		t.Errorf("the past is %+v", got)
	}
	found, err := j.store.checkpoints(t.Context(), j.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range found {
		list, err := j.store.Statistics(t.Context(), c)
		if c.Err != nil || isDamage(err) != (i == 0) || (list != nil) != (i == 2) {
			t.Errorf("checkpoint %d: %v, its statistics are %v, %v", c.Number, c.Err, list, err)
		}
	}
}

func TestTheStatisticsOfAnotherCheckpointAreRefused(t *testing.T) {
	f, j := statsJob(t, 1, 2)
	if err := j.Remember(t.Context(), 1, []AttemptStats{entry(1, Completed, 1)}); err != nil {
		t.Fatal(err)
	}
	data, err := storage.ReadFile(t.Context(), f, j.dir(1)+"/_statistics", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.WriteFile(t.Context(), f, j.dir(2)+"/_statistics", data); err != nil {
		t.Fatal(err)
	}
	if list, err := readStatistics(t.Context(), f, j.dir(2), j.id, 2); !isDamage(err) {
		t.Errorf("they are %v, %v", list, err)
	}
}

func TestStatisticsAreBounded(t *testing.T) {
	_, j := statsJob(t, 100)
	long := strings.Repeat("x", maxFailure)
	for _, tasks := range []int{1, 100, 20000} {
		list := []AttemptStats{entry(100, Completed, tasks)}
		for n := uint64(99); n > 50; n-- {
			e := entry(n, Failed, tasks)
			e.Failure = long
			list = append(list, e)
		}
		d := statistics{Pipeline: "orders", Job: j.id, Checkpoint: ID{Generation: 1, Number: 100}, History: list}
		err := d.fit()
		data, sealErr := seal(&d)
		if err = errors.Join(err, sealErr); err != nil || len(data) > maxStatistics {
			t.Errorf("with %d tasks they have %d bytes, error %v", tasks, len(data), err)
		}
		if tasks <= 100 && (len(d.History) != 50 || len(d.History[0].Tasks) != tasks || len(d.History[1].Tasks) != tasks) {
			t.Errorf("of %d tasks, %d checkpoints are left with %d", tasks, len(d.History), len(d.History[0].Tasks))
		}
		if list[1].Tasks == nil {
			t.Error("fitting changes what is shown")
		}
	}

}
