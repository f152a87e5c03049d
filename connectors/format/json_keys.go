package format

import (
	"encoding/binary"
	"slices"
)

// keyTable knows the field names that occur in one kind of object, as they are
// written, and in which order. Records of a stream look alike: after one field
// mostly comes the one that came after it the last time, and comparing with that
// one is much cheaper than reading and looking up a name.
type keyTable struct {
	names   []string // that are of interest; an id is an index into it
	entries []keyEntry
	index   map[string]int32 // by the name with its quotes, as written
	// misses counts the names that did not follow as they did the last time, changes
	// those of them that changed what is expected to follow. An object without a
	// miss has the fields that the expectations tell, from the first one on.
	misses, changes uint32
}

type keyEntry struct {
	text string // the name as written, with quotes and colon
	// The first sixteen bytes of text, and masks for as many of them as it has.
	words, masks [2]uint64
	id           int32 // noName if it is of no interest
	next         int32 // entry that followed it last
}

func newKeyEntry(text string, id int32) keyEntry {
	var have, ask [16]byte
	for i := range copy(have[:], text) {
		ask[i] = 0xFF
	}
	e := keyEntry{text: text, id: id}
	for i := range e.words {
		e.words[i] = binary.LittleEndian.Uint64(have[8*i:])
		e.masks[i] = binary.LittleEndian.Uint64(ask[8*i:])
	}
	return e
}

const (
	noName = -1
	// The first entry is the empty name, and what an object begins with follows it.
	// It has to be one that can be met, for it is expected until more is known.
	firstKey = 0
	noKey    = -1

	// What a table holds at most, so that objects whose field names are data do not
	// grow it forever.
	maxKeys   = 256
	maxKeyLen = 128
)

func newKeyTable(names []string) keyTable {
	t := keyTable{names: names, index: map[string]int32{}}
	t.add([]byte(`""`), false)
	return t
}

// at reports whether the entry's name and colon stand at i of b.
func (e *keyEntry) at(b []byte, i int) bool {
	end := i + len(e.text)
	return end <= len(b) && string(b[i:end]) == e.text
}

// find is the id of a name, given as its text.
func (t *keyTable) find(name []byte) int32 {
	for i, n := range t.names {
		if n == string(name) {
			return int32(i)
		}
	}
	return noName
}

// next reads the field name at i of b, behind the field with the entry last. It
// returns the entry, noKey if the name is not remembered, its id, and the
// position of the field's value.
func (t *keyTable) next(s *scanner, b []byte, i int, last int32) (entry, id int32, end int) {
	if last >= 0 {
		guess := t.entries[last].next
		e := &t.entries[guess]
		if i+16 <= len(b) && len(e.text) <= 16 {
			if binary.LittleEndian.Uint64(b[i:])&e.masks[0] == e.words[0] && binary.LittleEndian.Uint64(b[i+8:])&e.masks[1] == e.words[1] {
				return guess, e.id, space(b, i+len(e.text))
			}
		} else if e.at(b, i) {
			return guess, e.id, space(b, i+len(e.text))
		}
	}
	return t.read(s, b, i, last)
}

// read is next where the entry that followed last is another one.
func (t *keyTable) read(s *scanner, b []byte, i int, last int32) (entry, id int32, end int) {
	t.misses++
	// An optional field may be missing: then the one behind it comes.
	if last >= 0 {
		skipped := t.entries[t.entries[last].next].next
		if e := &t.entries[skipped]; e.at(b, i) {
			return skipped, e.id, space(b, i+len(e.text))
		}
	}
	if i >= len(b) || b[i] != '"' {
		return noKey, noName, s.expected(b, i, wantKey)
	}
	quote, escapes := s.checkString(b, i+1)
	if quote < 0 {
		return noKey, noName, quote
	}
	if end = s.colon(b, quote+1); end < 0 {
		return noKey, noName, end
	}
	written := b[i : quote+1]
	entry, ok := t.index[string(written)]
	if ok {
		id = t.entries[entry].id
	} else {
		entry, id = t.add(written, escapes)
	}
	if last >= 0 && entry >= 0 {
		t.entries[last].next = entry
		t.changes++
	}
	return entry, id, end
}

func (t *keyTable) add(written []byte, escapes bool) (entry, id int32) {
	name := written[1 : len(written)-1]
	if escapes {
		name = appendUnescaped(nil, name)
	}
	id = t.find(name)
	if len(t.entries) >= maxKeys || len(written) > maxKeyLen {
		return noKey, id
	}
	entry = int32(len(t.entries))
	t.entries = append(t.entries, newKeyEntry(string(written)+":", id))
	t.index[t.entries[entry].text[:len(written)]] = entry
	return entry, id
}

// intern returns the id of name, adding it if it is new.
func intern(names *[]string, name string) int {
	if i := slices.Index(*names, name); i >= 0 {
		return i
	}
	*names = append(*names, name)
	return len(*names) - 1
}

// order names the present expectations, never by 0 within the first billions of
// changes.
func (t *keyTable) order() uint32 { return t.changes + 1 }
