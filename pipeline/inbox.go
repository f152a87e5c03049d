package pipeline

import (
	"context"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// item is what travels between tasks: a batch, or a barrier in order with them.
type item struct {
	batch   *connectors.Batch
	edge    int // index of the edge, among those of the receiving chain
	bytes   int
	barrier *barrier
	mark    mark // of the sender, behind the batch
}

// mark is how far event time has come in what a task sends.
type mark struct {
	time int64 // the watermark; state.MaxTime at the end of the input
	idle bool  // no source above has more to give for now
	set  bool
}

// inbox is where a task receives from several others. Each sender has a queue of
// its own, bounded in bytes; the receiver can hold single queues back, which
// is how barriers are aligned.
type inbox struct {
	mu     sync.Mutex
	queues []queue
	next   int           // queue to look at first, so that none starves
	ready  chan struct{} // holds a token when something may have come
}

type queue struct {
	items []item
	head  int
	bytes int
	limit int
	held  bool
	room  chan struct{} // holds a token when something was taken
}

// newInbox makes an inbox for a number of senders, each with room for limit
// bytes; one item always has room.
func newInbox(senders, limit int) *inbox {
	in := &inbox{queues: make([]queue, senders), ready: make(chan struct{}, 1)}
	for i := range in.queues {
		in.queues[i].limit = limit
		in.queues[i].room = make(chan struct{}, 1)
	}
	return in
}

// put adds an item to a sender's queue, waiting for room. Barriers have none to
// wait for: they take no memory.
func (in *inbox) put(ctx context.Context, sender int, it item) error {
	q := &in.queues[sender]
	for {
		in.mu.Lock()
		if it.barrier != nil || q.bytes == 0 || q.bytes+it.bytes <= q.limit {
			q.push(it)
			in.mu.Unlock()
			signal(in.ready)
			return nil
		}
		in.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mark tells the receiver of a sender's queue how far event time has come. It goes
// with the last item where there is one, so that it takes no room.
func (in *inbox) mark(sender int, m mark) {
	m.set = true
	q := &in.queues[sender]
	in.mu.Lock()
	if n := len(q.items); n > q.head && q.items[n-1].barrier == nil {
		q.items[n-1].mark = m
	} else {
		q.push(item{mark: m})
	}
	in.mu.Unlock()
	signal(in.ready)
}

// push appends and reuses the room of what was taken.
func (q *queue) push(it item) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, it)
	q.bytes += it.bytes
}

// take returns the next item of a queue that is not held, and its sender. ok is
// false when there is none; ready tells when to look again.
func (in *inbox) take() (it item, sender int, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range in.queues {
		sender = (in.next + i) % len(in.queues)
		q := &in.queues[sender]
		if q.held || q.head == len(q.items) {
			continue
		}
		it = q.items[q.head]
		q.items[q.head] = item{}
		q.head++
		q.bytes -= it.bytes
		if q.head == len(q.items) {
			q.items, q.head = q.items[:0], 0
		}
		in.next = sender + 1
		signal(q.room)
		return it, sender, true
	}
	return item{}, 0, false
}

// hold keeps a sender's queue back until release.
func (in *inbox) hold(sender int) {
	in.mu.Lock()
	in.queues[sender].held = true
	in.mu.Unlock()
}

// release lets all queues go on.
func (in *inbox) release() {
	in.mu.Lock()
	for i := range in.queues {
		in.queues[i].held = false
	}
	in.mu.Unlock()
	signal(in.ready)
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
