// Package accumulate holds the aggregate functions: what each keeps for a group of
// records, how a record is added or taken back, and what comes out.
package accumulate

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Function is an aggregate function with its arguments' types and options bound.
// It is immutable and shared by subtasks. What it keeps for a group is a state: bytes
// that a state.Table holds. The zeroed state, or the empty one, is that of no
// records. The form of a state is part of checkpoints and never changes.
type Function interface {
	// Size is the length of the state where that is always the same, otherwise -1.
	Size() int
	// Add adds a record to the state and returns the new one. A state of fixed size
	// is changed in place; another may be returned in the memory of state, which the
	// caller then owns, or of scratch.
	Add(state []byte, in *Input) ([]byte, error)
	// Retract takes a record back that was added. Only where Retracts.
	Retract(state []byte, in *Input) ([]byte, error)
	// Retracts reports whether records can be taken back.
	Retracts() bool
	// Merge adds all that is in other to state, as if it had been added there. The
	// order of merges does not show.
	Merge(state, other []byte) ([]byte, error)
	// Result is the value of the state. What it borrows is state and arena.
	Result(state []byte, arena *connectors.Arena) (connectors.Value, error)
	// Type is what is known of results.
	Type() expr.Type
}

// Input is one record, as a function sees it.
type Input struct {
	Args   []connectors.Value
	Record *connectors.Record
}
