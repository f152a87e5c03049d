package disk

import (
	"encoding/binary"
)

// Entries of the cache lie in pages outside of the Go heap. A ref names an entry:
// the page's number and the entry's place in it, in units of 8 bytes; 0 is none.
type ref uint32

const (
	pageSize  = 64 << 10
	pageShift = 13 // units in a page: 1<<13 * 8 bytes
	unit      = 8
	chunkSize = 1 << 20 // pages are mapped this many bytes at a time
)

// page is a stretch of memory that entries are appended to. One whose entry is
// larger than pageSize holds that entry alone.
type page struct {
	buf   []byte
	used  int    // bytes
	live  int    // entries that the index refers to
	at    int    // place among the pages of the current epoch
	epoch uint64 // the epoch in which it was written
}

// pages hands out pages by number. It is not safe for concurrent use.
type pages struct {
	all    []page
	spare  []uint32 // numbers of pages that have a buffer and are not in use
	ids    []uint32 // numbers of pages that have none
	chunks [][]byte // what was mapped, to be unmapped in the end
	bytes  int64    // in pages in use
}

func newPages() *pages { return &pages{all: make([]page, 1)} } // page 0 is none

// take gives a page of at least size bytes.
func (p *pages) take(size int, epoch uint64) uint32 {
	if size > pageSize {
		size = (size + 4095) &^ 4095
		id := p.number()
		p.all[id] = page{buf: mapMemory(size), epoch: epoch}
		p.bytes += int64(size)
		return id
	}
	if len(p.spare) == 0 {
		p.grow()
	}
	id := p.spare[len(p.spare)-1]
	p.spare = p.spare[:len(p.spare)-1]
	p.all[id].used, p.all[id].live, p.all[id].epoch = 0, 0, epoch
	p.bytes += pageSize
	return id
}

func (p *pages) number() uint32 {
	if n := len(p.ids); n > 0 {
		id := p.ids[n-1]
		p.ids = p.ids[:n-1]
		return id
	}
	p.all = append(p.all, page{})
	return uint32(len(p.all) - 1)
}

// grow maps some more pages.
func (p *pages) grow() {
	chunk := mapMemory(chunkSize)
	p.chunks = append(p.chunks, chunk)
	for off := chunkSize - pageSize; off >= 0; off -= pageSize {
		id := p.number()
		p.all[id].buf = chunk[off : off+pageSize : off+pageSize]
		p.spare = append(p.spare, id)
	}
}

// free gives a page back. Nothing may look at a large page's memory any more; that
// of others stays readable.
func (p *pages) free(id uint32) {
	pg := &p.all[id]
	p.bytes -= int64(len(pg.buf))
	if len(pg.buf) > pageSize {
		unmapMemory(pg.buf)
		*pg = page{}
		p.ids = append(p.ids, id)
		return
	}
	p.spare = append(p.spare, id)
}

// close gives all memory back.
func (p *pages) close() {
	for i := range p.all {
		if len(p.all[i].buf) > pageSize {
			unmapMemory(p.all[i].buf)
		}
	}
	for _, c := range p.chunks {
		unmapMemory(c)
	}
	*p = pages{}
}

// entry is an entry's bytes: a header, the key and room for the value.
//
//	 0 prev, 4 next: neighbours among the entries of the namespace
//	 8 space: the number of the namespace's record
//	12 tag: of the index
//	16 key length, 20 value length, 24 room for the value
//	28 key group, 30 table
//	32 namespace
//	40 flags: fixed once the epoch is over
//	41 marks of the owner
//
// Only the owner of the store touches prev, next and the marks, also in an epoch that
// is over, while the flushing goroutine reads all the rest.
type entry []byte

const headerSize = 48

// Flags of an entry.
const (
	dirty   = 1 << iota // it is not in the database as it stands here
	deleted             // the key is gone
	fresh               // neither the database nor an older epoch knows the key
	dead                // something newer in the same epoch took its place
)

// Marks of an entry.
const (
	used = 1 << iota // it was looked at since its page was last considered for reuse
	held             // a scan relies on it, although the database has it by now
)

// key is a key with the group that it is in.
type key struct {
	bytes []byte
	group int
}

func putMeta(e entry, group int, table uint16, ns int64) {
	binary.LittleEndian.PutUint16(e[28:], uint16(group))
	binary.LittleEndian.PutUint16(e[30:], table)
	binary.LittleEndian.PutUint64(e[32:], uint64(ns))
}

func entrySize(key, room int) int { return (headerSize + key + room + unit - 1) &^ (unit - 1) }

func (e entry) u32(off int) uint32      { return binary.LittleEndian.Uint32(e[off:]) }
func (e entry) put32(off int, v uint32) { binary.LittleEndian.PutUint32(e[off:], v) }
func (e entry) prev() ref               { return ref(e.u32(0)) }
func (e entry) next() ref               { return ref(e.u32(4)) }
func (e entry) setPrev(r ref)           { e.put32(0, uint32(r)) }
func (e entry) setNext(r ref)           { e.put32(4, uint32(r)) }
func (e entry) space() uint32           { return e.u32(8) }
func (e entry) tag() uint32             { return e.u32(12) }
func (e entry) keyLen() int             { return int(e.u32(16)) }
func (e entry) valueLen() int           { return int(e.u32(20)) }
func (e entry) setValueLen(n int)       { e.put32(20, uint32(n)) }
func (e entry) room() int               { return int(e.u32(24)) }
func (e entry) group() int              { return int(binary.LittleEndian.Uint16(e[28:])) }
func (e entry) table() uint16           { return binary.LittleEndian.Uint16(e[30:]) }
func (e entry) ns() int64               { return int64(binary.LittleEndian.Uint64(e[32:])) }
func (e entry) flags() byte             { return e[40] }
func (e entry) is(flag byte) bool       { return e[40]&flag != 0 }
func (e entry) key() []byte             { n := e.keyLen(); return e[headerSize : headerSize+n : headerSize+n] }
func (e entry) size() int               { return entrySize(e.keyLen(), e.room()) }
func (e entry) value() []byte           { return e.valueOf(e.valueLen()) }
func (e entry) valueOf(n int) []byte    { at := headerSize + e.keyLen(); return e[at : at+n : at+n] }
