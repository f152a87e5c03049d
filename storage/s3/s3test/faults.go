package s3test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"syscall"
	"time"
)

// Effect is what a Rule does to a request that it hits.
type Effect int

// The effects.
const (
	// InternalError answers 500, and does nothing.
	InternalError Effect = iota
	// Unavailable answers 503 ServiceUnavailable, and does nothing.
	Unavailable
	// SlowDown answers 503 SlowDown, and does nothing.
	SlowDown
	// ResetBefore breaks the connection before anything is done.
	ResetBefore
	// LostAnswer does it and breaks the connection all the same.
	LostAnswer
	// CutAnswer breaks the connection in the middle of the answer.
	CutAnswer
	// Conflict answers 409 ConditionalRequestConflict, and does nothing.
	Conflict
	// Denied answers 403 AccessDenied.
	Denied
	// Skewed answers 403 RequestTimeTooSkewed.
	Skewed
	// Slow waits for Delay, then does it.
	Slow
)

// Rule says which requests fail and how. The first one that hits decides.
type Rule struct {
	Op   string // as the API calls it, such as PutObject; empty for all
	Glob string // path.Match on the key, or on its last element; empty for all
	// Nth hits only the n-th matching request, counted from 1; 0 hits each.
	Nth int
	// Probability of a hit, drawn from the server's seed; 0 is always.
	Probability float64
	Effect      Effect
	Delay       time.Duration

	seen int
}

// Faults are rules by which the given part of all requests fails, in equal parts by 500,
// 503, SlowDown, a reset before and one after the request was carried out, and an
// answer that breaks off.
func Faults(probability float64) []Rule {
	effects := []Effect{InternalError, Unavailable, SlowDown, ResetBefore, LostAnswer, CutAnswer}
	if probability <= 0 {
		return nil
	}
	var rules []Rule
	left := float64(len(effects))
	for _, e := range effects {
		// Each rule sees only what the ones before it have let pass.
		p := probability / float64(len(effects))
		rules = append(rules, Rule{Effect: e, Probability: p / (1 - p*(float64(len(effects))-left))})
		left--
	}
	return rules
}

// Set replaces the rules.
func (s *Server) Set(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
	for _, r := range rules {
		s.rules = append(s.rules, &r)
	}
}

// SetDown makes the server refuse all connections, or take them again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

var errReset = fmt.Errorf("read tcp: %w", syscall.ECONNRESET)

// outcome is what the rules make of a request.
type outcome struct {
	answer *answer
	reset  bool // the connection breaks
	after  bool // … when it is done
	cut    bool
	delay  time.Duration
}

// arrive counts a request and applies the rules.
func (s *Server) arrive(c *call) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[c.op]++
	s.count[""]++
	if s.down {
		return outcome{reset: true}
	}
	r := s.hit(c)
	if r == nil {
		return outcome{}
	}
	switch r.Effect {
	case InternalError:
		return outcome{answer: fail(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")}
	case Unavailable:
		return outcome{answer: fail(http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unable to handle request.")}
	case SlowDown:
		return outcome{answer: fail(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")}
	case ResetBefore:
		return outcome{reset: true}
	case LostAnswer:
		return outcome{reset: true, after: true}
	case CutAnswer:
		return outcome{cut: true}
	case Conflict:
		return outcome{answer: fail(http.StatusConflict, "ConditionalRequestConflict", "A conflicting operation is in progress.")}
	case Denied:
		return outcome{answer: fail(http.StatusForbidden, "AccessDenied", "Access Denied")}
	case Skewed:
		return outcome{answer: fail(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")}
	case Slow:
		return outcome{delay: r.Delay}
	}
	return outcome{}
}

func (s *Server) hit(c *call) *Rule {
	for _, r := range s.rules {
		if r.Op != "" && r.Op != c.op || !matches(r.Glob, c.key) {
			continue
		}
		r.seen++
		if r.Nth != 0 && r.seen != r.Nth || r.Probability != 0 && s.rand.Float64() >= r.Probability {
			continue
		}
		return r
	}
	return nil
}

func matches(glob, key string) bool {
	if glob == "" {
		return true
	}
	whole, _ := path.Match(glob, key)
	last, _ := path.Match(glob, path.Base(key))
	return whole || last
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
