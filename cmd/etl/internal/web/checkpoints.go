package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

const tagCheckpoints = "Checkpoints"

// SavepointRequest is the body of a POST to …/savepoints.
type SavepointRequest struct {
	// Dir is the folder below which it goes, as an address of storage or an absolute
	// path; empty for that of the pipeline's file.
	Dir string `json:"dir,omitempty" maxLength:"4096" pattern:"^(/|[A-Za-z][A-Za-z0-9+.-]*://)" patternDescription:"an absolute path or an address of storage, not a relative path" doc:"Folder below which it goes, as an address of storage or an absolute path; that of the pipeline's file where it is left out." example:"s3://backups/orders"`
}

// checkpoints adds what is about checkpoints and savepoints.
func (h *Handler) checkpoints() {
	s := h.service
	register(h, operation{id: "list-checkpoints", method: http.MethodGet, path: onePath + "/checkpoints", tag: tagCheckpoints, summary: "Shows the history and statistics of a pipeline's checkpoints"},
		func(ctx context.Context, in *Named) (*api.Checkpoints, error) { return s.Checkpoints(ctx, in.Name) })
	register(h, operation{id: "get-checkpoint", method: http.MethodGet, path: onePath + "/checkpoints/{number}", tag: tagCheckpoints, summary: "Shows one checkpoint of the history, task by task"},
		func(ctx context.Context, in *struct {
			Named
			Number uint64 `path:"number" minimum:"1" doc:"Number of the checkpoint." example:"860"`
		},
		) (*checkpoint.AttemptStats, error) {
			all, err := s.Checkpoints(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			return numbered(all, in.Name, in.Number)
		})
	register(h, operation{
		id: "take-checkpoint", method: http.MethodPost, path: onePath + "/checkpoints", tag: tagCheckpoints, summary: "Takes a checkpoint now",
		more: "Answers once it is published.",
	}, func(ctx context.Context, in *acts) (*pipeline.Taken, error) {
		return s.Checkpoint(ctx, CallerOf(ctx).Name, in.Name)
	})
	register(h, operation{id: "list-savepoints", method: http.MethodGet, path: onePath + "/savepoints", tag: tagCheckpoints, summary: "Lists the savepoints in the pipeline's folder for them"},
		func(ctx context.Context, in *Named) ([]api.Savepoint, error) {
			return filledOr(s.Savepoints(ctx, in.Name))
		})
	register(h, operation{
		id: "take-savepoint", method: http.MethodPost, path: onePath + "/savepoints", tag: tagCheckpoints, summary: "Takes a savepoint",
		more: "Answers once it is whole; it is given up when the connection ends before. The pipeline runs on.",
	}, func(ctx context.Context, in *struct {
		Named
		Body *SavepointRequest
	},
	) (*pipeline.Taken, error) {
		dir := ""
		if in.Body != nil {
			dir = in.Body.Dir
		}
		dir, err := mayUse(ctx, "dir", dir)
		if err != nil {
			return nil, err
		}
		return s.Savepoint(ctx, CallerOf(ctx).Name, in.Name, dir)
	})
}

// numbered finds a checkpoint in the history.
func numbered(all *api.Checkpoints, name string, number uint64) (*checkpoint.AttemptStats, error) {
	for _, list := range [][]checkpoint.AttemptStats{all.History, all.Earlier} {
		for i := range list {
			if list[i].ID.Number == number {
				return &list[i], nil
			}
		}
	}
	return nil, problem(http.StatusNotFound, CodeUnknown, fmt.Sprintf("pipeline %s has no checkpoint %d in its history", name, number))
}

// mayUse is the address to use where who asks names a folder. It refuses memory of the
// process, which ends with it, and what is outside of what who asks is confined to.
func mayUse(ctx context.Context, key, address string) (string, error) {
	if strings.HasPrefix(address, "mem://") {
		return "", invalid("%s %q is memory of the process, which ends with it: write an address that outlives it, such as file:///var/lib/etl/savepoints", key, address)
	}
	return Confine(ctx, address)
}
