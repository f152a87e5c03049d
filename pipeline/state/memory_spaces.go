package state

import (
	"slices"
	"sync/atomic"
)

// The namespaces of a table are a tree of three levels, list, run and node, whose
// parts are shared with snapshots. A fork takes a hold of the list only. The first way
// to a namespace after it copies what is shared on that way: each copy holds what is
// below, and whoever gives up the last hold of a part frees it. So a fork takes no
// longer where there are many namespaces, and a part of which the snapshot has let go
// is not copied any more.

// memList is the namespaces of a table in ascending order, cut into runs.
type memList struct {
	refs  atomic.Int32
	epoch uint32
	runs  []*memRun // none is empty
}

// memRun is some namespaces in a row.
type memRun struct {
	refs  atomic.Int32
	epoch uint32
	nodes []memSpace
}

type memSpace struct {
	ns   int64
	node *memNode
}

// maxRun is how many namespaces a run has at most: it is what one of them costs to
// be put in.
const maxRun = 256

// memNode is what a namespace holds. As long as that is little, all key groups
// lie in one memGroup.
type memNode struct {
	refs  atomic.Int32
	epoch uint32
	ns    int64
	n     int         // entries
	one   *memGroup   // all key groups, while there is no split
	split []*memGroup // by key group, from the store's first; nil where there is none
}

const nodeBytes = 160

func newMemList(s *Memory) *memList {
	l := &memList{epoch: s.epoch}
	l.refs.Store(1)
	return l
}

func (l *memList) own(s *Memory) *memList {
	if l.refs.Load() == 1 {
		l.epoch = s.epoch
		return l
	}
	c := newMemList(s)
	c.runs = slices.Clone(l.runs)
	for _, r := range c.runs {
		r.refs.Add(1)
	}
	l.release(s.pool)
	return c
}

func (l *memList) release(pool *pagePool) {
	if l.refs.Add(-1) > 0 {
		return
	}
	for _, r := range l.runs {
		r.release(pool)
	}
	l.runs = nil
}

func newMemRun(s *Memory, nodes []memSpace) *memRun {
	r := &memRun{epoch: s.epoch, nodes: nodes}
	r.refs.Store(1)
	return r
}

func (r *memRun) own(s *Memory) *memRun {
	if r.refs.Load() == 1 {
		r.epoch = s.epoch
		return r
	}
	c := newMemRun(s, slices.Clone(r.nodes))
	for _, m := range c.nodes {
		m.node.refs.Add(1)
	}
	r.release(s.pool)
	return c
}

func (r *memRun) release(pool *pagePool) {
	if r.refs.Add(-1) > 0 {
		return
	}
	for _, m := range r.nodes {
		m.node.release(pool)
	}
	r.nodes = nil
}

func newMemNode(s *Memory, ns int64) *memNode {
	n := &memNode{epoch: s.epoch, ns: ns}
	n.refs.Store(1)
	s.pool.bytes.Add(nodeBytes)
	return n
}

func (n *memNode) own(s *Memory) *memNode {
	if n.refs.Load() == 1 {
		n.epoch = s.epoch
		return n
	}
	c := newMemNode(s, n.ns)
	c.n, c.one, c.split = n.n, n.one, slices.Clone(n.split)
	for _, g := range c.groups() {
		g.refs.Add(1)
	}
	n.release(s.pool)
	return c
}

func (n *memNode) release(pool *pagePool) {
	if n.refs.Add(-1) > 0 {
		return
	}
	n.clear(pool)
	pool.bytes.Add(-nodeBytes)
}

// clear gives up all that the node holds.
func (n *memNode) clear(pool *pagePool) {
	for _, g := range n.groups() {
		g.release(pool)
	}
	pool.bytes.Add(-8 * int64(len(n.split)))
	n.one, n.split = nil, nil
}

// groups yields all groups that are there.
func (n *memNode) groups() func(yield func(int, *memGroup) bool) {
	return func(yield func(int, *memGroup) bool) {
		if n.one != nil && !yield(-1, n.one) {
			return
		}
		for i, g := range n.split {
			if g != nil && !yield(i, g) {
				return
			}
		}
	}
}

// place tells where a namespace is or would be: the run and the place in it.
func (l *memList) place(ns int64) (run, at int, found bool) {
	run, found = slices.BinarySearchFunc(l.runs, ns, func(r *memRun, ns int64) int {
		if r.nodes[0].ns > ns {
			return 1
		}
		if r.nodes[len(r.nodes)-1].ns < ns {
			return -1
		}
		return 0
	})
	if !found {
		return run, 0, false
	}
	at, found = slices.BinarySearchFunc(l.runs[run].nodes, ns, compareSpace)
	return run, at, found
}

func compareSpace(m memSpace, ns int64) int {
	switch {
	case m.ns < ns:
		return -1
	case m.ns > ns:
		return 1
	}
	return 0
}

// node gives the node of a namespace, the store's alone, and makes it where create
// says so.
func (l *memList) node(s *Memory, ns int64, create bool) (n *memNode, made bool) {
	run, at, found := l.place(ns)
	if !found {
		if !create {
			return nil, false
		}
		n := newMemNode(s, ns)
		l.insert(s, run, at, n)
		return n, true
	}
	r := l.run(s, run)
	n = r.nodes[at].node
	if n.epoch != s.epoch {
		n = n.own(s)
		r.nodes[at].node = n
	}
	return n, false
}

// run gives a run that is the store's alone.
func (l *memList) run(s *Memory, i int) *memRun {
	r := l.runs[i]
	if r.epoch != s.epoch {
		r = r.own(s)
		l.runs[i] = r
	}
	return r
}

// insert puts a new namespace where place has said.
func (l *memList) insert(s *Memory, run, at int, n *memNode) {
	space := memSpace{n.ns, n}
	if run == len(l.runs) || n.ns < l.runs[run].nodes[0].ns { // between runs: behind the one before
		if run == 0 {
			if len(l.runs) == 0 {
				l.runs = append(l.runs, newMemRun(s, []memSpace{space}))
				return
			}
			at = 0
		} else {
			run--
			at = len(l.runs[run].nodes)
		}
	}
	r := l.run(s, run)
	r.nodes = slices.Insert(r.nodes, at, space)
	if len(r.nodes) <= maxRun {
		return
	}
	// Namespaces mostly come in ascending order: then the run stays nearly full.
	half := maxRun / 2
	if at == maxRun {
		half = maxRun
	}
	l.runs = slices.Insert(l.runs, run+1, newMemRun(s, slices.Clone(r.nodes[half:])))
	clear(r.nodes[half:])
	r.nodes = r.nodes[:half]
}

// remove removes a namespace and gives up what it holds. It reports whether its run has
// gone with it.
func (l *memList) remove(s *Memory, run, at int) (last bool) {
	r := l.run(s, run)
	r.nodes[at].node.release(s.pool)
	r.nodes = slices.Delete(r.nodes, at, at+1)
	if len(r.nodes) == 0 {
		l.runs = slices.Delete(l.runs, run, run+1)
		return true
	}
	return false
}
