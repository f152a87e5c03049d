package pipeline

import (
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// SinkFlow is what a sink has published since Run began, also while nothing flows.
// Sinks that share a committer, such as those of one Kafka transaction, show the same.
type SinkFlow struct {
	Sink      string               `json:"sink"`
	Guarantee connectors.Guarantee `json:"guarantee"`
	// Pending are committables that are not proven, such as prepared transactions or
	// uploads, and OldestPending since when the oldest one waits.
	Pending       int        `json:"pending"`
	OldestPending *time.Time `json:"oldest_pending,omitempty"`
	// Commits that were proven, and tries again after one that failed.
	Commits    int64      `json:"commits"`
	Retries    int64      `json:"retries"`
	LastCommit *time.Time `json:"last_commit,omitempty"`
	LastError  string     `json:"last_error,omitempty"` // of a commit that is being tried again
}

// commitTally is what is known of commits, by committer.
type commitTally struct {
	mu        sync.Mutex
	committer map[string]string // by sink
	byID      map[string]*commitCounts
	through   uint64 // number of the checkpoint whose commits are all proven
}

type commitCounts struct {
	pending          map[committableKey]time.Time
	commits, retries int64
	last             time.Time
	failed           string
}

// committableKey tells committables of one committer apart: they are handed over again
// until they are proven.
type committableKey struct {
	checkpoint connectors.CheckpointID
	data       string
}

func keyOf(c *connectors.Committable) committableKey {
	return committableKey{c.Checkpoint, string(c.Data)}
}

// restart forgets what was pending: a restore tells what still is.
func (t *commitTally) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committer, t.through = map[string]string{}, 0
	for _, c := range t.byID {
		c.pending, c.failed = nil, ""
	}
}

// belongs notes the committer of a sink.
func (t *commitTally) belongs(sink, committer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committer[sink] = committer
}

// of gives the counts of a committer. The caller holds the lock.
func (t *commitTally) of(committer string) *commitCounts {
	c := t.byID[committer]
	if c == nil {
		if t.byID == nil {
			t.byID = map[string]*commitCounts{}
		}
		c = &commitCounts{}
		t.byID[committer] = c
	}
	return c
}

// prepared notes committables that wait for their commit since a time.
func (t *commitTally) prepared(list []connectors.Committable, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		if list[i].Empty || list[i].Checkpoint.Number <= t.through {
			continue
		}
		c, key := t.of(list[i].Committer), keyOf(&list[i])
		if c.pending == nil {
			c.pending = map[committableKey]time.Time{}
		}
		if _, known := c.pending[key]; !known {
			c.pending[key] = since
		}
	}
}

// settled notes that a committable is published, or given up.
func (t *commitTally) settled(cm *connectors.Committable, published bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(cm.Committer)
	delete(c.pending, keyOf(cm))
	c.failed = ""
	if published {
		c.commits++
		c.last = time.Now()
	}
}

// failed notes that a commit is to be tried again.
func (t *commitTally) failed(cm *connectors.Committable, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(cm.Committer)
	c.retries++
	c.failed = why
}

// done notes that all committables up to a checkpoint are settled.
func (t *commitTally) done(n connectors.CheckpointID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.through = max(t.through, n.Number)
	for _, c := range t.byID {
		for key := range c.pending {
			if key.checkpoint.Number <= n.Number {
				delete(c.pending, key)
			}
		}
	}
}

// show fills in what is known of a sink's commits.
func (t *commitTally) show(s *SinkFlow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[t.committer[s.Sink]]
	if c == nil {
		return
	}
	s.Pending, s.Commits, s.Retries, s.LastError = len(c.pending), c.commits, c.retries, c.failed
	if last := c.last; !last.IsZero() {
		s.LastCommit = &last
	}
	for _, since := range c.pending {
		if s.OldestPending == nil || since.Before(*s.OldestPending) {
			s.OldestPending = &since
		}
	}
}
