package state

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// The pages of a store lie outside of the Go heap: the collector neither walks nor
// counts them, so that a process with a large state does not let its heap grow to twice
// that before it collects, and pages that go are given back at once.
const (
	pageSize  = 64 << 10
	chunkSize = 1 << 20 // pages are mapped this many bytes at a time
	sparePage = 32      // pages that are kept for reuse, and 1/8 of those in use
)

// pagePool hands out pages of pageSize bytes. It is safe for concurrent use. The
// store and each of its snapshots hold it: the last one unmaps its memory.
type pagePool struct {
	mu     sync.Mutex
	chunks [][]byte
	spare  [][]byte // not in use
	cold   [][]byte // not in use, and the system has taken the memory back
	inUse  int
	users  int
	bytes  atomic.Int64 // in use, in and outside of the Go heap
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
	chunk := mapMemory(chunkSize)
	p.chunks = append(p.chunks, chunk)
	for off := chunkSize - pageSize; off >= 0; off -= pageSize {
		p.cold = append(p.cold, chunk[off:off+pageSize:off+pageSize])
	}
}

// put takes a page back.
func (p *pagePool) put(page []byte) {
	p.bytes.Add(-pageSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	if len(p.spare) < sparePage+p.inUse/8 {
		p.spare = append(p.spare, page)
		return
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
		unmapMemory(c)
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
