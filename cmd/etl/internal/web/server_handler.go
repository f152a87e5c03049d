package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// handler stands before all handlers: it finds out who asks and whether they may, and
// writes down what was changed.
type handler struct {
	settings *Settings
	log      *slog.Logger
	mux      *http.ServeMux
	guard    *guard
	auth     *authenticator
	audit    *audit
	roots    func() []string
	// ending is done once requests that only look are to end.
	ending context.Context
	end    context.CancelFunc
}

// The patterns of what is beside the API.
const (
	livePath      = "/livez"
	healthPath    = "/healthz"
	readyPath     = "/readyz"
	metricsPath   = "/metrics"
	pprofPath     = "/debug/pprof/"
	openAPIPath   = "/openapi.json"
	belowAPI      = "/api/"
	dashboardPath = "/"
)

func newHandler(o *Options) (*handler, error) {
	auth, err := newAuthenticator(&o.Settings)
	if err != nil {
		return nil, err
	}
	event := o.Event
	if event == nil {
		event = func(api.Event) {}
	}
	audit, err := openAudit(o.Settings.AuditFile, o.Log, event)
	if err != nil {
		return nil, err
	}
	h := &handler{settings: &o.Settings, log: o.Log, guard: newGuard(&o.Settings), auth: auth, audit: audit, roots: rootsOf(o)}
	h.ending, h.end = context.WithCancel(context.Background())
	h.mux = http.NewServeMux()
	probes := &health{ready: o.Service.Ready}
	h.mux.HandleFunc(livePath, live)
	h.mux.HandleFunc(healthPath, live)
	h.mux.HandleFunc(readyPath, probes.readyz)
	for pattern, part := range map[string]http.Handler{belowAPI: o.API, openAPIPath: o.API, metricsPath: o.Metrics, dashboardPath: o.Dashboard} {
		if part == nil {
			part = http.HandlerFunc(nothing)
		}
		h.mux.Handle(pattern, part)
	}
	if o.Settings.Pprof {
		h.mux.HandleFunc(pprofPath, pprof.Index)
		h.mux.HandleFunc(pprofPath+"cmdline", pprof.Cmdline)
		h.mux.HandleFunc(pprofPath+"profile", pprof.Profile)
		h.mux.HandleFunc(pprofPath+"symbol", pprof.Symbol)
		h.mux.HandleFunc(pprofPath+"trace", pprof.Trace)
	} else {
		h.mux.HandleFunc(pprofPath, nothing)
	}
	return h, nil
}

// rootsOf are the folders that callers may name paths below.
func rootsOf(o *Options) func() []string {
	switch {
	case len(o.Settings.Roots) > 0:
		return func() []string { return o.Settings.Roots }
	case o.Roots != nil:
		return o.Roots
	}
	return func() []string {
		var all []string
		for _, p := range o.Service.Pipelines(context.Background()) {
			if p.Status != nil && p.Status.Storage != "" {
				all = append(all, p.Status.Storage)
			}
		}
		return all
	}
}

func nothing(w http.ResponseWriter, r *http.Request) {
	refuse(w, &Problem{Status: http.StatusNotFound, Code: CodeUnknown, Detail: "there is nothing at " + r.Method + " " + r.URL.Path})
}

// ServeHTTP answers a request, or refuses it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &answerWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	defer out.finish()
	defer h.recovered(out, r)
	protect(w.Header())
	r.Body = out.body(r)
	need, public := h.needed(r)
	if err := h.guard.check(r); err != nil && !probe(r) {
		h.refuse(out, r, Caller{}, err)
		return
	}
	if foreign(r) && !public {
		h.refuse(out, r, Caller{}, &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: "the request comes from a page of another site"})
		return
	}
	if public {
		h.mux.ServeHTTP(out, r)
		return
	}
	caller, err := h.auth.caller(r)
	if err == nil && !caller.Role.Includes(need) {
		err = &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: fmt.Sprintf("that needs the role %s, and %s has %s", need, caller.Name, caller.roleText())}
	}
	if err != nil {
		h.refuse(out, r, caller, err)
		return
	}
	h.answer(out, r, caller, changes(r) && !asks(r))
}

// answer lets a handler answer a request of somebody who may make it. One that changes
// nothing ends with the server.
func (h *handler) answer(w *answerWriter, r *http.Request, caller Caller, changes bool) {
	ctx := WithCaller(r.Context(), caller)
	if !bySocket(r) {
		ctx = context.WithValue(ctx, rootsKey{}, h.roots)
	}
	if !changes {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.ending, cancel)() //nolint:contextcheck // the end of the server is the end of this too
		h.mux.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	e := h.audit.begin(r, caller)
	defer func() { h.audit.done(e, w.status) }()
	h.mux.ServeHTTP(w, r.WithContext(context.WithValue(ctx, entryKey{}, e)))
}

// needed is the role that a request needs; public ones need none. It goes by the same
// patterns as the answer.
func (h *handler) needed(r *http.Request) (need Role, public bool) {
	_, pattern := h.mux.Handler(r)
	if changes(r) {
		if role, ok := RoleFor(r); ok {
			return role, false
		}
		return Admin, false
	}
	switch {
	case pattern == livePath, pattern == healthPath:
		return "", true
	case pattern == readyPath:
		return Read, !r.URL.Query().Has("verbose")
	case pattern == metricsPath:
		return Read, h.settings.MetricsPublic
	case strings.HasPrefix(pattern, pprofPath):
		return Admin, false
	case pattern == dashboardPath:
		return "", true // it holds nothing that is not in the program; what it shows comes from the API
	}
	if role, ok := RoleFor(r); ok {
		return role, false
	}
	return Read, false
}

// probe reports whether a request is one of those that health checks send, with
// whatever name they reach the process by. There is nothing to read in the answer.
func probe(r *http.Request) bool {
	switch r.URL.Path {
	case livePath, healthPath, readyPath:
		return !changes(r) && !r.URL.Query().Has("verbose")
	}
	return false
}

// changes reports whether a request may change something.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// asks reports whether a request with a body changes nothing all the same.
func asks(r *http.Request) bool {
	return r.URL.Path == apiPath+"/validate" || r.URL.Path == apiPath+"/plan"
}

// refuse answers with a problem, and writes it down.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, c Caller, err error) {
	p := problemOf(err)
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="etl"`)
	case http.StatusTooManyRequests:
		wait := h.auth.failures.wait(peer(r))
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	}
	h.audit.refused(r, c, p)
	refuse(w, p)
}

// recovered makes a panic of a handler an answer, unless one has begun.
func (h *handler) recovered(w *answerWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	h.log.Error("a request ended in a panic: please report it", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // who asked must not take it for whole
	}
	refuse(w, &Problem{Status: http.StatusInternalServerError, Code: CodeFailed, Detail: "the request ended in a panic of the program: its log has more; please report it"})
}

func (c *Caller) roleText() string {
	if c.Role == "" {
		return "none"
	}
	return "the role " + string(c.Role)
}
