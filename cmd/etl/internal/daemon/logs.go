package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

const (
	keptLines    = 5000
	defaultLines = 500 // of one answer
)

// pipelineKey is the attribute by which lines of the log are told apart.
const pipelineKey = "pipeline"

// memoryHandler hands lines of the log on and keeps the newest in memory.
type memoryHandler struct {
	lines  *ring[api.Line]
	next   slog.Handler
	attrs  []slog.Attr // with the prefix of their groups
	prefix string
}

// Enabled implements slog.Handler. What is kept is not less than level info.
func (h *memoryHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *memoryHandler) Handle(ctx context.Context, r slog.Record) error {
	line := api.Line{Time: r.Time, Level: levelName(r.Level), Text: r.Message}
	keep := func(a slog.Attr) {
		if a.Key == pipelineKey {
			line.Pipeline = a.Value.String()
			return
		}
		if line.Attrs == nil {
			line.Attrs = map[string]any{}
		}
		line.Attrs[a.Key] = plainValue(a.Value)
	}
	for _, a := range h.attrs {
		keep(a)
	}
	r.Attrs(func(a slog.Attr) bool {
		a.Key = h.prefix + a.Key
		keep(a)
		return true
	})
	h.lines.add(func(number uint64) api.Line {
		line.Number = number
		return line
	})
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *memoryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.next, more.attrs = h.next.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		more.attrs = append(more.attrs, a)
	}
	return &more
}

// WithGroup implements slog.Handler.
func (h *memoryHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	more := *h
	more.next, more.prefix = h.next.WithGroup(name), h.prefix+name+"."
	return &more
}

// plainValue is an attribute's value as JSON shows it well.
func plainValue(v slog.Value) any {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindBool:
		return v.Bool()
	case slog.KindInt64:
		return v.Int64()
	case slog.KindUint64:
		return v.Uint64()
	case slog.KindFloat64:
		return fmt.Sprint(v.Float64()) // JSON has no infinity
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	default:
		return v.String()
	}
}

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return levelError
	case l >= slog.LevelWarn:
		return levelWarning
	case l >= slog.LevelInfo:
		return levelInfo
	}
	return "debug"
}

// levelRanks orders the names of levels; warn is what settings say.
var levelRanks = map[string]int{"": 0, "debug": 0, levelInfo: 1, levelWarning: 2, "warn": 2, levelError: 3}

// Logs implements api.Service.
func (d *Daemon) Logs(_ context.Context, q api.LogQuery) ([]api.Line, <-chan struct{}) {
	if q.Limit <= 0 || q.Limit > keptLines {
		q.Limit = defaultLines
	}
	least := levelRanks[q.Level]
	return d.lines.since(q.After, q.Limit, func(l *api.Line) bool {
		return (q.Pipeline == "" || l.Pipeline == q.Pipeline) && levelRanks[l.Level] >= least
	})
}
