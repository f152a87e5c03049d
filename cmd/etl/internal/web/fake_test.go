package web

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// fake is a service of the pipeline orders, and of ones that answer with the error that
// their name says.
type fake struct {
	mu      sync.Mutex
	calls   []string // what was asked for, with who and what
	events  []api.Event
	lines   []api.Line
	changed chan struct{}
	taps    int // open
}

var _ api.Service = (*fake)(nil)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const failing = "the bucket does not answer"

// faults are the errors of pipelines by their names.
var faults = map[string]error{
	"conflict":  fmt.Errorf("pipeline conflict is stopped: %w", api.ErrConflict),
	"phase":     &pipeline.PhaseError{Phase: pipeline.Starting, Text: "pipeline phase is starting; try again when it runs"},
	"invalid":   fmt.Errorf("no such operator: %w", api.ErrInvalid),
	"fenced":    fmt.Errorf("generation 4: %w", connectors.ErrFenced),
	"permanent": connectors.Permanent(errors.New("the bucket is gone: make it again")),
	"failing":   errors.New(failing),
	"nodir":     pipeline.ErrNoSavepointDir,
}

// asked notes a call, and fails where the pipeline does.
func (f *fake) asked(name, format string, args ...any) error {
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	f.mu.Unlock()
	if err := faults[name]; err != nil {
		return err
	}
	if name != "orders" {
		return fmt.Errorf("pipeline %q: %w", name, api.ErrUnknown)
	}
	return nil
}

// called is what was asked for since the last time.
func (f *fake) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.calls, "; ")
	f.calls = nil
	return out
}

// happens adds an event and a line of the log.
func (f *fake) happens(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := uint64(len(f.events) + 1)
	f.events = append(f.events, api.Event{Number: n, Time: noon, Pipeline: "orders", Kind: "action", Level: "info", Text: text, Actor: "ann"})
	f.lines = append(f.lines, api.Line{Number: n, Time: noon, Level: "info", Pipeline: "orders", Text: text, Attrs: map[string]any{"n": 1}})
	if f.changed != nil {
		close(f.changed)
	}
	f.changed = make(chan struct{})
}

func (f *fake) Daemon(context.Context) api.Daemon {
	return api.Daemon{Version: "1", PID: 1, Started: noon, Listens: []string{"127.0.0.1:8080"}, Ready: true, LastReload: &api.Reload{Time: noon, OK: true, Pipelines: map[string]string{"orders": "unchanged"}}}
}

func (f *fake) Ready(context.Context) (ok bool, pipelines map[string]api.Health) {
	return true, map[string]api.Health{"orders": {OK: true, Problems: []api.Problem{}}}
}

func (f *fake) pipeline() api.Pipeline {
	return api.Pipeline{
		Name: "orders", File: "/etc/etl/pipelines/orders.yaml", State: api.Running, Since: noon,
		Status: &pipeline.Status{Pipeline: "orders", Phase: pipeline.Running, Since: noon, Restored: &pipeline.Restored{Path: "file:///ck/chk-3", Number: 3, Time: noon, Took: time.Second}},
		Health: api.Health{OK: true, Problems: []api.Problem{{Kind: "lag", Level: "warning", Text: "behind", Since: noon}}},
		Counts: api.Counts{Read: 7}, Checkpoint: &api.Checkpoint{Number: 4, Path: "file:///ck/chk-4", Time: noon, Duration: 0.2}, Guarantee: string(connectors.ExactlyOnce),
	}
}

func (f *fake) Pipelines(context.Context) []api.Pipeline { return []api.Pipeline{f.pipeline()} }

func (f *fake) Pipeline(_ context.Context, name string) (*api.Pipeline, error) {
	p := f.pipeline()
	return &p, f.asked(name, "pipeline %s", name)
}

func (f *fake) Definition(_ context.Context, name string) (*api.Definition, error) {
	return &api.Definition{File: "orders.yaml", Written: "pipeline: orders\n", Effective: "pipeline: orders\n"}, f.asked(name, "definition %s", name)
}

func (f *fake) Put(_ context.Context, actor, name, definition string) (*api.Pipeline, error) {
	p := f.pipeline()
	return &p, f.asked(name, "%s puts %s of %d bytes", actor, name, len(definition))
}

func (f *fake) Delete(_ context.Context, actor, name string) error {
	return f.asked(name, "%s deletes %s", actor, name)
}

func (f *fake) Describe(_ context.Context, name string) (*pipeline.Description, error) {
	return &pipeline.Description{Pipeline: "orders", Operators: []pipeline.OperatorDescription{{
		Name: "per-customer", Role: "step", Kind: "aggregate", Chain: "per-customer", Inputs: []pipeline.InputDescription{{From: "source", Exchange: pipeline.ByKey, Key: []string{"customer"}}},
		State: &pipeline.StateDescription{Key: []string{"customer"}, Backend: "disk"}, Outputs: []pipeline.StreamDescription{{Fields: []pipeline.FieldDescription{{Name: "n", Type: "int"}}}},
	}}}, f.asked(name, "graph %s", name)
}

func (f *fake) Flow(_ context.Context, name string) (*pipeline.Flow, error) {
	mark := noon.UnixMilli()
	return &pipeline.Flow{
		Time: noon, Operators: []pipeline.OperatorFlow{{Name: "source", Out: 7, Watermark: &mark, Errors: map[string]int64{"decode": 1}}}, Tasks: []pipeline.TaskFlow{{Chain: "source", Busy: 1}},
		Splits: []pipeline.SplitFlow{{Source: "source", Split: "orders/0", Position: 7, RetentionSeconds: -1}}, Sinks: []pipeline.SinkFlow{{Sink: "out", Guarantee: connectors.ExactlyOnce, OldestPending: &noon}},
	}, f.asked(name, "flow %s", name)
}

func (f *fake) Tap(ctx context.Context, name, operator string, o pipeline.TapOptions) (<-chan pipeline.Tapped, error) {
	if err := f.asked(name, "tap %s %s %+v", name, operator, o); err != nil {
		return nil, err
	}
	out := make(chan pipeline.Tapped)
	f.mu.Lock()
	f.taps++
	f.mu.Unlock()
	go func() {
		defer func() {
			f.mu.Lock()
			f.taps--
			f.mu.Unlock()
			close(out)
		}()
		for n := range max(o.Limit, 1_000_000) {
			if o.Limit > 0 && n == o.Limit {
				return
			}
			select {
			case out <- pipeline.Tapped{Time: noon, Operator: operator, Partition: 0, Offset: int64(n), Value: `{"n": 1}`}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (f *fake) Failures(_ context.Context, name string) ([]pipeline.Failure, error) {
	return []pipeline.Failure{{Time: noon, Operator: "source", Kind: "decode", Reason: "no JSON", Topic: "orders", Offset: 6, Outcome: "skip"}}, f.asked(name, "failures %s", name)
}

var moved = []api.Moved{{Split: "orders/0", Before: 6, After: 7}}

func (f *fake) Start(_ context.Context, actor, name string, o api.StartOptions) ([]api.Moved, error) {
	return moved, f.asked(name, "%s starts %s %+v", actor, name, o)
}

func (f *fake) taken(name, format string, args ...any) (*pipeline.Taken, error) {
	if err := f.asked(name, format, args...); err != nil {
		return nil, err
	}
	return &pipeline.Taken{Pipeline: name, Job: "4f1c", Number: 5, Path: "file:///ck/chk-5"}, nil
}

func (f *fake) Pause(_ context.Context, actor, name string) (*pipeline.Taken, error) {
	return f.taken(name, "%s pauses %s", actor, name)
}

func (f *fake) Resume(_ context.Context, actor, name string) error {
	return f.asked(name, "%s resumes %s", actor, name)
}

func (f *fake) Restart(_ context.Context, actor, name string) error {
	return f.asked(name, "%s restarts %s", actor, name)
}

func (f *fake) Stop(_ context.Context, actor, name string, o pipeline.StopOptions) (*pipeline.Taken, error) {
	return f.taken(name, "%s stops %s %+v", actor, name, o)
}

func (f *fake) Cancel(_ context.Context, actor, name string) (*pipeline.Taken, error) {
	return f.taken(name, "%s cancels %s", actor, name)
}

func (f *fake) Skip(_ context.Context, actor, name, topic string, partition int32, offset int64) ([]api.Moved, error) {
	return moved, f.asked(name, "%s skips %s/%d@%d of %s", actor, topic, partition, offset, name)
}

func (f *fake) Checkpoints(_ context.Context, name string) (*api.Checkpoints, error) {
	one := checkpoint.AttemptStats{ID: checkpoint.ID{Number: 4}, Kind: checkpoint.Periodic, Status: checkpoint.Completed, Triggered: noon, Tasks: []checkpoint.TaskStats{{Task: checkpoint.TaskID{Chain: "source"}, Acked: true}}}
	earlier := one
	earlier.ID.Number = 3
	return &api.Checkpoints{
		Stats: checkpoint.Stats{Completed: 1, Last: &one, History: []checkpoint.AttemptStats{one}}, Earlier: []checkpoint.AttemptStats{earlier},
		Duration: map[string]float64{"p50": 0.2}, Size: map[string]float64{"p50": 1024}, Mode: "exactly_once",
	}, f.asked(name, "checkpoints %s", name)
}

func (f *fake) Checkpoint(_ context.Context, actor, name string) (*pipeline.Taken, error) {
	return f.taken(name, "%s takes a checkpoint of %s", actor, name)
}

func (f *fake) Savepoints(_ context.Context, name string) ([]api.Savepoint, error) {
	return nil, f.asked(name, "savepoints %s", name)
}

func (f *fake) Savepoint(_ context.Context, actor, name, dir string) (*pipeline.Taken, error) {
	return f.taken(name, "%s takes a savepoint of %s into %q", actor, name, dir)
}

func (f *fake) Reload(_ context.Context, actor string) (*api.Reload, error) {
	return &api.Reload{Time: noon, OK: true, Pipelines: map[string]string{"orders": "switched"}}, f.asked("orders", "%s reloads", actor)
}

func (f *fake) Validate(_ context.Context, definition string) (*api.Validation, error) {
	return &api.Validation{Faults: []api.Fault{{Level: "error", Line: 1, Column: 1, Code: "E0101", Text: "there is no source"}}}, f.asked("orders", "validate %d bytes", len(definition))
}

func (f *fake) Plan(_ context.Context, definition string) (*api.Plan, error) {
	return &api.Plan{Description: pipeline.Description{Operators: []pipeline.OperatorDescription{}}, Text: "…", Change: "reload"}, f.asked("orders", "plan %d bytes", len(definition))
}

func (f *fake) Events(_ context.Context, _ string, after uint64, limit int) ([]api.Event, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return newest(f.events, after, limit), f.changed
}

func (f *fake) Logs(_ context.Context, q api.LogQuery) ([]api.Line, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return newest(f.lines, q.After, q.Limit), f.changed
}

// newest are the last of a list whose numbers count from 1.
func newest[T any](list []T, after uint64, limit int) []T {
	list = list[min(int(after&0x7fffffff), len(list)):]
	return list[max(0, len(list)-limit):]
}
