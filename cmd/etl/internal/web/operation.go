package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// How much a request may send, in bytes.
const (
	mostBody       = 64 << 10
	mostDefinition = 1 << 20
)

// operation describes one of the API.
type operation struct {
	id, method, path string
	tag              string
	summary          string
	more             string // what else there is to say
	fails            []int  // beside what the method and path come to
	maxBody          int64  // 0 for mostBody
}

// describes makes the library's description of an operation.
func (o operation) describes() huma.Operation {
	role, ok := RoleOf(o.method, o.path)
	if !ok {
		panic("no role is set for " + o.method + " " + o.path)
	}
	fails := append([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusTooManyRequests}, o.fails...)
	if strings.Contains(o.path, "{name}") {
		fails = append(fails, http.StatusNotFound)
	}
	if o.method == http.MethodPost || o.method == http.MethodPut {
		fails = append(fails, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if o.method != http.MethodGet {
		fails = append(fails, http.StatusConflict)
	}
	fails = append(fails, http.StatusServiceUnavailable)
	slices.Sort(fails)
	if o.maxBody == 0 {
		o.maxBody = mostBody
	}
	text := strings.TrimSpace(o.more + "\n\nNeeds the role " + string(role) + ".")
	return huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Tags: []string{o.tag}, Summary: o.summary, Description: text,
		Errors: slices.Compact(fails), MaxBodyBytes: o.maxBody + 1, // the library takes less than its bound
		RejectUnknownQueryParameters: true,
		Security:                     []map[string][]string{{bearer: {}}, {mutualTLS: {}}},
		Extensions:                   map[string]any{"x-role": string(role)},
	}
}

// body is an answer.
type body[T any] struct{ Body T }

// register adds an operation that answers with JSON.
func register[I, O any](h *Handler, o operation, f func(context.Context, *I) (O, error)) {
	huma.Register(h.api, o.describes(), func(ctx context.Context, in *I) (*body[O], error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return &body[O]{out}, nil
	})
}

// registerSilent adds an operation whose answer is that it was done.
func registerSilent[I any](h *Handler, o operation, f func(context.Context, *I) error) {
	huma.Register(h.api, o.describes(), func(ctx context.Context, in *I) (*struct{}, error) {
		if err := f(ctx, in); err != nil {
			return nil, problemOf(err)
		}
		return nil, nil //nolint:nilnil // the library's form of no content
	})
}

// Named is a request about one pipeline.
type Named struct {
	Name string `path:"name" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" doc:"Name of the pipeline, as its file has it." example:"orders"`
}

// acts is a request to do something to one pipeline that says no more than that.
type acts struct {
	Named
	Body *struct{} `doc:"Nothing, or an empty object."`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked has left
}

// filled makes no list an empty one.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// filledOr is filled of what has worked.
func filledOr[T any](list []T, err error) ([]T, error) { return filled(list), err }
