package transform

import (
	"time"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// Delayer is implemented by keyed steps that give rows out after event time has
// passed the rows' own time. What comes next is told of event time with that delay, so
// that a window there does not close before they come.
type Delayer interface {
	// Delay is by how many milliseconds event time can have passed a row at most;
	// state.MaxTime where the row waits for the end of the input.
	Delay() int64
}

// Delay implements Delayer: a window closes lateness after its end, and a session one
// millisecond later than that; a group without a window gives its last row after its ttl.
func (s *aggregate) Delay() int64 {
	switch {
	case s.window.Kind == NoWindow && s.emit.Mode == EmitOnClose:
		return ttlDelay(s.ttl.Span)
	case s.window.Kind == SessionWindow:
		return plusTime(s.lateness, 1)
	}
	return s.lateness
}

// Delay implements Delayer: a last record is given out when the span around the first
// one is over.
func (d *dedup) Delay() int64 {
	switch {
	case d.first || d.emit.Mode != EmitOnClose:
		return 0
	case d.within == 0:
		return state.MaxTime
	}
	return plusTime(d.within, d.within)
}

// Delay implements Delayer: without a window, the best are given out when the input
// ends.
func (t *top) Delay() int64 {
	if t.window == nil && t.emit.Mode == EmitOnClose {
		return state.MaxTime
	}
	return 0
}

// ttlDelay is how long a row is kept by a time to live, 0 for ever. Timers fire up to
// 1/64 of it late.
func ttlDelay(ttl time.Duration) int64 {
	if ttl == 0 {
		return state.MaxTime
	}
	ms := ttl.Milliseconds() + 1
	return ms + ms/64 + 1
}
