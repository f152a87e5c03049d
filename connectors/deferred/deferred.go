// Package deferred is the half of a sink that keeps rows with the checkpoint and
// applies them when it is complete, for targets that have a transaction of their own
// but cannot hold one open over a checkpoint: databases of tables.
//
// At the barrier of N the rows taken since the last one are written to files of the
// checkpoint, by each subtask, and the subtask that comes last returns one committable
// for all of them. Commit(N) has the Target apply them in one atomic step together with
// the witness (generation, N), so that a repeated commit applies nothing twice. Rows of
// a checkpoint that failed are written again for the next one, under their own number.
package deferred

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
)

// Target is where rows go when their checkpoint is complete.
type Target interface {
	// Guarantee is what the target, configured as it is, gives.
	Guarantee() connectors.Guarantee
	// Open connects and checks the target. It publishes nothing, and writes nothing where
	// env is ReadOnly.
	Open(ctx context.Context, env connectors.SinkEnv) error
	// Start is called once every committable of the restored checkpoint is resolved.
	Start(ctx context.Context) error
	// NewRowEncoder makes the encoder of one subtask.
	NewRowEncoder() (RowEncoder, error)
	// Apply applies the rows of checkpoint id, all of them or none, and the witness with
	// them. Where the target's witness says that id is applied it does nothing; where it is
	// of a later generation it returns ErrFenced. Rows that the target refuses are kept
	// where Rejected finds them, in the same step.
	Apply(ctx context.Context, id connectors.CheckpointID, rows *Rows) error
	// Witness and Revoke are those of connectors.Committer.
	Witness(ctx context.Context) (w connectors.CheckpointID, ok bool, err error)
	Revoke(ctx context.Context) error
	// Rejected gives rows that commits have refused, each once; called at ticks.
	Rejected(ctx context.Context) ([]connectors.Rejected, error)
	Close() error
}

// RowEncoder turns rows into the form that they are kept in until they are applied. It
// finds out whatever can be known of a row before: types, lengths, missing values.
type RowEncoder interface {
	// Encode appends the kept form of each row to dst and calls end behind each, or refuse
	// for one that the target cannot take.
	Encode(dst []byte, rows *connectors.Rows, end func(dst []byte, i int), refuse func(i int, kind, reason string)) ([]byte, error)
}

// Rows reads kept rows, in the order in which they were taken by each subtask.
type Rows struct{}
