package checkpoint_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
)

// oneTask is a pipeline of one task that keeps a file of its own in each checkpoint.
type oneTask struct {
	t   *testing.T
	job *checkpoint.Job
	c   *checkpoint.Coordinator
}

var onlyTask = checkpoint.TaskID{Chain: "all"}

func (k *oneTask) Trigger(b checkpoint.Barrier) {
	go func() {
		w, err := k.job.Files(b.ID.Number).Create(context.Background())
		if err != nil {
			k.c.Decline(onlyTask, b.ID, err)
			return
		}
		if _, err := io.WriteString(w, "state"); err != nil {
			k.c.Decline(onlyTask, b.ID, err)
			return
		}
		f, err := w.Close()
		if err != nil {
			k.c.Decline(onlyTask, b.ID, err)
			return
		}
		k.c.Ack(checkpoint.Ack{Task: onlyTask, Checkpoint: b.ID, Operators: []checkpoint.OperatorState{{
			UID: "sum", Kind: "aggregate", Parallelism: 1,
			KeyGroups: []checkpoint.KeyGroups{{Last: 127, File: f, Length: f.Size}},
		}}})
	}()
}

func (k *oneTask) Commit(context.Context, *checkpoint.Metadata) error { return nil }
func (k *oneTask) Abandon(checkpoint.ID)                              {}

func (k *oneTask) Completed(*checkpoint.Metadata) {}

// run starts a process on the store and its coordinator, which ends with the test.
func run(t *testing.T, s *checkpoint.Store) (*oneTask, <-chan error) {
	t.Helper()
	p := start(t, s, "")
	k := &oneTask{t: t, job: p.job}
	cfg := checkpoint.Config{
		Pipeline: "orders", Job: p.r.Job, Generation: p.g, First: p.r.NextNumber, Definition: "sha256:00",
		Mode: "exactly_once", MaxParallelism: 128, Tasks: []checkpoint.TaskID{onlyTask}, Interval: time.Minute,
	}
	if p.r.Meta != nil {
		id := p.r.Meta.ID()
		cfg.Restored = &id
	}
	k.c = checkpoint.NewCoordinator(cfg, p.job, k, slog.New(slog.DiscardHandler))
	if p.r.NewJob {
		if _, err := k.c.WriteInitial(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { ended <- k.c.Run(ctx) }()
	return k, ended
}

func TestCoordinatorOverTheStoreGoesOnAfterARestartAndFencesTheOlderProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, mem.New(), checkpoint.StoreOptions{Retained: 2})
		older, olderEnded := run(t, s)
		time.Sleep(5*time.Minute + time.Second)
		newer, newerEnded := run(t, s)
		if err := <-olderEnded; !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("the older process ended with %v, want that it is fenced", err)
		}
		m, err := newer.c.Trigger(t.Context(), checkpoint.Order{Kind: checkpoint.Savepoint})
		if err != nil {
			t.Fatal(err)
		}
		// 1 is the initial one, 2 to 6 are the older process's.
		if m.Restored == nil || *m.Restored != (checkpoint.ID{Generation: 1, Number: 6}) || m.ID() != (checkpoint.ID{Generation: 2, Number: 7}) {
			t.Errorf("the newer process took %+v after restoring %v", m.ID(), m.Restored)
		}
		if last := older.c.Stats().Last; last.ID.Number != 6 {
			t.Errorf("the older process proved %v last, want number 6", last.ID)
		}
		synctest.Wait()
		sv, err := s.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var proven []uint64
		for _, f := range sv.Checkpoints {
			if f.Committed {
				proven = append(proven, f.Number)
			}
		}
		slices.Sort(proven)
		if !slices.Equal(proven, []uint64{6, 7}) {
			t.Errorf("proven and retained are %v, want the last two", proven)
		}
		select {
		case err := <-newerEnded:
			t.Errorf("the newer process ended with %v", err)
		default:
		}
	})
}
