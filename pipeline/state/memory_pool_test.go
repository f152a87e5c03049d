package state

import "testing"

func TestPagesThatAreGivenBackCanBeHadAgain(t *testing.T) {
	p := newPagePool()
	defer p.leave()
	const n = (fewChunks*chunkSize + 2*hugeChunk) / pageSize // more than the small chunks have
	for round := range 3 {
		var pages [][]byte
		for i := range n {
			page := p.get()
			page[0], page[pageSize-1] = byte(i), byte(round)
			pages = append(pages, page)
		}
		for i, page := range pages {
			if page[0] != byte(i) || page[pageSize-1] != byte(round) {
				t.Fatalf("page %d of round %d shares its memory", i, round)
			}
			p.put(page)
		}
		if p.bytes.Load() != 0 || len(p.spare) > keptPages+n/8 || len(p.spare)+len(p.cold) < n {
			t.Errorf("%d bytes in use, %d pages kept, %d given back", p.bytes.Load(), len(p.spare), len(p.cold))
		}
	}
	huge := 0
	for _, c := range p.chunks {
		if c.huge {
			huge++
		}
	}
	if len(p.chunks) <= fewChunks || huge == len(p.chunks) {
		t.Errorf("%d chunks, %d of huge pages", len(p.chunks), huge)
	}
}

func TestAnIndexTakesMoreEqualTagsThanASegmentHolds(t *testing.T) {
	p := newPagePool()
	defer p.leave()
	var x index
	const n = 9000
	for i := range uint32(n) {
		x.add(p, 0xDEADBEEF, i)
		x.add(p, i*0x9E3779B1, i)
	}
	for i := range uint32(n) {
		x.replace(0xDEADBEEF, i, n+i)
	}
	found := map[uint32]bool{}
	s := x.segment(0xDEADBEEF)
	for _, w := range s.words {
		if w>>32 == 0xDEADBEEF {
			found[uint32(w)-1] = true
		}
	}
	if len(found) != n || !found[n] || !found[2*n-1] {
		t.Errorf("%d of %d are there", len(found), n)
	}
	x.drop(p)
	if got := p.bytes.Load(); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}
