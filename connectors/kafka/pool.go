package kafka

import (
	"math/bits"
	"sync"
	"unsafe"
	"weak"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	minBufferBits = 16 // 64 KiB
	maxBufferBits = 28 // maxDecompressed
)

// fetchPool keeps the buffers of fetched records: the client takes them while it
// reads an answer and gives them back when the last record in them is recycled.
// It is safe for concurrent use, and asked once a record batch.
type fetchPool struct {
	mu      sync.Mutex
	keep    int // bytes that may lie idle
	idle    int
	buffers [maxBufferBits + 1][][]byte // idle ones, by the power of two that is their size
	records [][]kgo.Record
	// lent holds the whole capacity of each buffer that is out with it cut. The
	// client zeroes what it gives back up to its capacity, which would cost more
	// than the decoding where a buffer is much larger than its content. What it drops,
	// such as what it had fetched of a partition that is paused, never comes back.
	lent  map[weak.Pointer[byte]]int
	sweep int // size of lent at which those that are gone are looked for
	hint  int // size that the last batch needed
}

func newFetchPool(keep int64) *fetchPool {
	return &fetchPool{keep: int(max(keep, 4<<20)), lent: map[weak.Pointer[byte]]int{}, sweep: minSweep}
}

func bufferBits(n int) int {
	return min(max(bits.Len(uint(max(n, 1)-1)), minBufferBits), maxBufferBits)
}

// take returns an empty buffer for about n bytes, or for as many as the last
// batch needed.
func (p *fetchPool) take(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(max(n, p.hint))
}

func (p *fetchPool) get(n int) []byte {
	class := bufferBits(n)
	for c := class; c <= min(class+1, maxBufferBits); c++ {
		if list := p.buffers[c]; len(list) > 0 {
			b := list[len(list)-1]
			p.buffers[c] = list[:len(list)-1]
			p.idle -= cap(b)
			return b
		}
	}
	return make([]byte, 0, max(1<<class, n))
}

// grow returns buf with room for n bytes in all.
func (p *fetchPool) grow(buf []byte, n int) []byte {
	if n <= cap(buf) {
		return buf
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	bigger := append(p.get(n), buf...)
	p.put(buf)
	return bigger
}

// lend gives out the content of buf with its capacity cut to its length.
func (p *fetchPool) lend(buf []byte) []byte {
	n := len(buf)
	if n == 0 {
		p.giveBack(buf)
		return []byte{}
	}
	p.mu.Lock()
	if len(p.lent) >= p.sweep {
		p.forget()
	}
	p.lent[weak.Make(&buf[0])] = cap(buf)
	// Halved at each batch, so that a single large one does not make the buffers of
	// the small ones behind it as large, which are all held until they are read.
	p.hint = max(n, p.hint/2)
	p.mu.Unlock()
	return buf[:n:n]
}

// minSweep is how many buffers may be out before those that are gone are looked for.
const minSweep = 1024

// forget drops what is known of buffers that are gone.
func (p *fetchPool) forget() {
	for at := range p.lent {
		if at.Value() == nil {
			delete(p.lent, at)
		}
	}
	p.sweep = max(minSweep, 2*len(p.lent))
}

func (p *fetchPool) giveBack(buf []byte) {
	p.mu.Lock()
	p.put(buf)
	p.mu.Unlock()
}

func (p *fetchPool) put(buf []byte) {
	class := bits.Len(uint(cap(buf))) - 1 // rounded down: a class never holds less than it says
	if class < minBufferBits || class > maxBufferBits || p.idle+cap(buf) > p.keep {
		return
	}
	p.idle += cap(buf)
	p.buffers[class] = append(p.buffers[class], buf[:0])
}

// GetDecompressBytes implements kgo.PoolDecompressBytes, for the codecs that the
// client decodes.
func (p *fetchPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	return p.take(4 * len(compressed))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *fetchPool) PutDecompressBytes(b []byte) {
	if cap(b) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first := unsafe.SliceData(b)
	at := weak.Make(first)
	if whole, ok := p.lent[at]; ok {
		delete(p.lent, at)
		b = unsafe.Slice(first, whole)
	}
	p.put(b)
}

// maxIdleRecords bounds the idle slices of records; one serves one record batch.
const maxIdleRecords = 64

// GetRecords implements kgo.PoolRecords.
func (p *fetchPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.records) - 1; i >= 0; i-- {
		if r := p.records[i]; cap(r) >= n {
			last := len(p.records) - 1
			p.records[i] = p.records[last]
			p.records[last] = nil
			p.records = p.records[:last]
			return r[:n]
		}
	}
	return make([]kgo.Record, n, n+n/4)
}

// PutRecords implements kgo.PoolRecords.
func (p *fetchPool) PutRecords(r []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) < maxIdleRecords {
		p.records = append(p.records, r)
		return
	}
	// The larger ones stay, so that sizes settle at what batches need.
	at := 0
	for i := range p.records {
		if cap(p.records[i]) < cap(p.records[at]) {
			at = i
		}
	}
	if cap(p.records[at]) < cap(r) {
		p.records[at] = r
	}
}
