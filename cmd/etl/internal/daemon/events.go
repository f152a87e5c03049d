package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// The levels of events and problems.
const (
	levelInfo    = "info"
	levelWarning = "warning"
	levelError   = "error"
)

const (
	keptEvents    = 1000
	defaultEvents = 200 // of one answer
)

// Tell notes an event, and writes it to the log.
func (d *Daemon) Tell(e api.Event) {
	d.events.add(func(number uint64) api.Event {
		e.Number, e.Time = number, time.Now()
		return e
	})
	attrs := []any{slog.String("event", e.Kind)}
	if e.Pipeline != "" {
		attrs = append(attrs, slog.String(pipelineKey, e.Pipeline))
	}
	if e.Actor != "" {
		attrs = append(attrs, slog.String("actor", e.Actor))
	}
	say := d.log.Info
	switch e.Level {
	case levelWarning:
		say = d.log.Warn
	case levelError:
		say = d.log.Error
	}
	say(e.Text, attrs...)
}

// Events implements api.Service.
func (d *Daemon) Events(_ context.Context, pipeline string, after uint64, limit int) ([]api.Event, <-chan struct{}) {
	if limit <= 0 || limit > keptEvents {
		limit = defaultEvents
	}
	return d.events.since(after, limit, func(e *api.Event) bool { return pipeline == "" || e.Pipeline == pipeline })
}
