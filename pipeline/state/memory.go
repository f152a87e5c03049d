package state

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

// Memory is a Store that holds everything in memory.
//
// From the outside in: a table is a list of namespaces in ascending order
// (memory_spaces.go); a namespace has one memGroup, or one for each key group once it
// has grown (memory_table.go); a memGroup is pages, in which keys and values lie
// side by side (memory_pages.go), and an index over them (memory_index.go). Neither has
// pointers for the collector to follow, and an update of a value in its place
// allocates nothing.
type Memory struct {
	first, last, groups int
	// splitAt is how many entries a namespace holds before its key groups part.
	splitAt int
	// epoch is the number of forks. What was made or found unshared within the present
	// one is the store's alone.
	epoch   uint32
	tables  []*memTable
	pool    *pagePool
	keys    atomic.Int64
	scratch []byte
	err     error
	closed  bool
}

// OpenMemory opens a store that holds everything in memory. Of the options it heeds
// First, Last, Groups and Restore.
func OpenMemory(ctx context.Context, o Options) (Store, error) {
	s := &Memory{first: o.First, last: o.Last, groups: o.Groups, pool: newPagePool()}
	s.splitAt = 16 * (o.Last - o.First + 1)
	if o.Last <= o.First {
		s.splitAt = math.MaxInt
	}
	if o.Restore == nil {
		return s, nil
	}
	if err := s.restore(ctx, o.Restore); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Memory) restore(ctx context.Context, r *Restore) error {
	return ReadNeutral(ctx, r.Files, r.Pieces, s.first, s.last, s.groups, func(e Entry) error {
		value, fresh := s.Table(e.Table).Upsert(e.NS, e.Key, len(e.Value))
		if !fresh {
			return fmt.Errorf("table %s has a key twice in namespace %d", e.Table, e.NS)
		}
		copy(value, e.Value)
		return s.err
	})
}

// Table implements Store.
func (s *Memory) Table(name string) Table {
	for _, t := range s.tables {
		if t.name == name {
			return t
		}
	}
	t := &memTable{store: s, name: name, list: newMemList(s)}
	s.tables = append(s.tables, t)
	return t
}

// Fork implements Store. It takes a hold of each table and copies nothing: see
// memory_spaces.go.
func (s *Memory) Fork(uint64) (Snapshot, error) {
	if s.err != nil {
		return nil, s.err
	}
	snap := &MemorySnapshot{first: s.first, last: s.last, groups: s.groups, pool: s.pool}
	s.pool.hold()
	for _, t := range s.tables {
		t.list.refs.Add(1)
		t.forget()
		snap.tables = append(snap.tables, pictured{name: t.name, list: t.list})
	}
	s.epoch++
	return snap, nil
}

// Complete implements Store: nothing hangs on it.
func (s *Memory) Complete(uint64) {}

// Err implements Store: a table that has outgrown what can be addressed.
func (s *Memory) Err() error { return s.err }

func (s *Memory) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Usage implements Store.
func (s *Memory) Usage() Usage {
	return Usage{Keys: s.keys.Load(), Memory: s.pool.bytes.Load()}
}

// Close implements Store. Memory that a snapshot still needs goes with that.
func (s *Memory) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	for _, t := range s.tables {
		t.forget()
		t.list.release(s.pool)
	}
	s.tables = nil
	s.pool.leave()
	return nil
}

// trimScratch lets go of a scratch buffer that a large value has made large.
func (s *Memory) trimScratch() {
	const keep = 1 << 20
	if cap(s.scratch) > keep {
		s.scratch = nil
	}
}
