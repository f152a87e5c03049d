package disk

import (
	"context"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// filter knows the keys that the database may have and the cache has not, so that
// new keys, of which many streams are full, are not looked for. A key is added when
// it leaves the cache. What is deleted stays in it until it is built anew from what
// the database has.
//
// It is a blocked Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and
// Space-Efficient Bloom Filters, 2007): all bits of a key are in one cache line.
// Bits are set atomically, as the goroutine that builds a filter and the store's own
// add to it at the same time.
type filter struct {
	words []uint64
	n     atomic.Int64 // keys that it did not know when they were added
}

const (
	blockWords = 8
	filterBits = 5 // of a key
	minFilter  = 16 << 10
	maxFilter  = 32 << 20
)

// filterSize is the size of the filter, in bytes, of a store whose caches take so
// many. It is also for how many keys it is meant, at 8 bits for each: of those that
// it does not know, 3 in 100 pass then, and 20 in 100 with twice as many.
func filterSize(memory int64) int64 { return min(max(minFilter, memory/16), maxFilter) &^ 63 }

func newFilter(memory int64) *filter {
	return &filter{words: make([]uint64, filterSize(memory)/8)}
}

func (f *filter) bytes() int64 {
	if f == nil {
		return 0
	}
	return int64(len(f.words)) * 8
}

// mixed is what a filter knows a key by, which does not hang on numbers that only
// this process has given.
func mixed(table uint16, ns int64, hash uint64) uint64 {
	return (hash ^ (uint64(ns)+uint64(table)*0xD6E8FEB86659FD93)*0x9E3779B97F4A7C15) * 0xFF51AFD7ED558CCD
}

// block gives the cache line of a key and what its bits are made from.
func (f *filter) block(h uint64) (block []uint64, rest uint64) {
	at, _ := bits.Mul64(h, uint64(len(f.words)/blockWords))
	h ^= h >> 32
	return f.words[at*blockWords:][:blockWords:blockWords], h * 0xC4CEB9FE1A85EC53
}

// may reports whether a key may have been added.
func (f *filter) may(h uint64) bool {
	b, rest := f.block(h)
	for range filterBits {
		if atomic.LoadUint64(&b[rest>>61])&(1<<(rest>>55&63)) == 0 {
			return false
		}
		rest <<= 9
	}
	return true
}

func (f *filter) add(h uint64) {
	if f == nil || f.may(h) {
		return
	}
	f.n.Add(1)
	b, rest := f.block(h)
	for range filterBits {
		atomic.OrUint64(&b[rest>>61], 1<<(rest>>55&63))
		rest <<= 9
	}
}

// filters are a store's filter, nil where it has none and asks the database, and
// the one that is being built.
type filters struct {
	memory int64
	now    *filter
	next   *filter
	done   chan bool // tells whether next holds all
	wait   uint64    // epochs to be flushed before a building is tried again
	tries  int       // how often it did not fit
}

// left remembers a key that leaves the cache and is in the database.
func (f *filters) left(e entry) {
	if f.now == nil && f.next == nil {
		return
	}
	h := mixed(e.table(), e.ns(), xxhash.Sum64(e.key()))
	f.now.add(h)
	f.next.add(h)
}

// finish takes over a filter that was built.
func (f *filters) finish() {
	if f.next == nil {
		return
	}
	select {
	case ok := <-f.done:
		if ok {
			f.now, f.tries = f.next, 0
		} else {
			f.tries++
			f.wait = 1 << min(f.tries, 10)
		}
		f.next = nil
	default:
	}
}

// tend gives a filter up that knows too many keys to be of use, and begins one that
// will be of some. It is called once for each epoch that is flushed.
func (s *store) tend() {
	f := &s.filters
	if f.next != nil {
		return
	}
	if f.wait > 0 {
		f.wait--
	}
	room := filterSize(f.memory)
	if f.now != nil {
		n := f.now.n.Load()
		if n < 5*room/2 {
			return
		}
		if n > 3*room {
			f.now = nil
		}
	}
	if f.wait == 0 && s.flusher.entries.Load() < 3*room/2 {
		s.buildFilter()
	}
}

// buildFilter begins a filter of all that the database has. Keys that leave the
// cache from now on are added by the store.
func (s *store) buildFilter() {
	f := newFilter(s.filters.memory)
	done := make(chan bool, 1)
	s.filters.next, s.filters.done = f, done
	s.filling.Go(func() { done <- s.fillFilter(s.life, f) })
}

// fillFilter adds what the database has, group by group so that no file is kept
// for long. It reports false where there is more than is of use.
func (s *store) fillFilter(ctx context.Context, f *filter) bool {
	for g := s.first; g <= s.last; g++ {
		iter, err := s.db.NewIter(groupRange(g))
		if err != nil {
			return false
		}
		for ok := iter.First(); ok && ctx.Err() == nil && f.n.Load() <= 2*f.bytes(); ok = iter.Next() {
			_, table, ns, key, err := splitKey(iter.Key())
			if err != nil {
				break
			}
			f.add(mixed(table, ns, xxhash.Sum64(key)))
		}
		err = iter.Error()
		if cerr := iter.Close(); err != nil || cerr != nil || ctx.Err() != nil || f.n.Load() > 2*f.bytes() {
			return false
		}
	}
	return true
}
