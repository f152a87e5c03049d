package web

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// served is a running pipeline whose API is served from a socket.
func served(t *testing.T) (c *Client, ran chan error) {
	t.Helper()
	p, _ := spec.Parse("p.yaml", []byte(`
pipeline: clicks
parallelism: 1
source: {generate: {kind: bid, rate: 200}}
sink: {blackhole: {}}
checkpoint: {interval: 1h}
`), spec.Options{})
	plan := pipeline.NewPlan(p)
	if p.Diagnostics().HasErrors() {
		t.Fatal(p.Diagnostics())
	}
	flows := make(chan struct{})
	opts := pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler), Control: &pipeline.Control{}, Running: func() { close(flows) }}
	service := NewControls("1")
	service.Add(plan, opts.Control)
	dir := filepath.Join(t.TempDir(), "run")
	ln, err := Listen(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	end := serveSocket(t, ln, NewHandler(service, HandlerOptions{}))
	ctx, cancel := context.WithCancel(context.Background())
	ran = make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := pipeline.Run(ctx, opts)
		ran <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	<-flows
	found, err := Processes(t.Context(), []string{dir})
	if err != nil || len(found) != 1 || found[0].PID != os.Getpid() || len(found[0].Pipelines) != 1 || found[0].Pipelines[0].Name != "clicks" {
		t.Fatalf("found %+v, error %v", found, err)
	}
	return found[0].Client, ran
}

// serveSocket answers on a socket until end is called.
func serveSocket(t *testing.T, ln net.Listener, h http.Handler) (end func() error) {
	t.Helper()
	s, err := Serve(t.Context(), Options{Settings: Settings{MaxConnections: 1}, Service: &fake{}, API: h, Socket: ln, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return func() error { return s.Close(t.Context()) }
}

func TestAPipelineIsSteeredOverItsSocket(t *testing.T) {
	c, ran := served(t)
	taken, err := c.Checkpoint(t.Context(), "clicks")
	if err != nil || taken.Number != 2 || !strings.HasSuffix(taken.Path, "/chk-2") {
		t.Fatalf("took %+v, error %v", taken, err)
	}
	stats, err := c.Checkpoints(t.Context(), "clicks")
	if err != nil || stats.Completed != 2 || stats.Last == nil || stats.Last.ID.Number != 2 {
		t.Errorf("its checkpoints are %+v, error %v", stats, err)
	}
	saved, err := c.Savepoint(t.Context(), "clicks", SavepointRequest{Dir: t.TempDir()})
	if err != nil || !strings.Contains(saved.Path, "/savepoint-") {
		t.Errorf("saved %+v, error %v", saved, err)
	}
	end, err := c.Stop(t.Context(), "clicks", StopRequest{})
	if err != nil || end.Number != 4 {
		t.Errorf("it ended with %+v, error %v", end, err)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
	var p *Problem
	if _, err := c.Cancel(t.Context(), "clicks"); !errors.As(err, &p) || p.Status != http.StatusConflict || p.Code != CodePhase || !strings.Contains(p.Detail, "has ended: stopped") {
		t.Errorf("cancelled after its end: %v", err)
	}
}

func TestAProcessThatRunsWhatItWasStartedWithSaysSo(t *testing.T) {
	c, _ := served(t)
	ctx := t.Context()
	all, err := c.Pipelines(ctx)
	if err != nil || len(all) != 1 || all[0].State != api.Running || !all[0].Health.OK || all[0].Status.Phase != pipeline.Running {
		t.Fatalf("it runs %+v, %v", all, err)
	}
	if d, err := c.Describe(ctx, "clicks"); err != nil || len(d.Operators) != 2 {
		t.Errorf("its graph is %+v, %v", d, err)
	}
	if d, err := c.Daemon(ctx); err != nil || d.PID != os.Getpid() || !d.Ready {
		t.Errorf("it is %+v, %v", d, err)
	}
	_, paused := c.Pause(ctx, "clicks")
	_, put := c.Put(ctx, "other", "pipeline: other\n")
	_, noDir := c.Savepoint(ctx, "clicks", SavepointRequest{})
	_, noScheme := c.Savepoint(ctx, "clicks", SavepointRequest{Dir: "nowhere://x"})
	_, unknown := c.Stop(ctx, "other", StopRequest{})
	for text, tt := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"use etl serve":            {paused, 409, CodePhase},
		"no more than that":        {put, 409, CodePhase},
		"no folder for savepoints": {noDir, 400, CodeInvalid},
		"nowhere":                  {noScheme, 400, CodeInvalid},
		"runs no pipeline":         {unknown, 404, CodeUnknown},
	} {
		var p *Problem
		if !errors.As(tt.err, &p) || p.Status != tt.status || p.Code != tt.code || !strings.Contains(p.Detail, text) {
			t.Errorf("want %d %s %q, not %+v", tt.status, tt.code, text, tt.err)
		}
	}
}

func TestAnAnswerIsGivenBeforeTheServerEnds(t *testing.T) {
	dir := t.TempDir()
	ln, err := Listen(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan struct{}), make(chan struct{})
	end := serveSocket(t, ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-goOn
		_ = json.NewEncoder(w).Encode([]api.Pipeline{{Name: "late"}})
	}))
	got := make(chan error, 1)
	go func() {
		all, err := NewClient(ln.Addr().String()).Pipelines(t.Context())
		if err == nil && (len(all) != 1 || all[0].Name != "late") {
			err = errors.New("another answer")
		}
		got <- err
	}()
	<-asked
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	close(goOn)
	if err := errors.Join(<-got, <-ended); err != nil {
		t.Error(err)
	}
	if _, err := NewClient(ln.Addr().String()).Pipelines(t.Context()); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after the end: %v", err)
	}
}

func TestARuntimeDirectoryThatIsNoPlaceForASocketIsRefused(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(t.TempDir(), strings.Repeat("x", 110)): "shorter",
		open: "others may write",
		link: "no directory",
	} {
		if ln, err := Listen(t.Context(), []string{dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", dir, ln, err, want)
		}
	}
	// The next one that can be had is taken.
	good := filepath.Join(t.TempDir(), "run")
	ln, err := Listen(t.Context(), []string{open, good})
	if err != nil || filepath.Dir(ln.Addr().String()) != good {
		t.Fatalf("listens at %v, error %v", ln, err)
	}
	defer func() { _ = ln.Close() }()
	if info, err := os.Stat(good); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has %v, error %v", info.Mode(), err)
	}
}

func TestWhatDeadProcessesLeaveIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	leave := func(name string) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		_ = ln.Close()
	}
	const gone = 1 << 30 // beyond what the system counts to
	leave(strconv.Itoa(gone) + ".sock")
	leave(strconv.Itoa(os.Getpid()) + ".sock")
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := Processes(t.Context(), []string{dir, filepath.Join(dir, "missing")}); err != nil || len(found) > 0 {
		t.Errorf("found %v, error %v", found, err)
	}
	ln, err := Listen(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%d files are left, want the new socket and what is none: %v", len(left), err)
	}
}

// Containers that share a runtime directory do not see each other's processes, whose
// numbers mean nothing there.
func TestSocketsThatSomebodyListensOnAreLeftAlone(t *testing.T) {
	const elsewhere = 1 << 30 // beyond what the system counts to
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	listen := func(pid int) string {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, strconv.Itoa(pid)+".sock"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		return ln.Addr().String()
	}
	other := listen(elsewhere)
	ln, err := Listen(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	same := listen(os.Getpid())
	if ln, err := Listen(t.Context(), []string{dir}); err == nil || !strings.Contains(err.Error(), "another container") {
		t.Errorf("beside one of its own number: %v, %v", ln, err)
	}
	for _, path := range []string{other, same} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// A directory that anybody can put among the temporary files keeps nobody from the
// processes in another one.
func TestADirectoryThatCannotBeUsedHidesNoOther(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(t.Context(), []string{good})
	if err != nil {
		t.Fatal(err)
	}
	end := serveSocket(t, ln, NewHandler(NewControls("1"), HandlerOptions{}))
	found, err := Processes(t.Context(), []string{bad, good})
	if len(found) != 1 || err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("found %v, error %v", found, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A process that does not answer holds nobody up for long, and is left alone.
func TestAProcessThatDoesNotAnswerIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if found, err := Processes(ctx, []string{dir}); !errors.Is(err, context.DeadlineExceeded) || len(found) > 0 {
		t.Errorf("found %v, error %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "1.sock")); err != nil {
		t.Error(err)
	}
}
