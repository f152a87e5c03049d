// Package statetest has a store that is simple enough to be right, and the suite
// that demands of every backend that it answers like it.
package statetest

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Model is a Store of Go maps. It takes no snapshots of its own form; Clone
// copies it.
type Model struct {
	Groups int
	tables map[string]*modelTable
}

// NewModel makes an empty store for that many key groups.
func NewModel(groups int) *Model { return &Model{Groups: groups, tables: map[string]*modelTable{}} }

// Clone is a copy that shares nothing.
func (m *Model) Clone() *Model {
	c := NewModel(m.Groups)
	for name, t := range m.tables {
		u := c.Table(name).(*modelTable)
		for ns, values := range t.spaces {
			u.spaces[ns] = map[string][]byte{}
			for k, v := range values {
				u.spaces[ns][k] = slices.Clone(v)
			}
		}
	}
	return c
}

// Table implements state.Store.
func (m *Model) Table(name string) state.Table {
	if m.tables[name] == nil {
		m.tables[name] = &modelTable{groups: m.Groups, spaces: map[int64]map[string][]byte{}}
	}
	return m.tables[name]
}

// Fork implements state.Store with a snapshot that writes nothing.
func (m *Model) Fork(uint64) (state.Snapshot, error) { return noSnapshot{}, nil }

// Complete implements state.Store.
func (m *Model) Complete(uint64) {}

// Err implements state.Store.
func (m *Model) Err() error { return nil }

// Usage implements state.Store.
func (m *Model) Usage() (u state.Usage) {
	for _, t := range m.tables {
		for _, values := range t.spaces {
			u.Keys += int64(len(values))
		}
	}
	return u
}

// Close implements state.Store.
func (m *Model) Close() error { return nil }

type noSnapshot struct{}

func (noSnapshot) Write(context.Context, connectors.CheckpointFiles, state.Form) ([]state.Piece, error) {
	return nil, nil
}
func (noSnapshot) Release() {}

type modelTable struct {
	groups int
	spaces map[int64]map[string][]byte
}

func (t *modelTable) space(ns int64) map[string][]byte {
	if t.spaces[ns] == nil {
		t.spaces[ns] = map[string][]byte{}
	}
	return t.spaces[ns]
}

func (t *modelTable) Get(ns int64, k state.Key) ([]byte, bool) {
	v, ok := t.spaces[ns][string(k.Bytes)]
	return v, ok
}

func (t *modelTable) Upsert(ns int64, k state.Key, size int) ([]byte, bool) {
	old, ok := t.spaces[ns][string(k.Bytes)]
	v := make([]byte, size)
	copy(v, old)
	t.space(ns)[string(k.Bytes)] = v
	return v, !ok
}

func (t *modelTable) Put(ns int64, k state.Key, value []byte) {
	t.space(ns)[string(k.Bytes)] = append([]byte{}, value...)
}

func (t *modelTable) Append(ns int64, k state.Key, tail []byte) {
	old := t.spaces[ns][string(k.Bytes)]
	t.space(ns)[string(k.Bytes)] = append(slices.Clone(old), tail...)
}

func (t *modelTable) Delete(ns int64, k state.Key) bool {
	_, ok := t.spaces[ns][string(k.Bytes)]
	delete(t.spaces[ns], string(k.Bytes))
	return ok
}

func (t *modelTable) Namespaces(dst []int64, from, to int64) []int64 {
	for _, ns := range slices.Sorted(maps.Keys(t.spaces)) {
		if ns >= from && ns <= to && len(t.spaces[ns]) > 0 {
			dst = append(dst, ns)
		}
	}
	return dst
}

func (t *modelTable) Scan(ns int64, visit func(k state.Key, value []byte) bool) {
	for _, k := range slices.Sorted(maps.Keys(t.spaces[ns])) {
		if !visit(state.MakeKey([]byte(k), t.groups), t.spaces[ns][k]) {
			return
		}
	}
}

func (t *modelTable) Drop(ns int64) { delete(t.spaces, ns) }

// Entries visits everything in the store, in order of tables, namespaces and keys.
func (m *Model) Entries(visit func(e state.Entry)) {
	for _, name := range slices.Sorted(maps.Keys(m.tables)) {
		t := m.tables[name]
		for _, ns := range t.Namespaces(nil, state.MinTime, state.MaxTime) {
			t.Scan(ns, func(k state.Key, value []byte) bool {
				visit(state.Entry{Table: name, NS: ns, Key: k, Value: value})
				return true
			})
		}
	}
}
