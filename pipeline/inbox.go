package pipeline

import (
	"context"
	"slices"
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
	waived failedNumbers // barriers for which nothing is held
	ready  chan struct{} // holds a token when something may have come
}

type queue struct {
	items []item
	head  int
	bytes int
	limit int
	held  bool // until barrier number
	until uint64
	room  chan struct{} // holds a token when something was taken
	from  *taskTime     // of the sender; nil where nobody asks how it spends its time
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
		if err := q.awaitRoom(ctx); err != nil {
			return err
		}
	}
}

// awaitRoom waits until something is taken.
func (q *queue) awaitRoom(ctx context.Context) error {
	if q.from != nil {
		q.from.wait(backpressured)
		defer q.from.resume(0)
	}
	select {
	case <-q.room:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queued tells how many bytes wait, and of how many at most.
func (in *inbox) queued() (bytes, limit int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range in.queues {
		bytes += int64(in.queues[i].bytes)
		limit += int64(in.queues[i].limit)
	}
	return bytes, limit
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

// hold keeps a sender's queue back until the barrier of that number is released, or
// waived: its sender has nothing to do with whether the others bring theirs.
func (in *inbox) hold(sender int, n uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.waived.has(n) {
		in.queues[sender].held, in.queues[sender].until = true, n
	}
}

// release lets the queues go on that are held until a barrier. It returns how many bytes
// they held back.
func (in *inbox) release(n uint64) (held int64) {
	in.mu.Lock()
	for i := range in.queues {
		if q := &in.queues[i]; q.held && q.until == n {
			q.held = false
			held += int64(q.bytes)
		}
	}
	in.mu.Unlock()
	signal(in.ready)
	return held
}

// waive lets everything go on that is held until a barrier, now and when it comes on
// further queues: its checkpoint has failed, so that nothing restores the cut. It is
// safe for concurrent use.
func (in *inbox) waive(n uint64) {
	in.mu.Lock()
	in.waived.add(n)
	in.mu.Unlock()
	in.release(n)
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// failedNumbers remembers the newest checkpoints that failed.
type failedNumbers struct{ last []uint64 }

// rememberedNumbers is how many failed checkpoints a slow task can be behind.
const rememberedNumbers = 256

func (s *failedNumbers) has(n uint64) bool { return slices.Contains(s.last, n) }

func (s *failedNumbers) add(n uint64) {
	if len(s.last) == rememberedNumbers {
		s.last = slices.Delete(s.last, 0, 1)
	}
	s.last = append(s.last, n)
}
