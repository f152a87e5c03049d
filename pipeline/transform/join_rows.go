package transform

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// joinRows are the kept rows of one side of a join: for each key and bucket of time
// one value, to which rows are appended, so that many rows of a key cost no more than
// few. The bucket's start is the namespace.
type joinRows struct {
	table state.Table
	width int64   // of a bucket in milliseconds; 0 for a single one
	head  int     // bytes in front of the rows
	live  []int64 // buckets that hold anything, in ascending order
}

func newJoinRows(t state.Table, width int64, head int) *joinRows {
	return &joinRows{table: t, width: width, head: head, live: t.Namespaces(nil, math.MinInt64, math.MaxInt64)}
}

// bucket is the one that a time is in.
func (j *joinRows) bucket(t int64) int64 {
	if j.width == 0 {
		return 0
	}
	t = window.Clamp(t)
	return t - window.FloorMod(t, j.width)
}

// open notes that a bucket holds something.
func (j *joinRows) open(ns int64) {
	if n := len(j.live); n > 0 && j.live[n-1] == ns {
		return
	}
	if i, found := slices.BinarySearch(j.live, ns); !found {
		j.live = slices.Insert(j.live, i, ns)
	}
}

// between are the buckets in which rows of the times from..to may be.
func (j *joinRows) between(from, to int64) []int64 {
	i, _ := slices.BinarySearch(j.live, j.bucket(from))
	last := j.bucket(to)
	n := i
	for n < len(j.live) && j.live[n] <= last {
		n++
	}
	return j.live[i:n]
}

// expire drops the buckets all of whose rows are older than keep when time has come
// to now.
func (j *joinRows) expire(now, keep int64) {
	if j.width == 0 {
		return
	}
	n := 0
	for n < len(j.live) && plusTime(j.live[n]+j.width, keep) <= now {
		j.table.Drop(j.live[n])
		n++
	}
	j.live = slices.Delete(j.live, 0, n)
}

// The layout of a kept row: its size with a bit for bounds of its own and one for a
// mark, a count of matches, its time, both of its bounds and its mark where it has
// them, and what is kept of the record. It is part of checkpoints.
const (
	rowHead   = 16
	rowBounds = 16
	rowMark   = 8
	ownBounds = 1 << 31
	ownMark   = 1 << 30
)

// joinEntry is one kept row, in the table's own memory.
type joinEntry []byte

// appendEntry appends a row but for the size, which seal sets once the record is there.
// Its mark is that of a joinRow.
func appendEntry(dst []byte, count uint32, time int64, bounds *[2]int64, mark int64) []byte {
	size := uint32(0)
	if bounds != nil {
		size = ownBounds
	}
	if mark != connectors.NoMark {
		size |= ownMark
	}
	dst = binary.LittleEndian.AppendUint32(dst, size)
	dst = binary.LittleEndian.AppendUint32(dst, count)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(time))
	if bounds != nil {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(bounds[0]))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(bounds[1]))
	}
	if mark != connectors.NoMark {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(mark))
	}
	return dst
}

// seal sets the size of the row that begins at start.
func seal(dst []byte, start int) {
	flags := binary.LittleEndian.Uint32(dst[start:]) & (ownBounds | ownMark)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start)|flags)
}

// nextEntry takes the first row off.
func nextEntry(blob []byte) (e joinEntry, rest []byte, err error) {
	if len(blob) < rowHead {
		return nil, nil, state.ErrCorrupt
	}
	word := binary.LittleEndian.Uint32(blob)
	size := int(word &^ (ownBounds | ownMark))
	if least := joinEntry(blob).head(); size < least || size > len(blob) {
		return nil, nil, state.ErrCorrupt
	}
	return blob[:size:size], blob[size:], nil
}

func (e joinEntry) count() uint32 { return binary.LittleEndian.Uint32(e[4:]) }

func (e joinEntry) setCount(n uint32) { binary.LittleEndian.PutUint32(e[4:], n) }

func (e joinEntry) time() int64 { return int64(binary.LittleEndian.Uint64(e[8:])) }

func (e joinEntry) bounded() bool { return binary.LittleEndian.Uint32(e)&ownBounds != 0 }

func (e joinEntry) bounds() (a, b int64) {
	return int64(binary.LittleEndian.Uint64(e[rowHead:])), int64(binary.LittleEndian.Uint64(e[rowHead+8:]))
}

// head is how long what stands in front of the record is.
func (e joinEntry) head() int {
	n := rowHead
	if e.bounded() {
		n += rowBounds
	}
	if e.marked() {
		n += rowMark
	}
	return n
}

func (e joinEntry) marked() bool { return binary.LittleEndian.Uint32(e)&ownMark != 0 }

// mark is the one that the row was kept with.
func (e joinEntry) mark() int64 {
	if !e.marked() {
		return connectors.NoMark
	}
	return int64(binary.LittleEndian.Uint64(e[e.head()-rowMark:]))
}

// record is what is kept of the record.
func (e joinEntry) record() joinRow { return joinRow{kept: e[e.head():], mark: e.mark()} }

// entries takes the rows of a key's value in a bucket; all is the value.
func (j *joinRows) entries(all []byte) []byte {
	if len(all) < j.head {
		return nil
	}
	return all[j.head:]
}

// change gives the value of a key to be changed in place.
func (j *joinRows) change(ns int64, k state.Key) ([]byte, bool) {
	v, ok := j.table.Get(ns, k)
	if !ok {
		return nil, false
	}
	v, _ = j.table.Upsert(ns, k, len(v))
	return v, true
}

// compact removes the rows that drop says from a key's value, which change gave, and
// the key where nothing is left.
func (j *joinRows) compact(ns int64, k state.Key, value []byte, drop func(e joinEntry) bool) error {
	n := j.head
	for rest := j.entries(value); len(rest) > 0; {
		e, tail, err := nextEntry(rest)
		if err != nil {
			return err
		}
		rest = tail
		if !drop(e) {
			n += copy(value[n:], e)
		}
	}
	switch {
	case n == j.head:
		j.table.Delete(ns, k)
	case n < len(value):
		j.table.Upsert(ns, k, n)
	}
	return nil
}
