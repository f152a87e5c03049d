package transform

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
)

// Step is one step for one place of the graph, shared by all subtasks: compiled
// and immutable. Start makes the working instance of one subtask.
type Step interface {
	Start(subtask int, env RunEnv) Instance
}

// Instance is a step at work in one subtask, used by one goroutine.
type Instance interface {
	// Process handles the rows sel of b and gives what comes out to the env's Emit,
	// any number of times, before it returns. sel is borrowed.
	Process(ctx context.Context, b *connectors.Batch, sel []uint16) error
}

// RunEnv is what a working step is given.
type RunEnv struct {
	// Emit passes rows on through one output: 0 the only one, or the index of a branch.
	Emit func(ctx context.Context, output int, b *connectors.Batch, sel []uint16) error
	// Fail hands a row over to on_error. A non-nil answer stops the pipeline.
	Fail func(ctx context.Context, b *connectors.Batch, row uint16, e *connectors.RecordError) error
}

// Env is what a step is built with.
type Env struct {
	// Name is the step's name.
	Name string
	// Fault reports one fault of the configuration: at the keys below the step's
	// block, such as ["price_eur"], nil for the block itself.
	Fault func(keys []string, err error)
}
