package kafka

import (
	"runtime"
	"testing"
)

func TestALargeBatchDoesNotInflateThoseBehindIt(t *testing.T) {
	p := newFetchPool(16 << 20)
	large := p.grow(p.take(1<<20), 10<<20)[:10<<20]
	p.PutDecompressBytes(p.lend(large))
	const small, batches = 16 << 10, 300
	held := 0
	for range batches { // all of one answer: none is given back yet
		buf := p.take(small)[:small]
		held += cap(buf)
		p.lend(buf)
	}
	if limit := 40<<20 + batches<<minBufferBits; held > limit {
		t.Errorf("%d batches of %d bytes behind one of 10 MiB hold %d MiB, want at most %d", batches, small, held>>20, limit>>20)
	}
}

func TestBuffersThatNeverComeBackAreNotHeld(t *testing.T) {
	p := newFetchPool(16 << 20)
	const size = 1 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := p.lend(p.take(size)[:10])
	for range 8 * minSweep {
		p.lend(p.take(minBufferBits)[:1])
	}
	for range 64 {
		p.lend(p.take(size)[:1])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 8<<20 {
		t.Errorf("%d MiB are held of what was dropped", held>>20)
	}
	p.forget()
	if n := len(p.lent); n != 1 {
		t.Errorf("%d buffers are known, want the one that is in use", n)
	}
	p.PutDecompressBytes(kept)
	if b := p.take(size); cap(b) < size || len(p.lent) != 0 {
		t.Errorf("a buffer of %d bytes came back as one of %d", size, cap(b))
	}
	runtime.KeepAlive(p)
}
