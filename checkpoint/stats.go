package checkpoint

import (
	"slices"
	"sync"
	"time"
)

// Status is how far a checkpoint has come.
type Status string

// The statuses of a checkpoint.
const (
	InProgress Status = "in_progress" // tasks have not all acknowledged
	Committing Status = "committing"  // complete or about to be, its commits not proven
	Completed  Status = "completed"   // complete and proven
	Failed     Status = "failed"
	Subsumed   Status = "subsumed" // a later one completed first and holds all of it
)

// Stats is what is shown of a pipeline's checkpoints. It counts those since its tasks
// started; History and Last go further back.
type Stats struct {
	Triggered uint64 `json:"triggered"`
	Completed uint64 `json:"completed"`
	Failed    uint64 `json:"failed"`
	Subsumed  uint64 `json:"subsumed"`
	// FailedInARow counts towards the tolerable failures.
	FailedInARow int `json:"failed_in_a_row"`
	// LateAcks were for a checkpoint that was given up; UnknownAcks for one that
	// never was, or from a task that had acknowledged before.
	LateAcks    uint64 `json:"late_acks"`
	UnknownAcks uint64 `json:"unknown_acks"`
	// Cleaning is how many proven checkpoints wait for what they replace to be removed.
	Cleaning      int    `json:"cleaning"`
	CleanFailures uint64 `json:"clean_failures"`
	// Last is the newest proven one, nil before the first.
	Last *AttemptStats `json:"last,omitempty"`
	// History has the newest first, those in flight included.
	History []AttemptStats `json:"history"`
}

// AttemptStats describes one checkpoint. Durations are in nanoseconds.
type AttemptStats struct {
	ID        ID        `json:"id"`
	Kind      Kind      `json:"kind"`
	Status    Status    `json:"status"`
	Triggered time.Time `json:"triggered"`
	// Duration is from the trigger to the proof or the failure, so far if it is in
	// flight. Of it, Metadata is the time of writing and Commit of publishing.
	Duration time.Duration `json:"duration"`
	Metadata time.Duration `json:"metadata"`
	Commit   time.Duration `json:"commit"`
	// Size is in bytes, NewSize of it in files that the one before does not have.
	Size    int64 `json:"size"`
	NewSize int64 `json:"new_size"`
	// Acked of Tasks.
	Acked   int         `json:"acked"`
	Tasks   []TaskStats `json:"tasks"`
	Failure string      `json:"failure,omitempty"` // reason, empty if none
}

// TaskStats is one task's share in a checkpoint.
type TaskStats struct {
	Task  TaskID `json:"task"`
	Acked bool   `json:"acked"`
	// Latency is from the trigger to the acknowledgement.
	Latency    time.Duration `json:"latency"`
	StartDelay time.Duration `json:"start_delay"`
	Alignment  time.Duration `json:"alignment"`
	Sync       time.Duration `json:"sync"`
	Async      time.Duration `json:"async"`
	// Buffered is how many bytes of input were held back while barriers were aligned.
	Buffered int64 `json:"buffered"`
	Size     int64 `json:"size"`
}

// tracker keeps Stats. It is safe for concurrent use.
type tracker struct {
	tasks []TaskID
	keep  int

	mu      sync.Mutex
	stats   Stats            // without History
	history []*tracked       // oldest first, at most keep and what is in flight
	files   map[string]int64 // of the newest complete one
}

// tracked is one checkpoint's entry.
type tracked struct {
	AttemptStats
	started time.Time // for durations
	size    size
}

// newTracker makes a tracker that goes on from past, the newest first.
func newTracker(tasks []TaskID, keep int, past []AttemptStats) *tracker {
	t := &tracker{tasks: tasks, keep: keep}
	for _, p := range slices.Backward(past[:min(len(past), keep)]) {
		e := &tracked{AttemptStats: p}
		t.history = append(t.history, e)
		if p.Status == Completed {
			t.stats.Last = &e.AttemptStats
		}
	}
	return t
}

// update changes the counters.
func (t *tracker) update(f func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.stats)
}

// begin adds an entry. Its number may still change.
func (t *tracker) begin(id ID, kind Kind, now time.Time) *tracked {
	e := &tracked{started: now}
	e.AttemptStats = AttemptStats{ID: id, Kind: kind, Status: InProgress, Triggered: wall(now)}
	e.Tasks = make([]TaskStats, len(t.tasks))
	for i, task := range t.tasks {
		e.Tasks[i].Task = task
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Triggered++
	t.history = append(t.history, e)
	for i := 0; len(t.history) > t.keep && i < len(t.history)-1; {
		if s := t.history[i].Status; s == InProgress || s == Committing {
			i++
			continue
		}
		t.history = slices.Delete(t.history, i, i+1)
	}
	return e
}

// change edits an entry.
func (t *tracker) change(e *tracked, f func(*AttemptStats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&e.AttemptStats)
}

// ack notes what the task at index i handed over.
func (t *tracker) ack(e *tracked, i int, a *Ack, now time.Time) {
	var s size
	s.add(a)
	full, _ := s.total(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	e.size.add(a)
	e.Acked++
	e.Size, e.NewSize = e.size.total(t.files)
	e.Tasks[i] = TaskStats{
		Task: a.Task, Acked: true, Latency: now.Sub(e.started), Size: full,
		StartDelay: a.StartDelay, Alignment: a.Alignment, Sync: a.Sync, Async: a.Async, Buffered: a.Buffered,
	}
}

// end closes an entry.
func (t *tracker) end(e *tracked, s Status, reason error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Status, e.Duration = s, now.Sub(e.started)
	if reason != nil {
		e.Failure = reason.Error()
	}
	switch s {
	case Completed:
		t.stats.Completed++
		t.stats.Last = &e.AttemptStats
		t.files = e.size.files
	case Subsumed:
		t.stats.Subsumed++
	default:
		t.stats.Failed++
	}
	e.size = size{}
}

// snapshot copies everything.
func (t *tracker) snapshot(now time.Time) Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	if s.Last != nil {
		last := copyStats(s.Last)
		s.Last = &last
	}
	s.History = make([]AttemptStats, 0, len(t.history))
	for _, e := range slices.Backward(t.history) {
		h := copyStats(&e.AttemptStats)
		if h.Status == InProgress || h.Status == Committing {
			h.Duration = now.Sub(e.started)
		}
		s.History = append(s.History, h)
	}
	return s
}

func copyStats(c *AttemptStats) AttemptStats {
	out := *c
	out.Tasks = slices.Clone(c.Tasks)
	return out
}

// wall is t for people and files: in UTC, without the monotonic reading.
func wall(t time.Time) time.Time { return t.UTC().Round(0) }
