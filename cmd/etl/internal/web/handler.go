package web

import (
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// HandlerOptions say how the API is served.
type HandlerOptions struct {
	// Version is the program's.
	Version string
	// MaxStreams is how many may be open at once; 0 for 100.
	MaxStreams int
	// Heartbeat is after what time without anything to tell a stream sends a sign of
	// life; 0 for 15 s. Interval is how often it tells how things are; 0 for 1 s.
	Heartbeat, Interval time.Duration
}

// Handler answers the requests of the API, and gives its description at /openapi.json.
type Handler struct {
	service api.Service
	opts    HandlerOptions
	mux     *http.ServeMux
	api     huma.API

	streams chan struct{} // holds one for each that is open
}

// NewHandler makes the handler of a service. A Server before it finds out who asks.
func NewHandler(s api.Service, o HandlerOptions) *Handler {
	if o.MaxStreams == 0 {
		o.MaxStreams = 100
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	h := &Handler{service: s, opts: o, mux: http.NewServeMux(), streams: make(chan struct{}, o.MaxStreams)}
	h.api = humago.New(h.mux, configuration(o.Version))
	h.pipelines()
	h.actions()
	h.checkpoints()
	h.process()
	h.live()
	h.describe()
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Del("Accept")                            // each answer has one type: there is nothing to choose from
	if p := r.URL.EscapedPath(); path.Clean(p) != p { // not redirected: that is for browsers
		nothingAt(w, r)
		return
	}
	if _, pattern := h.mux.Handler(r); pattern != "" {
		h.mux.ServeHTTP(w, r)
		return
	}
	if allowed := h.methodsAt(r); len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuse(w, problem(http.StatusMethodNotAllowed, CodeInvalid, r.URL.Path+" takes "+strings.Join(allowed, ", ")+", not "+r.Method))
		return
	}
	nothingAt(w, r)
}

func nothingAt(w http.ResponseWriter, r *http.Request) {
	refuse(w, problem(http.StatusNotFound, CodeUnknown, "there is nothing at "+r.URL.Path))
}

// methodsAt lists what the path of a request takes.
func (h *Handler) methodsAt(r *http.Request) []string {
	var out []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = m
		if _, pattern := h.mux.Handler(&other); pattern != "" {
			out = append(out, m)
		}
	}
	return out
}
