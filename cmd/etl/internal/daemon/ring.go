package daemon

import "sync"

// ring keeps the newest of what comes, numbered from 1 on. It is safe for concurrent use.
type ring[T any] struct {
	mu      sync.Mutex
	items   []T // oldest at next, once it is full
	next    int
	last    uint64 // number of the newest
	changed chan struct{}
}

func newRing[T any](size int) *ring[T] {
	return &ring[T]{items: make([]T, 0, size), changed: make(chan struct{})}
}

// add makes an item of the number that it gets, and wakes those who wait.
func (r *ring[T]) add(item func(number uint64) T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	it := item(r.last)
	if len(r.items) < cap(r.items) {
		r.items = append(r.items, it)
	} else {
		r.items[r.next] = it
		r.next = (r.next + 1) % len(r.items)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// since are the items with a higher number than after that match, oldest first, the
// newest limit of them. changed is closed at the next item.
func (r *ring[T]) since(after uint64, limit int, match func(*T) bool) (items []T, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := min(r.last-min(after, r.last), uint64(len(r.items)))
	for i := len(r.items) - 1; i >= len(r.items)-int(fresh) && len(items) < limit; i-- {
		if it := &r.items[(r.next+i)%len(r.items)]; match(it) {
			items = append(items, *it)
		}
	}
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
	return items, r.changed
}
