package disk

import (
	"slices"
	"sort"
)

// space is what is known of a namespace of a table. There is a record for each
// that holds something, in the cache or in the database, and for each whose drop
// the database has not heard of.
type space struct {
	ns    int64
	table uint16
	used  bool
	// alive says that the database has a key here that the cache does not hide.
	alive bool
	scans int16  // that are under way
	pins  int16  // calls that hold on to the record
	floor uint64 // scans find in the database what epochs up to this one wrote
	head  ref    // of the list of its entries in the cache
	live  int    // how many of them are not deleted
	keys  int64  // about how many there are in all
	// Which shares of the key groups the database may hold keys of, once the
	// epochs that are over are flushed: mask before epoch wrote, written of it.
	mask, written uint64
	wrote         uint64
	// dropped is the epoch at whose beginning the database's keys go; 0 is none.
	dropped uint64
}

// spaces holds the records by number, and the order of each table.
type spaces struct {
	all  []space
	free []uint32
}

// table gives the records of a table in the order of namespaces.
type order struct {
	blocks [][]ranked // none is empty
	recent [64]ranked // by hash, for those asked for again
}

type ranked struct {
	ns int64
	id uint32 // +1; 0 is none
}

const blockSize = 512

func recentSlot(ns int64) uint64 { return uint64(ns) * 0x9E3779B97F4A7C15 >> 58 }

// find gives the number of a namespace's record.
func (o *order) find(ns int64) (uint32, bool) {
	r := &o.recent[recentSlot(ns)]
	if r.id != 0 && r.ns == ns {
		return r.id - 1, true
	}
	b, i, ok := o.search(ns)
	if !ok {
		return 0, false
	}
	*r = o.blocks[b][i]
	return r.id - 1, true
}

// search gives the place of a namespace, or the one where it belongs.
func (o *order) search(ns int64) (block, at int, found bool) {
	block = sort.Search(len(o.blocks), func(i int) bool { return o.blocks[i][0].ns > ns }) - 1
	if block < 0 {
		return 0, 0, false
	}
	at, found = slices.BinarySearchFunc(o.blocks[block], ns, func(r ranked, ns int64) int {
		switch {
		case r.ns < ns:
			return -1
		case r.ns > ns:
			return 1
		}
		return 0
	})
	return block, at, found
}

func (o *order) insert(ns int64, id uint32) {
	r := ranked{ns, id + 1}
	o.recent[recentSlot(ns)] = r
	if len(o.blocks) == 0 {
		o.blocks = append(o.blocks, append(make([]ranked, 0, 8), r))
		return
	}
	b, at, _ := o.search(ns)
	blk := slices.Insert(o.blocks[b], at, r)
	if len(blk) > blockSize {
		half := slices.Clone(blk[blockSize/2:])
		blk = blk[:blockSize/2]
		o.blocks = slices.Insert(o.blocks, b+1, half)
	}
	o.blocks[b] = blk
}

func (o *order) remove(ns int64) {
	if r := &o.recent[recentSlot(ns)]; r.ns == ns {
		*r = ranked{}
	}
	b, at, ok := o.search(ns)
	if !ok {
		return
	}
	o.blocks[b] = slices.Delete(o.blocks[b], at, at+1)
	if len(o.blocks[b]) == 0 {
		o.blocks = slices.Delete(o.blocks, b, b+1)
	}
}

// ids appends the records of from..to in order.
func (o *order) ids(dst []uint32, from, to int64) []uint32 {
	o.walk(from, to, func(id uint32) bool { dst = append(dst, id); return true })
	return dst
}

// walk visits the records of from..to in order until visit returns false, and
// reports whether it never did.
func (o *order) walk(from, to int64, visit func(id uint32) bool) bool {
	b, at, found := o.search(from)
	if !found && len(o.blocks) > 0 && at == len(o.blocks[b]) {
		b, at = b+1, 0
	}
	for ; b < len(o.blocks); b, at = b+1, 0 {
		for _, r := range o.blocks[b][at:] {
			if r.ns > to {
				return true
			}
			if !visit(r.id - 1) {
				return false
			}
		}
	}
	return true
}

func (s *spaces) add(table uint16, ns int64) uint32 {
	sp := space{ns: ns, table: table, used: true}
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		s.all[id] = sp
		return id
	}
	s.all = append(s.all, sp)
	return uint32(len(s.all) - 1)
}

func (s *spaces) remove(id uint32) {
	s.all[id] = space{}
	s.free = append(s.free, id)
}

// onDisk is which shares of key groups the database may hold keys of, epochs that
// are over included.
func (sp *space) onDisk(epoch uint64) uint64 {
	if sp.wrote < epoch {
		return sp.mask | sp.written
	}
	return sp.mask
}

// note remembers a write in an epoch.
func (sp *space) note(epoch, share uint64) {
	if sp.wrote != epoch {
		sp.mask |= sp.written
		sp.written, sp.wrote = 0, epoch
	}
	sp.written |= share
}
