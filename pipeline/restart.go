package pipeline

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-etl/sluice/pipeline/spec"
)

// restarts decides whether and when a failed pipeline is started again.
type restarts struct {
	rule     spec.Restart
	failures []time.Time   // RestartFailureRate: within the span
	count    int           // RestartFixed
	delay    time.Duration // RestartExponential: the next one
}

// next is asked at a failure, with how long the pipeline had run. ok is false
// when it stays down.
func (r *restarts) next(now time.Time, ran time.Duration) (delay time.Duration, ok bool) {
	switch r.rule.Strategy {
	case spec.RestartNone:
		return 0, false
	case spec.RestartFixed:
		r.count++
		return r.rule.Delay, r.count <= r.rule.Attempts
	case spec.RestartFailureRate:
		kept := r.failures[:0]
		for _, t := range r.failures {
			if now.Sub(t) < r.rule.Per {
				kept = append(kept, t)
			}
		}
		r.failures = append(kept, now)
		return r.rule.Delay, len(r.failures) <= r.rule.Attempts
	}
	if r.delay == 0 || ran >= r.rule.ResetAfter {
		r.delay = r.rule.Initial
	}
	delay = r.delay
	r.delay = min(time.Duration(float64(r.delay)*r.rule.Multiplier), r.rule.Max)
	if r.rule.Jitter > 0 {
		spread := float64(delay) * r.rule.Jitter
		delay += time.Duration(spread * (2*rand.Float64() - 1))
	}
	return max(delay, 0), true
}
