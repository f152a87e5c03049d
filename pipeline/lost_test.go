package pipeline_test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// onLoss is straight with an on_lost_commit; empty for none.
func onLoss(policy string) string {
	if policy == "" {
		return straight
	}
	return strings.Replace(straight, "interval: 100ms", "interval: 100ms, on_lost_commit: "+policy, 1)
}

// lostAtACrash leaves a world whose newest checkpoint is complete while its output is
// lost, with some before it that are proven. 200 records are fed.
func lostAtACrash(t *testing.T, w *pipelinetest.World) (*pipelinetest.Feed, *pipelinetest.Target) {
	t.Helper()
	feed, out := w.Feed("in", 2), w.Target("out")
	fill(feed, 2, 0, 100)
	reached := make(chan struct{})
	var once sync.Once
	var down atomic.Bool
	out.BeforeCommit = func(connectors.CheckpointID) error {
		if !down.Load() {
			return nil
		}
		once.Do(func() { close(reached) })
		return errors.New("target is down")
	}
	p := w.Start()
	time.Sleep(250 * time.Millisecond)
	down.Store(true)
	fill(feed, 2, 100, 200)
	<-reached
	p.Crash()
	out.BeforeCommit = nil
	out.Lose()
	return feed, out
}

// logTo makes the world's runs log into a buffer.
func logTo(w *pipelinetest.World) *lockedBuilder {
	b := &lockedBuilder{}
	w.Options.Log = slog.New(slog.NewTextHandler(b, nil))
	return b
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func wantTexts(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestALostCommitStopsAndNamesFromWhereToGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss("fail"))
		feed, out := lostAtACrash(t, w)
		feed.End()
		_, err := w.Run()
		var lost *pipeline.LostCommitError
		if !errors.As(err, &lost) || !connectors.IsPermanent(err) {
			t.Fatalf("error %v", err)
		}
		if lost.Committer != "collect/sink" || lost.In.Number == 0 || lost.Records == 0 {
			t.Errorf("the error names %q, checkpoint %d, %d records", lost.Committer, lost.In.Number, lost.Records)
		}
		path := regexp.MustCompile(`-s (\S+)`).FindStringSubmatch(fmt.Sprint(err))
		if path == nil {
			t.Fatalf("error %v", err)
		}
		w.Options.From = path[1]
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(200))
	})
}

func TestALostCommitGoesBackToWhatIsProven(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("without a witness %v", blind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, onLoss("")+"restart: none\n")
				w.Target("out").Blind = blind
				feed, out := lostAtACrash(t, w)
				log := logTo(w)
				feed.End()
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(out.Values()), wantEven(200))
				wantTexts(t, log.String(), "going back", "collect/sink")
				// What it went back over is never taken again.
				if s, err := w.Run(); err != nil || s.Outcome != pipeline.AlreadyFinished {
					t.Errorf("the next start: %s, %v", s.Outcome, err)
				}
			})
		})
	}
}

func TestALossWhileRunningGoesBackInTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss("")+"restart: none\n")
		feed, out := w.Feed("in", 2), w.Target("out")
		losses := 0
		out.BeforeCommit = func(id connectors.CheckpointID) error {
			if id.Number%4 == 0 && losses < 3 {
				losses++
				out.Lose()
			}
			return nil
		}
		p := w.Start()
		for i := range 20 {
			fill(feed, 2, i*20, i*20+20)
			time.Sleep(130 * time.Millisecond)
		}
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts != 3 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(out.Values()), wantEven(400))
	})
}

func TestACrashOnTheWayBackFromALossIsSafe(t *testing.T) {
	for _, at := range []string{
		"before-owner-file", "after-owner-file", "before-owner-json-file", "after-owner-json-file", "before-committed-file", "before-claim-file",
	} {
		for nth := range int64(2) {
			if at == "before-claim-file" && nth > 0 {
				continue // only the last checkpoint claims a number
			}
			t.Run(fmt.Sprint(at, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := pipelinetest.New(t, onLoss(""))
					feed, out := lostAtACrash(t, w)
					feed.End()
					reached, crashed := make(chan struct{}), make(chan struct{})
					var seen atomic.Int64
					w.Options.Failpoint = func(name string) {
						if name == at && seen.Add(1) == nth+1 {
							close(reached)
							<-crashed
						}
					}
					p := w.Start()
					<-reached
					go p.Crash()
					synctest.Wait()
					close(crashed)
					if _, err := p.Wait(); err == nil {
						t.Fatal("the run did not crash")
					}
					w.Options.Failpoint = nil
					if _, err := w.Run(); err != nil {
						t.Fatal(err)
					}
					equal(t, sorted(out.Values()), wantEven(200))
				})
			})
		}
	}
}

const twoSinks = `
pipeline: straight
parallelism: 1
source: {feed: {name: FEED-in}}
sinks:
  a: {collect: {name: TARGET-a}}
  b: {collect: {name: TARGET-b}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

func TestALossBesideASinkThatHasPublishedNeedsThePersonsWord(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("without a witness %v", blind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, twoSinks)
				feed, a, b := w.Feed("in", 1), w.Target("a"), w.Target("b")
				a.Blind = blind
				published := func(first, last int) (out []string) {
					for i := first; i < last; i++ {
						out = append(out, fmt.Sprintf(`{"n": %d}`, i))
					}
					return sorted(out)
				}
				fill(feed, 1, 0, 10)
				lost := false
				b.BeforeCommit = func(id connectors.CheckpointID) error {
					if id.Number == 4 && !lost {
						lost = true
						b.Lose()
					}
					return nil
				}
				p := w.Start()
				time.Sleep(220 * time.Millisecond)
				fill(feed, 1, 10, 20)
				_, err := p.Wait()
				if !lost || !connectors.IsPermanent(err) {
					t.Fatalf("lost %v, error %v", lost, err)
				}
				wantTexts(t, err.Error(), "collect/b", "collect/a has published", "checkpoint 4", "checkpoint 3", "--accept-duplicates", "accept_loss")
				if _, again := w.Run(); again == nil || !connectors.IsPermanent(again) {
					t.Fatalf("the next start: %v", again)
				}
				equal(t, sorted(b.Values()), published(0, 10))
				feed.End()
				w.Options.AcceptDuplicates = true
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(b.Values()), published(0, 20))
				equal(t, sorted(a.Values()), sorted(append(published(0, 20), published(10, 20)...)))
			})
		})
	}
}

func TestALossIsAcceptedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss("accept_loss"))
		feed, out := lostAtACrash(t, w)
		log := logTo(w)
		fill(feed, 2, 200, 210)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Restarts != 0 {
			t.Fatalf("%d restarts, error %v", s.Restarts, err)
		}
		missing := int64(105 - len(out.Values()))
		if missing <= 0 || s.Counts.LostRecords != missing || s.Counts.LostCommits == 0 {
			t.Errorf("%d rows are missing, counted are %d in %d commits", missing, s.Counts.LostRecords, s.Counts.LostCommits)
		}
		wantTexts(t, log.String(), "accept_loss", "sink=collect/sink", "records=")
	})
}

func TestALossAcceptedWhileRunningStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss("accept_loss"))
		feed, out := w.Feed("in", 2), w.Target("out")
		out.BeforeCommit = func(id connectors.CheckpointID) error {
			if id.Number == 4 {
				out.Lose()
			}
			return nil
		}
		p := w.Start()
		for i := range 10 {
			fill(feed, 2, i*20, i*20+20)
			time.Sleep(130 * time.Millisecond)
		}
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts != 0 || s.Counts.LostRecords == 0 || int64(len(out.Values()))+s.Counts.LostRecords != 100 {
			t.Fatalf("%d restarts, %d rows, %d lost, error %v", s.Restarts, len(out.Values()), s.Counts.LostRecords, err)
		}
	})
}

func TestAnAmbiguousCommitNeedsAPolicyInTheFile(t *testing.T) {
	for _, policy := range []string{"", "rewind", "accept_loss"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, onLoss(policy))
				feed, out := lostAtACrash(t, w)
				feed.End()
				asked := false
				out.BeforeCommit = func(connectors.CheckpointID) error {
					if !asked {
						asked = true
						return connectors.ErrAmbiguous
					}
					return nil
				}
				s, err := w.Run()
				switch policy {
				case "":
					if !connectors.IsPermanent(err) || !errors.Is(err, connectors.ErrAmbiguous) {
						t.Fatalf("error %v", err)
					}
					wantTexts(t, err.Error(), "on_lost_commit", "-s ")
				case "rewind":
					if err != nil {
						t.Fatal(err)
					}
					equal(t, sorted(out.Values()), wantEven(200))
				default:
					if err != nil || s.Counts.LostCommits == 0 {
						t.Errorf("%d lost, error %v", s.Counts.LostCommits, err)
					}
				}
			})
		})
	}
}

func TestWhatANewerProcessTookAwayIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss("accept_loss"))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		asleep, awake := make(chan struct{}), make(chan struct{})
		out.BeforeCommit = func(id connectors.CheckpointID) error {
			if id.Generation != 1 {
				return nil
			}
			select {
			case <-asleep:
			default:
				close(asleep)
			}
			<-awake
			return connectors.ErrLost
		}
		older := w.Start()
		<-asleep
		out.BeforeCommit = nil
		newer := w.Start()
		time.Sleep(time.Second)
		close(awake)
		s, err := older.Wait()
		if !errors.Is(err, connectors.ErrFenced) || s.Counts.LostCommits != 0 {
			t.Errorf("the older process: %d lost, error %v", s.Counts.LostCommits, err)
		}
		feed.End()
		if _, err := newer.Wait(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(out.Values()), wantEven(100))
	})
}
