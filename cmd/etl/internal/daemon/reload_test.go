package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const exact = `pipeline: exact
restart: {fixed: {attempts: 1000000, delay: 10ms}}
checkpoint: {storage: STORAGE, interval: 50ms, tolerable_failures: 0}
source: {feed: {name: FEED-in}}
sink: {collect: {name: TARGET-out, exactly_once: true}}
`

// stream feeds records into a world until it is ended, and tells then how many there were.
func stream(w *pipelinetest.World, partitions int) (end func() int) {
	feed := w.Feed("in", partitions)
	stop, n := make(chan struct{}), 0
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for range 20 {
				feed.Append(n%partitions, fmt.Sprintf(`{"n":%d}`, n))
				n++
			}
		}
	})
	return func() int {
		close(stop)
		wg.Wait()
		feed.End()
		return n
	}
}

// wantOnce checks that each of n records was published once.
func wantOnce(t *testing.T, w *pipelinetest.World, n int) {
	t.Helper()
	got := w.Target("out").Values()
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d records were published, and %d were fed in", len(got), len(want))
	}
}

func TestReloadsUnderLoadLoseAndDoubleNothing(t *testing.T) {
	w := pipelinetest.New(t, exact)
	s := newService(t)
	s.write("exact.yaml", w.Text())
	end := stream(w, 4)
	s.start()
	s.awaitState("exact", api.Running)
	for i := range 20 {
		text, want := w.Text(), unchanged
		switch i % 3 {
		case 0:
			text, want = strings.Replace(text, "interval: 50ms", fmt.Sprintf("interval: %dms", 60+i), 1), switched
		case 1:
			text, want = text+"snik: {}\n", faulty
		default: // back to what ran before the fault
			text = strings.Replace(text, "interval: 50ms", fmt.Sprintf("interval: %dms", 60+i-2), 1)
		}
		s.write("exact.yaml", text)
		report, err := s.Reload(t.Context(), "me")
		if err != nil || !strings.HasPrefix(report.Pipelines["exact"], want) {
			t.Fatalf("reload %d: %+v, error %v; wanted %s", i, report, err, want)
		}
	}
	n := end()
	s.awaitState("exact", api.Finished)
	wantOnce(t, w, n)
}

func TestADefinitionThatDoesNotComeToRunIsRolledBack(t *testing.T) {
	w, bad := pipelinetest.New(t, exact), pipelinetest.New(t, "")
	bad.Target("bad").AfterPrepare = func(connectors.CheckpointID) error { return errors.New("the disk is broken") }
	s := newService(t)
	s.write("exact.yaml", w.Text())
	end := stream(w, 2)
	s.start()
	s.await("exact", "running", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 })
	bad.Redefine("TARGET-bad")
	more := "sinks:\n  sink: {collect: {name: " + strings.TrimSpace(bad.Text()) + ", exactly_once: true}}\n"
	broken := w.Text()[:strings.Index(w.Text(), "sink:")] + more
	s.write("exact.yaml", broken)
	report, err := s.Reload(t.Context(), "me")
	if err != nil || report.OK || !strings.HasPrefix(report.Pipelines["exact"], rolledBack) || !strings.Contains(report.Pipelines["exact"], "disk is broken") {
		t.Fatalf("reload: %+v, error %v", report, err)
	}
	p := s.awaitState("exact", api.Running)
	if !strings.Contains(p.Pending, "disk is broken") || !p.Health.OK || len(p.Health.Problems) == 0 {
		t.Errorf("pending %q, health %+v", p.Pending, p.Health)
	}
	if c := s.Reloads(); c.RolledBack != 1 {
		t.Errorf("counted %+v", c)
	}
	n := end()
	s.awaitState("exact", api.Finished)
	wantOnce(t, w, n)
}

func TestAChangeThatWouldDropStateIsRefused(t *testing.T) {
	s := newService(t)
	text := strings.Replace(endless("a", ""), "source:", "transforms:\n  - name: seen\n    dedup: {by: [sequence], within: 1h}\nsource:", 1)
	s.write("a.yaml", text)
	s.start()
	s.await("a", "running", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 })
	if _, err := s.Checkpoint(t.Context(), "me", "a"); err != nil {
		t.Fatal(err)
	}
	before := s.awaitState("a", api.Running).Status.Generation
	s.write("a.yaml", strings.Replace(text, "name: seen", "name: other", 1))
	report, err := s.Reload(t.Context(), "me")
	if err != nil || !strings.HasPrefix(report.Pipelines["a"], refusedAs) {
		t.Fatalf("reload: %+v, error %v", report, err)
	}
	if p := s.awaitState("a", api.Running); p.Status.Generation != before || !strings.Contains(p.Pending, "not taken over") {
		t.Errorf("it was touched, or says nothing: %+v", p)
	}
}

func TestOneThatPanicsInALoopLeavesTheOthersAlone(t *testing.T) {
	w, mad := pipelinetest.New(t, exact), pipelinetest.New(t, strings.Replace(exact, "pipeline: exact", "pipeline: mad", 1))
	mad.Target("out").BeforeWrite = func(string) error { panic("out of its mind") }
	mad.Feed("in", 1).Append(0, `{"n":1}`)
	s := newService(t)
	s.write("exact.yaml", w.Text())
	s.write("mad.yaml", mad.Text())
	end := stream(w, 2)
	s.start()
	s.await("mad", "restarted several times", func(p *api.Pipeline) bool { return p.Restarts > 5 && !p.Health.OK })
	n := end()
	p := s.awaitState("exact", api.Finished)
	if p.Restarts != 0 {
		t.Errorf("the other one restarted %d times", p.Restarts)
	}
	wantOnce(t, w, n)
}

func TestFilesThatAreReplacedAreNoticed(t *testing.T) {
	s := newService(t)
	text := endless("a", "")
	s.write("a.yaml", text)
	s.start()
	s.awaitState("a", api.Running)
	first := s.awaitState("a", api.Running).Status.Generation
	s.write("a.yaml", strings.Replace(text, "rate: 1000", "rate: 2000", 1))
	s.await("a", "switched", func(p *api.Pipeline) bool {
		return p.State == api.Running && p.Status.Generation > first && p.Checkpoint != nil
	})
	if err := os.Remove(filepath.Join(s.settings.Pipelines, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	s.write("b.yaml", endless("b", ""))
	s.awaitState("b", api.Running)
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := s.Pipeline(t.Context(), "a"); errors.Is(err, api.ErrUnknown) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the pipeline of a removed file is still there")
		}
		_ = pause(t.Context(), 10*time.Millisecond)
	}
}

// A file that breaks keeps its name, which another file was refused before.
func TestAFileOfTheSameNameDoesNotTakeOverWhatABrokenFileRuns(t *testing.T) {
	s := newService(t)
	text := endless("a", "")
	s.write("a.yaml", text)
	s.write("b.yaml", text)
	s.start()
	before := s.awaitState("a", api.Running).Status.Generation
	s.awaitState("b", api.Invalid)
	s.write("a.yaml", "pipeline: {")
	s.await("a", "told that its file has faults", func(p *api.Pipeline) bool { return p.Pending != "" })
	if _, err := s.Reload(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	if p := s.awaitState("a", api.Running); p.Status.Generation != before {
		t.Errorf("it was started again: generation %d, was %d", p.Status.Generation, before)
	}
	if p := s.awaitState("b", api.Invalid); !strings.Contains(p.Failure, "a.yaml already") {
		t.Errorf("the other file says %q", p.Failure)
	}
}

func TestAPipelineHasItsNameBesideABrokenFileThatIsCalledSo(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", "pipeline: {")
	s.start()
	s.awaitState("a", api.Invalid)
	s.write("b.yaml", endless("a", ""))
	if p := s.awaitState("a", api.Running); !strings.HasSuffix(p.File, "b.yaml") {
		t.Errorf("it runs from %s", p.File)
	}
	s.awaitState("a-file", api.Invalid)
	s.end()
	s.start()
	s.awaitState("a", api.Running)
	s.awaitState("a-file", api.Invalid)
}

// mount is a folder as Kubernetes mounts a config map: its files are links through ..data.
func mount(t *testing.T, folder, version, text string) {
	t.Helper()
	dir := filepath.Join(folder, "..version-"+version)
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600),
		os.Symlink("..version-"+version, filepath.Join(folder, "..data.new")), os.Rename(filepath.Join(folder, "..data.new"), filepath.Join(folder, "..data")))
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMountedConfigMapThatIsSwappedIsNoticed(t *testing.T) {
	s := newService(t)
	text := endless("a", "")
	mount(t, s.settings.Pipelines, "1", text)
	if err := os.Symlink("..data/a.yaml", filepath.Join(s.settings.Pipelines, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	s.start()
	first := s.awaitState("a", api.Running).Status.Generation
	mount(t, s.settings.Pipelines, "2", strings.Replace(text, "rate: 1000", "rate: 2000", 1))
	s.await("a", "switched", func(p *api.Pipeline) bool { return p.State == api.Running && p.Status.Generation > first })
}

func TestADefinitionIsPutAndDeleted(t *testing.T) {
	s := newService(t)
	s.start()
	text := endless("a", "")
	if _, err := s.Put(t.Context(), "me", "../a", text); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a name with a path: %v", err)
	}
	if _, err := s.Put(t.Context(), "me", "b", text); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("another pipeline's name: %v", err)
	}
	if p, err := s.Put(t.Context(), "me", "a", text); err != nil || p.Name != "a" {
		t.Fatalf("put %+v, error %v", p, err)
	}
	s.awaitState("a", api.Running)
	if _, err := s.Put(t.Context(), "me", "a", text+"snik: {}\n"); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a faulty one: %v", err)
	}
	if err := s.Delete(t.Context(), "me", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pipeline(t.Context(), "a"); !errors.Is(err, api.ErrUnknown) {
		t.Errorf("it is still there: %v", err)
	}
	if found, err := definitionFiles(s.settings.Pipelines); err != nil || len(found) != 0 {
		t.Errorf("there is %v, error %v", found, err)
	}
}

func TestTheJobOfAPausedPipelineCanBeEnded(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", endless("a", ""))
	s.write("b.yaml", endless("b", ""))
	s.start()
	for _, name := range []string{"a", "b"} {
		s.awaitState(name, api.Running)
		if _, err := s.Pause(t.Context(), "me", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stop(t.Context(), "me", "a", pipeline.StopOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.Cancel(t.Context(), "me", "b"); err != nil {
		t.Error(err)
	}
	s.awaitState("a", api.Stopped)
	s.awaitState("b", api.Stopped)
	if _, err := s.Cancel(t.Context(), "me", "a"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("cancelled what is stopped: %v", err)
	}
}

func TestTheHistoryOfCheckpointsOutlivesTheDaemon(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", endless("a", ""))
	s.start()
	s.awaitState("a", api.Running)
	for range 3 {
		if _, err := s.Checkpoint(t.Context(), "me", "a"); err != nil {
			t.Fatal(err)
		}
	}
	s.end()
	s.start()
	s.awaitState("a", api.Running)
	got, err := s.Checkpoints(t.Context(), "a")
	if err != nil || len(got.Earlier)+len(got.History) < 4 || got.Duration["p50"] <= 0 || got.Interval != 3600 {
		t.Errorf("history %+v, error %v", got, err)
	}
}

func TestAPipelineThatCannotStartSaysForWhatItWaits(t *testing.T) {
	w := pipelinetest.New(t, exact)
	w.Feed("in", 1)
	w.Target("out").BeforeOpen = func() error { return errors.New("dial tcp: connection refused") }
	s := newService(t)
	s.write("exact.yaml", w.Text())
	s.start()
	p := s.await("exact", "unwell", func(p *api.Pipeline) bool { return len(p.Health.Problems) > 0 })
	if p.Health.OK || p.Health.Problems[0].Kind != "broker" || !strings.Contains(p.Health.Problems[0].Text, "connection refused") {
		t.Errorf("health is %+v", p.Health)
	}
	if ok, _ := s.Ready(t.Context()); ok {
		t.Error("the daemon is ready")
	}
}
