package accumulate

import (
	"bytes"
	"encoding/binary"

	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// set is a set of keys in one state. It has two forms. A list is the byte formList
// and the entries, one behind the other; it holds up to listMost. A table is
//
//	0  the byte formTable, the number of its slots as a power of two, 2 bytes of zeros
//	4  how many entries there are, 4 bytes
//	8  how many of them count, 4 bytes
//	12 the bytes of all entries, 4 bytes
//	16 the length of the heap, 4 bytes
//	20 where ordered, how many entries of each class of kinds count, 4 bytes each
//	.. the slots: 1 + the offset of an entry, or 0, 4 bytes each; a key is in the first
//	   free slot from xxh64(key) modulo their number on
//	.. where ordered, the heap, as long as the slots: offsets of entries, the first
//	   being that of the extreme
//	.. the entries, and room for more
//
// so that adding to it costs the same whatever its size. An entry is, where keys are
// counted, its count in 8 bytes and, where ordered, a byte that tells whether it is
// in the heap; then the key with its length before it. A key whose count is not
// positive is not in the set.
type set struct {
	counted bool
	want    int // where ordered, what a comparison says of the key that comes first, otherwise 0
}

const (
	formList  = 1
	formTable = 2

	listMost = 16       // entries of a list
	listSize = 1 << 10  // bytes of a list
	setLimit = 64 << 20 // bytes of a table
	setHead  = 20
)

func (s set) prefix() int {
	n := 0
	if s.counted {
		n = 8
	}
	if s.want != 0 {
		n++
	}
	return n
}

// entry is an entry of a set.
type entry struct {
	at   int // its offset
	size int
	key  []byte
}

// read reads the entry at an offset of b.
func (s set) read(b []byte, at int) (entry, error) {
	head := at + s.prefix()
	if at < 0 || head >= len(b) {
		return entry{}, state.ErrCorrupt
	}
	length, n := uint64(b[head]), 1
	if length >= 0x80 {
		length, n = binary.Uvarint(b[head:])
	}
	if n <= 0 || length > uint64(len(b)-head-n) {
		return entry{}, state.ErrCorrupt
	}
	end := head + n + int(length)
	return entry{at, end - at, b[head+n : end : end]}, nil
}

func (s set) count(b []byte, e entry) int64 {
	if !s.counted {
		return 1
	}
	return int64(binary.LittleEndian.Uint64(b[e.at:]))
}

func (s set) setCount(b []byte, e entry, n int64) {
	if s.counted {
		binary.LittleEndian.PutUint64(b[e.at:], uint64(n))
	}
}

// entrySize is the length of the entry of a key.
func (s set) entrySize(key []byte) int {
	n := s.prefix() + 1 + len(key)
	for l := len(key) >> 7; l > 0; l >>= 7 {
		n++
	}
	return n
}

// write appends an entry.
func (s set) write(b, key []byte, n int64) []byte {
	if s.counted {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if s.want != 0 {
		b = append(b, 0)
	}
	return appendText(b, key)
}

// change adds by to the count of a key. Where keys are not counted it adds the key.
func (s set) change(b, key []byte, by int64) ([]byte, error) {
	if none(b) {
		b = append(b[:0], formList)
	}
	switch b[0] {
	case formList:
		return s.changeList(b, key, by)
	case formTable:
		return s.changeTable(b, key, by)
	}
	return b, state.ErrCorrupt
}

func (s set) changeList(b, key []byte, by int64) ([]byte, error) {
	n, at := 0, 1
	for ; at < len(b); n++ {
		e, err := s.read(b, at)
		if err != nil {
			return b, err
		}
		at += e.size
		if !bytes.Equal(e.key, key) {
			continue
		}
		had := s.count(b, e) + by
		if !s.counted || had != 0 {
			s.setCount(b, e, had)
			return b, nil
		}
		b = append(b[:e.at], b[at:]...)
		if len(b) == 1 {
			b = b[:0]
		}
		return b, nil
	}
	if n < listMost && len(b)+s.entrySize(key) <= listSize {
		return s.write(b, key, by), nil
	}
	t, err := s.rebuild(b, s.entrySize(key))
	if err != nil {
		return b, err
	}
	return s.changeTable(t, key, by)
}

// each visits the entries that have a count.
func (s set) each(b []byte, visit func(e entry, n int64) error) error {
	if none(b) {
		return nil
	}
	at, end := 1, len(b)
	switch b[0] {
	case formList:
	case formTable:
		t, err := s.open(b)
		if err != nil {
			return err
		}
		at, end = t.entries, t.entries+t.used
	default:
		return state.ErrCorrupt
	}
	for at < end {
		e, err := s.read(b[:end], at)
		if err != nil {
			return err
		}
		at += e.size
		if n := s.count(b, e); n != 0 {
			if err := visit(e, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// size is how many keys are in the set.
func (s set) size(b []byte) (int64, error) {
	if len(b) > 0 && b[0] == formTable {
		t, err := s.open(b)
		return int64(t.live), err
	}
	n := int64(0)
	err := s.each(b, func(_ entry, count int64) error {
		if count > 0 {
			n++
		}
		return nil
	})
	return n, err
}

// merge adds all keys of other, into the larger of both.
func (s set) merge(b, other []byte) ([]byte, error) {
	into, from := b, other
	if len(other) > len(b) {
		into, from = append([]byte(nil), other...), b
	}
	err := s.each(from, func(e entry, n int64) (err error) {
		into, err = s.change(into, e.key, n)
		return err
	})
	if err != nil {
		return b, err
	}
	return into, nil
}

func tooLarge(name string) error {
	help := "use approx_distinct(), or shorter windows"
	if name != "count_distinct" {
		help = "group by more, or aggregate a stream without updates"
	}
	return fail(expr.KindLimit, "%s() holds at most %d MiB of different values for a group; %s", name, setLimit>>20, help)
}
