package checkpoint_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/s3"
	"github.com/sluice-etl/sluice/storage/s3/s3test"
)

// overS3 is a job whose tasks upload a file for each checkpoint to an S3 server that
// fails as it is told, in virtual time.
type overS3 struct {
	t      *testing.T
	server *s3test.Server
	job    *checkpoint.Job
	c      *checkpoint.Coordinator
	ctx    context.Context //nolint:containedctx // that of the run
	ended  atomic.Pointer[error]
}

const s3Interval = 10 * time.Second

func newOverS3(t *testing.T, seed uint64) *overS3 {
	t.Helper()
	server := s3test.New(s3test.Behaviour{Seed: seed})
	store := newStore(t, server.Open(t, "s3://bucket/prefix", s3.NewConfig()), checkpoint.StoreOptions{})
	p := start(t, store, "")
	o := &overS3{t: t, server: server, job: p.job}
	var cancel context.CancelFunc
	o.ctx, cancel = context.WithCancel(t.Context())
	o.c = checkpoint.NewCoordinator(checkpoint.Config{
		Pipeline: "orders", Job: p.job.ID(), Generation: p.g, Definition: "sha256:00", MaxParallelism: 128, First: 1,
		Tasks:    []checkpoint.TaskID{{Chain: "words", Subtask: 0}, {Chain: "words", Subtask: 1}},
		Interval: s3Interval, TolerableFailures: 3, History: 3,
	}, p.job, o, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := o.c.Run(o.ctx)
		o.ended.Store(&err)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return o
}

// Trigger implements checkpoint.Tasks.
func (o *overS3) Trigger(b checkpoint.Barrier) {
	for i := range 2 {
		go func() {
			task := checkpoint.TaskID{Chain: "words", Subtask: i}
			file, err := o.upload(b.ID.Number)
			if err != nil {
				o.c.Decline(task, b.ID, err)
				return
			}
			o.c.Ack(checkpoint.Ack{Task: task, Checkpoint: b.ID, Operators: []checkpoint.OperatorState{{
				UID: "count", Kind: "aggregate", Parallelism: 2,
				State: &checkpoint.SubtaskState{Subtask: i, State: []byte(`{}`), Files: []connectors.StateFile{file}},
			}}})
		}()
	}
}

func (o *overS3) upload(n uint64) (connectors.StateFile, error) {
	w, err := o.job.Files(n).Create(o.ctx)
	if err != nil {
		return connectors.StateFile{}, err
	}
	defer w.Abort()
	if _, err := fmt.Fprintf(w, "state of %d", n); err != nil {
		return connectors.StateFile{}, err
	}
	return w.Close()
}

// Commit implements checkpoint.Tasks.
func (o *overS3) Commit(context.Context, *checkpoint.Metadata) error { return nil }

// Completed implements checkpoint.Tasks.
func (o *overS3) Completed(*checkpoint.Metadata) {}

// Abandon implements checkpoint.Tasks.
func (o *overS3) Abandon(checkpoint.ID) {}

// until lets time pass until ok holds.
func (o *overS3) until(what string, ok func(s *checkpoint.Stats) bool) checkpoint.Stats {
	o.t.Helper()
	for {
		s := o.c.Stats()
		if ok(&s) {
			return s
		}
		if err := o.ended.Load(); err != nil {
			o.t.Fatalf("the job ended before %s: %v (%d complete, %d failed)", what, *err, s.Completed, s.Failed)
		}
		<-time.After(s3Interval / 2)
	}
}

// TestCheckpointsOnAnS3ThatFails counts how many complete while one request
// of twenty fails: by 500, 503, a reset before or after it was done, or a lost answer.
func TestCheckpointsOnAnS3ThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverS3(t, 1)
		o.server.Set(s3test.Faults(0.05)...)
		s := o.until("all were taken", func(s *checkpoint.Stats) bool { return s.Completed+s.Failed >= s3Checkpoints })
		t.Logf("%d complete, %d failed, %d requests", s.Completed, s.Failed, o.server.Requests(""))
		if s.Failed*1000 > s.Completed {
			t.Errorf("%d of %d failed, which is more than one in a thousand", s.Failed, s.Completed+s.Failed)
		}
		// Once nothing fails, the next checkpoint takes with it what was left behind.
		o.server.Set()
		o.until("two more", func(now *checkpoint.Stats) bool { return now.Completed > s.Completed+1 && now.Cleaning == 0 })
		if keys := o.server.Keys("bucket"); len(keys) > 40 || o.server.Uploads("bucket") > 0 {
			t.Errorf("%d objects and %d uploads are left: %v", len(keys), o.server.Uploads("bucket"), keys)
		}
	})
}

// At one failure in five the job goes on too.
func TestCheckpointsOnAnS3ThatFailsOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverS3(t, 2)
		o.server.Set(s3test.Faults(0.2)...)
		s := o.until("all were taken", func(s *checkpoint.Stats) bool { return s.Completed+s.Failed >= s3Checkpoints/5 })
		if s.Failed*100 > s.Completed {
			t.Errorf("%d of %d failed, which is more than one in a hundred", s.Failed, s.Completed+s.Failed)
		}
	})
}

// TestAnOutageOfS3IsSurvived takes the server away for two minutes at a time: the job
// goes on, and its first checkpoint afterwards completes within an interval and the
// pause before the next try.
func TestAnOutageOfS3IsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverS3(t, 3)
		longest := time.Duration(0)
		for i := range 20 {
			before := o.until("a checkpoint", func(s *checkpoint.Stats) bool { return s.Completed > 1 })
			// Each outage begins at another moment of an interval.
			<-time.After(time.Duration(i) * s3Interval / 20)
			o.server.SetDown(true)
			<-time.After(2 * time.Minute)
			if err := o.ended.Load(); err != nil {
				t.Fatalf("the job ended in an outage: %v", *err)
			}
			o.server.SetDown(false)
			back := time.Now()
			had := o.c.Stats().Completed
			if had > before.Completed+1 {
				t.Errorf("%d checkpoints completed in an outage", had-before.Completed)
			}
			o.until("a checkpoint after an outage", func(s *checkpoint.Stats) bool { return s.Completed > had })
			longest = max(longest, time.Since(back))
		}
		t.Logf("the first checkpoint came up to %v after an outage", longest)
		if longest > s3Interval+6*time.Second {
			t.Errorf("the first checkpoint came %v after an outage, with an interval of %v", longest, s3Interval)
		}
	})
}

// A process that dies while it writes a large file leaves parts of it on S3, which no
// list of objects shows and which are paid for.
func TestPartsOfFilesThatACrashLeftAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := s3test.New(s3test.Behaviour{})
		cfg := s3.NewConfig()
		cfg.PartSize = 5 << 20
		store := newStore(t, server.Open(t, "s3://bucket/prefix", cfg), checkpoint.StoreOptions{})
		large := make([]byte, cfg.PartSize+1)
		open := func(p *process, n uint64) connectors.StateWriter {
			w, err := p.job.StateFiles(n).Create(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(large); err != nil {
				t.Fatal(err)
			}
			return w
		}
		dead := open(start(t, store, "").take(1), 2)
		defer dead.Abort()
		p := start(t, store, "").take(1)
		own := open(p, p.next)
		defer own.Abort()
		synctest.Wait() // until both have begun their uploads
		retain(t, p)
		if _, err := dead.Close(); err == nil {
			t.Error("what the dead process wrote is still there")
		}
		if _, err := own.Close(); err != nil {
			t.Errorf("what this process is writing was taken away: %v", err)
		}
		if n := server.Uploads("bucket"); n != 0 {
			t.Errorf("%d uploads are left", n)
		}
	})
}
