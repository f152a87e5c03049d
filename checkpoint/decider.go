package checkpoint

import (
	"slices"
	"time"
)

// request is a wish for a checkpoint, with where its outcome goes.
type request struct {
	Order
	// notBefore holds back a request that is tried again.
	notBefore time.Time
	result    chan outcome // nil for a periodic one
	orphan    bool         // nobody waits for it any more
}

// outcome is what becomes of a request.
type outcome struct {
	meta *Metadata
	err  error
}

// finish hands the outcome to whoever waits. The channel has room for it.
func (r *request) finish(m *Metadata, err error) {
	if r != nil && r.result != nil {
		r.result <- outcome{m, err}
	}
}

// rank orders requests: savepoints, then those by hand, then the final one,
// after which there is nothing left to take.
func (r *request) rank() int {
	switch r.Kind {
	case Savepoint:
		return 0
	case Final:
		return 2
	default:
		return 1
	}
}

// decider says when which checkpoint is triggered next. It does nothing by
// itself and reads no clock. Its rules are those of Flink's
// CheckpointRequestDecider.
type decider struct {
	interval      time.Duration // between periodic ones; 0 for none
	minPause      time.Duration // from a proof to the next periodic one
	maxConcurrent int

	held   bool      // sources wait behind the barrier of a stop: nothing is to be taken
	due    time.Time // of the next periodic one
	proven time.Time // of the last proof; zero before the first
	queue  []*request
}

// maxQueue bounds the requests that wait.
const maxQueue = 1000

// load is what the coordinator is busy with.
type load struct {
	inFlight int  // triggered and not yet proven or failed
	cleaning int  // proven and not yet cleaned up after
	final    bool // a final checkpoint is in flight
}

// start begins the first interval.
func (d *decider) start(now time.Time) { d.due = now.Add(d.period()) }

// period is the time between periodic checkpoints: a pause above the interval stretches it.
func (d *decider) period() time.Duration { return max(d.interval, d.minPause) }

// add puts r into the queue, unless that is full.
func (d *decider) add(r *request) bool {
	if len(d.queue) >= maxQueue {
		return false
	}
	d.queue = append(d.queue, r)
	return true
}

// remove takes r out of the queue, if it is there.
func (d *decider) remove(r *request) {
	d.queue = slices.DeleteFunc(d.queue, func(q *request) bool { return q == r })
}

// next returns the request to start now, or nil and when to ask again. A zero
// time says that only a change of the load or a new request can help.
func (d *decider) next(now time.Time, l load) (*request, time.Time) {
	// Removing old checkpoints slower than new ones come must slow them down
	// visibly, not pile up.
	if d.held || l.final || l.inFlight >= d.maxConcurrent || l.cleaning > d.maxConcurrent {
		return nil, time.Time{}
	}
	r, wake, ending := d.first(now, l)
	if r != nil {
		d.remove(r)
		return r, time.Time{}
	}
	// Sources that have ended have nothing for a periodic checkpoint.
	if ending || d.interval <= 0 {
		return nil, wake
	}
	at := d.due
	if !d.proven.IsZero() {
		at = later(at, d.proven.Add(d.minPause))
	}
	if now.Before(at) {
		return nil, at
	}
	d.due = now.Add(d.period())
	return &request{Order: Order{Kind: Periodic}}, time.Time{}
}

// first is the best request of the queue that may start. Otherwise wake is when
// one will, and ending says that a final one waits.
func (d *decider) first(now time.Time, l load) (best *request, wake time.Time, ending bool) {
	for _, r := range d.queue {
		ending = ending || r.Kind == Final
		// The final checkpoint waits for the proof of every other.
		if r.Kind == Final && l.inFlight > 0 {
			continue
		}
		if now.Before(r.notBefore) {
			if wake.IsZero() || r.notBefore.Before(wake) {
				wake = r.notBefore
			}
			continue
		}
		if best == nil || r.rank() < best.rank() {
			best = r
		}
	}
	return best, wake, ending
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
