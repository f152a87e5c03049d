package pipeline

import "github.com/sluice-etl/sluice/pipeline/state"

// flow is how far event time has come in what a task receives: the least of its
// senders that are neither idle nor at their end. Where all are, it is the most
// that an idle one has told; where all are at their end, it is the end of time.
type flow struct {
	senders []mark
	now     mark // what holds for all of them; never goes back
}

func newFlow(senders int) *flow {
	f := &flow{senders: make([]mark, senders), now: mark{time: state.MinTime}}
	for i := range f.senders {
		f.senders[i].time = state.MinTime
	}
	return f
}

// set takes note of a sender's mark, and reports whether that changes the whole.
func (f *flow) set(sender int, m mark) bool {
	f.senders[sender] = m
	least, most := int64(state.MaxTime), int64(state.MinTime)
	active, ended := 0, 0
	for i := range f.senders {
		switch s := &f.senders[i]; {
		case s.time == state.MaxTime:
			ended++
		case s.idle:
			most = max(most, s.time)
		default:
			active++
			least = min(least, s.time)
		}
	}
	next := mark{time: most, idle: true}
	switch {
	case active > 0:
		next = mark{time: least}
	case ended == len(f.senders):
		next = mark{time: state.MaxTime}
	}
	next.time = max(next.time, f.now.time)
	changed := next != f.now
	f.now = next
	return changed
}
