package state

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The pages of a store lie outside of the Go heap: the collector neither walks nor
// counts them, so that a process with a large state does not let its heap grow to twice
// that before it collects, and pages that go are given back at once.
const (
	// The first write to a page after a fork copies it, into memory that the system may
	// have to find first, which records wait for: a batch of records of as many keys meets
	// as many pages. So they are those of the system.
	pageSize = 4 << 10
	// Pages are mapped in chunks. Those of a state that has grown large are made of huge
	// pages of the system, where it has them: otherwise an update spends more time on
	// finding its memory than on fetching it.
	chunkSize = 1 << 20
	fewChunks = 8 // from here on they are large ones
	hugeChunk = 8 << 20
	hugePage  = 2 << 20
	// keptPages are kept for reuse, and 1/8 of those in use: the system may have others.
	keptPages = 512
)

// pagePool hands out pages of pageSize bytes. It is safe for concurrent use. The
// store and each of its snapshots hold it: the last one unmaps its memory.
type pagePool struct {
	mu     sync.Mutex
	chunks []*chunk // by their addresses
	spare  [][]byte // not in use
	cold   [][]byte // not in use, and the system has taken the memory back
	inUse  int
	users  int
	bytes  atomic.Int64 // in use, in and outside of the Go heap
}

// chunk is a mapping.
type chunk struct {
	mapped []byte
	pages  []byte // the part that is in use
	huge   bool   // it may have huge pages
}

func newPagePool() *pagePool { return &pagePool{users: 1} }

// get gives a page, which holds anything.
func (p *pagePool) get() []byte {
	p.bytes.Add(pageSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse++
	from := &p.spare
	if len(p.spare) == 0 {
		if from = &p.cold; len(p.cold) == 0 {
			p.grow()
		}
	}
	last := len(*from) - 1
	page := (*from)[last]
	(*from)[last] = nil
	*from = (*from)[:last]
	return page
}

func (p *pagePool) grow() {
	c := &chunk{}
	if c.huge = len(p.chunks) >= fewChunks; c.huge {
		c.mapped = mapMemory(hugeChunk)
		c.pages = hugeMemory(c.mapped)
	} else {
		c.mapped = mapMemory(chunkSize)
		c.pages = c.mapped
	}
	i, _ := slices.BinarySearchFunc(p.chunks, c.start(), compareChunk)
	p.chunks = slices.Insert(p.chunks, i, c)
	for off := len(c.pages) - pageSize; off >= 0; off -= pageSize {
		p.cold = append(p.cold, c.pages[off:off+pageSize:off+pageSize])
	}
}

func (c *chunk) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(c.pages))) }

func compareChunk(c *chunk, at uintptr) int {
	switch start := c.start(); {
	case start+uintptr(len(c.pages)) <= at:
		return -1
	case start > at:
		return 1
	}
	return 0
}

// put takes a page back.
func (p *pagePool) put(page []byte) {
	p.bytes.Add(-pageSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	if len(p.spare) < keptPages+p.inUse/8 {
		p.spare = append(p.spare, page)
		return
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(page)))
	if i, ok := slices.BinarySearchFunc(p.chunks, at, compareChunk); ok && p.chunks[i].huge {
		// The system makes huge pages out of others that are partly there: it would take
		// back what it is given here.
		p.chunks[i].huge = false
		ordinaryMemory(p.chunks[i].pages)
	}
	discardMemory(page)
	p.cold = append(p.cold, page)
}

// hold adds a user of the pool, leave takes one away.
func (p *pagePool) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

func (p *pagePool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	for _, c := range p.chunks {
		unmapMemory(c.mapped)
	}
	p.chunks, p.spare, p.cold = nil, nil, nil
}

// buffer gives size bytes: a page of the pool for pageSize, otherwise zeroed memory of
// the heap.
func (p *pagePool) buffer(size int) []byte {
	if size == pageSize {
		return p.get()
	}
	p.bytes.Add(int64(size))
	return make([]byte, size)
}

// drop takes back what buffer gave.
func (p *pagePool) drop(b []byte) {
	if len(b) == pageSize {
		p.put(b)
		return
	}
	p.bytes.Add(-int64(len(b)))
}

const pageWords = pageSize / 8

// words gives n zeroed words of 8 bytes, a power of two.
func (p *pagePool) words(n int) []uint64 {
	if n == pageWords {
		page := p.get()
		clear(page)
		return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(page))), pageWords)
	}
	p.bytes.Add(int64(8 * n))
	return make([]uint64, n)
}

// dropWords takes back what words gave.
func (p *pagePool) dropWords(w []uint64) {
	if len(w) == pageWords {
		p.put(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), pageSize))
		return
	}
	p.bytes.Add(-int64(8 * len(w)))
}
