package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// clockGroup is what the clocks of all source tasks of a run know of each other: how
// far the slowest split of those that wait for one another has come, and since when
// all are idle. The clocks are made before any of them is used.
type clockGroup struct {
	shares []*clockShare

	mu    sync.Mutex
	still map[int]*standstill // by scope
}

// clockShare is one clock's part of the group.
type clockShare struct {
	scope   int
	aligned bool         // the source has a max_drift
	moves   bool         // the source has advance_when_idle
	delay   int64        // milliseconds
	leads   atomic.Int64 // least watermark that others must not be too far ahead of
	top     atomic.Int64 // highest watermark
	idle    atomic.Bool  // no split holds event time back
	ended   atomic.Bool  // every split is read to its end for good
}

// standstill is a time in which all sources of a scope are idle.
type standstill struct {
	since   time.Time // zero while one is not
	base    int64     // where event time stood then
	reached int64     // how far the clock has moved it, ever
}

func newClockGroup() *clockGroup { return &clockGroup{still: map[int]*standstill{}} }

// join adds a clock.
func (g *clockGroup) join(s *clockShare) {
	s.leads.Store(state.MaxTime)
	s.top.Store(state.MinTime)
	g.shares = append(g.shares, s)
	if g.still[s.scope] == nil {
		g.still[s.scope] = &standstill{reached: state.MinTime}
	}
}

// resume tells that event time behind the sources of a scope had come to wm before
// a restart.
func (g *clockGroup) resume(scope int, wm int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.still[scope]
	st.reached = max(st.reached, wm)
}

// slowest is the least watermark among the splits that wait for one another.
func (g *clockGroup) slowest() int64 {
	least := int64(state.MaxTime)
	for _, s := range g.shares {
		if s.aligned {
			least = min(least, s.leads.Load())
		}
	}
	return least
}

// woke tells that a clock is not idle any more.
func (g *clockGroup) woke(scope int) {
	g.mu.Lock()
	g.still[scope].since = time.Time{}
	g.mu.Unlock()
}

// moved is where the clock has moved event time to while all of a scope is idle:
// as far beyond the highest watermark as time has passed since, but not beyond the
// present less the delay, for what is written now must not be late. It is
// state.MinTime while something is not idle, or does not have advance_when_idle.
func (g *clockGroup) moved(scope int, now time.Time) int64 {
	top, delay := int64(state.MinTime), int64(0)
	for _, s := range g.shares {
		if s.scope != scope {
			continue
		}
		ended := s.ended.Load()
		if !ended && !(s.moves && s.idle.Load()) {
			return state.MinTime
		}
		top = max(top, s.top.Load())
		if !ended {
			delay = max(delay, s.delay)
		}
	}
	if top == state.MinTime {
		return state.MinTime // there was never a record
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.still[scope]
	if st.since.IsZero() {
		st.since, st.base = now, max(top, st.reached)
	}
	to := min(plus(st.base, max(0, now.Sub(st.since).Milliseconds())), minus(now.UnixMilli(), delay))
	st.reached = max(st.reached, st.base, to)
	return st.reached
}
