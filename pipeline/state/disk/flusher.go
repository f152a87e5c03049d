package disk

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// flusher writes epochs to the database, in order, in a goroutine of its own. One
// that fails is tried again when there is a new one, or when its memory is needed;
// in the latter case a second failure is the store's.
type flusher struct {
	s       *store
	flushed atomic.Uint64 // the last epoch that is in the database
	entries atomic.Int64  // about how many entries the database has

	mu      sync.Mutex
	cond    sync.Cond
	queue   []*job
	stalled bool // the first of the queue failed
	waiting bool // for memory
	closing bool
	done    chan struct{}
}

func newFlusher(s *store) *flusher {
	f := &flusher{s: s, done: make(chan struct{})}
	f.cond.L = &f.mu
	return f
}

func (f *flusher) submit(j *job) {
	f.mu.Lock()
	f.queue = append(f.queue, j)
	f.stalled = false
	f.mu.Unlock()
	f.cond.Broadcast()
}

// await waits until more than the epoch is flushed, and reports false where that
// will not be.
func (f *flusher) await(epoch uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting, f.stalled = true, false
	f.cond.Broadcast()
	f.s.compactor.hurry(true)
	defer f.s.compactor.hurry(false)
	for f.flushed.Load() <= epoch && !f.closing && !f.s.failed() && len(f.queue) > 0 {
		f.cond.Wait()
	}
	f.waiting = false
	return f.flushed.Load() > epoch
}

// run flushes until stop.
func (f *flusher) run(ctx context.Context) {
	defer close(f.done)
	for {
		j := f.next()
		if j == nil {
			return
		}
		size, err := f.s.flush(ctx, j)
		if err != nil {
			f.failed(fmt.Errorf("flush the state to %s: %w%s", f.s.dir, err, explain(err, f.s.dir)))
			continue
		}
		f.mu.Lock()
		f.flushed.Store(j.epoch)
		f.mu.Unlock()
		f.cond.Broadcast()
		f.s.compactor.flushed(size)
		if j.fork != nil {
			f.s.compactor.settle(ctx)
			j.fork.finish(f.s.checkpoint(j.fork))
		}
		f.mu.Lock()
		f.queue = f.queue[1:]
		f.mu.Unlock()
		f.cond.Broadcast()
	}
}

// next waits for work; nil is the end.
func (f *flusher) next() *job {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closing && (len(f.queue) == 0 || f.stalled) {
		f.cond.Wait()
	}
	if f.closing {
		for _, j := range f.queue {
			j.fork.finish("", errClosed)
		}
		f.queue = nil
		return nil
	}
	return f.queue[0]
}

// failed gives the error to all checkpoints that wait for this epoch.
func (f *flusher) failed(err error) {
	f.mu.Lock()
	for _, j := range f.queue {
		j.fork.finish("", err)
		j.fork = nil
	}
	f.stalled = true
	if f.waiting {
		f.s.failWith(err)
	}
	f.mu.Unlock()
	f.cond.Broadcast()
}

func (f *flusher) stop() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.cond.Broadcast()
	f.s.compactor.hurry(true)
	<-f.done
}
