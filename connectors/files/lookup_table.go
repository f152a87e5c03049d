package files

import (
	"bytes"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// table holds rows by key without a pointer for each: an index of open addressing
// over entries whose bytes lie in chunks. It is built once and read by many.
type table struct {
	slots   []uint32 // index of an entry, counted from 1; 0 for none
	entries []tableEntry
	chunks  [][]byte
	bytes   int64 // held by all of it
	// replaced counts rows that a later one of the same key took the place of.
	replaced int
}

// tableEntry is where a key and behind it its row are.
type tableEntry struct {
	hash     uint64
	chunk    uint32
	at       uint32
	key, row uint32 // lengths
}

const (
	chunkBytes = 1 << 20
	entryBytes = 24
	slotBytes  = 4
	// maxEntryBytes bounds a key with its row, whose lengths are kept in 32 bits.
	maxEntryBytes = 1 << 30
)

var errTooLarge = errors.New("its rows take more memory than max_size allows")

func newTable() *table { return &table{slots: make([]uint32, 64)} }

// rows is the number of keys.
func (t *table) rows() int { return len(t.entries) }

// find is the slot of a key, or the one where it would be.
func (t *table) find(hash uint64, key []byte) int {
	mask := len(t.slots) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		at := t.slots[i]
		if at == 0 {
			return i
		}
		if e := &t.entries[at-1]; e.hash == hash && bytes.Equal(t.chunks[e.chunk][e.at:e.at+e.key], key) {
			return i
		}
	}
}

// Row is the row of a key, nil for none. It implements connectors.LookupTable.
func (t *table) Row(key []byte) []byte {
	at := t.slots[t.find(xxhash.Sum64(key), key)]
	if at == 0 {
		return nil
	}
	e := &t.entries[at-1]
	from, to := e.at+e.key, e.at+e.key+e.row
	return t.chunks[e.chunk][from:to:to]
}

// put adds a row, or replaces the one of the same key. It fails where the table
// would hold more than limit bytes.
func (t *table) put(key, row []byte, limit int64) error {
	if len(key)+len(row) > maxEntryBytes {
		return errTooLarge
	}
	hash := xxhash.Sum64(key)
	slot := t.find(hash, key)
	e := tableEntry{hash: hash, key: uint32(len(key)), row: uint32(len(row))}
	e.chunk, e.at = t.keep(key, row)
	if at := t.slots[slot]; at != 0 {
		t.entries[at-1] = e
		t.replaced++
	} else {
		t.entries = append(t.entries, e)
		t.slots[slot] = uint32(len(t.entries))
		t.bytes += entryBytes
		if len(t.entries) > len(t.slots)/2 {
			t.grow()
		}
	}
	if t.bytes+int64(len(t.slots))*slotBytes > limit {
		return errTooLarge
	}
	return nil
}

// keep copies a key and its row into a chunk.
func (t *table) keep(key, row []byte) (chunk, at uint32) {
	n := len(key) + len(row)
	last := len(t.chunks) - 1
	if last < 0 || cap(t.chunks[last])-len(t.chunks[last]) < n {
		c := make([]byte, 0, max(chunkBytes, n))
		t.chunks = append(t.chunks, c)
		t.bytes += int64(cap(c))
		last++
	}
	at = uint32(len(t.chunks[last]))
	t.chunks[last] = append(append(t.chunks[last], key...), row...)
	return uint32(last), at
}

func (t *table) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := len(t.slots) - 1
	for i := range t.entries {
		at := int(t.entries[i].hash) & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = uint32(i + 1)
	}
}
