package web

import (
	"context"
	"net/http"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

const tagPipelines = "Pipelines"

// DefinitionRequest is the body of what takes a pipeline's definition.
type DefinitionRequest struct {
	Definition string `json:"definition" minLength:"1" doc:"The pipeline's file, YAML." example:"pipeline: orders\nsource: {kafka: {brokers: [broker:9092], topics: [orders]}}\nsink: {blackhole: {}}\n"`
}

// pipelines adds what tells of pipelines, and what defines them.
func (h *Handler) pipelines() {
	s := h.service
	register(h, operation{id: "list-pipelines", method: http.MethodGet, path: allPath, tag: tagPipelines, summary: "Lists the pipelines"},
		func(ctx context.Context, _ *struct{}) ([]api.Pipeline, error) { return filled(s.Pipelines(ctx)), nil })
	register(h, operation{id: "get-pipeline", method: http.MethodGet, path: onePath, tag: tagPipelines, summary: "Tells how a pipeline is"},
		func(ctx context.Context, in *Named) (*api.Pipeline, error) { return s.Pipeline(ctx, in.Name) })
	register(h, operation{
		id: "get-definition", method: http.MethodGet, path: onePath + "/definition", tag: tagPipelines, summary: "Shows the definition of a pipeline",
		more: "As it is written, and as it counts with defaults and variables filled in. Secrets are ***.",
	}, func(ctx context.Context, in *Named) (*api.Definition, error) { return s.Definition(ctx, in.Name) })
	register(h, operation{id: "get-graph", method: http.MethodGet, path: onePath + "/graph", tag: tagPipelines, summary: "Shows the graph of a pipeline", more: "Its sources, steps and sinks, how records come from one to the next, the fields at each place, and what is guaranteed."},
		func(ctx context.Context, in *Named) (*pipeline.Description, error) { return s.Describe(ctx, in.Name) })
	register(h, operation{id: "get-flow", method: http.MethodGet, path: onePath + "/flow", tag: tagPipelines, summary: "Tells what flows through a pipeline", more: "Counts are since its last start or restart. It has no numbers while nothing runs."},
		func(ctx context.Context, in *Named) (*pipeline.Flow, error) { return s.Flow(ctx, in.Name) })
	register(h, operation{id: "list-failures", method: http.MethodGet, path: onePath + "/failures", tag: tagPipelines, summary: "Lists the newest records that failed", more: "Newest first, across restarts. It tells where they are, not what they hold."},
		func(ctx context.Context, in *Named) ([]pipeline.Failure, error) {
			return filledOr(s.Failures(ctx, in.Name))
		})
	register(h, operation{
		id: "put-pipeline", method: http.MethodPut, path: onePath, tag: tagPipelines, summary: "Creates a pipeline, or changes it", maxBody: mostDefinition,
		more: "Writes the pipeline's file into the folder and takes it over: a running pipeline takes a last checkpoint and goes on as the new definition says. One with faults is refused, and changes nothing.",
	}, func(ctx context.Context, in *struct {
		Named
		Body DefinitionRequest
	},
	) (*api.Pipeline, error) {
		return s.Put(ctx, CallerOf(ctx).Name, in.Name, in.Body.Definition)
	})
	registerSilent(h, operation{id: "delete-pipeline", method: http.MethodDelete, path: onePath, tag: tagPipelines, summary: "Stops a pipeline and removes its file", more: "Its job ends with a checkpoint, which stays where it is."},
		func(ctx context.Context, in *Named) error { return s.Delete(ctx, CallerOf(ctx).Name, in.Name) })
}
