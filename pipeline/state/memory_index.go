package state

// index finds the entries of a memGroup by the upper 32 bits of their keys' hashes, the
// tag: open addressing with linear probing over words of tag<<32 | ref+1, where 0
// is free. All of a word's ways, through growth and splits too, hang on its
// tag, so that no entry is ever read to move a word.
//
// An index starts with 8 words and doubles up to the 2048 of a page. From there on it
// is extendible hashing (Fagin, Nievergelt, Pippenger, Strong: "Extendible Hashing", 1979):
// a full segment is split in two by the next bit of the tags. So growth never stops the
// stream for longer than it takes to go over one page, however large the table.
type index struct {
	one   segment    // the only one, as long as there is no dir
	dir   []*segment // by the first bits of the tag
	shift uint8      // of a tag, to get its place in dir
}

type segment struct {
	words []uint64
	n     int
	depth uint8 // the first bits of all tags that are the same
	shift uint8 // 32 - log2 of the number of words
}

const minWords = 8

// mostOf is how many words of so many are filled at most: linear probing then looks at
// 3 words where the key is there, and at 13 where it is not.
func mostOf(words int) int { return words * 4 / 5 }

func newSegment(p *pagePool, words int, depth uint8) segment {
	s := segment{words: p.words(words), depth: depth, shift: 32}
	for ; words > 1; words >>= 1 {
		s.shift--
	}
	return s
}

func (x *index) segment(tag uint32) *segment {
	if x.dir == nil {
		return &x.one
	}
	return x.dir[tag>>x.shift]
}

// home is where the search for a tag begins.
func (s *segment) home(tag uint32) int { return int(tag << s.depth >> s.shift) }

// add adds a word for a tag and ref that are not there.
func (x *index) add(p *pagePool, tag, ref uint32) {
	s := x.segment(tag)
	if s.n >= mostOf(len(s.words)) {
		s = x.grow(p, s, tag)
	}
	s.put(uint64(tag)<<32 | uint64(ref+1))
}

func (s *segment) put(word uint64) {
	mask := len(s.words) - 1
	i := s.home(uint32(word >> 32))
	for s.words[i] != 0 {
		i = (i + 1) & mask
	}
	s.words[i] = word
	s.n++
}

// grow makes room in the full segment of a tag, and gives the one of the tag then.
func (x *index) grow(p *pagePool, s *segment, tag uint32) *segment {
	if len(s.words) < pageWords {
		s.resize(p, max(minWords, 2*len(s.words)))
		return s
	}
	for s.n >= mostOf(len(s.words)) {
		if s.depth >= 32-13 {
			// More equal tags than a segment holds: hashes that somebody has chosen.
			s.resize(p, 2*len(s.words))
			return s
		}
		x.split(p, s, tag)
		s = x.segment(tag)
	}
	return s
}

// resize moves the words of a segment to so many.
func (s *segment) resize(p *pagePool, words int) {
	bigger := newSegment(p, words, s.depth)
	for _, w := range s.words {
		if w != 0 {
			bigger.put(w)
		}
	}
	p.dropWords(s.words)
	*s = bigger
}

// split divides a segment in two by the bit of the tags behind its depth.
func (x *index) split(p *pagePool, s *segment, tag uint32) {
	if x.dir == nil {
		first := x.one
		s = &first
		x.one = segment{}
		x.dir, x.shift = []*segment{s}, 32
		p.bytes.Add(8)
	}
	if x.shift == 32-s.depth { // each entry of dir becomes two
		dir := make([]*segment, 2*len(x.dir))
		for i, d := range x.dir {
			dir[2*i], dir[2*i+1] = d, d
		}
		p.bytes.Add(int64(8 * len(x.dir)))
		x.dir, x.shift = dir, x.shift-1
	}
	low, high := newSegment(p, pageWords, s.depth+1), newSegment(p, pageWords, s.depth+1)
	bit := uint64(1) << (63 - s.depth)
	for _, w := range s.words {
		switch {
		case w == 0:
		case w&bit == 0:
			low.put(w)
		default:
			high.put(w)
		}
	}
	p.dropWords(s.words)
	x.point(tag, s.depth, &low, &high)
}

// point lets the half of dir that tags of a common depth lie in refer to two segments.
func (x *index) point(tag uint32, depth uint8, low, high *segment) {
	span := 1 << (32 - x.shift - depth)
	start := int(tag>>x.shift) &^ (span - 1)
	for i := range span {
		if i < span/2 {
			x.dir[start+i] = low
		} else {
			x.dir[start+i] = high
		}
	}
}

// remove frees the word at i: those behind it move up, so that no search ends too
// early and nothing is left behind.
func (x *index) remove(p *pagePool, s *segment, tag uint32, i int) {
	mask := len(s.words) - 1
	for j := (i + 1) & mask; s.words[j] != 0; j = (j + 1) & mask {
		home := s.home(uint32(s.words[j] >> 32))
		if (j-home)&mask >= (j-i)&mask {
			s.words[i] = s.words[j]
			i = j
		}
	}
	s.words[i] = 0
	s.n--
	if len(s.words) > minWords && s.n < len(s.words)/8 {
		x.shrink(p, s, tag)
	}
}

// shrink gives back memory of a segment that is nearly empty.
func (x *index) shrink(p *pagePool, s *segment, tag uint32) {
	if x.dir == nil {
		s.resize(p, max(minWords, len(s.words)/4))
		return
	}
	if s.depth == 0 || len(s.words) > pageWords {
		return
	}
	span := 1 << (32 - x.shift - s.depth)
	other := x.dir[(int(tag>>x.shift)&^(span-1))^span]
	if other.depth != s.depth || len(other.words) > pageWords || s.n+other.n > len(s.words)/3 {
		return
	}
	both := newSegment(p, pageWords, s.depth-1)
	for _, half := range []*segment{s, other} {
		for _, w := range half.words {
			if w != 0 {
				both.put(w)
			}
		}
		p.dropWords(half.words)
	}
	x.point(tag, both.depth, &both, &both)
	if both.depth == 0 {
		p.bytes.Add(-int64(8 * len(x.dir)))
		*x = index{one: both}
	}
}

// replace lets the word of a tag refer to another place.
func (x *index) replace(tag, from, to uint32) {
	s := x.segment(tag)
	mask := len(s.words) - 1
	old := uint64(tag)<<32 | uint64(from+1)
	for i := s.home(tag); ; i = (i + 1) & mask {
		if s.words[i] == old {
			s.words[i] = uint64(tag)<<32 | uint64(to+1)
			return
		}
	}
}

// drop gives everything back.
func (x *index) drop(p *pagePool) {
	p.dropWords(x.one.words)
	var last *segment
	for _, s := range x.dir {
		if s != last {
			p.dropWords(s.words)
		}
		last = s
	}
	p.bytes.Add(-int64(8 * len(x.dir)))
	*x = index{}
}
