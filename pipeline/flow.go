package pipeline

import "github.com/sluice-etl/sluice/pipeline/state"

// flow is how far event time has come in what a task receives: the least of its
// senders that are neither idle nor at their end. Where all are, it is the most
// that an idle one has told; where all are at their end, it is the end of time.
//
// The tasks of a keyed step hear the same marks, one a little before the other. What
// one of them says while another has not come there yet says nothing of the rows
// that the other still has, so together they are where the last of them is, and idle
// once all of them are.
type flow struct {
	senders []mark
	first   []int // by sender: the first of those that it is judged together with
	now     mark  // what holds for all of them; never goes back
}

func newFlow(senders int) *flow {
	f := &flow{senders: make([]mark, senders), first: make([]int, senders), now: mark{time: state.MinTime}}
	for i := range f.senders {
		f.senders[i].time, f.first[i] = state.MinTime, i
	}
	return f
}

// join makes n senders from the first on be judged together.
func (f *flow) join(first, n int) {
	for i := range n {
		f.first[first+i] = first
	}
}

// together is the mark of the senders that are judged together from one on.
func (f *flow) together(first int) mark {
	m := mark{time: state.MaxTime, idle: true}
	for i := first; i < len(f.senders) && f.first[i] == first; i++ {
		if s := f.senders[i]; s.time != state.MaxTime {
			m.time, m.idle = min(m.time, s.time), m.idle && s.idle
		}
	}
	return m
}

// set takes note of a sender's mark, and reports whether that changes the whole.
func (f *flow) set(sender int, m mark) bool {
	f.senders[sender] = m
	least, most := int64(state.MaxTime), int64(state.MinTime)
	active, ended := false, true
	for i := range f.senders {
		if f.first[i] != i {
			continue
		}
		switch s := f.together(i); {
		case s.time == state.MaxTime:
		case s.idle:
			ended, most = false, max(most, s.time)
		default:
			ended, active, least = false, true, min(least, s.time)
		}
	}
	next := mark{time: most, idle: true}
	switch {
	case active:
		next = mark{time: least}
	case ended:
		next = mark{time: state.MaxTime}
	}
	next.time = max(next.time, f.now.time)
	changed := next != f.now
	f.now = next
	return changed
}
