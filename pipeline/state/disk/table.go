package disk

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// table implements state.Table.
type table struct {
	s     *store
	id    uint16
	name  string
	order order
	// The record that was asked for last.
	lastNS int64
	lastID uint32
	last   bool
}

// find gives the record of a namespace.
func (t *table) find(ns int64) (uint32, bool) {
	if t.last && t.lastNS == ns {
		return t.lastID, true
	}
	id, ok := t.order.find(ns)
	if ok {
		t.lastNS, t.lastID, t.last = ns, id, true
	}
	return id, ok
}

// space gives the record of a namespace, and makes it where there is none.
func (t *table) space(ns int64) uint32 {
	if id, ok := t.find(ns); ok {
		return id
	}
	id := t.s.spaces.add(t.id, ns)
	t.order.insert(ns, id)
	t.lastNS, t.lastID, t.last = ns, id, true
	return id
}

// retire removes the record of a namespace that has nothing left.
func (s *store) retire(id uint32) {
	sp := &s.spaces.all[id]
	if !sp.used || sp.head != 0 || sp.scans > 0 || sp.pins > 0 || sp.onDisk(s.epoch) != 0 || sp.dropped > s.flushed {
		return
	}
	t := s.tables[sp.table]
	t.order.remove(sp.ns)
	t.last = false
	s.spaces.remove(id)
}

// changed remembers that the database will hear of a key.
func (s *store) changed(space uint32, group int) {
	s.spaces.all[space].note(s.epoch, s.share(group))
}

// below says that the database, or an epoch that it will hear of, may hold the key
// of a namespace although the cache does not.
func (s *store) below(space uint32, k state.Key) bool {
	sp := &s.spaces.all[space]
	if sp.onDisk(s.epoch)&s.share(k.Group) == 0 || sp.dropped > s.flushed {
		return false
	}
	f := s.filters.now
	return f == nil || f.may(mixed(sp.table, sp.ns, k.Hash))
}

// load reads a key from the database, nil where it has none. The value is good
// until done is called.
func (s *store) load(t *table, ns int64, k state.Key) (value []byte, done func() error) {
	s.keyBuf = append(appendPrefix(s.keyBuf[:0], k.Group, t.id, ns), k.Bytes...)
	v, closer, err := s.db.Get(s.keyBuf)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		s.fail("read the state", err)
		return nil, nil
	}
	return v, closer.Close
}

// keep copies what a call was given, where memory is about to be rearranged that
// it may be borrowed from.
func (s *store) keep(k state.Key, value []byte) (state.Key, []byte) {
	if cap(s.keptKey) > pageSize {
		s.keptKey = nil
	}
	if cap(s.keptValue) > pageSize {
		s.keptValue = nil
	}
	s.keptKey = append(s.keptKey[:0], k.Bytes...)
	k.Bytes = s.keptKey
	if value != nil {
		s.keptValue = append(s.keptValue[:0], value...)
		value = s.keptValue[:len(value):len(value)]
	}
	return k, value
}

// Get implements state.Table.
func (t *table) Get(ns int64, k state.Key) ([]byte, bool) {
	s := t.s
	space, ok := t.find(ns)
	if !ok {
		return nil, false
	}
	tag := tagOf(k.Hash, space)
	if _, r, e := s.lookup(tag, space, k.Bytes); r != 0 {
		e[41] |= used
		return e.value(), !e.is(deleted)
	}
	if !s.below(space, k) {
		return nil, false
	}
	v, done := s.load(t, ns, k)
	if done == nil {
		return nil, false
	}
	defer func() { _ = done() }()
	if s.spaces.all[space].scans > 0 { // a scan has passed it already, or will find it
		s.shown = append(s.shown[:0], v...)
		return s.shown, true
	}
	return s.cached(space, tag, k, v, len(v), 0).value(), true
}

// cached makes an entry of what the database has for a key.
func (s *store) cached(space, tag uint32, k state.Key, v []byte, size int, flags byte) entry {
	room := size
	if need := entrySize(len(k.Bytes), room); !s.fits(need) {
		s.spaces.all[space].pins++
		k, _ = s.keep(k, nil)
		s.reserve(need)
		s.spaces.all[space].pins--
	}
	e := s.add(space, tag, key{k.Bytes, k.Group}, room, size, flags)
	if flags&dirty != 0 {
		s.changed(space, k.Group)
	}
	fill(e.value(), v)
	return e
}

// fill copies v to dst, cut or followed by zeros.
func fill(dst, v []byte) { clear(dst[copy(dst, v):]) }

// Upsert implements state.Table.
func (t *table) Upsert(ns int64, k state.Key, size int) ([]byte, bool) {
	s := t.s
	space := t.space(ns)
	tag := tagOf(k.Hash, space)
	for {
		slot, r, e := s.lookup(tag, space, k.Bytes)
		if r == 0 {
			return s.upsertBelow(t, space, tag, ns, k, size)
		}
		gone := e.is(deleted)
		if s.current(r) && size <= e.room() {
			return s.inPlace(space, e, size), gone
		}
		room := size
		if size > e.room() && e.room() > 0 {
			room = max(size, 2*e.valueLen())
		}
		if need := entrySize(len(k.Bytes), room); !s.fits(need) {
			k, _ = s.keep(k, nil)
			s.reserve(need)
			space = t.space(ns)
			tag = tagOf(k.Hash, space)
			continue
		}
		n := s.rewrite(space, slot, r, e, room, size)
		if gone {
			clear(n.value())
		} else {
			fill(n.value(), e.value())
		}
		s.leave(r, e)
		return n.value(), gone
	}
}

// inPlace gives the value of an entry of the current epoch in another size.
func (s *store) inPlace(space uint32, e entry, size int) []byte {
	old := e.valueLen()
	if e.is(deleted) {
		old = 0
		s.spaces.all[space].live++
		s.counted(space, 1)
	}
	if e[40]&(dirty|deleted) != dirty {
		e[40] = e[40]&^deleted | dirty
		s.changed(space, e.group())
	}
	e[41] |= used
	if old != size {
		e.setValueLen(size)
		if old < size {
			clear(e.value()[old:])
		}
	}
	return e.value()
}

// rewrite makes a changed entry in the place of another one, which the caller
// leaves once the value is copied.
func (s *store) rewrite(space, slot uint32, r ref, e entry, room, size int) entry {
	flags := byte(dirty)
	if s.current(r) {
		flags |= e.flags() & fresh
	}
	if e.is(deleted) {
		s.counted(space, 1)
	}
	n := s.replace(slot, r, room, size, flags)
	s.changed(space, e.group())
	return n
}

// upsertBelow is Upsert of a key that the cache does not know.
func (s *store) upsertBelow(t *table, space, tag uint32, ns int64, k state.Key, size int) ([]byte, bool) {
	if s.below(space, k) {
		if v, done := s.load(t, ns, k); done != nil {
			defer func() { _ = done() }()
			return s.cached(space, tag, k, v, size, dirty).value(), false
		}
	}
	e := s.cached(space, tag, k, nil, size, dirty|fresh)
	s.counted(space, 1)
	return e.value(), true
}

// counted keeps the estimate of the number of keys.
func (s *store) counted(space uint32, n int64) {
	s.spaces.all[space].keys += n
	s.keys.Add(n)
}

// Put implements state.Table.
func (t *table) Put(ns int64, k state.Key, value []byte) {
	s := t.s
	space := t.space(ns)
	tag := tagOf(k.Hash, space)
	for {
		slot, r, e := s.lookup(tag, space, k.Bytes)
		if r != 0 && s.current(r) && len(value) <= e.room() {
			if e.is(deleted) {
				e.setValueLen(0)
			}
			copy(s.inPlace(space, e, len(value)), value)
			return
		}
		if need := entrySize(len(k.Bytes), len(value)); !s.fits(need) {
			k, value = s.keep(k, value)
			s.reserve(need)
			space = t.space(ns)
			tag = tagOf(k.Hash, space)
			continue
		}
		if r != 0 {
			n := s.rewrite(space, slot, r, e, len(value), len(value))
			copy(n.value(), value)
			s.leave(r, e)
			return
		}
		flags := byte(dirty)
		if !s.below(space, k) {
			flags |= fresh
		}
		copy(s.add(space, tag, key{k.Bytes, k.Group}, len(value), len(value), flags).value(), value)
		s.changed(space, k.Group)
		s.counted(space, 1)
		return
	}
}

// Append implements state.Table.
func (t *table) Append(ns int64, k state.Key, tail []byte) {
	s := t.s
	space := t.space(ns)
	tag := tagOf(k.Hash, space)
	for {
		slot, r, e := s.lookup(tag, space, k.Bytes)
		if r == 0 {
			t.appendBelow(ns, space, tag, k, tail)
			return
		}
		old := e.valueLen()
		if e.is(deleted) {
			old = 0
		}
		size := old + len(tail)
		if s.current(r) && size <= e.room() {
			copy(s.inPlace(space, e, size)[old:], tail)
			return
		}
		room := size + size/2
		if need := entrySize(len(k.Bytes), room); !s.fits(need) {
			k, tail = s.keep(k, tail)
			s.reserve(need)
			space = t.space(ns)
			tag = tagOf(k.Hash, space)
			continue
		}
		n := s.rewrite(space, slot, r, e, room, size)
		copy(n.value(), e.valueOf(old))
		copy(n.value()[old:], tail)
		s.leave(r, e)
		return
	}
}

// appendBelow is Append to a key that the cache does not know.
func (t *table) appendBelow(ns int64, space, tag uint32, k state.Key, tail []byte) {
	s := t.s
	if s.below(space, k) {
		if v, done := s.load(t, ns, k); done != nil {
			defer func() { _ = done() }()
			size := len(v) + len(tail)
			if !s.fits(entrySize(len(k.Bytes), size)) {
				k, tail = s.keep(k, tail)
			}
			e := s.cached(space, tag, k, v, size, dirty)
			copy(e.value()[len(v):], tail)
			return
		}
	}
	if !s.fits(entrySize(len(k.Bytes), len(tail))) {
		k, tail = s.keep(k, tail)
	}
	s.cached(space, tag, k, tail, len(tail), dirty|fresh)
	s.counted(space, 1)
}

// Delete implements state.Table.
func (t *table) Delete(ns int64, k state.Key) bool {
	s := t.s
	space, ok := t.find(ns)
	if !ok {
		return false
	}
	tag := tagOf(k.Hash, space)
	slot, r, e := s.lookup(tag, space, k.Bytes)
	if r == 0 {
		return s.deleteBelow(t, ns, space, tag, k)
	}
	if e.is(deleted) {
		return false
	}
	s.counted(space, -1)
	switch {
	case s.current(r) && e.is(fresh):
		s.forget(slot, r, e)
		s.retire(space)
	case s.current(r):
		e[40] |= dirty | deleted
		e.setValueLen(0)
		s.spaces.all[space].live--
		s.spaces.all[space].alive = false
		s.changed(space, k.Group)
	default:
		if need := entrySize(len(k.Bytes), 0); !s.fits(need) {
			k, _ = s.keep(k, nil)
			s.counted(space, 1)
			s.reserve(need)
			return t.Delete(ns, k)
		}
		s.replace(slot, r, 0, 0, dirty|deleted)
		s.leave(r, e)
		s.spaces.all[space].alive = false
		s.changed(space, k.Group)
	}
	return true
}

// deleteBelow is Delete of a key that the cache does not know.
func (s *store) deleteBelow(t *table, ns int64, space, tag uint32, k state.Key) bool {
	if !s.below(space, k) {
		return false
	}
	_, done := s.load(t, ns, k)
	if done == nil {
		return false
	}
	defer func() { _ = done() }()
	s.cached(space, tag, k, nil, 0, dirty|deleted)
	s.spaces.all[space].alive = false
	s.counted(space, -1)
	return true
}
