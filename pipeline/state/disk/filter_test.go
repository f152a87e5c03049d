package disk

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

func TestFilterKnowsAllAndLetsFewOthersPass(t *testing.T) {
	f := newFilter(1 << 20)
	room := int(f.bytes())
	of := func(i int) uint64 { return mixed(uint16(i&1), int64(i&6), keyOf(i).Hash) }
	for _, c := range []struct{ keys, percent int }{{room, 4}, {2 * room, 22}} {
		for i := range c.keys {
			f.add(of(i))
		}
		passed := 0
		for i := range c.keys {
			if !f.may(of(i)) {
				t.Fatalf("key %d of %d is not known", i, c.keys)
			}
			if f.may(of(c.keys + i)) {
				passed++
			}
		}
		if passed*100 > c.keys*c.percent {
			t.Errorf("with %d keys %d of as many others pass", c.keys, passed)
		}
		if n := int(f.n.Load()); n > c.keys || n < c.keys*8/10 {
			t.Errorf("it counts %d keys of %d", n, c.keys)
		}
	}
}

// wantFiltered demands that keys from..to are known and that of as many others
// nearly none would be looked for.
func wantFiltered(t *testing.T, s *store, from, to int) {
	t.Helper()
	id, ok := s.Table("count").(*table).find(7)
	if !ok || s.filters.now == nil {
		t.Fatalf("there is no filter")
	}
	for i := from; i < to; i++ {
		if !s.below(id, keyOf(i)) {
			t.Fatalf("key %d would not be found", i)
		}
	}
	passed := 0
	for i := range to - from {
		if s.below(id, keyOf(1<<30+i)) {
			passed++
		}
	}
	if passed*10 > to-from {
		t.Errorf("%d of %d new keys would be looked for", passed, to-from)
	}
}

func TestNewKeysAreNotLookedForInTheDatabase(t *testing.T) {
	fs, files := vfs.NewMem(), &connectortest.Files{}
	s := mustOpen(t, fs, nil)
	const n = 4000
	countKeys(s, 0, n)
	s.squeeze()
	wantFiltered(t, s, 0, n)
	p := checkpointOf(t, s, files, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, last := range map[string]int{"as it was": groups - 1, "rescaled": groups / 2} {
		t.Run(name, func(t *testing.T) {
			o := options("work", &state.Restore{Pieces: p, Files: files})
			o.Last = last
			s, err := open(t.Context(), o, fs)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			s.filling.Wait()
			s.collect()
			f := s.filters.now
			if f == nil {
				t.Fatal("there is no filter")
			}
			for i := range n {
				k := keyOf(i)
				if known := f.may(mixed(0, 7, k.Hash)); k.Group <= last && !known {
					t.Fatalf("key %d would not be found", i)
				}
				if _, ok := s.Table("count").Get(7, k); ok != (k.Group <= last) {
					t.Fatalf("key %d is found: %v", i, ok)
				}
			}
		})
	}
}

func TestFilterForgetsWhatIsDeletedAndGivesUpOnTooMuch(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	const n, kept = 1000, 200
	tab := s.Table("count")
	countKeys(s, 0, n)
	s.squeeze()
	for i := range n - kept {
		tab.Delete(7, keyOf(i))
	}
	s.squeeze()
	fill := func(full int64) {
		for i := 0; s.filters.now.n.Load() <= full*s.filters.now.bytes()/2; i++ {
			s.filters.now.add(mixed(3, 0, keyOf(i).Hash))
		}
	}
	fill(5)
	countKeys(s, n, n+50)
	s.squeeze()
	countKeys(s, n+50, n+100) // while it is built, maybe
	s.squeeze()
	s.filling.Wait()
	s.collect()
	if got := s.filters.now.n.Load(); got > kept+100 {
		t.Errorf("the filter knows %d keys of %d", got, kept+100)
	}
	wantFiltered(t, s, n-kept, n+100)

	fill(6)
	s.filters.wait = 2 // as if building one had just failed
	s.tend()
	if s.filters.now != nil {
		t.Error("a filter is kept for far more keys than it can tell apart")
	}
	wantCounts(t, s, n-kept, n+100, 1)
}
