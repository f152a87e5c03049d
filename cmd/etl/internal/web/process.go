package web

import (
	"context"
	"net/http"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

const (
	tagDaemon      = "Daemon"
	tagDefinitions = "Definitions"
)

// process adds what is about the daemon as a whole, and about definitions that no
// pipeline has yet.
func (h *Handler) process() {
	s := h.service
	register(h, operation{id: "get-daemon", method: http.MethodGet, path: apiPath + "/daemon", tag: tagDaemon, summary: "Tells how the process is"},
		func(ctx context.Context, _ *struct{}) (api.Daemon, error) { return s.Daemon(ctx), nil })
	register(h, operation{
		id: "reload", method: http.MethodPost, path: apiPath + "/reload", tag: tagDaemon, summary: "Reads the folder of pipelines again",
		more: "As SIGHUP does: what has changed is taken over, one by one, and what has faults is left as it runs.",
	}, func(ctx context.Context, _ *struct{ Body *struct{} }) (*api.Reload, error) {
		return s.Reload(ctx, CallerOf(ctx).Name)
	})
	type defines struct{ Body DefinitionRequest }
	register(h, operation{
		id: "validate", method: http.MethodPost, path: apiPath + "/validate", tag: tagDefinitions, summary: "Checks a definition", maxBody: mostDefinition,
		more: "Nothing of it is kept. Faults of the definition are the answer, not a problem.",
	}, func(ctx context.Context, in *defines) (*api.Validation, error) {
		return s.Validate(ctx, in.Body.Definition)
	})
	register(h, operation{
		id: "plan", method: http.MethodPost, path: apiPath + "/plan", tag: tagDefinitions, summary: "Tells what a definition would do", maxBody: mostDefinition,
		more: "The graph, and what taking it over would keep of a pipeline that runs under its name. Nothing is changed.",
	}, func(ctx context.Context, in *defines) (*api.Plan, error) {
		return s.Plan(ctx, in.Body.Definition)
	})
}
