package pipeline

import "time"

// aligner finds the moment at which a barrier has come on all inputs of a task.
// In mode exactly_once an input that delivered the barrier is held back until
// then; in mode at_least_once it goes on. Barriers of one sender come in the order of
// their numbers, so they are complete in that order too.
type aligner struct {
	in      *inbox
	exact   bool
	senders int
	open    map[uint64]*alignment
}

// alignment is a barrier that has come on some inputs.
type alignment struct {
	seen     int
	first    time.Time // when it came on the first
	buffered int64     // bytes of what was held back until it had come on all
}

func newAligner(in *inbox, senders int, exact bool) *aligner {
	return &aligner{in: in, exact: exact, senders: senders, open: map[uint64]*alignment{}}
}

// arrive takes note of a barrier from a sender. When it was the last one it
// returns the alignment, and the inputs held for it go on.
func (a *aligner) arrive(sender int, b *barrier, now time.Time) (*alignment, bool) {
	n := b.id.Number
	al := a.open[n]
	if al == nil {
		al = &alignment{first: now}
		a.open[n] = al
	}
	al.seen++
	if al.seen < a.senders {
		if a.exact {
			a.in.hold(sender, n)
		}
		return nil, false
	}
	delete(a.open, n)
	al.buffered = a.in.release(n)
	return al, true
}
