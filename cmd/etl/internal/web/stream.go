package web

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

const tagLive = "Live"

// The events of streams.
const (
	EventPipelines   = "pipelines"   // []api.Pipeline
	EventFlow        = "flow"        // pipeline.Flow of the pipeline that is named
	EventCheckpoints = "checkpoints" // api.Checkpoints of the pipeline that is named
	EventEvent       = "event"       // api.Event, with its number
	EventLine        = "line"        // api.Line of the log, with its number
	EventRecord      = "record"      // pipeline.Tapped
	EventEnd         = "end"         // nothing more comes: do not come back
)

// Resumes is a request that a client makes again where it broke off.
type Resumes struct {
	LastEventID uint64 `header:"Last-Event-ID" doc:"Number of the last event that has come, of a client that comes back: after counts no more then." example:"4711"`
}

// Lists is a request for numbered things of one or all pipelines.
type Lists struct {
	Resumes
	After  uint64 `query:"after" doc:"Only those with a higher number." example:"4711"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The newest so many."`
	Follow bool   `query:"follow" doc:"Answer with server-sent events: those that are there, and then each that comes."`
}

// from is the number behind which to begin.
func (l Lists) from() uint64 {
	if l.LastEventID > 0 {
		return l.LastEventID
	}
	return l.After
}

// live adds what answers with streams.
func (h *Handler) live() {
	registerStream(h, operation{
		id: "stream", method: http.MethodGet, path: apiPath + "/stream", tag: tagLive, summary: "Tells of what changes",
		more:  "Events: `pipelines` (a list of Pipeline), and of the pipeline that is named `flow` (Flow) and `checkpoints` (Checkpoints), each about once a second where it has changed; `event` (Event), with its number as id.",
		fails: []int{http.StatusNotFound},
	}, nil, func(ctx context.Context, in *struct {
		AnyPipeline
		Resumes
	},
	) (answers, error) {
		return h.stream(ctx, in.Pipeline, in.LastEventID)
	})
	h.liveEvents()
	h.liveLogs()
	h.tap()
}

// AnyPipeline is the query of what is about all pipelines unless one is named.
type AnyPipeline struct {
	Pipeline string `query:"pipeline" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$" doc:"Name of a pipeline." example:"orders"`
}

func (h *Handler) liveEvents() {
	list := func(ctx context.Context, name string, l Lists) (answers, error) {
		return follow(l, EventEvent, func(after uint64, limit int) ([]api.Event, <-chan struct{}) {
			return h.service.Events(ctx, name, after, limit)
		}, func(e *api.Event) uint64 { return e.Number }), nil
	}
	const more = "Oldest first. With `follow` as server-sent events `event`, with the number as id."
	registerStream(h, operation{id: "list-events", method: http.MethodGet, path: apiPath + "/events", tag: tagLive, summary: "Lists what has happened", more: more}, reflect.TypeFor[[]api.Event](),
		func(ctx context.Context, in *struct {
			AnyPipeline
			Lists
		},
		) (answers, error) {
			return list(ctx, in.Pipeline, in.Lists)
		})
	registerStream(h, operation{id: "list-pipeline-events", method: http.MethodGet, path: onePath + "/events", tag: tagLive, summary: "Lists what has happened to a pipeline", more: more}, reflect.TypeFor[[]api.Event](),
		func(ctx context.Context, in *struct {
			Named
			Lists
		},
		) (answers, error) {
			if _, err := h.service.Pipeline(ctx, in.Name); err != nil {
				return nil, err
			}
			return list(ctx, in.Name, in.Lists)
		})
}

func (h *Handler) liveLogs() {
	type Leveled struct {
		Level string `query:"level" enum:"debug,info,warn,error" doc:"Least level of what is shown."`
	}
	list := func(ctx context.Context, name, level string, l Lists) (answers, error) {
		return follow(l, EventLine, func(after uint64, limit int) ([]api.Line, <-chan struct{}) {
			return h.service.Logs(ctx, api.LogQuery{Pipeline: name, Level: level, After: after, Limit: limit})
		}, func(e *api.Line) uint64 { return e.Number }), nil
	}
	const more = "Oldest first. With `follow` as server-sent events `line`, with the number as id."
	registerStream(h, operation{id: "list-logs", method: http.MethodGet, path: apiPath + "/logs", tag: tagLive, summary: "Lists lines of the log", more: more}, reflect.TypeFor[[]api.Line](),
		func(ctx context.Context, in *struct {
			AnyPipeline
			Leveled
			Lists
		},
		) (answers, error) {
			return list(ctx, in.Pipeline, in.Level, in.Lists)
		})
	registerStream(h, operation{id: "list-pipeline-logs", method: http.MethodGet, path: onePath + "/logs", tag: tagLive, summary: "Lists lines of the log that are about a pipeline", more: more}, reflect.TypeFor[[]api.Line](),
		func(ctx context.Context, in *struct {
			Named
			Leveled
			Lists
		},
		) (answers, error) {
			if _, err := h.service.Pipeline(ctx, in.Name); err != nil {
				return nil, err
			}
			return list(ctx, in.Name, in.Level, in.Lists)
		})
}

// answers writes an answer that is no plain JSON value.
type answers func(*Handler, http.ResponseWriter, *http.Request)

// registerStream adds an operation that answers with server-sent events, or with JSON
// where list is the type of that.
func registerStream[I any](h *Handler, o operation, list reflect.Type, f func(context.Context, *I) (answers, error)) {
	op := o.describes()
	ok := &huma.Response{Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{
			Type: huma.TypeObject, Description: "Server-sent events, each with these fields.", Required: []string{"event", "data"},
			Properties: map[string]*huma.Schema{
				"event": {Type: huma.TypeString, Description: "What it tells of."},
				"id":    {Type: huma.TypeString, Description: "Its number, for Last-Event-ID."},
				"retry": {Type: huma.TypeInteger, Description: "Milliseconds after which to come back."},
				"data":  {Type: huma.TypeString, Description: "One line of JSON.", Extensions: map[string]any{"contentMediaType": "application/json"}},
			},
		}},
	}}
	if list != nil {
		ok.Content["application/json"] = &huma.MediaType{Schema: h.api.OpenAPI().Components.Schemas.Schema(list, true, "")}
	}
	for _, t := range []reflect.Type{reflect.TypeFor[api.Event](), reflect.TypeFor[api.Line](), reflect.TypeFor[pipeline.Tapped]()} {
		h.api.OpenAPI().Components.Schemas.Schema(t, true, "")
	}
	op.Responses = map[string]*huma.Response{"200": ok}
	huma.Register(h.api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		write, err := f(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			r, w := humago.Unwrap(c)
			write(h, w, r)
		}}, nil
	})
}

// follow answers with a list, or with what comes to it.
func follow[T any](l Lists, event string, list func(after uint64, limit int) ([]T, <-chan struct{}), number func(*T) uint64) answers {
	if !l.Follow {
		return func(_ *Handler, w http.ResponseWriter, _ *http.Request) {
			found, _ := list(l.from(), l.Limit)
			answer(w, http.StatusOK, filled(found))
		}
	}
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		h.streamTo(w, r, func(ctx context.Context, s *stream) error {
			after, limit := l.from(), l.Limit
			for {
				found, changed := list(after, limit)
				for i := range found {
					after = number(&found[i])
					if err := s.send(event, after, &found[i]); err != nil {
						return err
					}
				}
				limit = mostAtOnce
				if more, err := s.await(ctx, changed); !more {
					return err
				}
			}
		})
	}
}

// mostAtOnce is how many events or lines are taken at once while they are followed.
const mostAtOnce = 1000

// await returns true when something has changed, giving signs of life meanwhile, and
// false when the stream is to end.
func (s *stream) await(ctx context.Context, changed <-chan struct{}) (bool, error) {
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-changed:
			return true, nil
		case <-s.heartbeat.C:
			if err := s.beat(); err != nil {
				return false, err
			}
		}
	}
}

// stream tells how all pipelines are, and more of the one that is named.
func (h *Handler) stream(ctx context.Context, name string, after uint64) (answers, error) {
	if name != "" {
		if _, err := h.service.Pipeline(ctx, name); err != nil {
			return nil, err
		}
	}
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		h.streamTo(w, r, func(ctx context.Context, s *stream) error { return h.tell(ctx, s, name, after) })
	}, nil
}

// tell sends events as they come, and how things are once in an interval.
func (h *Handler) tell(ctx context.Context, s *stream, name string, after uint64) error {
	if after == 0 { // those of before are asked for by list-events
		if newest, _ := h.service.Events(ctx, name, 0, 1); len(newest) > 0 {
			after = newest[len(newest)-1].Number
		}
	}
	ticker := time.NewTicker(h.opts.Interval)
	defer ticker.Stop()
	err := h.sendState(ctx, s, name)
	for err == nil {
		events, changed := h.service.Events(ctx, name, after, mostAtOnce)
		for i := range events {
			after = events[i].Number
			if err := s.send(EventEvent, after, &events[i]); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
			err = h.sendState(ctx, s, name)
		case <-s.heartbeat.C:
			err = s.beat()
		}
	}
	return err
}

// sendState tells how things are now. A pipeline that is gone meanwhile is in the list
// no more; nothing else is told of it.
func (h *Handler) sendState(ctx context.Context, s *stream, name string) error {
	if err := s.sendNews(EventPipelines, filled(h.service.Pipelines(ctx))); err != nil || name == "" {
		return err
	}
	if flow, err := h.service.Flow(ctx, name); err == nil {
		if err := s.sendNews(EventFlow, flow); err != nil {
			return err
		}
	}
	if checkpoints, err := h.service.Checkpoints(ctx, name); err == nil {
		return s.sendNews(EventCheckpoints, checkpoints)
	}
	return nil
}
