package kafka

import "testing"

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
