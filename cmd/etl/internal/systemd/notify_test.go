package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a service manager that hears what is told.
type manager struct {
	conn *net.UnixConn
	env  map[string]string
}

func newManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{conn, map[string]string{"NOTIFY_SOCKET": address}}
}

func (m *manager) getenv(key string) string { return m.env[key] }

func (m *manager) hears(t *testing.T) string {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func addresses(t *testing.T) []string {
	all := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		all = append(all, fmt.Sprintf("@etl-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	}
	return all
}

func TestTheManagerHearsEachState(t *testing.T) {
	for _, address := range addresses(t) {
		m := newManager(t, address)
		n, err := New(m.getenv)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			tell func() error
			want string
		}{
			{func() error { return n.Ready("3 pipelines\nWATCHDOG=trigger") }, "READY=1\nSTATUS=3 pipelines WATCHDOG=trigger"},
			{func() error { return n.Status("2 running") }, "STATUS=2 running"},
			{func() error { return n.Stopping("a last checkpoint") }, "STOPPING=1\nSTATUS=a last checkpoint"},
			{func() error { return n.Extend(1500 * time.Millisecond) }, "EXTEND_TIMEOUT_USEC=1500000"},
		} {
			if err := tt.tell(); err != nil {
				t.Error(err)
			}
			if got := m.hears(t); got != tt.want {
				t.Errorf("at %s: %q, want %q", address, got, tt.want)
			}
		}
		before, _ := monotonic()
		if err := n.Reloading(); err != nil {
			t.Error(err)
		}
		text, ok := strings.CutPrefix(m.hears(t), "RELOADING=1\nMONOTONIC_USEC=")
		us, err := strconv.ParseInt(text, 10, 64)
		if after, _ := monotonic(); !ok || err != nil || us < before || us > after {
			t.Errorf("at %s: reloading at %q, between %d and %d", address, text, before, after)
		}
	}
}

func TestTheWatchdogIsFedOnlyWhileAlive(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	m.env["WATCHDOG_USEC"], m.env["WATCHDOG_PID"] = "2000", strconv.Itoa(os.Getpid())
	n, err := New(m.getenv)
	if err != nil {
		t.Fatal(err)
	}
	var alive atomic.Bool
	asked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- n.Watch(ctx, func() bool {
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
			return alive.Load()
		})
	}()
	for range 3 {
		<-asked
	}
	if err := n.Status("not alive"); err != nil {
		t.Fatal(err)
	}
	if got := m.hears(t); got != "STATUS=not alive" {
		t.Errorf("fed without being alive: %q", got)
	}
	alive.Store(true)
	<-asked
	<-asked
	if got := m.hears(t); got != "WATCHDOG=1" {
		t.Errorf("heard %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheStatusIsShownWhenItChangesAndMoreTimeAskedFor(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	n, err := New(m.getenv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- n.Show(ctx, func() string { return "all is well" }) }()
	if got := m.hears(t); got != "STATUS=all is well" {
		t.Errorf("heard %q", got)
	}
	go func() { done <- n.ExtendWhile(ctx) }()
	if got := m.hears(t); got != "EXTEND_TIMEOUT_USEC=10000000" {
		t.Errorf("heard %q", got)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutAManagerNothingIsTold(t *testing.T) {
	n, err := New(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { return n.Ready("x") }, n.Reloading, func() error { return n.Stopping("x") },
		func() error { return n.Watch(t.Context(), func() bool { return true }) },
		func() error { return n.Show(t.Context(), func() string { return "x" }) },
		func() error { return n.ExtendWhile(t.Context()) },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnEnvironmentThatIsWrongIsTold(t *testing.T) {
	for _, env := range []map[string]string{
		{"NOTIFY_SOCKET": "notify"},
		{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
		{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "-1"},
	} {
		if n, err := New(func(key string) string { return env[key] }); err == nil {
			t.Errorf("%v makes %+v", env, n)
		}
	}
	others := map[string]string{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
	n, err := New(func(key string) string { return others[key] })
	if err != nil || n.watchdog != 0 {
		t.Errorf("the watchdog of another process makes %+v, %v", n, err)
	}
	if err := (&Notifier{address: filepath.Join(t.TempDir(), "gone")}).Ready("x"); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a manager that is gone: %v", err)
	}
}

func TestTheSummaryOfPipelines(t *testing.T) {
	now := time.Unix(1000, 0)
	well := api.Health{OK: true}
	for want, pipelines := range map[string][]api.Pipeline{
		"0 pipelines":           nil,
		"1 pipeline, 1 running": {{State: api.Running, Health: well}},
		"3 pipelines, 2 running, 1 failed, 1 not well, checkpoint 812 4 s ago": {
			{State: api.Running, Health: well, Checkpoint: &api.Checkpoint{Number: 812, Time: now.Add(-4 * time.Second)}},
			{State: api.Failed}, {State: api.Running, Health: well, Checkpoint: &api.Checkpoint{Number: 9000, Time: now.Add(-time.Hour)}},
		},
		"1 pipeline, 1 paused, checkpoint 7 3 min ago": {{State: api.Paused, Health: well, Checkpoint: &api.Checkpoint{Number: 7, Time: now.Add(-200 * time.Second)}}},
		"1 pipeline, 1 paused, checkpoint 7 2 h ago":   {{State: api.Paused, Health: well, Checkpoint: &api.Checkpoint{Number: 7, Time: now.Add(-2 * time.Hour)}}},
	} {
		if got := Summary(pipelines, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
