package format

import (
	"errors"

	"github.com/sluice-etl/sluice/connectors"
)

// begin prepares for a batch: if a decoder left where the fields are, its
// entries are translated.
func (e *jsonEncoder) begin(b *connectors.Batch) {
	if e.shape == nil || len(b.Scan) < scanHeader || b.Scan[0] != scanMark {
		return
	}
	if stamp := b.Scan[1]; stamp != e.stamp || stamp == 0 {
		e.stamp = stamp
		e.entries = e.entries[:0]
	}
}

// locate finds the fields of the record, and the names among them that matter.
func (e *jsonEncoder) locate(b *connectors.Batch, r int, raw []byte) error {
	e.spans = e.spans[:0]
	clear(e.shape.mask)
	if block := blockOf(b.Scan, r, len(raw)); block != nil {
		return e.known(block, raw)
	}
	return e.rescan(raw)
}

// blockOf is what the decoder left for record r, whose value has the given
// length; nil if it left nothing.
func blockOf(scan []uint32, r, length int) []uint32 {
	if len(scan) <= scanHeader+r || scan[0] != scanMark || scan[scanHeader+r] == 0 {
		return nil
	}
	at := int(scan[scanHeader+r])
	if at+2 > len(scan) || scan[at+1] != uint32(length) {
		return nil
	}
	end := at + 2 + int(scan[at])*spanWords
	if end > len(scan) {
		return nil
	}
	return scan[at+2 : end]
}

// known takes the fields from the decoder's block.
func (e *jsonEncoder) known(block []uint32, raw []byte) error {
	for ; len(block) >= spanWords; block = block[spanWords:] {
		s := spanOf(block)
		entry := int(block[spanEntry]) - 1
		if e.stamp == 0 || entry < 0 {
			s.id = e.nameAt(raw, s.key)
		} else {
			for entry >= len(e.entries) {
				e.entries = append(e.entries, unknownEntry)
			}
			if e.entries[entry] == unknownEntry {
				e.entries[entry] = e.nameAt(raw, s.key)
			}
			s.id = e.entries[entry]
		}
		e.note(s)
	}
	return nil
}

func (e *jsonEncoder) note(s span) {
	if s.id >= 0 {
		e.shape.present(s.id)
	}
	e.spans = append(e.spans, s)
}

// nameAt is the id of the field name at a position of raw.
func (e *jsonEncoder) nameAt(raw []byte, at uint32) int32 {
	_, id, _ := e.keys.read(&e.scanner, raw, int(at), noKey)
	return id
}

// rescan finds the fields without a decoder's help.
func (e *jsonEncoder) rescan(raw []byte) error {
	i := e.scanner.begin(raw)
	if i < 0 {
		return e.err()
	}
	if raw[i] != '{' {
		return errors.New(wantObjectEdits)
	}
	i = space(raw, i+1)
	last := int32(firstKey)
	for more := i >= len(raw) || raw[i] != '}'; more; {
		key := i
		var id int32
		if last, id, i = e.key(raw, i, last); i < 0 {
			return e.err()
		}
		s := span{key: uint32(key), value: uint32(i), id: id}
		if i = e.skip(raw, i, 1); i < 0 {
			return e.err()
		}
		s.end = uint32(i)
		e.note(s)
		i = space(raw, i)
		if i >= len(raw) || raw[i] != ',' && raw[i] != '}' {
			e.expected(raw, i, wantComma)
			return e.err()
		}
		if more = raw[i] == ','; more {
			i = space(raw, i+1)
		}
	}
	if e.end(raw, i+1) < 0 {
		return e.err()
	}
	return nil
}

func (e *jsonEncoder) key(raw []byte, i int, last int32) (entry, id int32, end int) {
	if last >= 0 {
		next := e.keys.entries[last].next
		if k := &e.keys.entries[next]; k.at(raw, i) {
			return next, k.id, space(raw, i+len(k.text))
		}
	}
	return e.keys.read(&e.scanner, raw, i, last)
}
