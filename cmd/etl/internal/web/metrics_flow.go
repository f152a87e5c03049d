package web

import (
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
)

// Those of operators: sources, steps and sinks. They begin anew at a restart.
var (
	metricRecordsIn      = counter("operator_records_in_total", "Records that came into a source, step or sink; dead letters count at their sink.", "operator")
	metricRecordsOut     = counter("operator_records_out_total", "Records that a source or step gave out, or a sink took.", "operator")
	metricBytesIn        = counter("operator_bytes_in_total", "Bytes of the values that a source gave or a sink was given.", "operator")
	metricOperatorErrors = counter("operator_errors_total", "Records that failed and were borne by on_error, by the kind of their failure.", "operator", "reason")
	metricDropped        = counter("operator_records_dropped_total", "Records that a step left out as it should.", "operator")

	operatorMetrics = []*metric{metricRecordsIn, metricRecordsOut, metricBytesIn, metricOperatorErrors, metricDropped}
)

// Those of tasks, each a subtask of a chain. The three shares of a task add up to 1.
var (
	metricBusy          = gauge("task_busy_ratio", "Share of the last five seconds that a task worked.", "task", "subtask")
	metricBackpressured = gauge("task_backpressured_ratio", "Share of the last five seconds that a task waited for those behind it, or for a throttle.", "task", "subtask")
	metricIdle          = gauge("task_idle_ratio", "Share of the last five seconds that a task waited for records.", "task", "subtask")
	metricQueued        = gauge("task_queued_bytes", "Bytes that wait before a task that others send to.", "task", "subtask")
	metricQueueLimit    = gauge("task_queue_limit_bytes", "Bytes that may wait there.", "task", "subtask")

	taskMetrics = []*metric{metricBusy, metricBackpressured, metricIdle, metricQueued, metricQueueLimit}
)

// Those of splits of sources, such as partitions.
var (
	metricEventTime    = gauge("split_event_time_seconds", "Highest event time read from a split, in seconds since 1970.", "source", "split")
	metricSplitMark    = gauge("split_watermark_seconds", "Watermark of a split, in seconds since 1970.", "source", "split")
	metricPosition     = gauge("split_position", "Position of the next record to read.", "source", "split")
	metricLag          = gauge("split_lag_records", "Records that a split has and that were not read yet, where its source knows.", "source", "split")
	metricLagSeconds   = gauge("split_lag_seconds", "How old the next record of a split is at most, by the time of the one before it; 0 at its end.", "source", "split")
	metricRetention    = gauge("split_retention_seconds", "Time until retention removes the next record of a split that is behind, where the source knows.", "source", "split")
	metricSplitIdle    = gauge("split_idle", "1 where a split does not hold event time back: it has nothing more to give for now.", "source", "split")
	metricCaughtUp     = gauge("split_caught_up", "1 where a split is read to its present end.", "source", "split")
	metricPausedByTime = gauge("split_paused", "1 where a split waits for others whose event time is behind (max_drift).", "source", "split")

	splitMetrics = []*metric{metricEventTime, metricSplitMark, metricPosition, metricLag, metricLagSeconds, metricRetention, metricSplitIdle, metricCaughtUp, metricPausedByTime}
)

// Those of steps with keyed state, by subtask.
var (
	metricStepMark   = gauge("step_watermark_seconds", "How far event time has come for a keyed step, in seconds since 1970.", "step", "subtask")
	metricStepLag    = gauge("step_watermark_lag_seconds", "How far event time is behind the clock for a keyed step.", "step", "subtask")
	metricStepIdle   = gauge("step_idle", "1 where no source above a keyed step has more to give for now.", "step", "subtask")
	metricLate       = counter("records_late_total", "Records that came too late for a step, with nothing reading its branch of them.", "step", "subtask")
	metricStateKeys  = gauge("state_entries", "Entries in the state of a keyed step; an estimate on disk.", "step", "subtask")
	metricStateBytes = gauge("state_memory_bytes", "Memory that the state of a keyed step takes.", "step", "subtask")
	metricStateDisk  = gauge("state_disk_bytes", "Disk space that the state of a keyed step takes.", "step", "subtask")

	stepMetrics = []*metric{metricStepMark, metricStepLag, metricStepIdle, metricLate, metricStateKeys, metricStateBytes, metricStateDisk}
)

// Those of sinks. They go on over restarts in the process. Sinks that share a
// transaction show the same.
var (
	metricCommits       = counter("sink_commits_total", "Commits of a sink that were proven.", "sink")
	metricRetries       = counter("sink_commit_retries_total", "Tries of a commit that failed and are followed by another.", "sink")
	metricPending       = gauge("sink_pending", "Committables of a sink that wait to be published, such as prepared transactions.", "sink")
	metricOldestPending = gauge("sink_oldest_pending_seconds", "Since when the oldest of them waits; 0 where none does.", "sink")
	metricLastCommit    = gauge("sink_last_commit_timestamp_seconds", "When a commit of a sink was proven last, in seconds since 1970.", "sink")

	sinkMetrics = []*metric{metricCommits, metricRetries, metricPending, metricOldestPending, metricLastCommit}
)

// flow tells what flows through a pipeline.
func (s sender) flow(c *pipeline.Control, now time.Time) {
	f := c.Flow()
	for i := range f.Operators {
		s.operator(&f.Operators[i])
	}
	for _, t := range f.Tasks {
		subtask := strconv.Itoa(t.Subtask)
		s.send(metricBusy, t.Busy, t.Chain, subtask)
		s.send(metricBackpressured, t.Backpressured, t.Chain, subtask)
		s.send(metricIdle, t.Idle, t.Chain, subtask)
		if t.Queue > 0 {
			s.send(metricQueued, float64(t.Queued), t.Chain, subtask)
			s.send(metricQueueLimit, float64(t.Queue), t.Chain, subtask)
		}
	}
	for i := range f.Splits {
		s.split(&f.Splits[i])
	}
	p := c.Progress()
	for i := range p.Splits {
		if x := &p.Splits[i]; x.MaxTime != nil {
			s.send(metricEventTime, seconds(*x.MaxTime), x.Source, x.Split)
		}
	}
	for i := range p.Steps {
		s.step(&p.Steps[i], now)
	}
	for i := range f.Sinks {
		s.sink(&f.Sinks[i], now)
	}
}

func (s sender) operator(o *pipeline.OperatorFlow) {
	s.send(metricRecordsIn, float64(o.In), o.Name)
	s.send(metricRecordsOut, float64(o.Out), o.Name)
	if o.BytesIn > 0 {
		s.send(metricBytesIn, float64(o.BytesIn), o.Name)
	}
	s.send(metricDropped, float64(o.Dropped), o.Name)
	for reason, n := range o.Errors {
		s.send(metricOperatorErrors, float64(n), o.Name, reason)
	}
}

func (s sender) split(x *pipeline.SplitFlow) {
	if x.Watermark != nil {
		s.send(metricSplitMark, seconds(*x.Watermark), x.Source, x.Split)
	}
	s.send(metricPosition, float64(x.Position), x.Source, x.Split)
	if x.Behind >= 0 {
		s.send(metricLag, float64(x.Behind), x.Source, x.Split)
	}
	if x.BehindSeconds >= 0 {
		s.send(metricLagSeconds, x.BehindSeconds, x.Source, x.Split)
	}
	if x.RetentionSeconds >= 0 {
		s.send(metricRetention, x.RetentionSeconds, x.Source, x.Split)
	}
	s.send(metricSplitIdle, truth(x.Idle), x.Source, x.Split)
	s.send(metricCaughtUp, truth(x.CaughtUp), x.Source, x.Split)
	s.send(metricPausedByTime, truth(x.Paused), x.Source, x.Split)
}

func (s sender) step(x *pipeline.StepProgress, now time.Time) {
	subtask := strconv.Itoa(x.Subtask)
	s.send(metricLate, float64(x.Late), x.Step, subtask)
	if timed(x.Watermark) {
		s.send(metricStepMark, seconds(x.Watermark), x.Step, subtask)
		s.send(metricStepLag, seconds(now.UnixMilli()-x.Watermark), x.Step, subtask)
	}
	s.send(metricStepIdle, truth(x.Idle), x.Step, subtask)
	s.send(metricStateKeys, float64(x.State.Keys), x.Step, subtask)
	s.send(metricStateBytes, float64(x.State.Memory), x.Step, subtask)
	s.send(metricStateDisk, float64(x.State.Disk), x.Step, subtask)
}

func (s sender) sink(x *pipeline.SinkFlow, now time.Time) {
	s.send(metricCommits, float64(x.Commits), x.Sink)
	s.send(metricRetries, float64(x.Retries), x.Sink)
	s.send(metricPending, float64(x.Pending), x.Sink)
	oldest := 0.0
	if x.OldestPending != nil {
		oldest = max(0, now.Sub(*x.OldestPending).Seconds())
	}
	s.send(metricOldestPending, oldest, x.Sink)
	if x.LastCommit != nil {
		s.send(metricLastCommit, seconds(x.LastCommit.UnixMilli()), x.Sink)
	}
}
