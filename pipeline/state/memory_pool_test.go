package state

import "testing"

func TestPagesThatAreGivenBackCanBeHadAgain(t *testing.T) {
	p := newPagePool()
	defer p.leave()
	const n = 400 // more than the small chunks have
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
