package web

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// fixed is what a process does not do that runs what it was started with.
type fixed struct{}

var errFixed = fmt.Errorf("this process runs what etl run was started with, and does no more than that: use etl serve for it: %w", api.ErrConflict)

func (fixed) Definition(context.Context, string) (*api.Definition, error) { return nil, errFixed }

func (fixed) Put(context.Context, string, string, string) (*api.Pipeline, error) {
	return nil, errFixed
}

func (fixed) Delete(context.Context, string, string) error { return errFixed }

func (fixed) Start(context.Context, string, string, api.StartOptions) ([]api.Moved, error) {
	return nil, errFixed
}

func (fixed) Pause(context.Context, string, string) (*pipeline.Taken, error) { return nil, errFixed }

func (fixed) Resume(context.Context, string, string) error { return errFixed }

func (fixed) Restart(context.Context, string, string) error { return errFixed }

func (fixed) Skip(context.Context, string, string, string, int32, int64) ([]api.Moved, error) {
	return nil, errFixed
}

func (fixed) Savepoints(context.Context, string) ([]api.Savepoint, error) { return nil, errFixed }

func (fixed) Reload(context.Context, string) (*api.Reload, error) { return nil, errFixed }

func (fixed) Validate(context.Context, string) (*api.Validation, error) { return nil, errFixed }

func (fixed) Plan(context.Context, string) (*api.Plan, error) { return nil, errFixed }

// Events are none: they go to the log only.
func (fixed) Events(context.Context, string, uint64, int) ([]api.Event, <-chan struct{}) {
	return nil, nil
}

// Logs are none: they go to the terminal only.
func (fixed) Logs(context.Context, api.LogQuery) ([]api.Line, <-chan struct{}) { return nil, nil }
