package connectors

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Source reads records that are divided into splits, such as the partitions of
// topics or the files of a directory. One Source serves one source block of a
// running pipeline; constructing it does no I/O.
//
// The engine keeps the position of each split, writes it into every checkpoint
// and hands it back at a restore. A source never commits a position by itself.
type Source interface {
	// Splits lists what is there to read now, each at the position that a new job
	// starts from, with start and until resolved to numbers. restored is what the
	// checkpoint holds, nil for a new job: its splits keep their positions, a split
	// of theirs that a listing lacks stays in the answer, and new ones are added by
	// the rules of the source. The engine calls it before anything is read,
	// and writes the answer into a checkpoint first.
	Splits(ctx context.Context, restored []Split) ([]Split, error)
	// Discover lists splits that are new since known. A source that cannot have
	// new ones returns nil. An error that is not permanent is logged, and new splits
	// beside it are taken. It is called once a second while the pipeline runs; a
	// source that has to ask a server does so by a setting of its own.
	Discover(ctx context.Context, known []Split) ([]Split, error)
	// Reader makes the reader of one subtask for the splits that it was dealt.
	Reader(env ReaderEnv, splits []Split) (Reader, error)
	// Committed tells that a checkpoint with these positions is proven. It serves
	// monitoring only; an error is logged and changes nothing.
	Committed(ctx context.Context, splits []Split) error
	// Close frees what the source holds, after all readers are closed.
	Close() error
}

// PositionChecker is implemented by sources that can tell what has become of positions
// without reading.
type PositionChecker interface {
	// CheckPositions tells of each split, in their order, whether a reader can go on from
	// its position. Its error says that nobody knows for now.
	CheckPositions(ctx context.Context, splits []Split) ([]Availability, error)
}

// Availability is what a split has, and where a reader of it would go on.
type Availability struct {
	// First and End are what can be read now: the first position, and the one behind the last.
	First, End int64
	// Next is where reading goes on: the split's position, unless the source's rules say otherwise.
	Next int64
	// Gone says that the split is not there now: its position is kept, and nothing is read.
	Gone bool
	// Err is why the split cannot be read from its position; it is permanent.
	Err error
}

// Keeper is implemented by sources whose records are removed after a time.
type Keeper interface {
	// Keeps is how long a record of the split is kept, and false where that is not known
	// or for good. It answers at once, by what the source was told lately, and is safe for
	// concurrent use.
	Keeps(split string) (time.Duration, bool)
}

// Mover is implemented by sources whose positions can be moved on purpose, and records of
// which be left out, which CheckPositions tells the range of.
type Mover interface {
	// Move is the split at another position, which can be read.
	Move(split Split, to int64) Split
}

// Counter is implemented by sources that count what happened to their splits, for
// metrics.
type Counter interface {
	// Counts are by name, in lower-case words joined by _. They begin at zero with the
	// source, and can be read at any time.
	Counts() map[string]int64
}

// Split is one part of a source and how far it has been read.
type Split struct {
	// ID names the split for good: "topic/partition", or a file's path.
	ID string `json:"id"`
	// Offset is the position of the next record to read.
	Offset int64 `json:"offset"`
	// Until is the position at which a bounded split ends, -1 for none.
	Until int64 `json:"until"`
	// MaxTime is the highest event time read, in milliseconds since 1970; nil before
	// the first record. The engine keeps it.
	MaxTime *int64 `json:"max_time,omitempty"`
	// Skip are the positions of records that are left out when they are read, as somebody
	// asked for, in ascending order. The engine keeps it.
	Skip []int64 `json:"skip,omitempty"`
	// Detail is what else the source wants to have back, such as a topic's id.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Reader reads the splits of one subtask. It is used by one goroutine.
type Reader interface {
	// Poll returns the next batch, of one split, waiting until there is one or ctx
	// ends; it never waits to fill a batch. When ctx ends first it returns
	// ctx.Err() and loses nothing. io.EOF says that every split has been read to
	// its end and none can be added. A record that the source cannot take apart
	// becomes a record with its bytes, never an error.
	Poll(ctx context.Context) (*Batch, error)
	// Add takes over further splits that Discover found.
	Add(splits []Split) error
	// Position tells what else belongs to a split whose next offset is given, for
	// the checkpoint: the split with Detail brought up to date.
	Position(split int, next int64) Split
	Close() error
}

// Progress is implemented by readers that know whether a split has more to read
// now. Where a reader does not, none of its splits is ever idle.
type Progress interface {
	// CaughtUp reports whether the last successful fetch of the split reached its
	// end, and everything that it brought was given out by Poll.
	CaughtUp(split int) bool
}

// Ends is implemented by readers that know how far their splits go at present.
type Ends interface {
	// End tells the position behind the last record that a split has now, as far as
	// the reader knows, and false where it does not. It answers at once, and is safe for
	// concurrent use.
	End(split int) (int64, bool)
}

// Pauser is implemented by readers that can leave single splits out for a while.
type Pauser interface {
	// Pause makes Poll give records of exactly the splits that are not in paused.
	// What of the others was fetched already may still come.
	Pause(paused []int)
}

// ReaderEnv is what the engine gives a reader.
type ReaderEnv struct {
	Log      *slog.Logger
	Subtask  int
	Subtasks int
	// Budget is how many bytes the reader may hold fetched and not yet polled.
	Budget int64
	// Batches is the free list that the reader takes its batches from.
	Batches *BatchPool
}
