package state

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// Entries lie in pages, each of which holds slots of one size. A slot is
//
//	0 key length, 2 value length (16 bits each), 4 key, and behind it the value
//
// or, where it is free, 0xFFFF and the next free slot of its page. The first pages
// of a size are small, so that a table of few keys takes little. An entry that is
// larger than maxSlot has a page of its own, without limits:
//
//	0 key length, 8 value length (64 bits each), 16 key, value, room to grow
//
// A ref is a page's number and the place in it in units of 8 bytes.
const (
	slotHead   = 4
	largeHead  = 16
	maxSlot    = 4 << 10
	freeSlot   = 0xFFFF
	firstPage  = 256 // bytes of the first page of a size
	unitBits   = 13
	unitMask   = 1<<unitBits - 1
	maxPages   = 1 << (32 - unitBits)
	largeClass = 0xFF
)

// memPage is a page and what is known of it. Snapshots have copies of it, which
// share its memory.
type memPage struct {
	buf   []byte
	epoch uint32 // of the store, when buf was last known not to be shared
	class uint8
	slot  uint16        // bytes of a slot
	refs  *atomic.Int32 // of those who share buf
	// prev and next are the neighbours, +1, among the pages of the size that have room.
	prev, next uint32
	slots      uint16 // how many there are
	used       uint16 // how many were ever in use: none behind them
	live       uint16 // how many hold an entry
	free       uint16 // the first free one among the used, +1
}

// memClass is what a group knows of its pages of one size.
type memClass struct {
	id     uint8
	grown  uint8  // how often the size of pages has doubled
	pages  uint32 // how many there are
	room   uint32 // the first page with room, +1
	live   int    // entries
	places int    // slots in all pages
}

// Sizes of slots go by 8 bytes up to 128, and then four to a doubling.
var (
	slotSizes []uint16
	classOf   [maxSlot/8 + 1]uint8
)

func init() {
	for size, step := 8, 8; size <= maxSlot; size += step {
		slotSizes = append(slotSizes, uint16(size))
		if size >= 128 && size&(size-1) == 0 {
			step = size / 4
		}
	}
	class := 0
	for units := range classOf {
		if units*8 > int(slotSizes[class]) {
			class++
		}
		classOf[units] = uint8(class)
	}
}

func refOf(page int, off int) uint32 { return uint32(page)<<unitBits | uint32(off>>3) }

func pageOf(ref uint32) int { return int(ref >> unitBits) }

func offOf(ref uint32) int { return int(ref&unitMask) << 3 }

// entry gives key and value of a ref. capacity is how long the value may become.
func (p *memPage) entry(off int) (key, value []byte, capacity int) {
	if p.class == largeClass {
		k := int(binary.LittleEndian.Uint64(p.buf))
		v := int(binary.LittleEndian.Uint64(p.buf[8:]))
		start := largeHead + k
		return p.buf[largeHead:start:start], p.buf[start : start+v : start+v], len(p.buf) - start
	}
	b := p.buf[off : off+int(p.slot)]
	k, v := int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	start := slotHead + k
	return b[slotHead:start:start], b[start : start+v : start+v], len(b) - start
}

// key is the key of an entry.
func (p *memPage) key(off int) []byte {
	if p.class == largeClass {
		k := int(binary.LittleEndian.Uint64(p.buf))
		return p.buf[largeHead : largeHead+k]
	}
	k := int(binary.LittleEndian.Uint16(p.buf[off:]))
	return p.buf[off+slotHead : off+slotHead+k]
}

// cut sets the length of a value, which its capacity allows, and gives it. What it
// gains holds anything.
func (p *memPage) cut(off, size int) []byte {
	if p.class == largeClass {
		start := largeHead + int(binary.LittleEndian.Uint64(p.buf))
		binary.LittleEndian.PutUint64(p.buf[8:], uint64(size))
		return p.buf[start : start+size : start+size]
	}
	b := p.buf[off : off+int(p.slot)]
	start := slotHead + int(binary.LittleEndian.Uint16(b))
	binary.LittleEndian.PutUint16(b[2:], uint16(size))
	return b[start : start+size : start+size]
}

// grown clears what a value has gained over the old length.
func grown(value []byte, old int) []byte {
	if old < len(value) {
		clear(value[old:])
	}
	return value
}

// isFree reports whether the slot at off holds no entry.
func (p *memPage) isFree(off int) bool {
	return p.class != largeClass && binary.LittleEndian.Uint16(p.buf[off:]) == freeSlot
}

// own makes the memory of a page the group's alone, so that it can be written: the
// first time after a fork it is copied, where the snapshot still needs it.
func (p *memPage) own(s *Memory) {
	if p.epoch != s.epoch {
		p.unshare(s)
	}
}

func (p *memPage) unshare(s *Memory) {
	p.epoch = s.epoch
	if p.refs.Load() == 1 {
		return
	}
	buf := s.pool.buffer(len(p.buf))
	end := len(p.buf)
	if p.class != largeClass {
		end = int(p.used) * int(p.slot)
	}
	copy(buf, p.buf[:end])
	p.release(s.pool)
	p.buf, p.refs = buf, new(atomic.Int32)
	p.refs.Store(1)
}

func (p *memPage) release(pool *pagePool) {
	if p.refs.Add(-1) == 0 {
		pool.drop(p.buf)
	}
}

// class is what the group knows of a size.
func (g *memGroup) class(id uint8) *memClass {
	for i := range g.classes {
		if g.classes[i].id == id {
			return &g.classes[i]
		}
	}
	g.classes = append(g.classes, memClass{id: id})
	return &g.classes[len(g.classes)-1]
}

// alloc makes room for an entry, writes its header and key, and gives the ref. What
// the value holds is undefined. ok is false where the group is full.
func (g *memGroup) alloc(s *Memory, key []byte, size, spare int) (ref uint32, ok bool) {
	need := slotHead + len(key) + size
	if need+spare > maxSlot {
		return g.allocLarge(s, key, size, spare)
	}
	c := g.class(classOf[(need+spare+7)/8])
	if c.room == 0 && !g.addPage(s, c) {
		return 0, false
	}
	no := int(c.room - 1)
	p := &g.pages[no]
	p.own(s)
	var off int
	if p.free != 0 {
		off = int(p.free-1) * int(p.slot)
		p.free = binary.LittleEndian.Uint16(p.buf[off+2:])
	} else {
		off = int(p.used) * int(p.slot)
		p.used++
	}
	p.live++
	c.live++
	if p.live == p.slots {
		g.unlink(c, p)
	}
	b := p.buf[off:]
	binary.LittleEndian.PutUint16(b, uint16(len(key)))
	binary.LittleEndian.PutUint16(b[2:], uint16(size))
	copy(b[slotHead:], key)
	return refOf(no, off), true
}

func (g *memGroup) allocLarge(s *Memory, key []byte, size, spare int) (ref uint32, ok bool) {
	no, ok := g.number(s)
	if !ok {
		return 0, false
	}
	total := (largeHead + len(key) + size + spare + 4095) &^ 4095
	if total == pageSize {
		total += 4096 // else it would be taken for a page of the pool
	}
	p := &g.pages[no]
	*p = memPage{buf: s.pool.buffer(total), refs: new(atomic.Int32), epoch: s.epoch, slots: 1, used: 1, live: 1, class: largeClass}
	p.refs.Store(1)
	binary.LittleEndian.PutUint64(p.buf, uint64(len(key)))
	binary.LittleEndian.PutUint64(p.buf[8:], uint64(size))
	copy(p.buf[largeHead:], key)
	return refOf(no, 0), true
}

// number gives the number of a page that is not in use.
func (g *memGroup) number(s *Memory) (int, bool) {
	if n := len(g.vacant); n > 0 {
		no := g.vacant[n-1]
		g.vacant = g.vacant[:n-1]
		return int(no), true
	}
	if len(g.pages) == maxPages-1 { // the last number is never one, see look
		s.fail(fmt.Errorf("add to a table in memory: a key group holds %d pages and can hold no more; raise max_parallelism or use the disk backend", maxPages))
		return 0, false
	}
	g.pages = append(g.pages, memPage{})
	return len(g.pages) - 1, true
}

// addPage gives a size another page.
func (g *memGroup) addPage(s *Memory, c *memClass) bool {
	no, ok := g.number(s)
	if !ok {
		return false
	}
	slot := int(slotSizes[c.id])
	size := min(max(firstPage, slot)<<c.grown, pageSize)
	if size < pageSize {
		c.grown++
	}
	p := &g.pages[no]
	*p = memPage{buf: s.pool.buffer(size), refs: new(atomic.Int32), epoch: s.epoch,
		slot: uint16(slot), slots: uint16(size / slot), class: c.id}
	p.refs.Store(1)
	c.pages++
	c.places += int(p.slots)
	g.link(c, no)
	return true
}

// link puts a page among those with room.
func (g *memGroup) link(c *memClass, no int) {
	p := &g.pages[no]
	p.prev, p.next = 0, c.room
	if c.room != 0 {
		g.pages[c.room-1].prev = uint32(no + 1)
	}
	c.room = uint32(no + 1)
}

func (g *memGroup) unlink(c *memClass, p *memPage) {
	if p.prev != 0 {
		g.pages[p.prev-1].next = p.next
	} else {
		c.room = p.next
	}
	if p.next != 0 {
		g.pages[p.next-1].prev = p.prev
	}
	p.prev, p.next = 0, 0
}

// free gives the room of an entry back that the index does not know any more.
func (g *memGroup) free(s *Memory, ref uint32) {
	no, off := pageOf(ref), offOf(ref)
	p := &g.pages[no]
	if p.class == largeClass {
		g.removePage(s, no)
		return
	}
	c := g.class(p.class)
	c.live--
	p.live--
	if p.live+1 == p.slots {
		g.link(c, no)
	}
	if p.live == 0 && (c.pages > 1 || len(p.buf) > firstPage) {
		g.retire(s, c, no)
		return
	}
	p.own(s)
	binary.LittleEndian.PutUint16(p.buf[off:], freeSlot)
	binary.LittleEndian.PutUint16(p.buf[off+2:], p.free)
	p.free = uint16(off/int(p.slot)) + 1
	if g.sparse(c, p) {
		g.evacuate(s, c, no)
	}
}

// sparse reports whether the entries of a page should move elsewhere: to other pages
// of its size, which have room for them and are less than half full taken together, or,
// where it is the only one, to a smaller page.
func (g *memGroup) sparse(c *memClass, p *memPage) bool {
	if c.pages > 1 {
		return p.live < p.slots/2 && c.live < c.places/2 && int(p.slots) <= c.places-c.live
	}
	if len(p.buf) <= 4*firstPage || c.live >= c.places/8 {
		return false
	}
	for c.grown = 0; max(firstPage, int(p.slot))<<c.grown < 2*c.live*int(p.slot); {
		c.grown++
	}
	return true
}

// retire gives back a page of a size that holds nothing.
func (g *memGroup) retire(s *Memory, c *memClass, no int) {
	p := &g.pages[no]
	g.unlink(c, p)
	c.pages--
	c.places -= int(p.slots)
	if c.pages == 0 {
		c.grown = 0
	}
	g.removePage(s, no)
}

func (g *memGroup) removePage(s *Memory, no int) {
	g.pages[no].release(s.pool)
	g.pages[no] = memPage{}
	if g.vacant = append(g.vacant, uint32(no)); len(g.vacant) == len(g.pages) {
		g.vacant, g.pages = nil, nil
	}
}

// evacuate moves the entries of a sparse page to others and gives it back. So the
// pages of a size are at most a few times what is in them, whatever comes and goes.
func (g *memGroup) evacuate(s *Memory, c *memClass, no int) {
	g.unlink(c, &g.pages[no])
	c.live -= int(g.pages[no].live)
	for i := range int(g.pages[no].used) {
		p := &g.pages[no] // alloc may move the list of pages
		off := i * int(p.slot)
		if p.isFree(off) {
			continue
		}
		key, value, _ := p.entry(off)
		ref, ok := g.alloc(s, key, len(value), int(p.slot)-slotHead-len(key)-len(value))
		if !ok {
			return // there was room: this does not happen
		}
		to := &g.pages[pageOf(ref)]
		copy(to.cut(offOf(ref), len(value)), value)
		g.index.replace(tagOf(key), refOf(no, off), ref)
	}
	p := &g.pages[no]
	c = g.class(p.class)
	c.pages--
	c.places -= int(p.slots)
	g.removePage(s, no)
}
