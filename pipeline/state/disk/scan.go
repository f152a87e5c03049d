package disk

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// cursor is where a scan goes on in a namespace's list.
type cursor struct{ next ref }

// Scan implements state.Table: first what the cache has of epochs that were not
// flushed when the scan began, then what the database had by then and the former
// does not hide. Entries of the first sort stay in the cache until the end, however
// much visit writes elsewhere; those of the second may leave it.
func (t *table) Scan(ns int64, visit func(k state.Key, value []byte) bool) {
	s := t.s
	space, ok := t.find(ns)
	if !ok {
		return
	}
	s.collect()
	sp := &s.spaces.all[space]
	mask := sp.onDisk(s.epoch)
	if sp.dropped > s.flushed {
		mask = 0
	}
	if sp.scans == 0 {
		sp.floor = s.flushed
	}
	sp.scans++
	s.scans++
	r := ranges{s: s, table: t.id, ns: ns}
	if r.open(mask) && s.scanCache(space, visit) {
		r.each(mask, func(_ int, k, value []byte) bool {
			key := state.MakeKey(k, s.groups)
			if _, in, e := s.lookup(tagOf(key.Hash, space), space, k); in != 0 && s.held(&s.spaces.all[space], in, e) {
				return true
			}
			return visit(key, value)
		})
	}
	r.close()
	s.spaces.all[space].scans--
	s.scans--
	s.letGo(space)
	s.retire(space)
}

// held says that a scan under way takes an entry from the cache.
func (s *store) held(sp *space, r ref, e entry) bool {
	return s.pages.all[r>>pageShift].epoch > sp.floor || e[41]&held != 0
}

// letGo takes the marks off that scans of a namespace have left.
func (s *store) letGo(space uint32) {
	if sp := &s.spaces.all[space]; s.heldAny && sp.scans == 0 {
		for r := sp.head; r != 0; {
			e := s.entry(r)
			e[41] &^= held
			r = e.next()
		}
	}
	s.heldAny = s.heldAny && s.scans > 0
}

// scanCache reports whether visit wants more.
func (s *store) scanCache(space uint32, visit func(k state.Key, value []byte) bool) bool {
	c := &cursor{next: s.spaces.all[space].head}
	s.cursors = append(s.cursors, c)
	defer func() { s.cursors = s.cursors[:len(s.cursors)-1] }()
	for c.next != 0 {
		r := c.next
		e := s.entry(r)
		c.next = e.next()
		if !e.is(deleted) && s.held(&s.spaces.all[space], r, e) && !visit(state.MakeKey(e.key(), s.groups), e.value()) {
			return false
		}
	}
	return true
}

// ranges walks over what the database holds of a namespace.
type ranges struct {
	s     *store
	table uint16
	ns    int64
	iter  *pebble.Iterator
	from  []byte
}

// open reports whether there is nothing in the way of reading.
func (r *ranges) open(mask uint64) bool {
	if mask == 0 || r.iter != nil {
		return true
	}
	if r.s.failed() {
		return false
	}
	iter, err := r.s.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		r.s.fail("read the state", err)
		return false
	}
	r.iter = iter
	return true
}

// each visits the keys in those shares of the key groups, until visit returns
// false. It reports whether it saw all.
func (r *ranges) each(mask uint64, visit func(group int, key, value []byte) bool) bool {
	if mask == 0 || !r.open(mask) {
		return true
	}
	for g := r.s.first; g <= r.s.last; g++ {
		if mask&r.s.share(g) == 0 {
			continue
		}
		r.from = appendPrefix(r.from[:0], g, r.table, r.ns)
		for ok := r.iter.SeekGE(r.from); ok && bytes.HasPrefix(r.iter.Key(), r.from); ok = r.iter.Next() {
			value, err := r.iter.ValueAndErr()
			if err != nil {
				break
			}
			if !visit(g, r.iter.Key()[prefixSize:], value) {
				return false
			}
		}
		if err := r.iter.Error(); err != nil {
			r.s.fail("read the state", err)
			return true
		}
	}
	return true
}

func (r *ranges) close() {
	if r.iter == nil {
		return
	}
	if err := r.iter.Close(); err != nil {
		r.s.fail("read the state", err)
	}
	r.iter = nil
}

// Namespaces implements state.Table.
func (t *table) Namespaces(dst []int64, from, to int64) []int64 {
	s := t.s
	s.collect()
	ids := t.order.ids(s.ids[:0], from, to)
	s.ids = ids
	r := ranges{s: s, table: t.id}
	for _, id := range ids {
		sp := &s.spaces.all[id]
		if sp.live > 0 || s.alive(id, &r) {
			dst = append(dst, sp.ns)
		} else {
			s.retire(id)
		}
	}
	r.close()
	return dst
}

// alive says whether the database has a key in a namespace that the cache does not
// say is deleted.
func (s *store) alive(id uint32, r *ranges) bool {
	sp := &s.spaces.all[id]
	mask := sp.onDisk(s.epoch)
	if mask == 0 || sp.dropped > s.flushed {
		return false
	}
	if sp.alive {
		return true
	}
	r.ns = sp.ns
	hidden := false // by deletions that the database has not heard of
	none := r.each(mask, func(_ int, k, _ []byte) bool {
		hidden = true
		_, in, e := s.lookup(tagOf(state.MakeKey(k, s.groups).Hash, id), id, k)
		return in != 0 && e.is(deleted)
	})
	sp.alive = !none
	if none && !hidden && len(s.closed) == 0 {
		if sp.wrote < s.epoch {
			sp.written = 0
		}
		sp.mask = 0
	}
	return sp.alive
}

// drop is a range of namespaces, both ends included, whose keys go from the
// database, in some shares of the key groups.
type drop struct {
	table       uint16
	first, last int64
	mask        uint64
}

// joinDrops makes one range of dropped namespaces between which the database has
// nothing: each range is deleted in each key group, and Pebble's cost for one is
// that of many keys.
func (s *store) joinDrops() []drop {
	slices.SortFunc(s.drops, func(a, b drop) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.first, b.first))
	})
	joined := s.drops[:0]
	for _, d := range s.drops {
		n := len(joined) - 1
		if n < 0 || joined[n].table != d.table || !s.emptyBetween(d.table, joined[n].last, d.first) {
			joined = append(joined, d)
			continue
		}
		joined[n].last = d.last
		joined[n].mask |= d.mask
	}
	return joined
}

// emptyBetween says that no epoch before this one has left anything in the
// namespaces between two, at least one of which is not there any more.
func (s *store) emptyBetween(table uint16, low, high int64) bool {
	if high-low == 1 {
		return true
	}
	return s.tables[table].order.walk(low+1, high-1, func(id uint32) bool {
		return s.spaces.all[id].onDisk(s.epoch) == 0
	})
}

// Drop implements state.Table.
func (t *table) Drop(ns int64) {
	s := t.s
	id, ok := t.find(ns)
	if !ok {
		return
	}
	s.collect()
	for r := s.spaces.all[id].head; r != 0; {
		e := s.entry(r)
		next := e.next()
		if slot, ok := s.index.find(e.tag(), r); ok {
			s.index.remove(slot)
		}
		s.leave(r, e)
		r = next
	}
	sp := &s.spaces.all[id]
	if mask := sp.onDisk(s.epoch); mask != 0 {
		s.drops = append(s.drops, drop{t.id, ns, ns, mask})
		s.dropped = append(s.dropped, id)
		sp.dropped = s.epoch
	}
	s.keys.Add(-sp.keys)
	sp.head, sp.live, sp.keys, sp.alive = 0, 0, 0, false
	sp.mask, sp.written, sp.wrote = 0, 0, 0
	s.index.shrink()
	s.retire(id)
}
