package state

import (
	"fmt"
)

// memTable is a table of a Memory.
type memTable struct {
	store *Memory
	name  string
	list  *memList
	last  *memNode // the one used last
	// spaces is how many namespaces list has, and empty how many of them hold nothing.
	spaces, empty int
	// recent are nodes used lately, by the namespace. They and last belong to the
	// store alone: a fork forgets them.
	recent [recentNodes]*memNode
}

const recentNodes = 64

// recentSlot spreads namespaces over recent, as they often are multiples of something.
func recentSlot(ns int64) int { return int(uint64(ns) * 0x9E3779B97F4A7C15 >> 58) }

// node gives the node of a namespace, the store's alone.
func (t *memTable) node(ns int64, create bool) *memNode {
	if n := t.last; n != nil && n.ns == ns {
		return n
	}
	slot := &t.recent[recentSlot(ns)]
	n := *slot
	if n == nil || n.ns != ns {
		if t.list.epoch != t.store.epoch {
			t.list = t.list.own(t.store)
		}
		var made bool
		if n, made = t.list.node(t.store, ns, create); n == nil {
			return nil
		}
		if made {
			t.spaces++
			t.empty++
		}
		*slot = n
	}
	t.last = n
	return n
}

// forget drops what a fork makes unsure.
func (t *memTable) forget() {
	t.last = nil
	clear(t.recent[:])
}

// reading gives the group that holds a key, nil where there is none.
func (t *memTable) reading(ns int64, k Key) *memGroup {
	n := t.node(ns, false)
	if n == nil {
		return nil
	}
	if n.split == nil {
		return n.one
	}
	if i := uint(k.Group - t.store.first); i < uint(len(n.split)) {
		return n.split[i]
	}
	return nil
}

// writing gives the group to write a key to, which is the store's alone.
func (t *memTable) writing(n *memNode, k Key) *memGroup {
	s := t.store
	at := &n.one
	if n.split != nil {
		at = &n.split[k.Group-s.first]
	}
	g := *at
	switch {
	case g == nil:
		g = newGroup(s)
		*at = g
	case g.epoch != s.epoch:
		g = g.own(s)
		*at = g
	}
	return g
}

// open gives the node and the group to write a key to; none where the store does not
// own its key group.
func (t *memTable) open(ns int64, k Key) (*memNode, *memGroup) {
	s := t.store
	if k.Group < s.first || k.Group > s.last {
		s.fail(fmt.Errorf("write to table %s: key group %d is none of %d to %d, which the subtask owns", t.name, k.Group, s.first, s.last))
		return nil, nil
	}
	n := t.node(ns, true)
	return n, t.writing(n, k)
}

// Get implements Table.
func (t *memTable) Get(ns int64, k Key) ([]byte, bool) {
	g := t.reading(ns, k)
	if g == nil {
		return nil, false
	}
	p, value := g.look(k)
	return value, p != nil
}

// Upsert implements Table.
func (t *memTable) Upsert(ns int64, k Key, size int) (value []byte, fresh bool) {
	n := t.last
	if n == nil || n.ns != ns {
		n = t.recent[recentSlot(ns)]
	}
	if n != nil && n.ns == ns {
		g := n.one
		if i := uint(k.Group - t.store.first); i < uint(len(n.split)) {
			g = n.split[i]
		}
		if epoch := t.store.epoch; g != nil && g.epoch == epoch {
			if p, value := g.look(k); p != nil && p.epoch == epoch && len(value) == size {
				return value, false
			}
		}
	}
	return t.upsert(ns, k, size)
}

// upsert is all of Upsert that is not said in a few words.
func (t *memTable) upsert(ns int64, k Key, size int) (value []byte, fresh bool) {
	n, g := t.open(ns, k)
	if g == nil {
		return make([]byte, size), true
	}
	p, off, seg, i := g.find(uint32(k.Hash>>32), k.Bytes)
	if p == nil {
		value = t.add(n, g, k, size, 0)
		clear(value)
		return value, true
	}
	_, value, _ = p.entry(off)
	if len(value) == size {
		p.own(t.store)
		_, value, _ = p.entry(off)
		return value, false
	}
	old := len(value)
	value = g.resize(t.store, p, off, seg, i, size, size, 0)
	return grown(value, old), false
}

// Put implements Table.
func (t *memTable) Put(ns int64, k Key, value []byte) {
	n, g := t.open(ns, k)
	if g == nil {
		return
	}
	s := t.store
	if p, old := g.look(k); p != nil && p.epoch == s.epoch && len(old) == len(value) {
		copy(old, value)
		return
	}
	p, off, seg, i := g.find(uint32(k.Hash>>32), k.Bytes)
	if p != nil && p.epoch == s.epoch {
		if key, _, capacity := p.entry(off); len(value) <= capacity && !wasteful(len(value)+len(key), capacity+len(key)) {
			copy(p.cut(off, len(value)), value) // value may be borrowed from the same place
			return
		}
	}
	// Memory that value may be borrowed from can go meanwhile.
	s.scratch = append(s.scratch[:0], value...)
	if p == nil {
		copy(t.add(n, g, k, len(value), 0), s.scratch)
	} else {
		copy(g.resize(s, p, off, seg, i, len(value), 0, 0), s.scratch)
	}
	s.trimScratch()
}

// Append implements Table.
func (t *memTable) Append(ns int64, k Key, tail []byte) {
	n, g := t.open(ns, k)
	if g == nil {
		return
	}
	s := t.store
	s.scratch = append(s.scratch[:0], tail...)
	p, off, seg, i := g.find(uint32(k.Hash>>32), k.Bytes)
	if p == nil {
		copy(t.add(n, g, k, len(tail), 0), s.scratch)
		s.trimScratch()
		return
	}
	_, value, _ := p.entry(off)
	old := len(value)
	size := old + len(tail)
	value = g.resize(s, p, off, seg, i, size, old, max(size/2, 8))
	copy(value[old:], s.scratch)
	s.trimScratch()
}

// add adds a key that is not there.
func (t *memTable) add(n *memNode, g *memGroup, k Key, size, spare int) []byte {
	s := t.store
	if n.n >= s.splitAt && n.split == nil {
		t.divide(n)
		g = t.writing(n, k)
	}
	value, ok := g.add(s, k, size, spare)
	if !ok {
		return value
	}
	if n.n == 0 {
		t.empty--
	}
	n.n++
	s.keys.Add(1)
	return value
}

// divide gives each key group of a namespace a memGroup of its own.
func (t *memTable) divide(n *memNode) {
	s := t.store
	all := n.one
	n.one, n.split = nil, make([]*memGroup, s.last-s.first+1)
	s.pool.bytes.Add(8 * int64(len(n.split)))
	all.each(func(key, value []byte) bool {
		k := MakeKey(key, s.groups)
		moved, _ := t.writing(n, k).add(s, k, len(value), 0)
		copy(moved, value)
		return true
	})
	all.release(s.pool)
}

// Delete implements Table.
func (t *memTable) Delete(ns int64, k Key) bool {
	n := t.node(ns, false)
	if n == nil || t.reading(ns, k) == nil {
		return false
	}
	g := t.writing(n, k)
	tag := uint32(k.Hash >> 32)
	p, _, seg, i := g.find(tag, k.Bytes)
	if p == nil {
		return false
	}
	g.remove(t.store, tag, seg, i)
	t.store.keys.Add(-1)
	if n.n--; n.n == 0 {
		t.emptied(n)
	}
	return true
}

// emptied keeps a namespace that holds nothing any more, as it may be used again at
// once, and removes those that are too many.
func (t *memTable) emptied(n *memNode) {
	if n.split != nil || len(n.one.pages) > 1 {
		n.clear(t.store.pool)
	}
	t.empty++
	const few = 8
	if t.empty <= few+t.spaces/8 {
		return
	}
	for run := len(t.list.runs) - 1; run >= 0; run-- {
		for at := len(t.list.runs[run].nodes) - 1; at >= 0; at-- {
			if t.list.runs[run].nodes[at].node.n == 0 && t.list.remove(t.store, run, at) {
				break
			}
		}
	}
	t.spaces -= t.empty
	t.empty = 0
	t.forget()
}

// Namespaces implements Table.
func (t *memTable) Namespaces(dst []int64, from, to int64) []int64 {
	run, at, _ := t.list.place(from)
	for ; run < len(t.list.runs); run++ {
		for _, m := range t.list.runs[run].nodes[at:] {
			if m.ns > to {
				return dst
			}
			if m.ns >= from && m.node.n > 0 {
				dst = append(dst, m.ns)
			}
		}
		at = 0
	}
	return dst
}

// Scan implements Table.
func (t *memTable) Scan(ns int64, visit func(k Key, value []byte) bool) {
	n := t.node(ns, false)
	if n == nil {
		return
	}
	for _, g := range n.groups() {
		if !g.each(func(key, value []byte) bool { return visit(MakeKey(key, t.store.groups), value) }) {
			return
		}
	}
}

// Drop implements Table.
func (t *memTable) Drop(ns int64) {
	n := t.node(ns, false)
	if n == nil {
		return
	}
	t.store.keys.Add(-int64(n.n))
	if n.n == 0 {
		t.empty--
	}
	t.spaces--
	run, at, _ := t.list.place(ns)
	t.list.remove(t.store, run, at)
	if t.last == n {
		t.last = nil
	}
	if slot := &t.recent[recentSlot(ns)]; *slot == n {
		*slot = nil
	}
}
