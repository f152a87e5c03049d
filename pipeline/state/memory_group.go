package state

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// memGroup is what a namespace holds of one key group, or of all of a store's, as long
// as that is little. It has no pointers but those to its pages.
//
// A snapshot shares it until the store writes to it: then the store goes on
// with a copy, which shares the pages, and takes the index along, as a snapshot only
// walks over the pages.
type memGroup struct {
	refs    atomic.Int32 // of nodes and snapshots that hold it
	epoch   uint32       // of the store, when it was last known not to be shared
	n       int          // entries
	index   index
	pages   []memPage
	classes []memClass
	vacant  []uint32 // numbers of pages that are not in use
}

// groupBytes is about what a group takes beside its pages and its index.
const groupBytes = 384

func newGroup(s *Memory) *memGroup {
	g := &memGroup{epoch: s.epoch}
	g.refs.Store(1)
	s.pool.bytes.Add(groupBytes)
	return g
}

// own gives the group to write to in place of g, which may be shared.
func (g *memGroup) own(s *Memory) *memGroup {
	if g.refs.Load() == 1 {
		g.epoch = s.epoch
		return g
	}
	c := newGroup(s)
	c.n, c.index, c.classes, c.vacant = g.n, g.index, g.classes, g.vacant
	c.pages = append(make([]memPage, 0, len(g.pages)+1), g.pages...)
	for i := range c.pages {
		if r := c.pages[i].refs; r != nil {
			r.Add(1)
		}
	}
	g.index, g.classes, g.vacant = index{}, nil, nil
	g.release(s.pool)
	return c
}

// release gives up a hold of the group: the last one frees it.
func (g *memGroup) release(pool *pagePool) {
	if g.refs.Add(-1) > 0 {
		return
	}
	for i := range g.pages {
		if g.pages[i].refs != nil {
			g.pages[i].release(pool)
		}
	}
	g.index.drop(pool)
	pool.bytes.Add(-groupBytes)
	g.pages, g.classes, g.vacant = nil, nil, nil
}

// tagOf is the tag of a key, see index.
func tagOf(key []byte) uint32 { return uint32(xxhash.Sum64(key) >> 32) }

// find looks a key up: the page of its entry and the place in it, and the place of
// the index's word.
func (g *memGroup) find(tag uint32, key []byte) (p *memPage, off int, s *segment, i int) {
	s = g.index.segment(tag)
	words := s.words
	if len(words) == 0 {
		return nil, 0, nil, 0
	}
	mask := len(words) - 1
	for i = s.home(tag); ; i = (i + 1) & mask {
		w := words[i&mask]
		if w == 0 {
			return nil, 0, nil, 0
		}
		if uint32(w>>32) != tag {
			continue
		}
		ref := uint32(w) - 1
		p = &g.pages[pageOf(ref)]
		if off = offOf(ref); string(p.key(off)) == string(key) {
			return p, off, s, i
		}
	}
}

// look is find for what is done with each record: few steps, so that the processor works
// at several records while it waits for memory.
func (g *memGroup) look(k Key) (p *memPage, value []byte) {
	tag := uint32(k.Hash >> 32)
	s := g.index.segment(tag)
	words := s.words
	mask := len(words) - 1
	for i := s.home(tag); i < len(words); i = (i + 1) & mask {
		w := words[i]
		if uint32(w>>32) != tag {
			if w == 0 {
				return nil, nil
			}
			continue
		}
		ref := uint32(w) - 1
		page := pageOf(ref)
		if page >= len(g.pages) { // a free word, where the tag is 0
			return nil, nil
		}
		p = &g.pages[page]
		if p.class == largeClass {
			key, value, _ := p.entry(0)
			if string(key) == string(k.Bytes) {
				return p, value
			}
			continue
		}
		b := p.buf[offOf(ref):]
		head := binary.LittleEndian.Uint32(b)
		start, size := int(head&0xFFFF)+slotHead, int(head>>16)
		if start-slotHead == len(k.Bytes) && string(b[slotHead:start]) == string(k.Bytes) {
			return p, b[start : start+size : start+size]
		}
	}
	return nil, nil
}

// add adds a key that is not there, with a value of that size that holds anything.
func (g *memGroup) add(s *Memory, k Key, size, spare int) ([]byte, bool) {
	ref, ok := g.alloc(s, k.Bytes, size, spare)
	if !ok {
		return make([]byte, size), false
	}
	g.index.add(s.pool, uint32(k.Hash>>32), ref)
	g.n++
	_, value, _ := g.pages[pageOf(ref)].entry(offOf(ref))
	return value, true
}

// resize gives the value of an entry another size: keep is how much of it stays, and
// what is behind that holds anything. spare is room to grow. The entry at i of
// seg is the one at p and off.
func (g *memGroup) resize(s *Memory, p *memPage, off int, seg *segment, i, size, keep, spare int) []byte {
	key, value, capacity := p.entry(off)
	if size <= capacity && (spare > 0 || !wasteful(size+len(key), capacity+len(key))) {
		p.own(s)
		return p.cut(off, size)
	}
	ref, ok := g.alloc(s, key, size, spare)
	if !ok {
		return make([]byte, size)
	}
	_, moved, _ := g.pages[pageOf(ref)].entry(offOf(ref))
	copy(moved, value[:min(keep, len(value))])
	old := uint32(seg.words[i]) - 1
	seg.words[i] = seg.words[i]>>32<<32 | uint64(ref+1)
	g.free(s, old)
	// Freeing may have moved entries, this one too.
	ref = uint32(seg.words[i]) - 1
	_, moved, _ = g.pages[pageOf(ref)].entry(offOf(ref))
	return moved
}

// wasteful reports whether an entry takes much less than its room, so that it moves to
// a smaller one.
func wasteful(size, capacity int) bool { return capacity > 128 && size < capacity/4 }

// remove removes the entry at i of seg.
func (g *memGroup) remove(s *Memory, tag uint32, seg *segment, i int) {
	ref := uint32(seg.words[i]) - 1
	g.index.remove(s.pool, seg, tag, i)
	g.n--
	g.free(s, ref)
}

// each visits all entries until visit returns false. Nothing of the group may change
// meanwhile.
func (g *memGroup) each(visit func(key, value []byte) bool) bool {
	for no := range g.pages {
		p := &g.pages[no]
		for i := range int(p.used) {
			off := i * int(p.slot)
			if p.isFree(off) {
				continue
			}
			if key, value, _ := p.entry(off); !visit(key, value) {
				return false
			}
		}
	}
	return true
}

// eachRef visits the places and keys of all entries.
func (g *memGroup) eachRef(visit func(ref uint32, key []byte)) {
	for no := range g.pages {
		p := &g.pages[no]
		for i := range int(p.used) {
			if off := i * int(p.slot); !p.isFree(off) {
				visit(refOf(no, off), p.key(off))
			}
		}
	}
}
