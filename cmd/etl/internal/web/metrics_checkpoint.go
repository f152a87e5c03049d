package web

import (
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

// The names are Flink's, in this program's form.
var (
	metricLastDuration  = gauge("last_checkpoint_duration_seconds", "From the trigger of the newest completed checkpoint until it was published.")
	metricLastSize      = gauge("last_checkpoint_size_bytes", "Bytes that the newest completed checkpoint has written, in files that the one before does not have.")
	metricLastFullSize  = gauge("last_checkpoint_full_size_bytes", "Bytes of all that the newest completed checkpoint refers to.")
	metricLastCompleted = gauge("last_completed_checkpoint_id", "Number of the newest completed checkpoint.")
	metricLastTime      = gauge("last_checkpoint_completed_timestamp_seconds", "When the newest completed checkpoint was published, in seconds since 1970.")
	metricLastPath      = gauge("last_checkpoint_external_path", "Folder that the newest completed checkpoint lies in, beside the number; the value is 1.", "path")
	metricRestoreTime   = gauge("last_checkpoint_restore_timestamp_seconds", "When the pipeline last began on a restored checkpoint, in seconds since 1970.")
	metricRestored      = gauge("last_checkpoint_restore_id", "Number of the checkpoint that the pipeline began on last.")
	metricRestoreTook   = gauge("last_checkpoint_restore_duration_seconds", "From the beginning of that start until records flowed.")
	metricInterval      = gauge("checkpoint_interval_seconds", "The interval of checkpoints (checkpoint.interval); 0 where none are taken by themselves.")
	metricFailedInARow  = gauge("failed_checkpoints_in_row", "Checkpoints that failed one after the other until now; too many restart the pipeline.")
	metricUnderWay      = gauge("in_progress_checkpoints", "Checkpoints that are under way.")
	metricCompleted     = counter("completed_checkpoints_total", "Checkpoints that were completed and published.")
	metricFailed        = counter("failed_checkpoints_total", "Checkpoints that failed.")
	metricTriggered     = counter("checkpoints_total", "Checkpoints that were triggered.")

	metricLocalCopies = counter("local_recovery_files_total", "Files of checkpoints by what became of their local copies: hit and miss when they were read, failure of a copy.", "result")

	metricAlignment  = gauge("checkpoint_alignment_seconds", "How long a task waited for the barriers of all its inputs, at the newest completed checkpoint.", "task", "subtask")
	metricStartDelay = gauge("checkpoint_start_delay_seconds", "From the trigger of the newest completed checkpoint until its barrier had come to a task.", "task", "subtask")
)

var checkpointMetrics = []*metric{
	metricLastDuration, metricLastSize, metricLastFullSize, metricLastCompleted, metricLastTime, metricLastPath,
	metricRestoreTime, metricRestored, metricRestoreTook, metricInterval, metricFailedInARow, metricUnderWay, metricCompleted, metricFailed, metricTriggered,
	metricLocalCopies, metricAlignment, metricStartDelay,
}

// checkpoints tells of the checkpoints of a pipeline.
func (s sender) checkpoints(c *pipeline.Control) {
	stats, status := c.Checkpoints(), c.Status()
	s.send(metricCompleted, float64(stats.Completed))
	s.send(metricFailed, float64(stats.Failed))
	s.send(metricTriggered, float64(stats.Triggered))
	s.send(metricFailedInARow, float64(stats.FailedInARow))
	s.send(metricInterval, c.CheckpointInterval().Seconds())
	if local, on := c.LocalRecovery(); on {
		s.send(metricLocalCopies, float64(local.Hits), "hit")
		s.send(metricLocalCopies, float64(local.Misses), "miss")
		s.send(metricLocalCopies, float64(local.Failures), "failure")
	}
	inProgress := 0
	for i := range stats.History {
		if at := stats.History[i].Status; at == checkpoint.InProgress || at == checkpoint.Committing {
			inProgress++
		}
	}
	s.send(metricUnderWay, float64(inProgress))
	if r := status.Restored; r != nil {
		s.send(metricRestoreTime, seconds(r.Time.UnixMilli()))
		s.send(metricRestored, float64(r.Number))
		s.send(metricRestoreTook, r.Took.Seconds())
	}
	if stats.Last != nil {
		s.lastCheckpoint(stats.Last, status.Last)
	}
}

// lastCheckpoint tells of the newest completed checkpoint, which lies at path.
func (s sender) lastCheckpoint(last *checkpoint.AttemptStats, path string) {
	s.send(metricLastDuration, last.Duration.Seconds())
	s.send(metricLastSize, float64(last.NewSize))
	s.send(metricLastFullSize, float64(last.Size))
	s.send(metricLastCompleted, float64(last.ID.Number))
	s.send(metricLastTime, seconds(last.Triggered.Add(last.Duration).UnixMilli()))
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		s.send(metricLastPath, 1, path[:i])
	}
	for i := range last.Tasks {
		t := &last.Tasks[i]
		subtask := strconv.Itoa(t.Task.Subtask)
		s.send(metricAlignment, t.Alignment.Seconds(), t.Task.Chain, subtask)
		s.send(metricStartDelay, t.StartDelay.Seconds(), t.Task.Chain, subtask)
	}
}
