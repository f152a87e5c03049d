package format

import "github.com/sluice-etl/sluice/connectors"

// unknownEntry marks an entry of a decoder that no record has shown yet.
const unknownEntry = -2

// meet prepares for a batch: the entries that its decoder used mean something
// else if it is another one than before.
func (e *jsonEncoder) meet(b *connectors.Batch) {
	if e.shape == nil || len(b.Scan) < scanHeader || b.Scan[0] != scanMark {
		return
	}
	if stamp := b.Scan[1]; stamp != e.stamp {
		e.stamp = stamp
		e.entries = e.entries[:0]
	}
}

// locate finds the fields of the record, and the program for them.
func (e *jsonEncoder) locate(b *connectors.Batch, r int, raw []byte) (p *program, spans []uint32, err error) {
	block, stamp := blockOf(b.Scan, r, len(raw)), e.stamp
	if block == nil {
		if block, err = e.rescan(raw); err != nil {
			return nil, nil, err
		}
		stamp = ownStamp
	}
	spans = block[blockHeader:]
	order, fields := block[blockOrder], block[blockFields]
	p = &e.usual
	if p.fits(stamp, order, fields) {
		return p, spans, nil
	}
	if order == 0 || stamp == noStamp {
		p = &e.odd
	}
	p.stamp, p.order, p.fields = stamp, order, fields
	p.ids = p.ids[:0]
	for at := 0; at+spanWords <= len(spans); at += spanWords {
		p.ids = append(p.ids, e.id(raw, spans[at:], stamp))
	}
	p.build(e.shape)
	return p, spans, nil
}

// blockOf is what the decoder left for record r, whose value has the given
// length; nil if it left nothing.
func blockOf(scan []uint32, r, length int) []uint32 {
	if len(scan) <= scanHeader+r || scan[0] != scanMark || scan[scanHeader+r] == 0 {
		return nil
	}
	block := scan[scanHeader+r:]
	at := int(block[0])
	if at+blockHeader > len(scan) {
		return nil
	}
	block = scan[at:]
	size := blockHeader + int(block[blockFields])*spanWords
	if block[blockLength] != uint32(length) || size > len(block) {
		return nil
	}
	return block[:size]
}

// id is the id of the name of the field at a span.
func (e *jsonEncoder) id(raw []byte, span []uint32, stamp uint32) int32 {
	entry := int(span[spanEntry]) - 1
	switch {
	case entry < 0 || stamp == noStamp:
		return e.nameAt(raw, span[spanKey])
	case stamp == ownStamp:
		return e.keys.entries[entry].id
	}
	for entry >= len(e.entries) {
		e.entries = append(e.entries, unknownEntry)
	}
	if e.entries[entry] == unknownEntry {
		e.entries[entry] = e.nameAt(raw, span[spanKey])
	}
	return e.entries[entry]
}

// nameAt is the id of the field name at a position of raw.
func (e *jsonEncoder) nameAt(raw []byte, at uint32) int32 {
	_, id, _ := e.keys.read(&e.scanner, raw, int(at), noKey)
	return id
}

// rescan makes a block without a decoder's help.
func (e *jsonEncoder) rescan(raw []byte) ([]uint32, error) {
	i := e.begin(raw)
	if i < 0 {
		return nil, e.err()
	}
	if raw[i] != '{' {
		return nil, errNoObject
	}
	misses := e.keys.misses
	e.words = append(e.words[:0], uint32(len(raw)), 0, 0)
	if i = e.fields(raw, i+1); i < 0 || e.end(raw, i) < 0 {
		return nil, e.err()
	}
	e.words[blockFields] = uint32((len(e.words) - blockHeader) / spanWords)
	if misses == e.keys.misses {
		e.words[blockOrder] = e.keys.order()
	}
	return e.words, nil
}

// fields adds the spans of the fields from i to the end of their object.
func (e *jsonEncoder) fields(raw []byte, i int) int {
	i = space(raw, i)
	if i < len(raw) && raw[i] == '}' {
		return i + 1
	}
	for last := int32(firstKey); ; {
		entry, _, value := e.keys.next(&e.scanner, raw, i, last)
		if value < 0 {
			return value
		}
		key := i
		last = entry
		if i = e.skip(raw, value, 1); i < 0 {
			return i
		}
		e.words = append(e.words, uint32(key), uint32(value), uint32(i), uint32(last+1))
		i = space(raw, i)
		if i >= len(raw) || raw[i] != ',' {
			if i < len(raw) && raw[i] == '}' {
				return i + 1
			}
			return e.expected(raw, i, wantComma)
		}
		i = space(raw, i+1)
	}
}
