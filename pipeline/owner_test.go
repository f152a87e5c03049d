package pipeline_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// flaky are the storages of scheme flaky, by host: in memory, with faults.
var flaky sync.Map

func init() {
	storage.Register("flaky", func(u *url.URL) (storage.FS, error) {
		f, _ := flaky.LoadOrStore(u.Host, storagetest.Faulty(mem.New(), 1))
		return f.(storage.FS), nil
	})
}

// faults sets what fails of the storage of a test.
func faults(t *testing.T, name string, rules ...storagetest.Rule) {
	t.Helper()
	f, err := storage.Open("flaky://" + name)
	if err != nil {
		t.Fatal(err)
	}
	f.(*storagetest.FaultyFS).Set(rules...)
}

func on(name string) string { return strings.Replace(straight, "STORAGE", "flaky://"+name, 1) }

// lastName makes names that no other test, nor this one repeated, has used.
var lastName atomic.Int64

func unused(name string) string { return fmt.Sprintf("%s-%d", name, lastName.Add(1)) }

func TestWhatWasAskedForIsKeptWhenAGenerationCannotBeTaken(t *testing.T) {
	claim := func(nth int, e storagetest.Effect) storagetest.Rule {
		return storagetest.Rule{Op: storagetest.OpClaim, Glob: "owner-*", Nth: nth, Effect: e}
	}
	for name, rules := range map[string][]storagetest.Rule{
		"not-taken": {claim(0, storagetest.FailBefore)},
		"unknown":   {claim(1, storagetest.FailAfter), claim(0, storagetest.FailBefore)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				name := unused(name)
				w := pipelinetest.New(t, on(name))
				feed, out := w.Feed("in", 2), w.Target("out")
				fill(feed, 2, 0, 100)
				w.Options.From = "none"
				running := make(chan struct{}, 10)
				w.Options.Running = func() { running <- struct{}{} }
				p := w.Start()
				<-running
				time.Sleep(250 * time.Millisecond)
				faults(t, name, rules...)
				feed.FailNext(errors.New("connection reset"))
				time.Sleep(5 * time.Second)
				faults(t, name)
				<-running
				feed.End()
				s, err := p.Wait()
				if err != nil || s.Outcome != pipeline.Finished {
					t.Fatalf("outcome %s, error %v", s.Outcome, err)
				}
				// A start from none again would publish everything twice.
				equal(t, sorted(out.Values()), wantEven(100))
			})
		})
	}
}

func TestAStartFromNoneIsNotForgottenWhenItsFirstTryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("first-try")
		w := pipelinetest.New(t, on(name))
		feed, out := w.Feed("in", 2), w.Target("out")
		fill(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(time.Second)
		if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		feed.End()
		w.Options.From = "none"
		faults(t, name, storagetest.Rule{Op: storagetest.OpCreate, Glob: "owner-2.json"})
		s, err := w.Run()
		if err != nil || s.Counts.Read != 100 {
			t.Fatalf("%d read, error %v", s.Counts.Read, err)
		}
		equal(t, sorted(out.Values()), sorted(append(wantEven(100), wantEven(100)...)))
	})
}

func TestAFailureAfterANewerProcessTookOverIsNotForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("superseded")
		w := pipelinetest.New(t, on(name))
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 100)
		w.Target("out")
		running := make(chan struct{}, 10)
		w.Options.Running = func() { running <- struct{}{} }
		p := w.Start()
		<-running
		f, err := storage.Open("flaky://" + name)
		if err != nil {
			t.Fatal(err)
		}
		owners, err := f.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(owners, func(i storage.Info) bool { return strings.HasSuffix(i.Name, "/owner-1") })
		if err := f.Claim(t.Context(), strings.TrimSuffix(owners[at].Name, "1")+"2"); err != nil {
			t.Fatal(err)
		}
		feed.FailNext(connectors.Permanent(errors.New("the topic is gone")))
		if _, err := p.Wait(); !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("error %v, want that a newer process took over", err)
		}
	})
}
