package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// Timers are points in time at which something is due for a key, kept in a table:
// they are in checkpoints, move with their key groups, and need nothing else.
//
// The table's namespaces are buckets of 1024 ms. What a key has in a bucket is one
// entry: a list of (at - start of the bucket: 2 bytes little endian, uvarint length of
// the tag, tag). Buckets that time has come to are held in a heap beside the table,
// so that none is read twice. The table stays the truth: what is in the heap
// and not in the table any more does not fire.
//
// Setting a timer takes time in proportion to those that its key has in the same
// bucket, which should be few.
type Timers struct {
	table Table
	// Buckets up to horizon are in the heap. pending are those behind it that a Due
	// under way has yet to load, up to target.
	horizon, target int64
	pending         []int64
	buckets         []int64 // scratch of pending
	heap            []alarm
	texts           []byte // what the heap's alarms refer to
	used            int    // of texts, by alarms in the heap
	value           []byte // scratch: an entry being changed
	fired           []byte // scratch: key and tag of the timer that fires
}

// alarm is a timer in the heap, without pointers.
type alarm struct {
	at       int64
	hash     uint64
	group    int32
	off      int // of the key in texts, and behind it the tag
	key, tag int32
}

const (
	bucketBits   = 10
	bucketMask   = 1<<bucketBits - 1
	beforeBucket = MinTime>>bucketBits - 1 // before any bucket
)

// NewTimers gives the timers that are in a table, which nothing else uses.
func NewTimers(t Table) *Timers {
	return &Timers{table: t, horizon: beforeBucket, target: beforeBucket}
}

// Set makes a timer fire at a time, in milliseconds. The same one of key and tag
// twice is one. A time that has passed is due at the next Due, or within the one
// under way.
func (t *Timers) Set(at int64, k Key, tag []byte) {
	bucket, off := at>>bucketBits, uint16(at&bucketMask)
	list, _ := t.table.Get(bucket, k)
	if start, _ := findTimer(list, off, tag); start >= 0 {
		return
	}
	t.value = append(t.value[:0], byte(off), byte(off>>8))
	t.value = binary.AppendUvarint(t.value, uint64(len(tag)))
	t.value = append(t.value, tag...)
	t.table.Append(bucket, k, t.value)
	switch {
	case bucket <= t.horizon:
		t.push(at, k, tag)
	case bucket <= t.target:
		if i, found := slices.BinarySearch(t.pending, bucket); !found {
			t.pending = slices.Insert(t.pending, i, bucket)
		}
	}
}

// Clear takes a timer back. It need not be there.
func (t *Timers) Clear(at int64, k Key, tag []byte) { t.remove(at, k, tag) }

// remove removes a timer from the table, and reports whether it was there.
func (t *Timers) remove(at int64, k Key, tag []byte) bool {
	bucket, off := at>>bucketBits, uint16(at&bucketMask)
	list, ok := t.table.Get(bucket, k)
	if !ok {
		return false
	}
	start, end := findTimer(list, off, tag)
	switch {
	case start < 0:
		return false
	case start == 0 && end == len(list):
		t.table.Delete(bucket, k)
	default:
		t.value = append(append(t.value[:0], list[:start]...), list[end:]...)
		t.table.Put(bucket, k, t.value)
	}
	return true
}

// findTimer tells where in a list of timers one is; start is negative where it is not.
func findTimer(list []byte, off uint16, tag []byte) (start, end int) {
	for len(list) > end {
		start = end
		var o uint16
		var g []byte
		if o, g, end = readTimer(list, start); o == off && bytes.Equal(g, tag) {
			return start, end
		}
	}
	return -1, -1
}

// readTimer reads the timer at start and tells its end. What is cut short, which no
// Set leaves, reads as a timer up to the end.
func readTimer(list []byte, start int) (off uint16, tag []byte, end int) {
	r := Reader{Rest: list[start:]}
	off = binary.LittleEndian.Uint16(r.Next(2))
	tag = r.Bytes()
	return off, tag, len(list) - len(r.Rest)
}

// Due fires all timers up to and including wm, in order of time, those of one time in
// order of the bytes of key and tag. Each is removed before it fires, and those that
// fire sets fire too where they are due. k and tag are borrowed until fire returns.
// An error of fire ends it. fire must not call Due or Next.
func (t *Timers) Due(wm int64, fire func(at int64, k Key, tag []byte) error) error {
	t.target = wm >> bucketBits
	defer func() { t.target, t.pending = beforeBucket, nil }()
	if t.target > t.horizon {
		t.buckets = t.table.Namespaces(t.buckets[:0], t.horizon+1, t.target)
		t.pending = t.buckets
	}
	for {
		if err := t.fireHeap(wm, fire); err != nil {
			return err
		}
		if len(t.pending) == 0 {
			break
		}
		next := t.pending[0]
		t.pending = t.pending[1:]
		t.load(next)
	}
	t.horizon = max(t.horizon, t.target)
	return nil
}

func (t *Timers) fireHeap(wm int64, fire func(at int64, k Key, tag []byte) error) error {
	for len(t.heap) > 0 && t.heap[0].at <= wm {
		k, tag := t.first()
		t.fired = append(append(t.fired[:0], k.Bytes...), tag...)
		k.Bytes, tag = t.fired[:len(k.Bytes):len(k.Bytes)], t.fired[len(k.Bytes):]
		a := t.pop()
		if !t.remove(a.at, k, tag) {
			continue
		}
		if err := fire(a.at, k, tag); err != nil {
			return err
		}
	}
	return nil
}

// Next is the time of the earliest timer, and false where there is none.
func (t *Timers) Next() (int64, bool) {
	for {
		for len(t.heap) > 0 {
			at := t.heap[0].at
			k, tag := t.first()
			list, _ := t.table.Get(at>>bucketBits, k)
			if start, _ := findTimer(list, uint16(at&bucketMask), tag); start >= 0 {
				return at, true
			}
			t.pop()
		}
		t.buckets = t.table.Namespaces(t.buckets[:0], t.horizon+1, MaxTime>>bucketBits)
		if len(t.buckets) == 0 {
			return 0, false
		}
		t.load(t.buckets[0])
	}
}

// first is the key and the tag of the first alarm.
func (t *Timers) first() (k Key, tag []byte) {
	a := t.heap[0]
	end := a.off + int(a.key)
	return Key{Bytes: t.texts[a.off:end:end], Hash: a.hash, Group: int(a.group)}, t.texts[end : end+int(a.tag)]
}

// load takes a bucket into the heap.
func (t *Timers) load(bucket int64) {
	t.horizon = bucket
	t.table.Scan(bucket, func(k Key, list []byte) bool {
		for end := 0; end < len(list); {
			var off uint16
			var tag []byte
			off, tag, end = readTimer(list, end)
			t.push(bucket<<bucketBits|int64(off&bucketMask), k, tag)
		}
		return true
	})
}

func (t *Timers) push(at int64, k Key, tag []byte) {
	a := alarm{at: at, hash: k.Hash, group: int32(k.Group), off: len(t.texts), key: int32(len(k.Bytes)), tag: int32(len(tag))}
	t.texts = append(append(t.texts, k.Bytes...), tag...)
	t.used += int(a.key + a.tag)
	t.heap = append(t.heap, a)
	for i := len(t.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !t.before(i, up) {
			break
		}
		t.heap[i], t.heap[up] = t.heap[up], t.heap[i]
		i = up
	}
}

// pop takes the first alarm out.
func (t *Timers) pop() alarm {
	a, last := t.heap[0], len(t.heap)-1
	t.used -= int(a.key + a.tag)
	t.heap[0] = t.heap[last]
	t.heap = t.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && t.before(child+1, child) {
			child++
		}
		if !t.before(child, i) {
			break
		}
		t.heap[i], t.heap[child] = t.heap[child], t.heap[i]
		i = child
	}
	t.shrink()
	return a
}

// shrink gives back the texts of alarms that have gone. Heaps that were large once
// do not stay so.
func (t *Timers) shrink() {
	const keep = 64 << 10
	if len(t.texts) <= keep || t.used > len(t.texts)/2 {
		if len(t.heap) == 0 {
			t.texts = t.texts[:0]
		}
		return
	}
	texts := make([]byte, 0, t.used)
	heap := make([]alarm, 0, len(t.heap))
	for _, a := range t.heap {
		off := len(texts)
		texts = append(texts, t.texts[a.off:a.off+int(a.key+a.tag)]...)
		a.off = off
		heap = append(heap, a)
	}
	t.texts, t.heap = texts, heap
}

// before is the order of firing.
func (t *Timers) before(i, j int) bool {
	a, b := &t.heap[i], &t.heap[j]
	if a.at != b.at {
		return a.at < b.at
	}
	x, y := t.texts[a.off:a.off+int(a.key)], t.texts[b.off:b.off+int(b.key)]
	return cmp.Or(bytes.Compare(x, y),
		bytes.Compare(t.texts[a.off+int(a.key):a.off+int(a.key+a.tag)], t.texts[b.off+int(b.key):b.off+int(b.key+b.tag)])) < 0
}
