//go:build integration

package soak

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

const reloads = 20

// service is a daemon that runs one job from a folder of definitions.
type service struct {
	t       *testing.T
	j       *job
	folder  string
	address string
	valid   string // the definition that runs
	p       *process
}

// serve moves a job's definition into a folder of its own, and starts a daemon over it.
func (j *job) serve(t *testing.T) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, j: j, folder: filepath.Join(j.dir, "pipelines"), address: ln.Addr().String()}
	_ = ln.Close()
	text, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	s.valid = string(text)
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s.put(s.valid)
	s.start()
	return s
}

func (s *service) start() {
	s.t.Helper()
	s.p = s.j.startCommand(s.t, []string{"serve", s.folder, "--state-dir", filepath.Join(s.j.dir, "state")}, "ETL_HTTP__LISTEN="+s.address, "ETL_RUNTIME_DIR="+s.j.dir)
	s.p.until(patience, "the pipeline ran", func() bool { return s.pipeline().State == api.Running })
}

// put writes the definition as editors and mounted volumes do: beside it, and renamed.
func (s *service) put(text string) {
	s.t.Helper()
	beside := filepath.Join(s.j.dir, "new.yaml")
	if err := os.WriteFile(beside, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(beside, filepath.Join(s.folder, "pipeline.yaml")); err != nil {
		s.t.Fatal(err)
	}
}

// get asks the daemon, which may not answer yet.
func (s *service) get(path string, into any) bool {
	resp, err := http.Get("http://" + s.address + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

func (s *service) pipeline() (p api.Pipeline) {
	s.get("/api/v1/pipelines/"+s.j.name, &p)
	return p
}

// reloaded waits until the folder was read again after a time, and tells what became of the pipeline.
func (s *service) reloaded(after time.Time) (became string) {
	s.t.Helper()
	s.p.until(patience, "the folder was read again", func() bool {
		var d api.Daemon
		if !s.get("/api/v1/daemon", &d) || d.LastReload == nil || !d.LastReload.Time.After(after) {
			return false
		}
		became = d.LastReload.Pipelines[s.j.name]
		return became != ""
	})
	return became
}

// change is the definition with one field more, which tells its round.
func (s *service) change(round int) string {
	return strings.Replace(s.valid, "seen: n + 1", fmt.Sprintf("seen: n + 1, round: %d", round), 1)
}

// A definition is changed, made invalid and written again unchanged while records come.
func TestReloadsUnderLoadLoseAndRepeatNothing(t *testing.T) {
	j := newJob(t, "kafka file", "")
	stop := j.ledger.feed(t, 2000, 1<<30)
	s := j.serve(t)
	for round := range reloads {
		before := time.Now()
		switch round % 3 {
		case 0:
			s.put(s.change(round))
			if became := s.reloaded(before); became != "switched" {
				t.Fatalf("round %d: a changed definition is %q\n%s", round, became, s.p.tail())
			}
		case 1:
			s.put(strings.Replace(s.valid, "seen: n + 1", "seen: nobody_knows(n)", 1))
			became := s.reloaded(before)
			if p := s.pipeline(); !strings.HasPrefix(became, "invalid: ") || p.State != api.Running || p.Pending == "" {
				t.Fatalf("round %d: an invalid definition is %q, the pipeline is %s, and what waits %q\n%s", round, became, p.State, p.Pending, s.p.tail())
			}
		default:
			s.put(s.change(round - 2))
			if became := s.reloaded(before); became != "unchanged" {
				t.Fatalf("round %d: an unchanged definition is %q\n%s", round, became, s.p.tail())
			}
		}
	}
	stop()
	s.p.poll(patience, time.Second, "all came out", func() bool { return j.complete(t) })
	s.p.signal(syscall.SIGTERM)
	s.p.wait(patience, 0)
	j.verify(t)
}

// The daemon is killed while it takes a changed definition over.
func TestReloadsThatAreKilledLoseAndRepeatNothing(t *testing.T) {
	rng := random(t)
	j := newJob(t, "kafka file", "")
	stop := j.ledger.feed(t, 2000, 1<<30)
	s := j.serve(t)
	for round := range kills {
		s.put(s.change(round))
		if !s.p.killAfter(time.Duration(rng.Int64N(int64(time.Second)))) {
			t.Fatalf("round %d: it ended by itself with exit code %d\n%s", round, s.p.code, s.p.tail())
		}
		s.start()
	}
	stop()
	s.p.poll(patience, time.Second, "all came out", func() bool { return j.complete(t) })
	s.p.signal(syscall.SIGTERM)
	s.p.wait(patience, 0)
	j.verify(t)
}
