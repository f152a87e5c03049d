package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

func TestReadinessNamesEachPipelineAndWhy(t *testing.T) {
	var well atomic.Bool
	d := &fakeDaemon{ready: func(context.Context) (bool, map[string]api.Health) {
		return well.Load(), map[string]api.Health{
			"orders": {OK: true},
			"clicks": {OK: well.Load(), Problems: []api.Problem{{Kind: "broker", Level: "error", Text: "127.0.0.1:9092 does not answer", Help: "start it"}}},
		}
	}}
	s := start(t, Options{Service: d})
	base := s.Addresses()[0]
	g := browse(t, http.MethodGet, base+"/readyz")
	if g.status != http.StatusServiceUnavailable || g.body != "not ready\n" {
		t.Errorf("%d %q", g.status, g.body)
	}
	const want = "[-] clicks\n    error: broker: 127.0.0.1:9092 does not answer\n      start it\n[+] orders\nnot ready\n"
	if g = browse(t, http.MethodGet, base+"/readyz?verbose"); g.status != http.StatusServiceUnavailable || g.body != want {
		t.Errorf("%d %q", g.status, g.body)
	}
	well.Store(true)
	if g = browse(t, http.MethodGet, base+"/readyz"); g.status != http.StatusOK || g.body != "ready\n" {
		t.Errorf("%d %q", g.status, g.body)
	}
	g = browse(t, http.MethodGet, base+"/readyz?verbose", "Accept", "application/json")
	var told readiness
	if err := json.Unmarshal([]byte(g.body), &told); err != nil || g.status != http.StatusOK || !told.Ready || !told.Pipelines["orders"].OK || told.Pipelines["clicks"].Problems[0].Kind != "broker" {
		t.Errorf("%d %s, %v", g.status, g.body, err)
	}
	for _, path := range []string{"/livez", "/healthz"} {
		if g = browse(t, http.MethodGet, base+path); g.status != http.StatusOK || g.body != "ok\n" {
			t.Errorf("%s: %d %q", path, g.status, g.body)
		}
	}
}

func TestAProbeDoesNotWaitForADaemonThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		goOn := make(chan struct{})
		h := &health{ready: func(context.Context) (bool, map[string]api.Health) {
			asked.Add(1)
			<-goOn
			return true, nil
		}}
		began := time.Now()
		for range 5 {
			if got := h.ask(t.Context()); got.Ready || !strings.Contains(got.text(), "has not said within 1s") {
				t.Errorf("it tells %q", got.text())
			}
		}
		if waited := time.Since(began); waited != 5*answerHealthWithin || asked.Load() != 1 {
			t.Errorf("5 probes took %s, and the daemon was asked %d times", waited, asked.Load())
		}
		close(goOn)
		synctest.Wait()
		if got := h.ask(t.Context()); !got.Ready || asked.Load() != 2 {
			t.Errorf("once it answers again: %+v, asked %d times", got.Ready, asked.Load())
		}
	})
}
