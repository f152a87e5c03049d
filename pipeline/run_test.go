package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const straight = `
pipeline: straight
parallelism: 2
source: {feed: {name: FEED-in}}
transforms:
  - filter: n % 2 == 0
  - set: {double: n * 2}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

// fill appends records {"n": i} for i from first up to last, over all partitions.
func fill(f *pipelinetest.Feed, partitions, first, last int) {
	for i := first; i < last; i++ {
		f.Append(i%partitions, fmt.Sprintf(`{"n": %d}`, i))
	}
}

// wantEven are the rows that straight makes of fill, in no order.
func wantEven(last int) []string {
	var out []string
	for i := 0; i < last; i += 2 {
		out = append(out, fmt.Sprintf(`{"n": %d,"double":%d}`, i, 2*i))
	}
	slices.Sort(out)
	return out
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %d rows, want %d\n got: %s\nwant: %s", len(got), len(want), strings.Join(got, " "), strings.Join(want, " "))
	}
}

func TestABoundedInputIsPublishedOnceAndTheJobIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed := w.Feed("in", 4)
		fill(feed, 4, 0, 1000)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Outcome != pipeline.Finished {
			t.Fatalf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(1000))
		if s.Counts.Read != 1000 || s.Counts.Written != 500 {
			t.Errorf("counts are %+v", s.Counts)
		}
		if s, err = w.Run(); err != nil || s.Outcome != pipeline.AlreadyFinished || s.Counts.Read != 0 {
			t.Errorf("a second run: outcome %s, %d read, error %v", s.Outcome, s.Counts.Read, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(1000))
	})
}

func TestCrashesLoseAndRepeatNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, n := w.Feed("in", 4), 0
		for round := range 20 {
			p := w.Start()
			// Crash at another moment within the checkpoint's interval each time.
			for range 3 {
				fill(feed, 4, n, n+50)
				n += 50
				time.Sleep(time.Duration(17+round*13) * time.Millisecond)
			}
			p.Crash()
		}
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(n))
	})
}

func TestOrderWithinAPartitionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed := w.Feed("in", 3)
		fill(feed, 3, 0, 600)
		p := w.Start()
		time.Sleep(150 * time.Millisecond)
		p.Crash()
		fill(feed, 3, 600, 1200)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		last := map[int32]int64{}
		for _, r := range w.Target("out").Rows() {
			if at, seen := last[r.Partition]; seen && r.Offset <= at {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, at)
			}
			last[r.Partition] = r.Offset
		}
	})
}

func TestAFailingSourceRestartsFromTheLastCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		fill(feed, 2, 100, 200)
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(10 * time.Second)
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(200))
	})
}

// interrupted is a source whose only read fails when it is told to stop waiting.
type interrupted struct{ reads *atomic.Int64 }

func init() {
	connectors.RegisterSource(connectors.SourceSpec{
		Name: "interrupted", Doc: "Fails once, while a read is interrupted.", NewConfig: func() any { return &struct{}{} },
		New:     func(any) (connectors.Source, error) { return interrupted{new(atomic.Int64)}, nil },
		Bounded: func(any) bool { return false },
	})
}

func (i interrupted) Splits(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return []connectors.Split{{ID: "a", Until: -1}}, nil
}
func (i interrupted) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}
func (i interrupted) Reader(connectors.ReaderEnv, []connectors.Split) (connectors.Reader, error) {
	return i, nil
}
func (i interrupted) Committed(context.Context, []connectors.Split) error { return nil }
func (i interrupted) Close() error                                        { return nil }
func (i interrupted) Add([]connectors.Split) error                        { return nil }
func (i interrupted) Position(int, int64) connectors.Split {
	return connectors.Split{ID: "a", Until: -1}
}
func (i interrupted) Poll(ctx context.Context) (*connectors.Batch, error) {
	<-ctx.Done()
	if i.reads.Add(1) == 1 {
		return nil, connectors.Permanent(errors.New("the offset is gone"))
	}
	return nil, ctx.Err()
}

func TestAnErrorOfAnInterruptedReadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: interrupted
parallelism: 1
source: {interrupted: {}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1h}
`)
		p := w.Start()
		time.Sleep(time.Minute)
		s, err := p.Stop()
		if !connectors.IsPermanent(err) {
			t.Errorf("outcome %s, error %v", s.Outcome, err)
		}
	})
}

func TestAFailingWriteRestartsAndCommitsOfACompletedCheckpointAreFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		tries := 0
		out.BeforeCommit = func(connectors.CheckpointID) error {
			if tries++; tries < 4 {
				return errors.New("target is down")
			}
			return nil
		}
		failed := false
		out.BeforeWrite = func(v string) error {
			if strings.HasPrefix(v, `{"n": 150`) && !failed {
				failed = true
				return errors.New("broken pipe")
			}
			return nil
		}
		fill(feed, 2, 0, 200)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(out.Values()), wantEven(200))
	})
}

func TestALostReplyToACommitPublishesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		lost := map[connectors.CheckpointID]bool{}
		out.AfterCommit = func(id connectors.CheckpointID) error {
			if !lost[id] {
				lost[id] = true
				return errors.New("no reply")
			}
			return nil
		}
		for i := range 5 {
			fill(feed, 2, i*40, i*40+40)
			p := w.Start()
			time.Sleep(130 * time.Millisecond)
			p.Crash()
		}
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(200))
	})
}

func TestStopTakesALastCheckpointAndTheNextRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(straight, "interval: 100ms", "interval: 1h", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(time.Second)
		s, err := p.Stop()
		if err != nil || s.Outcome != pipeline.Stopped {
			t.Fatalf("outcome %s, error %v", s.Outcome, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
		fill(feed, 2, 100, 150)
		feed.End()
		s, err = w.Run()
		if err != nil || s.Counts.Read != 50 {
			t.Fatalf("%d read, error %v", s.Counts.Read, err)
		}
		equal(t, sorted(out.Values()), wantEven(150))
	})
}

func TestTheNewerOfTwoProcessesCommitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		older := w.Start()
		time.Sleep(250 * time.Millisecond)
		newer := w.Start()
		fill(feed, 2, 100, 200)
		_, err := older.Wait()
		if !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("the older process ended with %v", err)
		}
		feed.End()
		if _, err := newer.Wait(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(200))
	})
}

func TestAProcessThatSleptWhileItStartedTakesNothingFromTheNewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		asleep, awake := make(chan struct{}), make(chan struct{})
		w.Options.Failpoint = func(name string) {
			if name == "after-owner-json-file" {
				close(asleep)
				<-awake
			}
		}
		older := w.Start()
		<-asleep
		w.Options.Failpoint = nil
		down := make(chan struct{})
		out.BeforeCommit = func(connectors.CheckpointID) error {
			select {
			case <-down:
				return nil
			default:
				return errors.New("target is down")
			}
		}
		newer := w.Start()
		time.Sleep(time.Second)
		close(awake)
		if _, err := older.Wait(); !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("the older process ended with %v", err)
		}
		close(down)
		feed.End()
		if _, err := newer.Wait(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestFailedCheckpointsAreTakenOverByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		var failures atomic.Int64
		out.AfterPrepare = func(id connectors.CheckpointID) error {
			if id.Number%4 != 0 && failures.Add(1) < 40 {
				return errors.New("the checkpoint storage is slow")
			}
			return nil
		}
		p := w.Start()
		for i := range 5 {
			fill(feed, 2, i*100, i*100+100)
			time.Sleep(700 * time.Millisecond)
		}
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts != 0 || failures.Load() == 0 {
			t.Fatalf("%d restarts, %d failures, error %v", s.Restarts, failures.Load(), err)
		}
		equal(t, sorted(out.Values()), wantEven(500))
	})
}

func TestACrashAtTheLastCheckpointOfABoundedInputIsFinishedByTheNextRun(t *testing.T) {
	for _, at := range []string{"before-commit", "after-commit", "after-proven", "before-ended-file"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, strings.Replace(straight, "interval: 100ms", "interval: 1h", 1))
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				reached, crashed := make(chan struct{}), make(chan struct{})
				var ended atomic.Bool
				w.Options.Failpoint = func(name string) {
					if name == at && ended.Load() {
						close(reached)
						<-crashed
					}
				}
				p := w.Start()
				time.Sleep(time.Second)
				ended.Store(true)
				feed.End()
				<-reached
				go p.Crash()
				synctest.Wait()
				close(crashed)
				if _, err := p.Wait(); err == nil {
					t.Fatal("the run did not crash")
				}
				w.Options.Failpoint = nil
				s, err := w.Run()
				if err != nil || s.Outcome != pipeline.Finished || s.Counts.Read != 0 {
					t.Fatalf("outcome %s, %d read, error %v", s.Outcome, s.Counts.Read, err)
				}
				equal(t, sorted(out.Values()), wantEven(100))
			})
		})
	}
}

func TestACheckpointMarkedCommittedNeedsNoOtherProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		// The target has forgotten, as a broker does whose ids another pipeline used.
		asked := false
		out.BeforeCommit = func(id connectors.CheckpointID) error {
			if id.Generation == 1 {
				asked = true
				return connectors.ErrAmbiguous
			}
			return nil
		}
		feed.End()
		if _, err := w.Run(); err != nil || asked {
			t.Errorf("asked again: %v, error %v", asked, err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}

func TestARestartStrategyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight+"restart: {fixed: {attempts: 2, delay: 1s}}\n")
		w.Target("out").BeforeWrite = func(string) error { return errors.New("target is down") }
		fill(w.Feed("in", 2), 2, 0, 10)
		s, err := w.Run()
		if err == nil || s.Restarts != 2 || !strings.Contains(err.Error(), "target is down") {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
		if connectors.IsPermanent(err) {
			t.Error("a fault of the infrastructure must not need a person")
		}
	})
}

func TestATargetThatIsAbsentAtTheStartIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight+"restart: none\n")
		feed, back := w.Feed("in", 2), time.Now().Add(10*time.Minute)
		fill(feed, 2, 0, 100)
		feed.End()
		w.Target("out").BeforeOpen = func() error {
			if time.Now().Before(back) {
				return errors.New("connection refused")
			}
			return nil
		}
		s, err := w.Run()
		if err != nil || s.Restarts != 0 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		if late := time.Since(back); late > 10*time.Second {
			t.Errorf("it was found %s after it was back", late)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(100))
	})
}

func TestAStopEndsTheWaitForATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		w.Feed("in", 2)
		w.Target("out").BeforeOpen = func() error { return errors.New("connection refused") }
		p := w.Start()
		time.Sleep(time.Minute)
		began := time.Now()
		if s, err := p.Stop(); err != nil || s.Outcome != pipeline.Stopped || time.Since(began) > time.Second {
			t.Errorf("outcome %s after %s, error %v", s.Outcome, time.Since(began), err)
		}
	})
}

func TestAPanicRestartsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, once := w.Feed("in", 2), false
		w.Target("out").BeforeWrite = func(string) error {
			if !once {
				once = true
				panic("a bug")
			}
			return nil
		}
		fill(feed, 2, 0, 100)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(100))
	})
}

func TestAPanicOfACommitRestartsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, once := w.Feed("in", 2), false
		w.Target("out").BeforeCommit = func(connectors.CheckpointID) error {
			if !once {
				once = true
				panic("a bug")
			}
			return nil
		}
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(10 * time.Second)
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(100))
	})
}

func TestNewPartitionsAreFoundWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 1), w.Target("out")
		fill(feed, 1, 0, 10)
		p := w.Start()
		time.Sleep(500 * time.Millisecond)
		feed.Append(1, `{"n": 1000}`)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := out.Await(ctx, 6); err != nil {
			t.Error(err)
		}
		p.Crash()
		feed.Append(1, `{"n": 1002}`)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		want := append(wantEven(10), `{"n": 1000,"double":2000}`, `{"n": 1002,"double":2004}`)
		equal(t, sorted(out.Values()), sorted(want))
	})
}

func TestAnEventTimeThatReadsNoFieldIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: event-time
source: {feed: {name: FEED-in}, timestamp: meta.offset * 1000 + 60000}
sink: {collect: {name: TARGET-out, key: string(meta.timestamp)}}
checkpoint: {storage: STORAGE, interval: 100ms}
`)
		feed := w.Feed("in", 1)
		fill(feed, 1, 0, 2)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, r := range w.Target("out").Rows() {
			keys = append(keys, r.Key)
		}
		equal(t, keys, []string{"1970-01-01T00:01:00Z", "1970-01-01T00:01:01Z"})
	})
}

func TestStopEndsABoundedInputWhoseLastCommitCannotBeProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(straight, "interval: 100ms", "interval: 1h", 1))
		feed, out := w.Feed("in", 2), w.Target("out")
		out.BeforeCommit = func(connectors.CheckpointID) error { return errors.New("target is down") }
		fill(feed, 2, 0, 100)
		feed.End()
		w.Options.Grace = 10 * time.Second
		p := w.Start()
		time.Sleep(time.Minute)
		asked := time.Now()
		s, err := p.Stop()
		if err != nil || s.Outcome != pipeline.Stopped || time.Since(asked) > 11*time.Second {
			t.Errorf("outcome %s after %s, error %v", s.Outcome, time.Since(asked), err)
		}
	})
}

func TestRunFromACheckpointByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		w.Options.From = "none"
		s, err := w.Run()
		if err != nil || s.Counts.Read != 100 {
			t.Fatalf("%d read, error %v", s.Counts.Read, err)
		}
		equal(t, sorted(out.Values()), sorted(append(wantEven(100), wantEven(100)...)))
	})
}

func TestWithoutStorageRestartsInTheProcessAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(straight, "storage: STORAGE, ", "", 1))
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		fill(feed, 2, 100, 200)
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(10 * time.Second)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantEven(200))
	})
}

func TestAStoragePutBackToAnOlderStateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		p.Crash()
		w.SaveStorage()
		p = w.Start()
		fill(feed, 2, 100, 200)
		time.Sleep(250 * time.Millisecond)
		p.Crash()
		w.PutBackStorage()
		feed.End()
		_, err := w.Run()
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "--accept-duplicates") {
			t.Fatalf("error %v", err)
		}
		equal(t, sorted(out.Values()), wantEven(200))
		w.Options.AcceptDuplicates = true
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		if n := len(out.Values()); n <= 100 {
			t.Errorf("%d rows after duplicates were accepted", n)
		}
	})
}

func TestAFreshStorageBesideOldResultsNeedsTheUsersWordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		w.SaveStorage() // empty
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		p.Crash()
		w.PutBackStorage()
		if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "--from none") {
			t.Fatalf("a start by itself: %v", err)
		}
		w.Options.From = "none"
		out.BeforeCommit = func(connectors.CheckpointID) error { return errors.New("target is down") }
		p = w.Start()
		time.Sleep(250 * time.Millisecond)
		p.Crash() // before anything of the new storage was committed
		w.Options.From, out.BeforeCommit = "", nil
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatalf("the start after the user chose: %v", err)
		}
		equal(t, sorted(out.Values()), sorted(append(wantEven(100), wantEven(100)...)))
	})
}

func TestWhatTheUserAskedToRestoreIsNotForgottenOverAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		p.Crash()
		feed.End()
		w.Options.From = "none"
		failed := false
		w.Options.Failpoint = func(name string) {
			if name == "before-owner-json-file" && !failed {
				failed = true
				panic("the storage client has a bug")
			}
		}
		s, err := w.Run()
		if err != nil || !failed || s.Restarts != 1 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		if s.Counts.Read != 100 || len(out.Values()) != 100 {
			t.Errorf("%d records read, %d rows: it was to start from none", s.Counts.Read, len(out.Values()))
		}
	})
}

func TestWhereNewSplitsBeginIsSettledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, straight)
		feed, out := w.Feed("in", 1), w.Target("out")
		fill(feed, 1, 0, 10)
		p := w.Start()
		time.Sleep(250 * time.Millisecond)
		p.Crash()
		feed.Append(1, `{"n": 1000}`) // a partition that begins, for this source, at what is new
		feed.StartAtLatest()
		out.BeforeWrite = func(string) error { return errors.New("target is down") }
		p = w.Start()
		time.Sleep(50 * time.Millisecond)
		feed.Append(1, `{"n": 1002}`)
		time.Sleep(time.Second)
		p.Crash()
		out.BeforeWrite = nil
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), sorted(append(wantEven(10), `{"n": 1002,"double":2004}`)))
	})
}
