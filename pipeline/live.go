package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Flow is what flows through a running pipeline, operator by operator, since its last
// start or restart.
type Flow struct {
	Time      time.Time      `json:"time"`
	Operators []OperatorFlow `json:"operators"` // in the order of Description
	Tasks     []TaskFlow     `json:"tasks"`
	Splits    []SplitFlow    `json:"splits"`
	Sinks     []SinkFlow     `json:"sinks"`
}

// OperatorFlow is what one source, step or sink has done, over all its subtasks.
type OperatorFlow struct {
	Name string `json:"name"`
	In   int64  `json:"in"`
	Out  int64  `json:"out"`
	// BytesIn are those of the values that came in, where that is counted: of sources and sinks.
	BytesIn int64 `json:"bytes_in"`
	// Errors are records that failed here, by reason; Dropped those left out on purpose.
	Errors  map[string]int64 `json:"errors,omitempty"`
	Dropped int64            `json:"dropped"`
	Late    int64            `json:"late"`
	// Watermark is the least of its subtasks, milliseconds since 1970; nil where there is none.
	Watermark *int64 `json:"watermark,omitempty"`
	Idle      bool   `json:"idle"`
	// State is of keyed operators.
	Keys        int64 `json:"state_keys"`
	StateMemory int64 `json:"state_memory"` // bytes
	StateDisk   int64 `json:"state_disk"`   // bytes
}

// TaskFlow is how one subtask of a chain spends its time, as shares of the last seconds
// that add up to 1.
type TaskFlow struct {
	Chain         string  `json:"chain"` // the operator that begins it
	Subtask       int     `json:"subtask"`
	Busy          float64 `json:"busy"`
	Backpressured float64 `json:"backpressured"` // waiting for those behind it
	Idle          float64 `json:"idle"`          // waiting for records
	// Queued bytes wait before it, of at most Queue.
	Queued int64 `json:"queued"`
	Queue  int64 `json:"queue"`
}

// SplitFlow is where one split of a source is, such as a partition.
type SplitFlow struct {
	Source   string `json:"source"`
	Split    string `json:"split"`
	Position int64  `json:"position"` // of the next record to read
	// Behind is how many records are not read yet, and BehindSeconds how old the next one
	// is; -1 where that is not known.
	Behind        int64   `json:"behind"`
	BehindSeconds float64 `json:"behind_seconds"`
	// RetentionSeconds is how long until the next record is removed by the topic's
	// retention, by its time; -1 where that is not known or never.
	RetentionSeconds float64 `json:"retention_seconds"`
	Watermark        *int64  `json:"watermark,omitempty"` // milliseconds since 1970
	Idle             bool    `json:"idle"`
	CaughtUp         bool    `json:"caught_up"`
	Paused           bool    `json:"paused"` // by max_drift
}

// SinkFlow is what a sink has published.
type SinkFlow struct {
	Sink      string               `json:"sink"`
	Guarantee connectors.Guarantee `json:"guarantee"`
	// Pending are committables that are not proven, such as open transactions or uploads,
	// and OldestPending since when the oldest one waits.
	Pending       int        `json:"pending"`
	OldestPending *time.Time `json:"oldest_pending,omitempty"`
	// Commits that were proven, and tries again after one that failed.
	Commits    int64      `json:"commits"`
	Retries    int64      `json:"retries"`
	LastCommit *time.Time `json:"last_commit,omitempty"`
	LastError  string     `json:"last_error,omitempty"` // of a commit that is being tried again
}

// Failure is a record that failed and was skipped, sent to the dead letters, or stopped
// the pipeline.
type Failure struct {
	Time     time.Time `json:"time"`
	Operator string    `json:"operator"`
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`
	// Where it is from; Partition and Offset are -1 where that is not known.
	Topic      string `json:"topic,omitempty"`
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
	Expression string `json:"expression,omitempty"`
	Outcome    string `json:"outcome"` // fail, skip or dead_letter
}

// TapOptions say what is shown of a step.
type TapOptions struct {
	// Limit ends the tap after so many records; 0 for none.
	Limit int
	// PerSecond is how many are shown at most in a second, the others are left out; 0 for 10.
	PerSecond int
	// Input shows what comes in, not what goes out; of a sink it always does.
	Input bool
}

// Tapped is a record at a step.
type Tapped struct {
	Time      time.Time         `json:"time"` // when it passed
	Operator  string            `json:"operator"`
	Topic     string            `json:"topic,omitempty"`
	Partition int32             `json:"partition"` // -1 where that is not known
	Offset    int64             `json:"offset"`
	Key       string            `json:"key,omitempty"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers,omitempty"`
	EventTime *int64            `json:"event_time,omitempty"` // milliseconds since 1970
	// Left is how many were left out since the one before.
	Left int64 `json:"left"`
	// Cut says that Value is not all of it.
	Cut bool `json:"cut,omitempty"`
}

// Flow tells what flows; it has no numbers while nothing runs.
func (c *Control) Flow() Flow { return Flow{Time: time.Now()} }

// Failures are the newest records that failed, newest first, across restarts.
func (c *Control) Failures() []Failure { return nil }

// Tap shows records at an operator until ctx ends, when the channel is closed. It never
// holds up the stream: what is not taken in time is left out and counted.
func (c *Control) Tap(context.Context, string, TapOptions) (<-chan Tapped, error) {
	return nil, errors.New("not built yet")
}
