package disk

// index finds entries by tag: linear probing in a table of tag<<32 | ref.
type index struct {
	slots []byte // of 8 bytes, mapped
	shift uint   // 32 - log2 of the number of slots
	mask  uint32
	n     int
}

const minSlotsLog = 9

func newIndex() *index {
	x := &index{}
	x.alloc(minSlotsLog)
	return x
}

func (x *index) alloc(log uint) {
	x.slots = mapMemory(8 << log)
	x.shift, x.mask, x.n = 32-log, 1<<log-1, 0
}

func (x *index) bytes() int64 { return int64(len(x.slots)) }

func (x *index) close() { unmapMemory(x.slots) }

func (x *index) slot(i uint32) (tag uint32, r ref) {
	b := x.slots[i*8 : i*8+8 : i*8+8]
	return entry(b).u32(4), ref(entry(b).u32(0))
}

func (x *index) set(i, tag uint32, r ref) {
	b := x.slots[i*8 : i*8+8 : i*8+8]
	entry(b).put32(4, tag)
	entry(b).put32(0, uint32(r))
}

// insert adds an entry that is not there.
func (x *index) insert(tag uint32, r ref) {
	if x.n+1 > len(x.slots)/8*3/4 {
		x.rehash(33 - x.shift)
	}
	x.n++
	for i := tag >> x.shift; ; i = (i + 1) & x.mask {
		if _, have := x.slot(i); have == 0 {
			x.set(i, tag, r)
			return
		}
	}
}

func (x *index) rehash(log uint) {
	old, n := *x, x.mask
	x.alloc(log)
	for i := uint32(0); ; i++ {
		if tag, r := old.slot(i); r != 0 {
			x.insert(tag, r)
		}
		if i == n {
			break
		}
	}
	old.close()
}

// find gives the slot that refers to r.
func (x *index) find(tag uint32, r ref) (uint32, bool) {
	for i := tag >> x.shift; ; i = (i + 1) & x.mask {
		_, have := x.slot(i)
		if have == r {
			return i, true
		}
		if have == 0 {
			return 0, false
		}
	}
}

// remove empties a slot and closes the gap in the run of slots behind it.
func (x *index) remove(i uint32) {
	x.n--
	for j := i; ; {
		j = (j + 1) & x.mask
		tag, r := x.slot(j)
		if r == 0 {
			break
		}
		if home := tag >> x.shift; (j-home)&x.mask >= (j-i)&x.mask {
			x.set(i, tag, r)
			i = j
		}
	}
	x.set(i, 0, 0)
}

// shrink makes the table smaller where it is mostly empty.
func (x *index) shrink() {
	if x.n < len(x.slots)/8/16 && x.shift < 32-minSlotsLog {
		x.rehash(31 - x.shift)
	}
}
