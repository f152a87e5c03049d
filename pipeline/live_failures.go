package pipeline

import (
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// Failure is a record that failed and was skipped, sent to the dead letters, or stopped
// the pipeline. It holds nothing of the record itself.
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

// mostFailures is how many failures are remembered.
const mostFailures = 100

// failureRing remembers the newest failures.
type failureRing struct {
	mu   sync.Mutex
	ring []Failure
	next int
}

func (r *failureRing) add(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < mostFailures {
		r.ring = append(r.ring, f)
		return
	}
	r.ring[r.next] = f
	r.next = (r.next + 1) % mostFailures
}

// newest lists the failures, the newest first.
func (r *failureRing) newest() []Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Failure, 0, len(r.ring))
	for i := range r.ring {
		out = append(out, r.ring[(r.next+len(r.ring)-1-i)%len(r.ring)])
	}
	return out
}

// Failures are the newest records that failed, newest first, across restarts and runs.
func (c *Control) Failures() []Failure { return c.failures.newest() }

// remember notes a record that failed, and what became of it.
func (a *attempt) remember(e *connectors.RecordError, outcome spec.Action) {
	f := Failure{
		Time: time.Now(), Operator: operatorOf(e.Step), Kind: e.Kind, Reason: e.Reason, Expression: e.Expr,
		Partition: -1, Offset: -1, Outcome: string(outcome),
	}
	if e.Origin != nil {
		f.Topic, f.Partition, f.Offset = e.Origin.Topic, e.Origin.Partition, e.Offset
	}
	a.opts.Control.failures.add(f)
}
