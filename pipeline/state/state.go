// Package state holds the keyed state of stateful steps: tables of byte keys and
// values, divided into key groups and, within a table, into namespaces. There are
// two backends, memory in this package and disk in its own; both are a Store.
package state

import (
	"context"
	"log/slog"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-etl/sluice/connectors"
)

// The ends of event time, in milliseconds since 1970.
const (
	MinTime = math.MinInt64 // the watermark before the first record
	MaxTime = math.MaxInt64 // the watermark behind the last record
)

// Key names what a piece of state belongs to. All state of a key is in one key
// group, which one subtask owns.
type Key struct {
	// Bytes is the canonical encoding of the key's values, see AppendKey.
	Bytes []byte
	// Hash is xxh64 (seed 0) of Bytes.
	Hash uint64
	// Group is Hash modulo the number of key groups.
	Group int
}

// MakeKey is the key of an encoding, where there are groups key groups.
func MakeKey(encoded []byte, groups int) Key {
	h := xxhash.Sum64(encoded)
	return Key{Bytes: encoded, Hash: h, Group: int(h % uint64(groups))}
}

// GroupsOf is the range of key groups that a subtask owns, both ends included;
// last is below first where it owns none. The rule is Flink's.
func GroupsOf(subtask, subtasks, groups int) (first, last int) {
	first = (subtask*groups + subtasks - 1) / subtasks
	last = ((subtask+1)*groups - 1) / subtasks
	return first, last
}

// SubtaskOf is the subtask that owns a key group.
func SubtaskOf(group, subtasks, groups int) int { return group * subtasks / groups }

// Store is the state of one step in one subtask. It is used by one goroutine;
// only Snapshots are used by others.
type Store interface {
	// Table gives the table of that name, and makes it where there is none.
	// Steps ask for all of theirs before the first record.
	Table(name string) Table
	// Fork takes a picture of everything in the store for checkpoint number, in
	// microseconds. The store goes on at once.
	Fork(number uint64) (Snapshot, error)
	// Complete tells that a checkpoint is complete, so that what was written for
	// its Fork can be relied upon by later ones. Safe for concurrent use.
	Complete(number uint64)
	// Err is the first failure of a backend that does I/O. After one, what tables
	// answer means nothing: the task fails before its next barrier.
	Err() error
	// Usage is what the store takes up. Safe for concurrent use.
	Usage() Usage
	// Close frees everything, files of a working directory included. Snapshots are
	// released or written before.
	Close() error
}

// Table maps keys to values within namespaces. A namespace is a number that the
// step chooses, such as a window's end: all of it can be scanned and dropped at
// once. Slices that a method returns or shows are borrowed until the next call
// of any method of the store.
type Table interface {
	// Get gives the value of a key, and false where there is none.
	Get(ns int64, k Key) ([]byte, bool)
	// Upsert gives the value of a key to be changed in place: of size bytes, zeroed
	// where the key is new; a value of another size is cut or extended by zeros.
	Upsert(ns int64, k Key, size int) (value []byte, fresh bool)
	// Put sets the value of a key. value may be borrowed from the store itself.
	Put(ns int64, k Key, value []byte)
	// Append adds to the end of a key's value, in amortised time of the addition.
	Append(ns int64, k Key, tail []byte)
	// Delete removes a key, and reports whether it was there.
	Delete(ns int64, k Key) bool
	// Namespaces appends to dst those from..to (both included) that hold anything, in
	// ascending order.
	Namespaces(dst []int64, from, to int64) []int64
	// Scan visits what a namespace holds, in an order that means nothing, until
	// visit returns false. visit may change other namespaces and tables, and not
	// this one.
	Scan(ns int64, visit func(k Key, value []byte) bool)
	// Drop removes a namespace.
	Drop(ns int64)
}

// Snapshot is a picture of a store, to be written beside the stream.
type Snapshot interface {
	// Write writes the picture to files of a checkpoint and releases it. It may run
	// while the store is at work.
	Write(ctx context.Context, files connectors.CheckpointFiles, form Form) ([]Piece, error)
	// Release gives up a picture that is not written.
	Release()
}

// Form is the form in which a snapshot is written.
type Form struct {
	// Compression is zstd or none.
	Compression string
	// Neutral asks for the form that every backend reads and that refers to no file
	// of another checkpoint: for savepoints.
	Neutral bool
}

// Piece is the state of a range of key groups, in a part of a file.
type Piece struct {
	First, Last    int // key groups, both included
	File           connectors.StateFile
	Offset, Length int64
	// Format is empty for the neutral form, otherwise the backend's own.
	Format string
	// Name is what the backend calls the file, where it has a form of its own.
	Name string
}

// Options are what a store is opened with.
type Options struct {
	First, Last int    // the key groups it owns, both included
	Groups      int    // how many there are in all: max_parallelism
	Dir         string // where the disk backend may work; empty and its own
	Memory      int64  // bytes that the disk backend's caches may take
	Restore     *Restore
	Log         *slog.Logger
	Failpoint   func(name string)
}

// Restore is what a store begins with.
type Restore struct {
	// Pieces are those of all subtasks of the checkpoint that overlap the store's
	// key groups, and maybe others.
	Pieces []Piece
	Files  connectors.CheckpointFiles
	// Reuse says that the files are the running job's own, so that its next
	// checkpoints may refer to them.
	Reuse bool
}

// Usage is what a store takes up.
type Usage struct {
	Keys   int64 // entries in all tables; an estimate for disk
	Memory int64 // bytes
	Disk   int64 // bytes
}
