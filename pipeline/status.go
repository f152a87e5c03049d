package pipeline

import "time"

// Phase is what a pipeline is at as a whole.
type Phase string

// The phases of a pipeline.
const (
	Starting   Phase = "starting"   // nothing flows yet
	Running    Phase = "running"    //
	Restarting Phase = "restarting" // it failed, and starts again
	Stopping   Phase = "stopping"   // it is being ended, or its input has ended
	Ended      Phase = "ended"
)

// Status is what a pipeline is at as a whole.
type Status struct {
	Pipeline   string `json:"pipeline"`
	Job        string `json:"job,omitempty"`
	Generation uint64 `json:"generation,omitempty"` // 0 until it has taken one
	// Storage is where its checkpoints are, as its file says.
	Storage string    `json:"storage,omitempty"`
	Phase   Phase     `json:"phase"`
	Since   time.Time `json:"since"` // of the phase
	// Failure is why it starts again, or what it ended with.
	Failure  string `json:"failure,omitempty"`
	Restarts int    `json:"restarts"`
	// Outcome is how it ended.
	Outcome Outcome `json:"outcome,omitempty"`
	// Last is the path of the newest checkpoint that is published.
	Last string `json:"last_checkpoint,omitempty"`
	// Restored is what the last start went on from.
	Restored *Restored `json:"restored,omitempty"`
}

// Restored is the checkpoint that a start went on from.
type Restored struct {
	Path   string        `json:"path"`
	Number uint64        `json:"number"`
	Time   time.Time     `json:"time"`
	Took   time.Duration `json:"took"` // from the beginning of the start until records flow
}

// Status tells what the pipeline is at.
func (c *Control) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown()
}

// shown is the status with the phase that a person sees. The caller holds the lock.
func (c *Control) shown() Status {
	s := c.status
	if s.Phase != Ended && (c.cancel != nil || c.stop != nil && c.stop.taken) {
		s.Phase = Stopping
	}
	return s
}

// owns tells which job and generation the pipeline works on.
func (c *Control) owns(job string, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Job, c.status.Generation = job, generation
}

// proven tells of a checkpoint that is published.
func (c *Control) proven(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Last = path
}

// CheckpointInterval is that of the pipeline's file, 0 where checkpoints are taken on
// request only.
func (c *Control) CheckpointInterval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan == nil {
		return 0
	}
	return c.plan.Spec.Checkpoint.Interval
}
