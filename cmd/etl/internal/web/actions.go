package web

import (
	"context"
	"net/http"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

const tagActions = "Actions"

// StartRequest is the body of a POST to …/start: what it goes on from.
type StartRequest struct {
	From                  string           `json:"from,omitempty" maxLength:"4096" pattern:"^(none$|/|[A-Za-z][A-Za-z0-9+.-]*://)" patternDescription:"an absolute path or an address of storage, not a relative path, or none" doc:"Checkpoint or savepoint to restore, as an address of storage or an absolute path, or none for a fresh start; the newest checkpoint of the last job where it is left out." example:"s3://backups/orders/savepoint-860"`
	Claim                 bool             `json:"claim,omitempty" doc:"Make what from names the new job's own, which removes it when it is not needed any more."`
	AcceptDuplicates      bool             `json:"accept_duplicates,omitempty" doc:"Go on from a checkpoint older than what a sink has published."`
	AllowNonRestoredState bool             `json:"allow_non_restored_state,omitempty" doc:"Drop state that the definition has nothing for."`
	AllowDrained          bool             `json:"allow_drained,omitempty" doc:"Go on from a checkpoint taken at the end of the input."`
	SetOffsets            map[string]int64 `json:"set_offsets,omitempty" maxProperties:"1000" doc:"Moves positions on purpose, state kept: topic/partition to the offset of the next record to read; -2 is the first that is there, -1 behind the last one. Needs the role admin."`
}

// TransformSchema says what the library cannot read from the type.
func (StartRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	least := float64(pipeline.Earliest)
	offsets := s.Properties["set_offsets"]
	offsets.AdditionalProperties = &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least}
	offsets.Extensions = map[string]any{"propertyNames": &huma.Schema{Type: huma.TypeString, Pattern: splitPattern}}
	return s
}

// StopRequest is the body of a POST to …/stop.
type StopRequest struct {
	Savepoint bool   `json:"savepoint,omitempty" doc:"End with a savepoint, not a checkpoint."`
	Dir       string `json:"dir,omitempty" maxLength:"4096" pattern:"^(/|[A-Za-z][A-Za-z0-9+.-]*://)" patternDescription:"an absolute path or an address of storage, not a relative path" doc:"Folder below which the savepoint goes, as an address of storage or an absolute path; that of the pipeline's file where it is left out." example:"s3://backups/orders"`
	Drain     bool   `json:"drain,omitempty" doc:"Drive event time to its end before, so that every window and timer gives out what it has."`
}

// SkipRequest is the body of a POST to …/skip: the record that is left out.
type SkipRequest struct {
	Topic     string `json:"topic" minLength:"1" maxLength:"249" doc:"Topic of the record." example:"orders"`
	Partition int32  `json:"partition" minimum:"0" doc:"Partition of the record." example:"3"`
	Offset    int64  `json:"offset" minimum:"0" doc:"Offset of the record." example:"118204"`
}

// actions adds what steers pipelines.
func (h *Handler) actions() {
	s := h.service
	post := func(what, summary, more string) operation {
		return operation{id: what + "-pipeline", method: http.MethodPost, path: onePath + "/" + what, tag: tagActions, summary: summary, more: more}
	}
	register(h, post("pause", "Pauses a pipeline", "Takes a last checkpoint and ends the tasks. Resuming goes on with the same job."),
		func(ctx context.Context, in *acts) (*pipeline.Taken, error) {
			return s.Pause(ctx, CallerOf(ctx).Name, in.Name)
		})
	registerSilent(h, post("resume", "Resumes a paused pipeline", ""),
		func(ctx context.Context, in *acts) error { return s.Resume(ctx, CallerOf(ctx).Name, in.Name) })
	registerSilent(h, post("restart", "Pauses a pipeline and resumes it", ""),
		func(ctx context.Context, in *acts) error { return s.Restart(ctx, CallerOf(ctx).Name, in.Name) })
	register(h, post("cancel", "Ends the job at once, without a checkpoint", "What came since its last checkpoint is not published. The next start has to be told from where to go on."),
		func(ctx context.Context, in *acts) (*pipeline.Taken, error) {
			return s.Cancel(ctx, CallerOf(ctx).Name, in.Name)
		})
	register(h, post("start", "Starts a pipeline whose job has ended, or that failed", "Answers with the positions that were moved, if any."), h.start)
	register(h, post("stop", "Ends the job with a checkpoint or savepoint", "The next start goes on from it as a new job. Where that does not work within checkpoint.timeout the pipeline runs on."), h.stop)
	register(h, post("skip", "Starts a failed pipeline behind one record", "The record is left out for good. Answers with the position before and after."),
		func(ctx context.Context, in *struct {
			Named
			Body SkipRequest
		},
		) ([]api.Moved, error) {
			moved, err := s.Skip(ctx, CallerOf(ctx).Name, in.Name, in.Body.Topic, in.Body.Partition, in.Body.Offset)
			return moves(ctx, moved, err)
		})
}

const splitPattern = "^[^/]+/[0-9]{1,10}$"

var isSplit = regexp.MustCompile(splitPattern)

type startInput struct {
	Named
	Body *StartRequest
}

func (h *Handler) start(ctx context.Context, in *startInput) ([]api.Moved, error) {
	var o api.StartOptions
	if in.Body != nil {
		o = api.StartOptions(*in.Body)
	}
	if o.From != "none" {
		var err error
		if o.From, err = mayUse(ctx, "from", o.From); err != nil {
			return nil, err
		}
	}
	caller := CallerOf(ctx)
	if len(o.SetOffsets) > 0 && !caller.Role.Includes(Admin) {
		return nil, problem(http.StatusForbidden, CodeForbidden, "set_offsets needs the role admin, and "+caller.Name+" has the role "+string(caller.Role))
	}
	for split := range o.SetOffsets {
		if !isSplit.MatchString(split) {
			return nil, invalid("set_offsets has %q: write a topic/partition, such as orders/3", split)
		}
	}
	moved, err := h.service.Start(ctx, caller.Name, in.Name, o)
	return moves(ctx, moved, err)
}

type stopInput struct {
	Named
	Body *StopRequest
}

func (h *Handler) stop(ctx context.Context, in *stopInput) (*pipeline.Taken, error) {
	var o pipeline.StopOptions
	if in.Body != nil {
		o = pipeline.StopOptions{Savepoint: in.Body.Savepoint, Dir: in.Body.Dir, Drain: in.Body.Drain}
	}
	var err error
	if o.Dir, err = mayUse(ctx, "dir", o.Dir); err != nil {
		return nil, err
	}
	return h.service.Stop(ctx, CallerOf(ctx).Name, in.Name, o)
}
