package spec

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Unlimited is a Checkpoint.TolerableFailures that never ends.
const Unlimited Failures = -1

// Failures is a number of failures, or Unlimited.
type Failures int

// UnmarshalConfig reads a number or the word unlimited.
func (f *Failures) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case int64:
		if v < 0 || v > 1_000_000 {
			return errors.New("a number from 0 to 1000000 is wanted")
		}
		*f = Failures(v)
		return nil
	case string:
		if v == "unlimited" {
			*f = Unlimited
			return nil
		}
	}
	return fmt.Errorf("a number or the word unlimited is wanted, not %v", v)
}

// String is the form that the file uses.
func (f Failures) String() string {
	if f == Unlimited {
		return "unlimited"
	}
	return strconv.Itoa(int(f))
}

// Checkpoint is the block of that name, with its defaults.
type Checkpoint struct {
	Storage           string        `key:"storage" doc:"Where checkpoints are kept: s3://bucket/prefix, hdfs://nameservice-or-host:8020/path, file:///path or a plain path. Without it they live in memory."`
	Interval          time.Duration `key:"interval" doc:"Time from the start of one checkpoint to the start of the next."`
	Mode              string        `key:"mode" enum:"exactly_once|at_least_once" doc:"Whether a barrier on one of several inputs holds that input until the others have theirs."`
	Timeout           time.Duration `key:"timeout" doc:"A checkpoint that takes longer has failed."`
	MinPause          time.Duration `key:"min_pause" doc:"Least time from the end of one checkpoint to the start of the next."`
	MaxConcurrent     int           `key:"max_concurrent" doc:"Checkpoints that may be under way at once, more than 1 only with min_pause 0s."`
	TolerableFailures Failures      `key:"tolerable_failures" doc:"Failed checkpoints in a row that are borne before the job restarts, or unlimited."`
	Retained          int           `key:"retained" doc:"Complete checkpoints that are kept."`
	OnCancel          string        `key:"on_cancel" enum:"retain|delete" doc:"What becomes of the checkpoints when the pipeline is cancelled. Savepoints stay in any case."`
	OnLostCommit      string        `key:"on_lost_commit" enum:"rewind|fail|accept_loss" doc:"What to do when what a sink had prepared is gone: go back to the newest checkpoint whose results are all there, stop, or go on without them and count."`
	Compression       string        `key:"compression" enum:"zstd|none" doc:"Compression of state files."`
	State             State         `key:"state" doc:"Where the state of steps is while the pipeline runs: {backend, dir, memory}."`
	// Incremental says that checkpoints upload only what changed since the last one.
	Incremental *bool `key:"incremental" doc:"Whether a checkpoint uploads only what changed since the last one. The backend disk does so by default, memory cannot."`

	Savepoints    Savepoints `key:"savepoints" doc:"Where savepoints go when a command names no folder: an address as for storage, or {dir: ADDRESS, every: TIME, keep: NUMBER}, which takes one each time by itself and keeps the newest."`
	Claim         bool       `key:"claim" doc:"Whether what a start restores from a path becomes the new job's own, which removes it when it is not needed any more: yes or no."`
	LocalRecovery string     `key:"local_recovery" doc:"Folder on a local disk for copies of state files, which a restart reads in place of storage where their checksums match; off for none."`

	// LostCommitWritten says that the file has on_lost_commit, which a commit of
	// unknown outcome needs.
	LostCommitWritten bool
}

// State is where the state of steps is kept while the pipeline runs.
type State struct {
	Backend string `key:"backend" enum:"memory|disk" doc:"memory keeps all of it in memory, disk in files with a cache before them."`
	// Dir is where the disk backend works; empty for the system's folder of
	// temporary files.
	Dir string `key:"dir" doc:"Folder that the disk backend works in, best on a local disk: what is in it does not outlive the process. The system's folder of temporary files by default."`
	// Memory is what the file says of it, see Budget.
	Memory *connectors.ByteSize `key:"memory" doc:"Memory that the disk backend may take for its caches, over all steps and subtasks. 256MiB by default."`
}

// Budget is how many bytes the caches of the disk backend may take, over all steps
// and subtasks.
func (s *State) Budget() int64 {
	if s.Memory == nil {
		return defaultStateMemory
	}
	return int64(*s.Memory)
}

// The modes.
const (
	ModeExactlyOnce = "exactly_once"
	ModeAtLeastOnce = "at_least_once"
)

// The backends.
const (
	MemoryState = "memory"
	DiskState   = "disk"
)

// Bounds of Memory; with less than the least the caches are of no use.
const (
	leastStateMemory   = 16 << 20
	defaultStateMemory = 256 << 20
)

// Increments reports whether checkpoints upload only what changed.
func (c *Checkpoint) Increments() bool {
	return c.State.Backend == DiskState && (c.Incremental == nil || *c.Incremental)
}

func defaultCheckpoint() Checkpoint {
	return Checkpoint{
		Interval: time.Minute, Mode: ModeExactlyOnce, Timeout: 10 * time.Minute, MaxConcurrent: 1, TolerableFailures: 3,
		Retained: 3, OnCancel: "retain", OnLostCommit: "rewind", Compression: "zstd",
		State: State{Backend: MemoryState},
	}
}

// Validate reports settings that are out of range or contradict each other.
func (c *Checkpoint) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if c.Interval < 10*time.Millisecond {
		fault("interval", "must be at least 10ms", "write a time such as 10s or 1m")
	}
	if c.Timeout < time.Second {
		fault("timeout", "must be at least 1s", "write a time such as 10m")
	}
	if c.MinPause < 0 {
		fault("min_pause", "cannot be negative", "write 0s or a time such as 5s")
	}
	if c.MaxConcurrent < 1 || c.MaxConcurrent > 16 {
		fault("max_concurrent", "must be from 1 to 16", "")
	} else if c.MaxConcurrent > 1 && c.MinPause > 0 {
		fault("max_concurrent", "above 1 and min_pause exclude each other", "remove one of the two")
	}
	if c.Retained < 1 || c.Retained > 1000 {
		fault("retained", "must be from 1 to 1000", "3 is the default")
	}
	if c.State.Budget() < leastStateMemory {
		fault("state.memory", "must be at least 16MiB", "256MiB is the default")
	}
	if c.State.Backend == MemoryState {
		if c.State.Dir != "" {
			fault("state.dir", "has no effect with the backend memory", "remove it, or write backend: disk")
		}
		if c.State.Memory != nil {
			fault("state.memory", "has no effect with the backend memory, which takes what the state needs", "remove it, or write backend: disk")
		}
		if c.Incremental != nil && *c.Incremental {
			fault("incremental", "needs the backend disk: what is in memory is written whole each time", "remove it, or write state: {backend: disk}")
		}
	}
	return errors.Join(faults...)
}
