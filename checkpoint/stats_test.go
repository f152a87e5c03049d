package checkpoint

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestStatsShowEachTaskAndEachPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.ack = false
		r.on = func(_ context.Context, op string, _ uint64) error {
			switch op {
			case "complete":
				time.Sleep(2 * sec)
			case "commit":
				time.Sleep(3 * sec)
			}
			return nil
		}
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		r.after(4 * sec)
		r.c.Ack(Ack{Task: TaskID{"chain", 1}, Checkpoint: r.id(1), StartDelay: 1, Alignment: 2, Sync: 3, Async: 4})
		synctest.Wait()
		if h := r.c.Stats().History[0]; h.Status != InProgress || h.Acked != 1 || h.Tasks[0].Acked || h.Duration != 4*sec {
			t.Errorf("in flight it is %+v", h)
		}
		r.after(5 * sec)
		r.acks(1, 0)
		r.after(6 * sec)
		if h := r.c.Stats().History[0]; h.Status != Committing || h.Acked != 2 {
			t.Errorf("while it is written it is %+v", h)
		}
		r.after(time.Minute)
		s := r.c.Stats()
		h := s.History[0]
		if h.Status != Completed || h.Duration != 10*sec || h.Metadata != 2*sec || h.Commit != 3*sec || !h.Triggered.Equal(r.begun) {
			t.Errorf("in the end it is %+v", h)
		}
		want := TaskStats{Task: TaskID{"chain", 1}, Acked: true, Latency: 4 * sec, StartDelay: 1, Alignment: 2, Sync: 3, Async: 4}
		if h.Tasks[1] != want {
			t.Errorf("task 1 is %+v, want %+v", h.Tasks[1], want)
		}
		if s.Last == nil || s.Last.ID != h.ID || s.Triggered != 1 || s.Completed != 1 {
			t.Errorf("the totals are %+v", s)
		}
	})
}

func TestSizesCountSharedFilesOnceAndTellNewOnesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Tasks: taskIDs(1)})
		r.ack = false
		r.start()
		defer r.stop()
		file := func(path string, n int64) connectors.StateFile { return connectors.StateFile{Path: path, Size: n} }
		take := func(files ...connectors.StateFile) AttemptStats {
			r.trigger(t.Context(), Periodic)
			a := Ack{Task: TaskID{"chain", 0}, Checkpoint: r.c.Stats().History[0].ID}
			for _, f := range files { // two ranges in each file
				a.Operators = append(a.Operators, OperatorState{UID: "sum", KeyGroups: []KeyGroups{{File: f}, {File: f}}})
			}
			a.Operators = append(a.Operators, OperatorState{UID: "out",
				State:  &SubtaskState{State: json.RawMessage(`{"a":1}`), Files: []connectors.StateFile{file("segment", 10)}},
				Splits: []connectors.Split{{ID: "t/0", Detail: json.RawMessage(`{}`)}}})
			a.Committables = []connectors.Committable{{Committer: "f", Checkpoint: a.Checkpoint, Data: json.RawMessage(`123`)}}
			r.c.Ack(a)
			synctest.Wait()
			return r.c.Stats().History[0]
		}
		const inline = 7 + 3 + 2 + 3
		if h := take(file("a", 100), file("b", 1000)); h.Size != 1110+inline || h.NewSize != h.Size {
			t.Errorf("the first one has %d bytes, %d new, want %d new ones", h.Size, h.NewSize, 1110+inline)
		}
		if h := take(file("b", 1000), file("c", 50)); h.Size != 1060+inline || h.NewSize != 50+inline {
			t.Errorf("the second one has %d bytes, %d new, want %d and %d", h.Size, h.NewSize, 1060+inline, 50+inline)
		}
	})
}

func TestHistoryIsBoundedAndKeepsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{History: 3, MaxConcurrent: 2, TolerableFailures: -1, Timeout: time.Hour})
		r.ack = false
		r.start()
		defer r.stop()
		r.trigger(t.Context(), Savepoint)
		for n := uint64(2); n <= 6; n++ {
			r.trigger(t.Context(), Periodic)
			r.c.Decline(TaskID{"chain", 0}, r.id(n), errDown)
		}
		r.wantHistory("1 in_progress, 5 failed, 6 failed")
		r.acks(1, 0, 1)
		for range 3 {
			r.trigger(t.Context(), Savepoint)
			r.acks(r.c.Stats().History[0].ID.Number, 0, 1)
		}
		r.wantHistory("7 completed, 8 completed, 9 completed")
		if s := r.c.Stats(); s.Failed != 5 || s.Completed != 4 || s.FailedInARow != 0 {
			t.Errorf("the totals are %+v", s)
		}
	})
}

func TestStatsAreACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}).start()
		defer r.stop()
		r.trigger(t.Context(), Periodic)
		s := r.c.Stats()
		s.History[0].Tasks[0].Acked, s.Last.Tasks[0].Acked = false, false
		if again := r.c.Stats(); !again.History[0].Tasks[0].Acked || !again.Last.Tasks[0].Acked {
			t.Error("changing what Stats returned changes the next answer")
		}
	})
}

func TestSlowCheckpointsAreWarnedOfNowAndThenWithWhatToDo(t *testing.T) {
	for after, want := range map[time.Duration]int{minute: 1, 9 * minute: 1, 12 * minute: 2} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			r := newRig(t, Config{Interval: 10 * sec})
			r.c.slog = textLog(&out)
			r.on = func(_ context.Context, op string, _ uint64) error {
				if op == "commit" {
					time.Sleep(11 * sec)
				}
				return nil
			}
			r.start()
			r.after(after)
			r.stop()
			if n := strings.Count(out.String(), "set min_pause"); n != want {
				t.Errorf("%d warnings that name min_pause within %s, want %d:\n%s", n, after, want, out.String())
			}
		})
	}
}
