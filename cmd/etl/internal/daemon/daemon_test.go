package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/sluice-etl/sluice/connectors/all" // what the pipelines of these tests read and write

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
	_ "github.com/sluice-etl/sluice/storage/all" // where they keep checkpoints
)

// service is a daemon at work on a folder of its own.
type service struct {
	*Daemon
	t        *testing.T
	settings Settings
	stop     chan struct{}
	done     chan error
}

func newService(t *testing.T) *service {
	return &service{t: t, settings: Settings{
		Pipelines: t.TempDir(), StateDir: t.TempDir(), Memory: 64 << 20, ShutdownTimeout: 10 * time.Second, ReloadTimeout: time.Minute,
	}}
}

// start starts the daemon, which ends with the test.
func (s *service) start() {
	s.t.Helper()
	d, err := New(Options{Settings: s.settings, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Daemon, s.stop, s.done = d, make(chan struct{}), make(chan error, 1)
	stop, done := s.stop, s.done
	go func() { done <- d.Run(context.Background(), stop) }()
	s.t.Cleanup(s.end)
}

// end ends the daemon as SIGTERM does.
func (s *service) end() {
	if s.stop == nil {
		return
	}
	close(s.stop)
	s.stop = nil
	if err := <-s.done; err != nil {
		s.t.Errorf("the daemon ended with %v", err)
	}
}

// write puts a file into the folder of pipelines, as an editor does.
func (s *service) write(file, text string) {
	s.t.Helper()
	path := filepath.Join(s.settings.Pipelines, file)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until a pipeline is as wanted.
func (s *service) await(name, what string, is func(*api.Pipeline) bool) *api.Pipeline {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		p, err := s.Pipeline(s.t.Context(), name)
		if err == nil && is(p) {
			return p
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("pipeline %s does not become %s: %+v, error %v", name, what, p, err)
		}
		_ = pause(s.t.Context(), 5*time.Millisecond)
	}
}

func (s *service) awaitState(name string, state api.State) *api.Pipeline {
	s.t.Helper()
	return s.await(name, string(state), func(p *api.Pipeline) bool { return p.State == state })
}

// endless is a pipeline that makes records up and drops them.
func endless(name, more string) string {
	return fmt.Sprintf(`pipeline: %s
checkpoint: {interval: 1h, storage: "mem://%s-%p"}
source: {generate: {rate: 1000}}
%s
sink: {blackhole: {}}
`, name, name, &name, more)
}

func TestEachPipelineOfAFolderIsRun(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", endless("a", ""))
	s.write("b.yml", endless("b", ""))
	s.write("b_test.yaml", endless("c", ""))
	s.write(".hidden.yaml", endless("d", ""))
	s.write("broken.yaml", "pipeline: broken\nsource: {genrate: {}}\nsink: {blackhole: {}}\n")
	s.write("twin.yaml", endless("a", ""))
	if err := syscall.Mkfifo(filepath.Join(s.settings.Pipelines, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	for _, name := range []string{"a", "b"} {
		s.await(name, "running and reading", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Read > 0 })
	}
	broken := s.awaitState("broken", api.Invalid)
	if !strings.Contains(broken.Failure, "broken.yaml:2:10") {
		t.Errorf("the fault has no place: %q", broken.Failure)
	}
	if pipe := s.awaitState("pipe", api.Invalid); !strings.Contains(pipe.Failure, "no regular file") {
		t.Errorf("a named pipe says %q", pipe.Failure)
	}
	twin := s.awaitState("twin", api.Invalid)
	if !strings.Contains(twin.Failure, "a.yaml already") {
		t.Errorf("the second file of a name says %q", twin.Failure)
	}
	if all := s.Pipelines(t.Context()); len(all) != 5 {
		t.Errorf("there are %d pipelines: %+v", len(all), all)
	}
	if ok, health := s.Ready(t.Context()); ok || !health["a"].OK || health["broken"].OK {
		t.Errorf("ready %v, %+v", ok, health)
	}
}

func TestAPausedPipelineGoesOnWithItsJob(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", endless("a", ""))
	s.start()
	s.await("a", "reading", func(p *api.Pipeline) bool { return p.Counts.Read > 0 })
	job := s.awaitState("a", api.Running).Status.Job
	taken, err := s.Pause(t.Context(), "me", "a")
	if err != nil || taken.Path == "" || taken.Warning != "" {
		t.Fatalf("paused with %+v, error %v", taken, err)
	}
	if _, err := s.Pause(t.Context(), "me", "a"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a second pause: %v", err)
	}
	s.end()
	s.start()
	s.awaitState("a", api.Paused)
	if err := s.Resume(t.Context(), "me", "a"); err != nil {
		t.Fatal(err)
	}
	p := s.awaitState("a", api.Running)
	if p.Status.Job != job || p.Status.Restored == nil || p.Status.Restored.Path != taken.Path {
		t.Errorf("it runs as %+v, job was %s at %s", p.Status, job, taken.Path)
	}
}

// What a daemon has kept at some time is what it finds again when it is killed then.
func TestAPipelineThatWasStartedAgainIsStartedAfterACrash(t *testing.T) {
	for what, again := range map[string]func(*service) error{
		"paused and resumed": func(s *service) error {
			_, err := s.Pause(t.Context(), "me", "a")
			return errors.Join(err, s.Resume(t.Context(), "me", "a"))
		},
		"stopped and started": func(s *service) error {
			_, err := s.Stop(t.Context(), "me", "a", pipeline.StopOptions{})
			_, again := s.Start(t.Context(), "me", "a", api.StartOptions{})
			return errors.Join(err, again)
		},
		"cancelled and started from nothing": func(s *service) error {
			_, err := s.Cancel(t.Context(), "me", "a")
			_, again := s.Start(t.Context(), "me", "a", api.StartOptions{From: "none"})
			return errors.Join(err, again)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newService(t)
			s.write("a.yaml", endless("a", ""))
			s.start()
			s.awaitState("a", api.Running)
			if err := again(s); err != nil {
				t.Fatal(err)
			}
			s.awaitState("a", api.Running)
			left := t.TempDir()
			if err := os.CopyFS(left, os.DirFS(s.settings.StateDir)); err != nil {
				t.Fatal(err)
			}
			s.end()
			s.settings.StateDir = left
			s.start()
			s.awaitState("a", api.Running)
		})
	}
}

func TestAStoppedPipelineStaysSoUntilItsFileChanges(t *testing.T) {
	s := newService(t)
	text := endless("a", "")
	s.write("a.yaml", text)
	s.start()
	s.awaitState("a", api.Running)
	taken, err := s.Stop(t.Context(), "me", "a", pipeline.StopOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.awaitState("a", api.Stopped)
	s.end()
	s.start()
	s.awaitState("a", api.Stopped)
	s.end()
	s.write("a.yaml", strings.Replace(text, "rate: 1000", "rate: 2000", 1))
	s.start()
	p := s.awaitState("a", api.Running)
	if p.Status.Restored == nil || p.Status.Restored.Path != taken.Path {
		t.Errorf("it went on from %+v, and not from %s", p.Status.Restored, taken.Path)
	}
}

func TestACancelledPipelineHasToBeToldFromWhereToGoOn(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", endless("a", ""))
	s.start()
	s.awaitState("a", api.Running)
	if _, err := s.Cancel(t.Context(), "me", "a"); err != nil {
		t.Fatal(err)
	}
	s.awaitState("a", api.Stopped)
	s.end()
	s.start()
	s.awaitState("a", api.Stopped)
	if _, err := s.Start(t.Context(), "me", "a", api.StartOptions{}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("started from nothing named: %v", err)
	}
	if _, err := s.Start(t.Context(), "me", "a", api.StartOptions{From: "none"}); err != nil {
		t.Error(err)
	}
	s.awaitState("a", api.Running)
}

func TestAChangedFileIsTakenOver(t *testing.T) {
	s := newService(t)
	text := endless("a", "")
	s.write("a.yaml", text)
	s.start()
	s.await("a", "reading", func(p *api.Pipeline) bool { return p.Counts.Read > 0 })
	first := s.awaitState("a", api.Running).Status
	report, err := s.Reload(t.Context(), "me")
	if err != nil || report.Pipelines["a"] != unchanged {
		t.Fatalf("reloaded %+v, error %v", report, err)
	}
	s.write("a.yaml", "# a comment\n"+text)
	if report, err = s.Reload(t.Context(), "me"); err != nil || report.Pipelines["a"] != unchanged {
		t.Fatalf("reloaded %+v, error %v", report, err)
	}
	s.write("a.yaml", "pipeline: a\nsource: {generate: {rate: }}\n")
	if report, err = s.Reload(t.Context(), "me"); err != nil || report.OK || !strings.HasPrefix(report.Pipelines["a"], faulty) {
		t.Fatalf("reloaded %+v, error %v", report, err)
	}
	if p := s.awaitState("a", api.Running); p.Pending == "" || p.Status.Generation != first.Generation {
		t.Errorf("an invalid file touched it: %+v", p)
	}
	s.write("a.yaml", strings.Replace(text, "rate: 1000", "rate: 2000", 1))
	if report, err = s.Reload(t.Context(), "me"); err != nil || !report.OK || report.Pipelines["a"] != switched {
		t.Fatalf("reloaded %+v, error %v", report, err)
	}
	p := s.awaitState("a", api.Running)
	if p.Pending != "" || p.Status.Job != first.Job || p.Status.Generation <= first.Generation || p.Status.Restored == nil {
		t.Errorf("it runs as %+v, before as %+v", p.Status, first)
	}
}
