// Package api is what the daemon shows and does, as its HTTP API, its commands and its
// dashboard share it: the types of requests and answers, and the Service behind them.
package api

import (
	"context"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

// State is what the daemon has a pipeline at.
type State string

// The states of a pipeline in the daemon.
const (
	Invalid    State = "invalid"    // its file has faults, and nothing of it runs
	Starting   State = "starting"   // nothing flows yet
	Running    State = "running"    //
	Restarting State = "restarting" // it failed, and starts again by itself
	Stopping   State = "stopping"   // a last checkpoint is being taken
	Paused     State = "paused"     // a person paused it; resume goes on with the same job
	Stopped    State = "stopped"    // its job was stopped or cancelled; start begins the next one
	Finished   State = "finished"   // its bounded input was read to the end
	Failed     State = "failed"     // it needs a person: see Failure and Help
)

// Health is how a pipeline is, in a word, and why in words.
type Health struct {
	// OK: it makes progress, or has nothing to do. What is not OK makes /readyz fail.
	OK bool `json:"ok"`
	// Problems say what is wrong in words, each with what to do; also warnings while OK.
	Problems []Problem `json:"problems"`
}

// Problem is one thing that is wrong with a pipeline.
type Problem struct {
	// Kind is a stable word: broker, lag, checkpoint, alignment, record, credentials,
	// idle, sink, reload, definition, restart, retention, commit, storage.
	Kind  string    `json:"kind"`
	Level string    `json:"level"` // error or warning
	Text  string    `json:"text"`
	Help  string    `json:"help,omitempty"`
	Step  string    `json:"step,omitempty"` // source, step or sink that it is about
	Since time.Time `json:"since"`
}

// Pipeline is one of the daemon's pipelines at a glance.
type Pipeline struct {
	Name  string    `json:"name"`
	File  string    `json:"file,omitempty"`
	State State     `json:"state"`
	Since time.Time `json:"since"` // of the state
	// Status is what the pipeline says of itself; nil while it has never run.
	Status *pipeline.Status `json:"status,omitempty"`
	// Failure is why it failed, starts again, or is invalid, and Help what to do.
	Failure string `json:"failure,omitempty"`
	Help    string `json:"help,omitempty"`
	Health  Health `json:"health"`
	// Rates are over the last ten seconds, records and bytes a second.
	ReadRate  float64 `json:"read_rate"`
	ByteRate  float64 `json:"byte_rate"`
	WriteRate float64 `json:"write_rate"`
	// LagRecords is over all splits, -1 where no source knows it; LagSeconds how old the
	// record is that is read next, at most, -1 where that is not known.
	LagRecords int64   `json:"lag_records"`
	LagSeconds float64 `json:"lag_seconds"`
	Counts     Counts  `json:"counts"`
	// Checkpoint is the newest completed one; nil before there is one.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// FailedCheckpoints is how many failed one after the other until now.
	FailedCheckpoints int `json:"failed_checkpoints"`
	Restarts          int `json:"restarts"`
	// Guarantee is the weakest of its sinks'.
	Guarantee string `json:"guarantee,omitempty"`
	// Pending is a change of its file that has not been taken over, in words; empty for none.
	Pending string `json:"pending,omitempty"`
}

// Counts are what a pipeline has done since the daemon started it.
type Counts struct {
	Read     int64 `json:"read"`
	Bytes    int64 `json:"bytes"`
	Written  int64 `json:"written"`
	Filtered int64 `json:"filtered"`
	Skipped  int64 `json:"skipped"`
	Dead     int64 `json:"dead"`
	Late     int64 `json:"late"`
}

// Checkpoint is a completed checkpoint at a glance. Durations are in seconds.
type Checkpoint struct {
	Number   uint64    `json:"number"`
	Path     string    `json:"path"`
	Time     time.Time `json:"time"`
	Duration float64   `json:"duration"`
	Size     int64     `json:"size"`
	NewSize  int64     `json:"new_size"`
}

// Checkpoints is the history of a pipeline's checkpoints, across restarts of the daemon.
type Checkpoints struct {
	checkpoint.Stats
	// Earlier are those of before the process began, newest first.
	Earlier []checkpoint.AttemptStats `json:"earlier"`
	// Durations and sizes of the completed ones, at percentiles "p50", "p90", "p95",
	// "p99", "p999", and at "min", "max", "avg".
	Duration map[string]float64 `json:"duration_percentiles"` // seconds
	Size     map[string]float64 `json:"size_percentiles"`     // bytes
	// Interval and Timeout are those of the definition, in seconds.
	Interval float64 `json:"interval"`
	Timeout  float64 `json:"timeout"`
	Mode     string  `json:"mode"`
	Storage  string  `json:"storage"`
	Retained int     `json:"retained"`
}

// Savepoint is one that the pipeline's folder of savepoints holds.
type Savepoint struct {
	Path     string    `json:"path"`
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Size     int64     `json:"size"`
	Drained  bool      `json:"drained,omitempty"`
	Periodic bool      `json:"periodic,omitempty"`
}

// Definition is a pipeline's file, as written and as it counts.
type Definition struct {
	File string `json:"file"`
	// Written is the text of the file.
	Written string `json:"written"`
	// Effective has defaults and variables filled in; secrets are ***.
	Effective string `json:"effective"`
	// Running is the text that runs, where it is not Written.
	Running string `json:"running,omitempty"`
	Faults  string `json:"faults,omitempty"`
}

// Event is something that happened to a pipeline or the daemon. Numbers grow.
type Event struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Pipeline string    `json:"pipeline,omitempty"`
	// Kind is a stable word: started, running, failed, restarting, paused, resumed, stopped,
	// cancelled, finished, checkpoint, checkpoint_failed, savepoint, reloaded, reload_refused,
	// reload_failed, definition, action.
	Kind  string `json:"kind"`
	Level string `json:"level"` // info, warning or error
	Text  string `json:"text"`
	// Actor is who asked for it; empty for the daemon itself.
	Actor string `json:"actor,omitempty"`
}

// Line is one of the log.
type Line struct {
	Number   uint64         `json:"number"`
	Time     time.Time      `json:"time"`
	Level    string         `json:"level"`
	Pipeline string         `json:"pipeline,omitempty"`
	Text     string         `json:"text"`
	Attrs    map[string]any `json:"attrs,omitempty"`
}

// LogQuery chooses lines.
type LogQuery struct {
	Pipeline string // empty for all
	Level    string // least level; empty for all
	After    uint64 // only lines with a higher number
	Limit    int    // the newest so many; 0 for a default
}

// Daemon is the process at a glance.
type Daemon struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Folder   string    `json:"folder,omitempty"` // of pipelines
	Listens  []string  `json:"listens"`
	Ready    bool      `json:"ready"`
	Memory   int64     `json:"memory"`      // budget, bytes
	RSS      int64     `json:"rss"`         // bytes
	CPU      float64   `json:"cpu_seconds"` // of the process, so far
	Routines int       `json:"goroutines"`
	// LastReload tells of the newest reload of the folder.
	LastReload *Reload `json:"last_reload,omitempty"`
}

// Reload is what a reload of the folder did.
type Reload struct {
	Time      time.Time         `json:"time"`
	OK        bool              `json:"ok"`
	Pipelines map[string]string `json:"pipelines"` // by name: unchanged, added, removed, switched, invalid: …, refused: …, rolled back: …
}

// StartOptions say what a start goes on from; see etl run.
type StartOptions struct {
	From                  string `json:"from,omitempty"`
	Claim                 bool   `json:"claim,omitempty"`
	AcceptDuplicates      bool   `json:"accept_duplicates,omitempty"`
	AllowNonRestoredState bool   `json:"allow_non_restored_state,omitempty"`
	AllowDrained          bool   `json:"allow_drained,omitempty"`
	// SetOffsets moves positions on purpose, state kept: topic/partition to offset.
	SetOffsets map[string]int64 `json:"set_offsets,omitempty"`
}

// Moved tells of positions that were moved: what they were, and what they are.
type Moved struct {
	Split  string `json:"split"` // topic/partition
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// Validation is what a posted definition comes to.
type Validation struct {
	Valid    bool    `json:"valid"`
	Pipeline string  `json:"pipeline,omitempty"`
	Faults   []Fault `json:"faults"`
}

// Fault is one fault or warning of a definition, at its place.
type Fault struct {
	Level  string `json:"level"` // error or warning
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Code   string `json:"code,omitempty"`
	Text   string `json:"text"`
	Help   string `json:"help,omitempty"`
}

// Plan is what a definition would do: the graph, and what a start or a reload would keep.
type Plan struct {
	Description pipeline.Description `json:"description"`
	// Text is what etl plan prints.
	Text string `json:"text"`
	// Change is what taking it over would do to the running pipeline of that name: none,
	// reload, start, or refused with Why.
	Change string `json:"change,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Service is the daemon, as the API calls it. Errors of unknown names are ErrUnknown;
// actor is who asks, for the audit log and events. It is safe for concurrent use.
type Service interface {
	Daemon(ctx context.Context) Daemon
	// Ready tells of each pipeline whether it is well; an empty one of a daemon without pipelines is ready.
	Ready(ctx context.Context) (ok bool, pipelines map[string]Health)

	Pipelines(ctx context.Context) []Pipeline
	Pipeline(ctx context.Context, name string) (*Pipeline, error)
	Definition(ctx context.Context, name string) (*Definition, error)
	// Put writes the pipeline's file into the folder and takes it over; Delete stops the
	// job with a checkpoint and removes the file.
	Put(ctx context.Context, actor, name, definition string) (*Pipeline, error)
	Delete(ctx context.Context, actor, name string) error

	Describe(ctx context.Context, name string) (*pipeline.Description, error)
	Flow(ctx context.Context, name string) (*pipeline.Flow, error)
	Tap(ctx context.Context, name, operator string, o pipeline.TapOptions) (<-chan pipeline.Tapped, error)
	Failures(ctx context.Context, name string) ([]pipeline.Failure, error)

	Start(ctx context.Context, actor, name string, o StartOptions) ([]Moved, error)
	// Pause takes a last checkpoint and ends the tasks; Resume goes on with the same job.
	Pause(ctx context.Context, actor, name string) (*pipeline.Taken, error)
	Resume(ctx context.Context, actor, name string) error
	// Restart pauses and resumes.
	Restart(ctx context.Context, actor, name string) error
	Stop(ctx context.Context, actor, name string, o pipeline.StopOptions) (*pipeline.Taken, error)
	Cancel(ctx context.Context, actor, name string) (*pipeline.Taken, error)
	// Skip starts a failed pipeline behind one record of a partition.
	Skip(ctx context.Context, actor, name, topic string, partition int32, offset int64) ([]Moved, error)

	Checkpoints(ctx context.Context, name string) (*Checkpoints, error)
	Checkpoint(ctx context.Context, actor, name string) (*pipeline.Taken, error)
	Savepoints(ctx context.Context, name string) ([]Savepoint, error)
	Savepoint(ctx context.Context, actor, name, dir string) (*pipeline.Taken, error)

	// Reload reads the folder again, as SIGHUP does.
	Reload(ctx context.Context, actor string) (*Reload, error)
	Validate(ctx context.Context, definition string) (*Validation, error)
	Plan(ctx context.Context, definition string) (*Plan, error)

	// Events are those with a number above after, oldest first; changed is closed when there is a newer one.
	Events(ctx context.Context, pipeline string, after uint64, limit int) (events []Event, changed <-chan struct{})
	Logs(ctx context.Context, q LogQuery) (lines []Line, changed <-chan struct{})
}
