package disk

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactor merges what flushes add into the rest of the database, a slice of the
// keys at a time. Pebble would let files gather and then rewrite all it has, and
// the checkpoint after that would upload everything. With slices each flush is
// followed by the rewriting of about the same share: for a small one a 24th,
// for a larger one twice its own share. Flushes of less than a two-hundredth are
// left to Pebble's levels, whose cost is some ten times what is written.
type compactor struct {
	s    *store
	kick chan struct{}
	done chan struct{}

	mu     sync.Mutex
	cond   sync.Cond
	busy   bool     // there are slices to be merged, or may be
	urgent bool     // nobody is to wait for that
	cuts   [][]byte // bounds of the slices, ascending
	size   int64    // of the database when they were made
	next   int      // slice to be merged next
	credit float64  // share of the keys that is to be merged
	whole  bool     // all is to be merged, there being no slices
	small  int64    // bytes of flushes that have given no credit yet
}

const (
	sliceCount = 24
	// smallShare is below which share of the database a flush is left to Pebble.
	smallShare = 1.0 / 200
	// sliceBytes is the least that a slice is made for.
	sliceBytes = 64 << 10
	// smallFiles is how many files gather before a database without slices is merged.
	smallFiles = 8
)

func newCompactor(s *store) *compactor {
	c := &compactor{s: s, kick: make(chan struct{}, 1), done: make(chan struct{})}
	c.cond.L = &c.mu
	return c
}

// bounds are where files of a flush end.
func (c *compactor) bounds() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// flushed tells that a flush added so many bytes.
func (c *compactor) flushed(size int64) {
	tables, err := c.s.db.SSTables()
	if err != nil {
		return
	}
	total := c.s.measure(tables)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.small += size
	share := float64(c.small) / float64(total+1)
	if share >= smallShare {
		c.credit = min(1, c.credit+max(1.0/sliceCount, 2*share))
		c.small = 0
	}
	if large := share >= 0.25; (large || c.next == 0) && (total > c.size*5/4 || total < c.size*3/4) {
		if large || len(c.cuts) == 0 { // files that end elsewhere would tie slices to each other
			c.next, c.credit = 0, 1
		}
		c.slice(tables, total)
	}
	if len(c.cuts) == 0 {
		c.credit = 0
		if c.whole = outgrown(tables, total); !c.whole {
			return
		}
	}
	c.busy = true
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// outgrown says that a database too small for slices is mostly what flushes left in
// its top level since it was last merged. Where keys come and go, that is of no use
// to anyone, and each checkpoint has all of its files.
func outgrown(levels [][]pebble.SSTableInfo, total int64) bool {
	if len(levels) == 0 || len(levels[0]) < smallFiles {
		return false
	}
	var top int64
	for _, t := range levels[0] {
		top += int64(t.Size)
	}
	return top >= total/2
}

// settle waits until what is due is merged, so that a checkpoint taken then has the
// outcome and not also what went into it, and the next one has little that is new.
func (c *compactor) settle(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && !c.urgent && ctx.Err() == nil {
		c.cond.Wait()
	}
}

// hurry says that the flushing goroutine is needed elsewhere.
func (c *compactor) hurry(urgent bool) {
	c.mu.Lock()
	c.urgent = urgent
	c.mu.Unlock()
	c.cond.Broadcast()
}

// settled says that all that was due is merged, or failed to be.
func (c *compactor) settled() {
	c.mu.Lock()
	c.busy = len(c.kick) > 0
	c.mu.Unlock()
	c.cond.Broadcast()
}

// relieve waits until the top level is not much deeper than it should be: what is
// added to it is not held back by Pebble.
func (c *compactor) relieve(ctx context.Context) error {
	if c.s.db.Metrics().Levels[0].Sublevels < 2*maxSublevels {
		return nil
	}
	return c.s.db.Compact(ctx, []byte{0}, appendGroup(nil, namesGroup), false)
}

// slice cuts the keys into parts of about the same size,
// where files begin. Cuts that fit are kept, as files of earlier flushes end there.
func (c *compactor) slice(levels [][]pebble.SSTableInfo, total int64) {
	old := c.cuts
	c.size, c.cuts = total, nil
	if total < sliceCount*sliceBytes {
		return
	}
	var big []pebble.SSTableInfo
	var sum uint64
	for _, l := range levels {
		var n uint64
		for _, t := range l {
			n += t.Size
		}
		if n >= sum {
			big, sum = l, n
		}
	}
	big = slices.Clone(big)
	slices.SortFunc(big, func(a, b pebble.SSTableInfo) int { return bytes.Compare(a.Smallest.UserKey, b.Smallest.UserKey) })
	var last, at uint64 // bytes before the last cut and before this file
	for _, t := range big {
		for len(old) > 0 && bytes.Compare(old[0], t.Smallest.UserKey) <= 0 {
			if at-last >= sum/sliceCount/2 && c.addCut(old[0]) {
				last = at
			}
			old = old[1:]
		}
		if at-last >= sum/sliceCount*3/4 && c.addCut(bytes.Clone(t.Smallest.UserKey)) {
			last = at
		}
		at += t.Size
	}
}

// addCut adds a cut, unless the slice before it or behind it would hold nothing: files
// of the top level may begin with the same key, and the last one with the names of tables.
func (c *compactor) addCut(k []byte) bool {
	start := []byte{0}
	if n := len(c.cuts); n > 0 {
		start = c.cuts[n-1]
	}
	if bytes.Compare(start, before(k)) >= 0 || bytes.Compare(k, appendGroup(nil, namesGroup)) >= 0 {
		return false
	}
	c.cuts = append(c.cuts, k)
	return true
}

// take gives the next slice that is due, end included.
func (c *compactor) take() (start, end []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole {
		c.whole = false
		return []byte{0}, appendGroup(nil, namesGroup), true
	}
	share := 1 / float64(len(c.cuts)+1)
	if len(c.cuts) == 0 || c.credit < 1.0/sliceCount-1e-9 {
		return nil, nil, false
	}
	c.credit -= share
	start, end = []byte{0}, appendGroup(nil, namesGroup)
	if c.next > 0 {
		start = c.cuts[c.next-1]
	}
	if c.next < len(c.cuts) {
		end = before(c.cuts[c.next])
		c.next++
	} else {
		c.next = 0
	}
	return start, end, true
}

// before is a key below k with no other in between that a store would have; nil
// where k is the first of all.
func before(k []byte) []byte {
	k = bytes.TrimRight(bytes.Clone(k), "\x00")
	if len(k) == 0 {
		return nil
	}
	k[len(k)-1]--
	return append(k, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF)
}

func (c *compactor) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		for ctx.Err() == nil {
			start, end, ok := c.take()
			if !ok {
				break
			}
			if err := c.s.db.Compact(ctx, start, end, false); err != nil && ctx.Err() == nil {
				c.s.log.Warn("compaction of the state failed and will be tried again", "err", err)
				break
			}
		}
		if tables, err := c.s.db.SSTables(); err == nil {
			c.s.measure(tables)
		}
		c.settled()
	}
}
