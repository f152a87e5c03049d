package web

import (
	"context"
	"net/http"

	"github.com/sluice-etl/sluice/pipeline"
)

type tapInput struct {
	Named
	Operator  string `query:"operator" required:"true" minLength:"1" maxLength:"100" doc:"Name of the source, step or sink." example:"per-customer"`
	Limit     int    `query:"limit" minimum:"0" maximum:"100000" default:"0" doc:"End after so many records; 0 for no end."`
	PerSecond int    `query:"per_second" minimum:"1" maximum:"1000" default:"10" doc:"Most records shown in a second; the others are left out."`
	Input     bool   `query:"input" doc:"Show what comes in, not what goes out; of a sink it always does."`
}

// tap adds the operation that shows records.
func (h *Handler) tap() {
	registerStream(h, operation{
		id: "tap", method: http.MethodGet, path: onePath + "/tap", tag: tagLive, summary: "Shows records at a source, step or sink",
		more:  "Events: `record` (Tapped), and `end` once no more come. It is a sample that never holds up the stream: what is left out is counted. Records are data, so that looking at the pipeline alone is not enough for it.",
		fails: []int{http.StatusConflict},
	}, nil, func(ctx context.Context, in *tapInput) (answers, error) {
		// It begins here, where faults can still be told, and ends with the request.
		records, err := h.service.Tap(ctx, in.Name, in.Operator, pipeline.TapOptions{Limit: in.Limit, PerSecond: in.PerSecond, Input: in.Input})
		if err != nil {
			return nil, err
		}
		return func(h *Handler, w http.ResponseWriter, r *http.Request) {
			h.streamTo(w, r, func(ctx context.Context, s *stream) error { return s.showRecords(ctx, records) })
		}, nil
	})
}

// showRecords sends what is tapped until there is no more.
func (s *stream) showRecords(ctx context.Context, records <-chan pipeline.Tapped) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.heartbeat.C:
			if err := s.beat(); err != nil {
				return err
			}
		case t, more := <-records:
			if !more {
				return s.send(EventEnd, 0, struct{}{})
			}
			if err := s.send(EventRecord, 0, t); err != nil {
				return err
			}
		}
	}
}
