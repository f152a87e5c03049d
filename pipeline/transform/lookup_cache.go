package transform

import (
	"sync"
	"sync/atomic"
	"time"
)

// lookupCache keeps answers of a lookup for all subtasks of a step. It is bounded in
// bytes and evicts by SIEVE (Zhang et al., NSDI 2024): entries are in the order in
// which they came, and a hand that goes from the oldest on takes the first that was
// not used since it last came by. A hit so changes one bit and no order, and many
// subtasks read at once.
type lookupCache struct {
	size    int
	ttl     time.Duration
	missing time.Duration

	mu             sync.RWMutex
	byKey          map[string]*cached
	newest, oldest *cached
	hand           *cached
	bytes          int
}

// cached is one answer.
type cached struct {
	key          string
	row          []byte // nil where there is no row
	until        time.Time
	used         atomic.Bool
	newer, older *cached
}

// cachedOverhead is about what an entry takes beside its key and row.
const cachedOverhead = 160

func (c *cached) cost() int { return len(c.key) + len(c.row) + cachedOverhead }

// newLookupCache makes a cache, nil where nothing is to be kept.
func newLookupCache(c LookupCache) *lookupCache {
	if c.Size == 0 || c.TTL == 0 && c.MissingTTL == 0 {
		return nil
	}
	return &lookupCache{
		size: int(c.Size), ttl: time.Duration(c.TTL), missing: time.Duration(c.MissingTTL), byKey: map[string]*cached{},
	}
}

// get finds an answer. The caller holds the lock for reading.
func (c *lookupCache) get(key []byte, now time.Time) (row []byte, ok bool) {
	e := c.byKey[string(key)]
	if e == nil || !now.Before(e.until) {
		return nil, false
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.row, true
}

// put keeps an answer. The caller holds the lock for writing.
func (c *lookupCache) put(key string, row []byte, now time.Time) {
	life := c.ttl
	if row == nil {
		life = c.missing
	}
	if old := c.byKey[key]; old != nil {
		c.remove(old)
	}
	e := &cached{key: key, row: row, until: now.Add(life)}
	if life == 0 || e.cost() > c.size {
		return
	}
	for c.bytes+e.cost() > c.size {
		c.evict()
	}
	c.byKey[key] = e
	c.bytes += e.cost()
	e.older = c.newest
	if c.newest != nil {
		c.newest.newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
}

// evict removes one entry.
func (c *lookupCache) evict() {
	e := c.hand
	for {
		if e == nil {
			e = c.oldest
		}
		if !e.used.Load() {
			break
		}
		e.used.Store(false)
		e = e.newer
	}
	c.hand = e
	c.remove(e)
}

func (c *lookupCache) remove(e *cached) {
	if c.hand == e {
		c.hand = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
	delete(c.byKey, e.key)
	c.bytes -= e.cost()
}
