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
	// Apply applies the rows of a checkpoint, all of them or none, and the witness with
	// them. Where the target's witness says that it is applied, nothing happens; where it
	// is of a later generation than the process, ErrFenced says so. Rows that the target
	// refuses are kept where Rejected finds them, in the same step; refused is how many.
	// It is never called twice at a time.
	Apply(ctx context.Context, c Commit) (refused int, err error)
	// Witness and Revoke are those of connectors.Committer. A target without a witness
	// answers ErrNoWitness, and must bear that a commit is repeated.
	Witness(ctx context.Context) (w connectors.CheckpointID, ok bool, err error)
	Revoke(ctx context.Context) error
	// Rejected gives the oldest rows that commits have refused, up to limit of them: those
	// whose mark is above after and that no commit has settled. Marks grow with the
	// commits; last is that of the last row given. Where on_error is fail, giving rows out
	// settles them, as the run ends with them. Targets that never refuse rows at a commit
	// give none.
	Rejected(ctx context.Context, after int64, limit int) (rows []connectors.Rejected, last int64, err error)
	Close() error
}

// Commit is a checkpoint that is complete, to be applied.
type Commit struct {
	ID connectors.CheckpointID
	// Restored says that another process prepared it: this one has not started yet.
	Restored bool
	Rows     *Rows
	// Settled says that the refused rows with marks up to this one are handed over with
	// the checkpoint, once it is applied; 0 for none.
	Settled int64
}

// RowEncoder turns rows into the form that they are kept in until they are applied. It
// finds out whatever can be known of a row before: types, lengths, missing values.
type RowEncoder interface {
	// Begin reads the rows that Append is asked for next, at most connectors.MaxBatch.
	Begin(rows *connectors.Rows) error
	// Append appends the kept form of row i. A row of which nothing is appended is left
	// out; *Refused says that the target cannot take it. Any other error ends the run.
	Append(dst []byte, i int) ([]byte, error)
}

// Refused says that the target cannot take a row.
type Refused struct {
	Kind   string // short constant name for counters, such as "type"
	Reason string // in words, without the row's data
}

func (e *Refused) Error() string { return e.Reason }
