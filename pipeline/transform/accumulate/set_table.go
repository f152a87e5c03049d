package accumulate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// errFull says that a set would be larger than it may.
var errFull = errors.New("the set is full")

// classes are the groups of kinds within which values have an order.
const classes = 5

func classOf(k connectors.Kind) int {
	switch k {
	case connectors.String:
		return 1
	case connectors.Bytes:
		return 2
	case connectors.Timestamp:
		return 3
	case connectors.Duration:
		return 4
	default:
	}
	return 0
}

// table is a set of the form of a table, taken apart.
type table struct {
	b       []byte
	bits    uint // the number of slots as a power of two
	n       int
	live    int
	used    int
	heap    int // length
	slots   int // where the slots begin, then the heap, then the entries
	heaps   int
	entries int
}

func get32(b []byte, at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

func put32(b []byte, at, x int) { binary.LittleEndian.PutUint32(b[at:], uint32(x)) }

func (s set) head() int {
	if s.want != 0 {
		return setHead + 4*classes
	}
	return setHead
}

func (s set) open(b []byte) (t table, err error) {
	const mostBits = 24
	head := s.head()
	if len(b) < head || b[0] != formTable || b[1] > mostBits {
		return t, state.ErrCorrupt
	}
	t = table{b: b, bits: uint(b[1]), n: get32(b, 4), live: get32(b, 8), used: get32(b, 12), heap: get32(b, 16), slots: head}
	t.heaps = t.slots + 4<<t.bits
	t.entries = t.heaps
	if s.want != 0 {
		t.entries += 4 << t.bits
	}
	if t.entries > len(b) || t.used > len(b)-t.entries || t.n >= 1<<t.bits || t.heap > 1<<t.bits {
		return t, state.ErrCorrupt
	}
	return t, nil
}

// find gives the entry of a key, or the free slot for it.
func (s set) find(t *table, key []byte) (e entry, slot int, found bool, err error) {
	mask := 1<<t.bits - 1
	slot = int(xxhash.Sum64(key)) & mask
	for range mask + 1 {
		off := get32(t.b, t.slots+4*slot)
		if off == 0 {
			return e, slot, false, nil
		}
		if e, err = s.at(t, off-1); err != nil {
			return e, slot, false, err
		}
		if bytes.Equal(e.key, key) {
			return e, slot, true, nil
		}
		slot = (slot + 1) & mask
	}
	return e, slot, false, state.ErrCorrupt
}

// at is the entry at an offset among the entries.
func (s set) at(t *table, off int) (entry, error) {
	return s.read(t.b[:t.entries+t.used], t.entries+off)
}

func (s set) changeTable(b, key []byte, by int64) ([]byte, error) {
	t, err := s.open(b)
	if err != nil {
		return b, err
	}
	e, slot, found, err := s.find(&t, key)
	if err != nil || found && !s.counted {
		return b, err
	}
	if !found {
		size := s.entrySize(key)
		if t.entries+t.used+size > len(b) || t.n+1 > 3<<t.bits/4 {
			larger, err := s.rebuild(b, size)
			if err != nil {
				return b, err
			}
			return s.changeTable(larger, key, by)
		}
		e = entry{at: t.entries + t.used, size: size}
		s.write(b[:e.at], key, 0)
		e.key = b[e.at+size-len(key) : e.at+size]
		put32(b, t.slots+4*slot, t.used+1)
		t.n++
		t.used += size
		put32(b, 4, t.n)
		put32(b, 12, t.used)
	}
	return s.recount(&t, e, by, found)
}

// recount adds by to the count of an entry and keeps what hangs on it.
func (s set) recount(t *table, e entry, by int64, found bool) ([]byte, error) {
	had := int64(0)
	if found {
		had = s.count(t.b, e)
	}
	n := had + by
	s.setCount(t.b, e, n)
	step := truth(n > 0) - truth(had > 0)
	if step == 0 {
		return t.b, nil
	}
	t.live += step
	put32(t.b, 8, t.live)
	if s.want != 0 {
		if err := s.reorder(t, e, step); err != nil {
			return t.b, err
		}
	}
	const sparse = 8
	if step < 0 && (t.live == 0 || t.n > 4*listMost && t.live < t.n/sparse) {
		return s.rebuild(t.b, 0)
	}
	return t.b, nil
}

// reorder keeps the heap when an entry came to count, or no longer does. Entries that
// do not count are taken from it when they come first.
func (s set) reorder(t *table, e entry, step int) error {
	v, err := readShort(e.key)
	if err != nil {
		return err
	}
	class := setHead + 4*classOf(v.Kind())
	put32(t.b, class, get32(t.b, class)+step)
	if step > 0 {
		if mark := e.at + s.prefix() - 1; t.b[mark] == 0 {
			t.b[mark] = 1
			return s.push(t, e)
		}
		return nil
	}
	for t.heap > 0 {
		top, err := s.at(t, get32(t.b, t.heaps))
		if err != nil || s.count(t.b, top) > 0 {
			return err
		}
		t.b[top.at+s.prefix()-1] = 0
		if err := s.pop(t); err != nil {
			return err
		}
	}
	return nil
}

func (s set) push(t *table, e entry) error {
	i := t.heap
	if i >= 1<<t.bits {
		return state.ErrCorrupt
	}
	t.heap++
	put32(t.b, 16, t.heap)
	put32(t.b, t.heaps+4*i, e.at-t.entries)
	for i > 0 {
		up := (i - 1) / 2
		before, err := s.before(t, i, up)
		if err != nil || !before {
			return err
		}
		t.swap(i, up)
		i = up
	}
	return nil
}

func (s set) pop(t *table) error {
	t.heap--
	put32(t.b, 16, t.heap)
	t.swap(0, t.heap)
	for i := 0; ; {
		down := 2*i + 1
		if down >= t.heap {
			return nil
		}
		if down+1 < t.heap {
			right, err := s.before(t, down+1, down)
			if err != nil {
				return err
			}
			down += truth(right)
		}
		before, err := s.before(t, down, i)
		if err != nil || !before {
			return err
		}
		t.swap(i, down)
		i = down
	}
}

func (t *table) swap(i, j int) {
	x, y := t.heaps+4*i, t.heaps+4*j
	a, b := get32(t.b, x), get32(t.b, y)
	put32(t.b, x, b)
	put32(t.b, y, a)
}

// before reports whether the entry at i of the heap comes before that at j.
func (s set) before(t *table, i, j int) (bool, error) {
	a, err := s.heapValue(t, i)
	if err != nil {
		return false, err
	}
	b, err := s.heapValue(t, j)
	if err != nil {
		return false, err
	}
	if x, y := classOf(a.Kind()), classOf(b.Kind()); x != y {
		return x < y, nil
	}
	c, _ := expr.Compare(a, b)
	if c == 0 {
		return preference(a, b) > 0, nil
	}
	return c == s.want, nil
}

func (s set) heapValue(t *table, i int) (connectors.Value, error) {
	e, err := s.at(t, get32(t.b, t.heaps+4*i))
	if err != nil {
		return connectors.Value{}, err
	}
	return readShort(e.key)
}

// rebuild makes a table of the entries of b that have a count, or a list where they
// are few, with room for as many again and for size bytes more.
func (s set) rebuild(b []byte, size int) ([]byte, error) {
	n, total := 0, 0
	err := s.each(b, func(e entry, _ int64) error {
		n++
		total += e.size
		return nil
	})
	if err != nil {
		return b, err
	}
	if n == 0 && size == 0 {
		return b[:0], nil
	}
	if size == 0 && n <= listMost/2 && total < listSize/2 {
		list := []byte{formList}
		err := s.each(b, func(e entry, count int64) error {
			list = s.write(list, e.key, count)
			return nil
		})
		return list, err
	}
	slotBits := bits.Len(uint(2*n + 1))
	slots := 4 << slotBits
	if s.want != 0 {
		slots *= 2
	}
	room := s.head() + slots + 2*total + size
	if room > setLimit {
		return b, errFull
	}
	out := make([]byte, room)
	out[0], out[1] = formTable, byte(slotBits)
	err = s.each(b, func(e entry, count int64) (err error) {
		out, err = s.changeTable(out, e.key, count)
		return err
	})
	if err != nil {
		return b, err
	}
	return out, nil
}
