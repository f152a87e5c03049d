package checkpoint

import (
	"encoding/json"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// ID names a checkpoint: the generation of the process that took it, and its number.
type ID = connectors.CheckpointID

// FormatVersion is the version of _metadata that this program writes.
const FormatVersion = 1

// Kind tells why a checkpoint was taken.
type Kind string

// The kinds of checkpoint.
const (
	Periodic  Kind = "checkpoint" // triggered by the interval or by hand
	Initial   Kind = "initial"    // a new job's first one, before any record
	Final     Kind = "final"      // at the end of bounded input, or at a stop
	Savepoint Kind = "savepoint"
)

// Metadata is one checkpoint: what `_metadata` holds. It is a JSON document that
// refers to files by paths relative to itself.
type Metadata struct {
	Format     int       `json:"format"`
	Pipeline   string    `json:"pipeline"`
	Job        string    `json:"job"`
	Generation uint64    `json:"generation"`
	Number     uint64    `json:"number"`
	Kind       Kind      `json:"kind"`
	Mode       string    `json:"mode"`
	Triggered  time.Time `json:"triggered"`
	Completed  time.Time `json:"completed"`
	// Drained says that event time was driven to its end before the barrier.
	Drained bool `json:"drained,omitempty"`
	// Definition is the digest of the pipeline's definition, sha256:hex.
	Definition     string `json:"definition"`
	MaxParallelism int    `json:"max_parallelism"`
	// Restored is what this job's process had restored when it took the checkpoint.
	Restored  *ID        `json:"restored,omitempty"`
	Operators []Operator `json:"operators"`
	// Committables are in the order in which they must be published.
	Committables []connectors.Committable `json:"committables"`
}

// ID names the checkpoint.
func (m *Metadata) ID() ID { return ID{Generation: m.Generation, Number: m.Number} }

// Operator is the state of one operator: a source, a stateful step or a sink.
type Operator struct {
	UID         string `json:"uid"`
	Kind        string `json:"kind"` // "source kafka", "sink file", "aggregate" …
	Parallelism int    `json:"parallelism"`
	// Splits are a source's positions, over all its subtasks.
	Splits []connectors.Split `json:"splits,omitempty"`
	// Subtasks hold what each subtask of a sink handed over.
	Subtasks []SubtaskState `json:"subtasks,omitempty"`
	// KeyGroups are the files of keyed state.
	KeyGroups []KeyGroups `json:"key_groups,omitempty"`
}

// SubtaskState is the state that one subtask handed over.
type SubtaskState struct {
	Subtask int                    `json:"subtask"`
	State   json.RawMessage        `json:"state,omitempty"`
	Files   []connectors.StateFile `json:"files,omitempty"`
}

// KeyGroups is one piece of a file that holds the state of a range of key groups.
type KeyGroups struct {
	First  int                  `json:"first"`
	Last   int                  `json:"last"`
	File   connectors.StateFile `json:"file"`
	Offset int64                `json:"offset"`
	Length int64                `json:"length"`
	// Format is empty for the form that every backend reads, otherwise the backend's own.
	Format string `json:"format,omitempty"`
	// Name is what the backend calls the file, where it has a form of its own.
	Name string `json:"name,omitempty"`
}

// TaskID names a task: one subtask of a chain of operators.
type TaskID struct {
	Chain   string
	Subtask int
}

// Ack is what one task hands over for a checkpoint, with all files written.
type Ack struct {
	Task         TaskID
	Checkpoint   ID // that the barrier named
	Operators    []OperatorState
	Committables []connectors.Committable
	// Timings of this task, for statistics.
	StartDelay, Alignment, Sync, Async time.Duration
	// Buffered is how many bytes of input were held back while barriers were aligned.
	Buffered int64
}

// OperatorState is one operator's share of an Ack.
type OperatorState struct {
	UID         string
	Kind        string
	Parallelism int
	Splits      []connectors.Split
	State       *SubtaskState
	KeyGroups   []KeyGroups
}
