package web

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

// The names are Flink's, in this program's form.
var (
	descLastDuration  = desc("last_checkpoint_duration_seconds", "From the trigger of the newest completed checkpoint until it was published.")
	descLastSize      = desc("last_checkpoint_size_bytes", "Bytes that the newest completed checkpoint has written, in files that the one before does not have.")
	descLastFullSize  = desc("last_checkpoint_full_size_bytes", "Bytes of all that the newest completed checkpoint refers to.")
	descLastCompleted = desc("last_completed_checkpoint_id", "Number of the newest completed checkpoint.")
	descLastTime      = desc("last_checkpoint_completed_timestamp_seconds", "When the newest completed checkpoint was published, in seconds since 1970.")
	descLastPath      = desc("last_checkpoint_external_path", "Folder that the newest completed checkpoint lies in, beside the number; the value is 1.", "path")
	descRestoreTime   = desc("last_checkpoint_restore_timestamp_seconds", "When the pipeline last began on a restored checkpoint, in seconds since 1970.")
	descRestored      = desc("last_checkpoint_restore_id", "Number of the checkpoint that the pipeline began on last.")
	descRestoreTook   = desc("last_checkpoint_restore_duration_seconds", "From the beginning of that start until records flowed.")
	descInProgress    = desc("in_progress_checkpoints", "Checkpoints that are under way.")
	descCompleted     = desc("completed_checkpoints_total", "Checkpoints that were completed and published.")
	descFailed        = desc("failed_checkpoints_total", "Checkpoints that failed.")
	descTriggered     = desc("checkpoints_total", "Checkpoints that were triggered.")
	descRestarts      = desc("restarts_total", "Restarts of the pipeline in the process.")

	descLocal = desc("local_recovery_files_total", "Files of checkpoints by what became of their local copies: hit and miss when they were read, failure of a copy.", "result")

	descAlignment  = desc("checkpoint_alignment_seconds", "How long a task waited for the barriers of all its inputs, at the newest completed checkpoint.", "task", "subtask")
	descStartDelay = desc("checkpoint_start_delay_seconds", "From the trigger of the newest completed checkpoint until its barrier had come to a task.", "task", "subtask")
)

var checkpointDescriptions = []*prometheus.Desc{
	descLastDuration, descLastSize, descLastFullSize, descLastCompleted, descLastTime, descLastPath,
	descRestoreTime, descRestored, descRestoreTook, descInProgress, descCompleted, descFailed, descTriggered, descRestarts,
	descLocal, descAlignment, descStartDelay,
}

// collectCheckpoints tells of the checkpoints of a pipeline.
func collectCheckpoints(out chan<- prometheus.Metric, name string, c *pipeline.Control) {
	stats, status := c.Checkpoints(), c.Status()
	metric := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, append([]string{name}, labels...)...)
	}
	metric(descCompleted, prometheus.CounterValue, float64(stats.Completed))
	metric(descFailed, prometheus.CounterValue, float64(stats.Failed))
	metric(descTriggered, prometheus.CounterValue, float64(stats.Triggered))
	metric(descRestarts, prometheus.CounterValue, float64(status.Restarts))
	if local, on := c.LocalRecovery(); on {
		metric(descLocal, prometheus.CounterValue, float64(local.Hits), "hit")
		metric(descLocal, prometheus.CounterValue, float64(local.Misses), "miss")
		metric(descLocal, prometheus.CounterValue, float64(local.Failures), "failure")
	}
	inProgress := 0
	for i := range stats.History {
		if s := stats.History[i].Status; s == checkpoint.InProgress || s == checkpoint.Committing {
			inProgress++
		}
	}
	metric(descInProgress, prometheus.GaugeValue, float64(inProgress))
	if r := status.Restored; r != nil {
		metric(descRestoreTime, prometheus.GaugeValue, seconds(r.Time.UnixMilli()))
		metric(descRestored, prometheus.GaugeValue, float64(r.Number))
		metric(descRestoreTook, prometheus.GaugeValue, r.Took.Seconds())
	}
	last := stats.Last
	if last == nil {
		return
	}
	metric(descLastDuration, prometheus.GaugeValue, last.Duration.Seconds())
	metric(descLastSize, prometheus.GaugeValue, float64(last.NewSize))
	metric(descLastFullSize, prometheus.GaugeValue, float64(last.Size))
	metric(descLastCompleted, prometheus.GaugeValue, float64(last.ID.Number))
	metric(descLastTime, prometheus.GaugeValue, seconds(last.Triggered.Add(last.Duration).UnixMilli()))
	if i := strings.LastIndexByte(status.Last, '/'); i >= 0 {
		metric(descLastPath, prometheus.GaugeValue, 1, status.Last[:i])
	}
	for i := range last.Tasks {
		t := &last.Tasks[i]
		subtask := strconv.Itoa(t.Task.Subtask)
		metric(descAlignment, prometheus.GaugeValue, t.Alignment.Seconds(), t.Task.Chain, subtask)
		metric(descStartDelay, prometheus.GaugeValue, t.StartDelay.Seconds(), t.Task.Chain, subtask)
	}
}
