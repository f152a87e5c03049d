package state

import (
	"context"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// MemorySnapshot is a picture of a Memory.
//
// Its holds are on the lists of namespaces at first, which is what makes a fork short.
// Before the first key group is read they are exchanged for holds on each memGroup,
// so that each is given up as soon as it is written: from then on the store writes to
// its pages without a copy, and copies that were made are free.
type MemorySnapshot struct {
	first, last, groups int
	pool                *pagePool
	tables              []pictured

	once  sync.Once
	parts [][]part  // by key group, from first: of namespaces whose groups have parted
	few   []fewOf   // namespaces whose key groups lie in one memGroup
	slots [][]small // by key group: their entries
	freed sync.Once
}

type pictured struct {
	name string
	list *memList
}

// part is what a namespace holds of one key group.
type part struct {
	table int32
	ns    int64
	group *memGroup
}

// fewOf is a namespace that holds few entries.
type fewOf struct {
	table int32
	ns    int64
	group *memGroup
}

// small is an entry of a namespace that holds few.
type small struct{ space, ref uint32 }

// spread takes hold of each memGroup and gives up the lists.
func (s *MemorySnapshot) spread() {
	n := s.last - s.first + 1
	s.parts, s.slots = make([][]part, n), make([][]small, n)
	for table, t := range s.tables {
		for _, run := range t.list.runs {
			for _, space := range run.nodes {
				s.spreadNode(int32(table), space.node)
			}
		}
		t.list.release(s.pool)
	}
}

func (s *MemorySnapshot) spreadNode(table int32, n *memNode) {
	for i, g := range n.groups() {
		g.refs.Add(1)
		if i >= 0 {
			s.parts[i] = append(s.parts[i], part{table, n.ns, g})
			continue
		}
		space := uint32(len(s.few))
		s.few = append(s.few, fewOf{table, n.ns, g})
		g.eachRef(func(ref uint32, key []byte) {
			at := MakeKey(key, s.groups).Group - s.first
			s.slots[at] = append(s.slots[at], small{space, ref})
		})
	}
}

// Entries shows all entries of a key group to visit, those of one table and
// namespace together, and then gives up what they took: it is called once for each
// group. It is safe for concurrent use, and beside the store.
func (s *MemorySnapshot) Entries(group int, visit func(Entry) error) error {
	s.once.Do(s.spread)
	at := group - s.first
	for _, e := range s.slots[at] {
		from := s.few[e.space]
		key, value, _ := from.group.pages[pageOf(e.ref)].entry(offOf(e.ref))
		if err := visit(Entry{Table: s.tables[from.table].name, NS: from.ns, Key: MakeKey(key, s.groups), Value: value}); err != nil {
			return err
		}
	}
	s.slots[at] = nil
	for len(s.parts[at]) > 0 {
		p := s.parts[at][0]
		var err error
		p.group.each(func(key, value []byte) bool {
			err = visit(Entry{Table: s.tables[p.table].name, NS: p.ns, Key: MakeKey(key, s.groups), Value: value})
			return err == nil
		})
		if err != nil {
			return err
		}
		s.parts[at] = s.parts[at][1:]
		p.group.release(s.pool)
	}
	return nil
}

// Write implements Snapshot.
func (s *MemorySnapshot) Write(ctx context.Context, files connectors.CheckpointFiles, form Form) ([]Piece, error) {
	defer s.Release()
	return WriteNeutral(ctx, files, form, s.first, s.last, s.Entries)
}

// Release implements Snapshot.
func (s *MemorySnapshot) Release() {
	s.freed.Do(func() {
		spread := true
		s.once.Do(func() { spread = false })
		if !spread {
			for _, t := range s.tables {
				t.list.release(s.pool)
			}
		}
		for _, parts := range s.parts {
			for _, p := range parts {
				p.group.release(s.pool)
			}
		}
		for _, f := range s.few {
			f.group.release(s.pool)
		}
		s.parts, s.few, s.slots, s.tables = nil, nil, nil, nil
		s.pool.leave()
	})
}
