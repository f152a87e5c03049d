package connectors

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"
)

// Guarantee is what a sink promises about each result.
type Guarantee string

// The guarantees, strongest first.
const (
	ExactlyOnce     Guarantee = "exactly_once"
	EffectivelyOnce Guarantee = "effectively_once" // repeats overwrite by key, or are dropped
	AtLeastOnce     Guarantee = "at_least_once"
)

// Expirer is the configuration of a sink whose committables can be committed for a
// limited time only, such as a transaction that its target aborts.
type Expirer interface {
	// Expiry is how long that is, 0 where the target decides, and the key that sets it;
	// no key where nothing expires.
	Expiry() (after time.Duration, key string)
}

// Sink writes records. One Sink serves one sink block of a running pipeline,
// with one Writer for each subtask. Constructing it does no I/O.
type Sink interface {
	// Guarantee is what this sink, configured as it is, promises.
	Guarantee() Guarantee
	// Open connects and checks the target, so that witnesses can be read. It
	// publishes nothing, aborts nothing and fences nobody: at that time another
	// process may still own the pipeline, and nothing is restored yet.
	Open(ctx context.Context, env SinkEnv) error
	// Start is called once after every committable of the restored checkpoint is
	// resolved and what came after it is revoked, before writers are made and any
	// record flows.
	Start(ctx context.Context, restored Restored) error
	// Writer makes the writer of one subtask, of env.Subtasks.
	Writer(subtask int) (Writer, error)
	// Close frees what the sink holds, after all writers are closed. It publishes
	// nothing and aborts nothing that a checkpoint may refer to.
	Close() error
}

// Writer is one subtask's way into a sink. It is used by one goroutine, but for
// the function that Barrier returns.
type Writer interface {
	// Write takes the rows; it may keep them in memory or send them, and copies
	// what it keeps. It blocks while the sink is over its memory budget. A
	// *RowsError says that the target refused single rows; the others are taken.
	Write(ctx context.Context, rows *Rows) error
	// Tick is called a few times a second between batches, so that files roll and
	// batches go out by age without traffic. A *RejectedError hands over rows that the
	// target refused when an earlier checkpoint was committed.
	Tick(ctx context.Context, now time.Time) error
	// Barrier ends what belongs to the checkpoint and returns at once; what is
	// written after it belongs to a later one. The returned Prepare runs beside the
	// stream. Prepares of one writer run in the order of their barriers, never two
	// at a time.
	Barrier(ctx context.Context, b Barrier) (Prepare, error)
	Close() error
}

// Barrier is what a writer is told at the barrier of a checkpoint.
type Barrier struct {
	ID CheckpointID
	// Roll asks for everything taken so far to become committable: a final
	// checkpoint or a savepoint leaves nothing that a later one would publish.
	Roll bool
	// Watermark is how far event time has come for this writer, in milliseconds since
	// 1970: no record before it is expected any more. It is the least int64 where nothing
	// is known, and the highest at the end of a bounded input.
	Watermark int64
}

// Prepare makes what a writer took before a barrier durable, and for a
// two-phase sink invisible. It is called once, from another goroutine. A sink
// that is not two-phase flushes and returns an empty Prepared.
//
// An error fails the checkpoint, of which some in a row are tolerated: the next
// Prepare hands over what this one could not. A writer that has lost something
// says so in its next Write, Tick or Barrier, and the pipeline restarts from the
// last complete checkpoint. ErrFenced and permanent errors end the run at once.
type Prepare func(ctx context.Context, files CheckpointFiles) (Prepared, error)

// Prepared is what a writer hands into a checkpoint.
type Prepared struct {
	// State is what the sink wants back at a restore, from this subtask: a JSON
	// document, or nil.
	State json.RawMessage
	// Files are what State refers to.
	Files []StateFile
	// Committables are published once the checkpoint is complete, in this order.
	// A shared sink returns them from the writer that came last.
	Committables []Committable
}

// CheckpointID names a checkpoint: the generation of the process that took it and its number.
type CheckpointID struct {
	Generation uint64 `json:"generation"`
	Number     uint64 `json:"number"`
}

// Committable is a handle of prepared data. It stands in the checkpoint's
// metadata, so everything that a later process needs to publish it is in Data.
type Committable struct {
	// Committer is the ID of the Committer that can publish it.
	Committer string `json:"committer"`
	// Checkpoint is the one that prepared it, which its witness will name. It can
	// be older than the checkpoint that lists it.
	Checkpoint CheckpointID `json:"checkpoint"`
	// Empty says that there is nothing to publish: it is done by definition.
	Empty bool `json:"empty,omitempty"`
	// Expires is when the target drops it by itself; zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Records is how many it publishes; 0 where nobody knows.
	Records int64 `json:"records,omitempty"`
	// Data is the sink's own JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Files are files of the checkpoint that Data refers to, for sinks whose rows are
	// kept with the checkpoint until they are applied: they are kept as long as a
	// checkpoint lists the committable. They are of this checkpoint or of a proven one,
	// since those of one that failed may be gone.
	Files []StateFile `json:"files,omitempty"`
}

// Restored is what a sink left in the restored checkpoint; empty for a new one.
type Restored struct {
	// Subtasks are what its writers returned from Prepare. The sink deals it out to
	// its writers; their number may be another now.
	Subtasks []Prepared
	// Files reads the files that they refer to. It stays usable until the sink is closed.
	Files CheckpointFiles
	// Own says that the files are this job's, so that its next checkpoints can list
	// them again. Those of another job or of a savepoint are only read: a checkpoint that
	// needs their bytes has them in files of its own.
	Own bool
}

// TwoPhaseSink is a sink whose output stays invisible until its checkpoint is
// complete. Sinks that share a transaction return the same Committer.
type TwoPhaseSink interface {
	Sink
	Committer() Committer
}

// LateRefuser is implemented by sinks whose target can refuse rows as late as at the
// commit of their checkpoint, which a later Tick hands over: a bounded input is at its
// end only once there is none left.
type LateRefuser interface {
	// RefusesAtCommit reports whether the sink, configured as it is, can do that.
	RefusesAtCommit() bool
}

// Committer publishes committables, in this process or a later one. All of its
// methods can be repeated.
type Committer interface {
	// ID names the committer in checkpoints: the same after a restart, unique
	// within the pipeline.
	ID() string
	// Expires reports whether committables can expire; those are published first.
	Expires() bool
	// Commit publishes c and returns nil only when that is proven. ErrLost says that
	// it never can be, ErrAmbiguous that nobody knows, ErrFenced that the target
	// refuses this process. Any other error is worth a retry.
	// Restored says that another process prepared it.
	Commit(ctx context.Context, c Committable, restored bool) error
	// Witness is the mark of the last commit, found in the target itself. ok is
	// false where there is none yet. ErrNoWitness says that the target keeps none by
	// itself, as file systems do, whose witness is the checkpoints' own markers;
	// *ForeignWitnessError that it is one of another origin.
	Witness(ctx context.Context) (w CheckpointID, ok bool, err error)
	// Revoke takes away what this pipeline prepared and no checkpoint up to the
	// restored one holds, so that no older process can publish it any more. keep
	// are the committables of the restored checkpoint, unless its marker says that
	// they are published.
	Revoke(ctx context.Context, keep []Committable) error
	// Done tells that every committable up to and including n is proven, so that
	// what they needed can be freed.
	Done(n CheckpointID)
}

// PublishedChecker is implemented by committers that keep no witness, and can tell from
// a committable whether it was published.
type PublishedChecker interface {
	// Published reports whether anything of c is published, or may be. It changes nothing.
	Published(ctx context.Context, c Committable) (bool, error)
}

// CheckpointFiles writes files that belong to the checkpoint being taken and
// reads those of the restored one. It is safe for concurrent use.
type CheckpointFiles interface {
	// Create starts a file in the checkpoint's shared folder under a name that is
	// never used twice. It exists once Close has returned nil.
	Create(ctx context.Context) (StateWriter, error)
	// Open reads a file that a checkpoint holds and verifies its checksum.
	Open(ctx context.Context, f StateFile) (io.ReadCloser, error)
}

// StateWriter writes one file of a checkpoint.
type StateWriter interface {
	io.Writer
	// Close makes the file durable and tells what to refer to it by.
	Close() (StateFile, error)
	// Abort drops the file.
	Abort()
}

// StateFile refers to a file of a checkpoint.
type StateFile struct {
	Path     string `json:"path"` // relative to the folder of the checkpoint's metadata
	Size     int64  `json:"size"`
	Checksum string `json:"checksum"` // algorithm:hex
}

// SinkEnv is what the engine gives a sink.
type SinkEnv struct {
	Log      *slog.Logger
	Pipeline string
	Name     string // the sink's name in the pipeline
	Subtasks int
	// Generation is the process's own, once it has one; sinks read it at Start.
	Generation func() uint64
	// Origin tells the pipeline's checkpoint storage from any other: a random name
	// kept with it from its first owner on. A witness of another origin proves
	// nothing. It is empty before a first owner of the storage has chosen.
	Origin func() string
	// Slots is how many checkpoints can be prepared and not yet committed at once.
	Slots int
	// Shared gives one object to all sinks of the pipeline that ask for it under
	// one key; the first one makes it.
	Shared func(key string, create func() any) any
	// Encoding tells what Rows.Values hold, such as "json".
	Encoding string
	// Budget is how many bytes the sink may hold that are not written yet.
	Budget int64
	// Interval is the time between checkpoints, for checks of timeouts.
	Interval time.Duration
	// Failpoint is called with the name of a step that a crash must survive,
	// before and after it; nil outside of tests.
	Failpoint func(name string)
	// ReadOnly says that the sink is opened to be looked at: it writes nothing, not
	// even to find out whether it may.
	ReadOnly bool
	// Restored reads the files of the checkpoint that is restored, those of its
	// committables too; nil before one is chosen. It is asked at Commit of a restored
	// committable, which is before Start.
	Restored func() CheckpointFiles
	// Columns are the fields of the rows with their types where the plan knows them
	// all; nil where it does not, as behind a source without a schema.
	Columns []Column
	// OnError is what on_error does with a row that the target refuses.
	OnError RowAction
}

// RowAction is what on_error does with a row that cannot be handled.
type RowAction string

// The actions.
const (
	RowFail       RowAction = "fail"        // the pipeline stops
	RowSkip       RowAction = "skip"        // the row is counted and dropped
	RowDeadLetter RowAction = "dead_letter" // the row goes to a sink of such rows
)
