package pipeline

import "time"

// aligner finds the moment at which a barrier has come on all inputs of a task.
// In mode exactly_once an input that delivered the barrier is held back until
// then; in mode at_least_once it goes on.
type aligner struct {
	in      *inbox
	exact   bool
	senders int
	open    map[uint64]*alignment
}

type alignment struct {
	barrier *barrier
	seen    int
	first   time.Time
}

func newAligner(in *inbox, senders int, exact bool) *aligner {
	return &aligner{in: in, exact: exact, senders: senders, open: map[uint64]*alignment{}}
}

// arrive takes note of a barrier from a sender. When it was the last one it
// returns the alignment, and the held inputs go on.
func (a *aligner) arrive(sender int, b *barrier, now time.Time) (*alignment, bool) {
	al := a.open[b.id.Number]
	if al == nil {
		al = &alignment{barrier: b, first: now}
		a.open[b.id.Number] = al
	}
	al.seen++
	if al.seen < a.senders {
		if a.exact {
			a.in.hold(sender)
		}
		return nil, false
	}
	delete(a.open, b.id.Number)
	if a.exact {
		a.in.release()
	}
	return al, true
}
