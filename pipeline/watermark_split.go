package pipeline

import (
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// splitTime is how far event time has come in one split.
type splitTime struct {
	id    string
	next  int64 // position after the last record handed on
	given int64 // position after the last record that the reader gave out
	until int64 // -1 for none

	newest  int64     // time of the record that the reader gave out last; of no meaning before read
	read    bool      // there was one
	current time.Time // when it was seen at its end last; zero for never

	high int64 // highest event time; of no meaning before seen
	seen bool  // there was a record
	mark int64 // high less the delay, state.MinTime before seen

	since    time.Time // when it was taken over
	joining  bool      // found while the pipeline runs, and nothing came of it yet
	ended    bool      // read to its end for good
	caughtUp bool      // there was nothing more to read at the last tick
	idle     bool
	paused   bool
	behind   int64 // records left at the last tick, -1 where that is not known
	// quiet is since when the split has been seen at its end without a break, and
	// brought nothing; zero while it is not.
	quiet time.Time
}

// holds reports whether event time waits for the split.
func (s *splitTime) holds() bool { return !s.ended && !s.idle && !s.joining }

// leads is the watermark that other splits must not be too far ahead of, state.MaxTime
// where they need not wait for this one. What a split without a record will bring is
// not known: it is waited for until there is nothing to bring, or, where its reader
// does not tell, for a while.
func (s *splitTime) leads(now time.Time, progress bool, patience time.Duration) int64 {
	empty := !s.seen && (s.caughtUp || !progress && now.Sub(s.since) >= patience)
	if empty || !s.holds() {
		return state.MaxTime
	}
	return s.mark
}

// finish ends the split for good.
func (s *splitTime) finish() {
	s.ended, s.idle, s.joining, s.paused = true, false, false, false
}

// judge decides at a tick whether the split is idle.
func (s *splitTime) judge(now time.Time, idleAfter time.Duration) {
	if !s.caughtUp || s.paused || s.ended {
		s.quiet, s.idle = time.Time{}, false
		return
	}
	if s.quiet.IsZero() {
		s.quiet = now
	}
	s.idle = idleAfter > 0 && now.Sub(s.quiet) >= idleAfter
}

// observe takes rows of the split in and marks them, see eventClock. It reports
// whether one counted. Tombstones have no event time.
func (s *splitTime) observe(b *connectors.Batch, rows []uint16, delay, latest int64, refuse func(row uint16, reason string)) (kept []uint16, counted bool) {
	n, mark, high, seen := 0, s.mark, s.high, s.seen
	for _, row := range rows {
		r := &b.Records[row]
		r.Mark = mark
		if r.Value != nil {
			if r.Time > latest {
				refuse(row, tooFarAhead(r.Time, latest))
				continue
			}
			counted = true
			if r.Time > high || !seen {
				high, seen = r.Time, true
				mark = minus(high, delay)
			}
		}
		rows[n] = row
		n++
	}
	s.mark, s.high, s.seen = mark, high, seen
	if counted {
		s.joining, s.idle, s.quiet = false, false, time.Time{}
	}
	return rows[:n], counted
}

func tooFarAhead(t, latest int64) string {
	const layout = "2006-01-02T15:04:05.000Z"
	return fmt.Sprintf("the event time %s (%d) is beyond %s, the clock and max_future: a clock is wrong, or the time is in another unit than milliseconds; raise watermark.max_future if such times are right",
		time.UnixMilli(t).UTC().Format(layout), t, time.UnixMilli(latest).UTC().Format(layout))
}

// minus is t less d, which is not negative, and never wraps.
func minus(t, d int64) int64 {
	if t < state.MinTime+d {
		return state.MinTime
	}
	return t - d
}

// plus is t and d, which is not negative, and never wraps.
func plus(t, d int64) int64 {
	if t > state.MaxTime-d {
		return state.MaxTime
	}
	return t + d
}
