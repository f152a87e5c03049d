package disk

import "fmt"

// The cache is a log of entries in pages, and an index of the newest entry of each
// key. Time is cut into epochs: the current one's entries are changed in place and
// its pages written to; when it is over, its pages are given to the flushing
// goroutine as they are, and a change copies the entry to the end of the log. So
// the end of an epoch, which a barrier is, costs nothing that grows with the state.
// Once an epoch is flushed, its pages are clean: entries that were looked at since
// move to the end of the log when the page is needed, others leave the cache.

// closedEpoch is an epoch that is over and not known to be flushed.
type closedEpoch struct {
	epoch uint64
	pages []uint32
	drops []uint32 // numbers of the dropped spaces
}

func tagOf(hash uint64, space uint32) uint32 {
	return uint32((hash ^ uint64(space)*0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15 >> 32)
}

func (s *store) entry(r ref) entry {
	return entry(s.pages.all[r>>pageShift].buf[(r&(1<<pageShift-1))*unit:])
}

// current says that an entry may be changed in place.
func (s *store) current(r ref) bool { return s.pages.all[r>>pageShift].epoch == s.epoch }

// lookup gives the slot and the entry of a key, 0 where the cache has none.
func (s *store) lookup(tag, space uint32, key []byte) (slot uint32, r ref, e entry) {
	x := s.index
	for i := tag >> x.shift; ; i = (i + 1) & x.mask {
		t, r := x.slot(i)
		if r == 0 {
			return 0, 0, nil
		}
		if t != tag {
			continue
		}
		e := s.entry(r)
		if e.space() == space && string(e.key()) == string(key) {
			return i, r, e
		}
	}
}

// fits says that an entry can be made without making room first.
func (s *store) fits(size int) bool {
	if size > pageSize {
		return s.granted >= size
	}
	return s.head != 0 && s.pages.all[s.head].used+size <= pageSize
}

// reserve makes room for an entry of that size. Other entries may leave the cache
// or move: what was looked up before is void.
func (s *store) reserve(size int) {
	if size > pageSize {
		s.makeRoom(int64(size))
		s.granted = size
		return
	}
	s.makeRoom(pageSize)
	s.newHead()
}

func (s *store) newHead() {
	s.head = s.takePage(pageSize)
}

func (s *store) takePage(size int) uint32 {
	id := s.pages.take(size, s.epoch)
	s.pages.all[id].at = len(s.mutable)
	s.open += int64(len(s.pages.all[id].buf))
	s.mutable = append(s.mutable, id)
	return id
}

// place makes an entry at the end of the log. There is room, unless it moves from
// a page that is about to be freed.
func (s *store) place(size int) ref {
	if size > pageSize {
		s.granted = 0
		id := s.takePage(size)
		s.pages.all[id].used = size
		s.pages.all[id].live++
		return ref(id << pageShift)
	}
	if !s.fits(size) {
		s.newHead()
	}
	pg := &s.pages.all[s.head]
	r := ref(s.head<<pageShift | uint32(pg.used/unit))
	pg.used += size
	pg.live++
	return r
}

// write makes an entry of a key with room for a value, and leaves the value to the
// caller.
func (s *store) write(space, tag uint32, k key, room, length int, flags byte) (ref, entry) {
	r := s.place(entrySize(len(k.bytes), room))
	e := s.entry(r)
	sp := &s.spaces.all[space]
	e.put32(0, 0)
	e.put32(4, 0)
	e.put32(8, space)
	e.put32(12, tag)
	e.put32(16, uint32(len(k.bytes)))
	e.put32(20, uint32(length))
	e.put32(24, uint32(room))
	putMeta(e, k.group, sp.table, sp.ns)
	e[40], e[41] = flags, used
	copy(e[headerSize:], k.bytes)
	return r, e
}

// add makes an entry of a key that the cache has none of.
func (s *store) add(space, tag uint32, k key, room, length int, flags byte) entry {
	if s.share(k.group) == 0 {
		s.fail("keep the state", fmt.Errorf("a key of group %d came to the store of groups %d to %d", k.group, s.first, s.last))
	}
	r, e := s.write(space, tag, k, room, length, flags)
	s.index.insert(tag, r)
	s.link(space, r, e)
	if flags&deleted == 0 {
		s.spaces.all[space].live++
	}
	return e
}

// replace makes an entry in the place of another one of the key, which stays
// readable until the next call that makes an entry.
func (s *store) replace(slot uint32, old ref, room, length int, flags byte) entry {
	o := s.entry(old)
	space := o.space()
	r, e := s.write(space, o.tag(), key{o.key(), o.group()}, room, length, flags)
	s.index.set(slot, o.tag(), r)
	s.relink(space, old, o, r, e)
	if o.is(deleted) {
		s.spaces.all[space].live++
	}
	if flags&deleted != 0 {
		s.spaces.all[space].live--
	}
	return e
}

// forget takes an entry out of the index and its list.
func (s *store) forget(slot uint32, r ref, e entry) {
	s.index.remove(slot)
	s.unlink(r, e)
	if !e.is(deleted) {
		s.spaces.all[e.space()].live--
	}
	s.leave(r, e)
}

// leave counts an entry out of its page. A page of the current epoch that is left
// by all is free at once.
func (s *store) leave(r ref, e entry) {
	id := uint32(r >> pageShift)
	pg := &s.pages.all[id]
	pg.live--
	if pg.epoch != s.epoch {
		return
	}
	e[40] |= dead
	if pg.live == 0 && id != s.head {
		last := s.mutable[len(s.mutable)-1]
		s.mutable[pg.at] = last
		s.pages.all[last].at = pg.at
		s.mutable = s.mutable[:len(s.mutable)-1]
		s.open -= int64(len(pg.buf))
		s.pages.free(id)
	}
}

func (s *store) link(space uint32, r ref, e entry) {
	sp := &s.spaces.all[space]
	if sp.head != 0 {
		e.setNext(sp.head)
		s.entry(sp.head).setPrev(r)
	}
	sp.head = r
}

func (s *store) unlink(r ref, e entry) {
	prev, next := e.prev(), e.next()
	if prev != 0 {
		s.entry(prev).setNext(next)
	} else {
		s.spaces.all[e.space()].head = next
	}
	if next != 0 {
		s.entry(next).setPrev(prev)
	}
	s.moved(r, next)
}

func (s *store) relink(space uint32, old ref, o entry, r ref, e entry) {
	prev, next := o.prev(), o.next()
	e.setPrev(prev)
	e.setNext(next)
	if prev != 0 {
		s.entry(prev).setNext(r)
	} else {
		s.spaces.all[space].head = r
	}
	if next != 0 {
		s.entry(next).setPrev(r)
	}
	s.moved(old, r)
}

// moved tells the scans under way that an entry is now somewhere else.
func (s *store) moved(from, to ref) {
	for _, c := range s.cursors {
		if c.next == from {
			c.next = to
		}
	}
}

// evictTries is after how many pages of entries that are all in use one is taken
// all the same, and after how many more without any gain memory grows instead.
const evictTries = 16

// makeRoom waits until size more bytes are allowed.
func (s *store) makeRoom(size int64) {
	s.collect()
	s.account()
	if s.open > s.limit/2 && len(s.closed) == 0 {
		s.endEpoch(nil)
	}
	for try := 0; s.pages.bytes+s.index.bytes()+size > s.limit; try++ {
		switch {
		case try > 4*evictTries:
			return
		case len(s.clean) > 0:
			id := s.clean[0]
			s.clean = s.clean[1:]
			s.evict(id, try < evictTries)
		case len(s.closed) > 0:
			if !s.awaitFlush() {
				return
			}
			try = 0
		case len(s.mutable) > 0:
			s.endEpoch(nil)
		default:
			return
		}
	}
}

// evict frees a clean page. Entries that were looked at go to the end of the log,
// where spare says so, and in any case those that a scan relies on.
func (s *store) evict(id uint32, spare bool) {
	for off := 0; off < s.pages.all[id].used && s.pages.all[id].live > 0; {
		r := ref(id<<pageShift | uint32(off/unit))
		e := s.entry(r)
		off += e.size()
		slot, ok := s.index.find(e.tag(), r)
		if !ok {
			continue
		}
		space := e.space()
		sp := &s.spaces.all[space]
		scanned := sp.scans > 0
		switch {
		case scanned && s.held(sp, r, e):
			s.move(slot, r, e, held)
			s.heldAny = true
		case !scanned && spare && e[41]&used != 0 && !e.is(deleted) && e.size() <= pageSize:
			s.move(slot, r, e, 0)
		default:
			if !e.is(deleted) {
				s.filters.left(e)
			}
			s.forget(slot, r, e)
			s.retire(space)
		}
	}
	s.pages.free(id)
	s.index.shrink()
}

// move copies an entry of a clean page to the end of the log.
func (s *store) move(slot uint32, r ref, e entry, mark byte) {
	n := s.replace(slot, r, e.valueLen(), e.valueLen(), e.flags()&deleted)
	n[41] = mark
	copy(n.value(), e.value())
	s.leave(r, e)
}
