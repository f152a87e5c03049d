package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// API is the pipelines of a process, as HTTP shows and steers them.
type API struct {
	order     []string
	pipelines map[string]*pipeline.Control
}

// NewAPI makes an API of no pipeline.
func NewAPI() *API { return &API{pipelines: map[string]*pipeline.Control{}} }

// Add adds a pipeline, before Handler.
func (a *API) Add(name string, c *pipeline.Control) {
	a.order = append(a.order, name)
	a.pipelines[name] = c
}

// SavepointRequest is the body of a POST to …/savepoints.
type SavepointRequest struct {
	// Dir is the folder below which it goes, as an address of storage or an absolute
	// path; empty for that of the pipeline's file.
	Dir string `json:"dir,omitempty"`
}

// StopRequest is the body of a POST to …/stop.
type StopRequest struct {
	Savepoint bool   `json:"savepoint,omitempty"`
	Dir       string `json:"dir,omitempty"` // as in SavepointRequest
	Drain     bool   `json:"drain,omitempty"`
}

// Handler answers the requests.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pipelines", func(w http.ResponseWriter, _ *http.Request) {
		all := make([]pipeline.Status, 0, len(a.order))
		for _, name := range a.order {
			all = append(all, a.pipelines[name].Status())
		}
		answer(w, http.StatusOK, all)
	})
	const one = "/api/v1/pipelines/{name}"
	a.handle(mux, "GET "+one, func(_ *http.Request, c *pipeline.Control) (any, error) { return c.Status(), nil })
	a.handle(mux, "GET "+one+"/checkpoints", func(_ *http.Request, c *pipeline.Control) (any, error) { return c.Checkpoints(), nil })
	a.handle(mux, "POST "+one+"/checkpoints", func(r *http.Request, c *pipeline.Control) (any, error) {
		if err := decode(r, &struct{}{}); err != nil {
			return nil, err
		}
		return taken(c.Checkpoint(r.Context()))
	})
	a.handle(mux, "POST "+one+"/savepoints", func(r *http.Request, c *pipeline.Control) (any, error) {
		var req SavepointRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if err := whole(req.Dir); err != nil {
			return nil, err
		}
		return taken(c.Savepoint(r.Context(), req.Dir))
	})
	a.handle(mux, "POST "+one+"/stop", func(r *http.Request, c *pipeline.Control) (any, error) {
		var req StopRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if err := whole(req.Dir); err != nil {
			return nil, err
		}
		return taken(c.Stop(r.Context(), pipeline.StopOptions{Savepoint: req.Savepoint, Dir: req.Dir, Drain: req.Drain}))
	})
	a.handle(mux, "POST "+one+"/cancel", func(r *http.Request, c *pipeline.Control) (any, error) {
		if err := decode(r, &struct{}{}); err != nil {
			return nil, err
		}
		return taken(c.Cancel(r.Context()))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &Problem{Status: http.StatusNotFound, Code: CodeUnknown, Detail: "there is nothing at " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// whole refuses a path that begins at the folder of who asks, which this process does
// not know, and its own memory, which ends with it.
func whole(dir string) error {
	if strings.HasPrefix(dir, "mem://") {
		return &Problem{Status: http.StatusBadRequest, Code: CodeInvalid, Detail: fmt.Sprintf("dir %q is memory of the process, which ends with it: write an address that outlives it, such as file:///var/lib/etl/savepoints", dir)}
	}
	if dir == "" || strings.Contains(dir, "://") || filepath.IsAbs(dir) {
		return nil
	}
	return &Problem{Status: http.StatusBadRequest, Code: CodeInvalid, Detail: fmt.Sprintf("dir %q is a relative path: write it from the root, such as /var/lib/etl/savepoints, or as an address of storage", dir)}
}

// taken makes a nil pointer no answer.
func taken(t *pipeline.Taken, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// handle answers a request for one pipeline.
func (a *API) handle(mux *http.ServeMux, pattern string, f func(*http.Request, *pipeline.Control) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		c, ok := a.pipelines[name]
		if !ok {
			refuse(w, &Problem{Status: http.StatusNotFound, Code: CodeUnknown, Detail: fmt.Sprintf("this process runs no pipeline %q", name)})
			return
		}
		got, err := f(r, c)
		if err != nil {
			refuse(w, problemOf(err))
			return
		}
		answer(w, http.StatusOK, got)
	})
}

// mostBody bounds what a request may send.
const mostBody = 64 << 10

// decode reads a body of JSON; an empty one changes nothing.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, mostBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("there is more than one value")
	}
	return &Problem{Status: http.StatusBadRequest, Code: CodeInvalid, Detail: "the body is not what is wanted: " + err.Error()}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked has left
}

func refuse(w http.ResponseWriter, p *Problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // who asked has left
}

// Problem is the answer to a request that did not work, as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what happened, why, and what to do.
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

// The codes of problems.
const (
	CodeUnknown   = "unknown"   // there is no such pipeline or path
	CodeInvalid   = "invalid"   // the request is wrong
	CodePhase     = "phase"     // the pipeline cannot do that in its present phase
	CodeFailed    = "failed"    // it did not work; trying again may help
	CodePermanent = "permanent" // somebody has to act
	CodeFenced    = "fenced"    // a newer process has the pipeline
)

func (p *Problem) Error() string { return p.Detail }

// problemOf says what an error means to who asked.
func problemOf(err error) *Problem {
	var p *Problem
	var phase *pipeline.PhaseError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &phase):
		p = &Problem{Status: http.StatusConflict, Code: CodePhase}
	case errors.Is(err, pipeline.ErrNoSavepointDir):
		p = &Problem{Status: http.StatusBadRequest, Code: CodeInvalid}
	case errors.Is(err, connectors.ErrFenced):
		p = &Problem{Status: http.StatusConflict, Code: CodeFenced}
	case connectors.IsPermanent(err):
		p = &Problem{Status: http.StatusInternalServerError, Code: CodePermanent}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p = &Problem{Status: http.StatusServiceUnavailable, Code: CodeFailed}
	default:
		p = &Problem{Status: http.StatusInternalServerError, Code: CodeFailed}
	}
	p.Detail = err.Error()
	return p
}
