package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// answerHealthWithin bounds how long a probe waits.
const answerHealthWithin = time.Second

// health answers probes: whether the process turns, and whether its pipelines are well.
type health struct {
	ready func(context.Context) (bool, map[string]api.Health)

	mu      sync.Mutex
	pending *readiness // being found out; probes share it, so that a daemon that hangs is not asked again
}

// readiness is what /readyz tells with ?verbose.
type readiness struct {
	Ready     bool                  `json:"ready"`
	Pipelines map[string]api.Health `json:"pipelines"`
	// Problem is why nothing is known of the pipelines.
	Problem string `json:"problem,omitempty"`

	known chan struct{} // closed when it is found out
}

// live answers that the process turns.
func live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// readyz answers whether all pipelines are well; with ?verbose also each of them, and why.
func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	found := h.ask(r.Context())
	status := http.StatusOK
	if !found.Ready {
		status = http.StatusServiceUnavailable
	}
	verbose := r.URL.Query().Has("verbose")
	if !verbose {
		found.Pipelines = nil
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(found) // who asked has left
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, found.text())
}

// ask finds out what the daemon says of its pipelines, within answerHealthWithin.
func (h *health) ask(ctx context.Context) readiness {
	h.mu.Lock()
	p := h.pending
	if p == nil {
		p = &readiness{known: make(chan struct{})}
		h.pending = p
		go h.find(context.WithoutCancel(ctx), p)
	}
	h.mu.Unlock()
	late := time.NewTimer(answerHealthWithin)
	defer late.Stop()
	select {
	case <-p.known:
		return readiness{Ready: p.Ready, Pipelines: p.Pipelines}
	case <-late.C:
	case <-ctx.Done():
	}
	return readiness{Problem: fmt.Sprintf("the daemon has not said within %s how its pipelines are", answerHealthWithin)}
}

func (h *health) find(ctx context.Context, p *readiness) {
	ctx, cancel := context.WithTimeout(ctx, answerHealthWithin)
	defer cancel()
	p.Ready, p.Pipelines = h.ready(ctx)
	h.mu.Lock()
	h.pending = nil
	h.mu.Unlock()
	close(p.known)
}

// text is one line a pipeline, with what is wrong below it.
func (p *readiness) text() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Pipelines)) {
		h := p.Pipelines[name]
		sign := "+"
		if !h.OK {
			sign = "-"
		}
		fmt.Fprintf(&out, "[%s] %s\n", sign, name)
		for _, problem := range h.Problems {
			fmt.Fprintf(&out, "    %s: %s: %s\n", problem.Level, problem.Kind, problem.Text)
			if problem.Help != "" {
				fmt.Fprintf(&out, "      %s\n", problem.Help)
			}
		}
	}
	if p.Problem != "" {
		fmt.Fprintln(&out, p.Problem)
	}
	if p.Ready {
		out.WriteString("ready\n")
	} else {
		out.WriteString("not ready\n")
	}
	return out.String()
}
