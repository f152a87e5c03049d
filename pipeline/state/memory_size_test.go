package state_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

func openMemory(t testing.TB, groups int, r *state.Restore) state.Store {
	t.Helper()
	s, err := state.OpenMemory(t.Context(), state.Options{Last: groups - 1, Groups: groups, Restore: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func intKey(i, groups int) state.Key {
	return state.MakeKey(state.AppendKey(nil, connectors.IntValue(int64(i))), groups)
}

// valueOf is a value that tells which key and which round it is of.
func valueOf(dst []byte, i, round int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst[:0], uint32(i))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(round))
	for len(dst) < 8+i%7*(round%3)*8 {
		dst = append(dst, byte(i))
	}
	return dst
}

func fork(t testing.TB, s state.Store) state.Snapshot {
	t.Helper()
	snap, err := s.Fork(1)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// TestATableKeepsWhatItHoldsWhileItGrowsAndShrinks goes through all sizes of an index,
// of pages and of a namespace, in one key group and in many, and restores pictures
// taken on the way.
func TestATableKeepsWhatItHoldsWhileItGrowsAndShrinks(t *testing.T) {
	for _, groups := range []int{1, 8} {
		const n = 25_000
		s := openMemory(t, groups, nil)
		table := s.Table("t")
		rounds := make([]int, n) // 0: not there
		files := &connectortest.Files{}
		var buf []byte
		put := func(i, round int) {
			rounds[i] = round
			buf = valueOf(buf, i, round)
			table.Put(7, intKey(i, groups), buf)
		}
		check := func(s state.Store, rounds []int) {
			t.Helper()
			live := 0
			for i, round := range rounds {
				v, ok := s.Table("t").Get(7, intKey(i, groups))
				if ok != (round > 0) || ok && !bytes.Equal(v, valueOf(buf, i, round)) {
					t.Fatalf("%d groups: key %d of round %d: %x, %v", groups, i, round, v, ok)
				}
				if ok {
					live++
				}
			}
			if got := s.Usage().Keys; got != int64(live) {
				t.Fatalf("%d keys, want %d", got, live)
			}
		}
		r := rand.New(rand.NewPCG(1, 1))
		for i := range n {
			put(i, 1)
		}
		check(s, rounds)
		grown, before := fork(t, s), append([]int(nil), rounds...)
		for i := range n { // most go, some change their size
			switch {
			case r.IntN(20) > 0:
				table.Delete(7, intKey(i, groups))
				rounds[i] = 0
			case r.IntN(2) == 0:
				put(i, 2)
			}
		}
		check(s, rounds)
		pieces, err := grown.Write(t.Context(), files, state.Form{Compression: "zstd"})
		if err != nil {
			t.Fatal(err)
		}
		check(openMemory(t, groups, &state.Restore{Pieces: pieces, Files: files}), before)
		for round := 3; round < 6; round++ {
			for range n {
				put(r.IntN(n), round)
			}
			check(s, rounds)
		}
		for i := range n {
			if table.Delete(7, intKey(i, groups)) != (rounds[i] > 0) {
				t.Fatalf("deleting key %d says otherwise", i)
			}
			rounds[i] = 0
		}
		check(s, rounds)
		if got := table.Namespaces(nil, state.MinTime, state.MaxTime); len(got) != 0 {
			t.Errorf("an empty table has the namespaces %v", got)
		}
		if u := s.Usage(); u.Memory > 64<<10 {
			t.Errorf("an empty table takes %d bytes", u.Memory)
		}
	}
}

func TestMemoryOfKeysThatGoIsGivenBack(t *testing.T) {
	const groups, n = 8, 10_000
	s := openMemory(t, groups, nil)
	table := s.Table("t")
	var buf []byte
	for i := range n {
		buf = valueOf(buf, i, 2)
		table.Put(0, intKey(i, groups), buf)
	}
	full := s.Usage().Memory
	t.Run("while keys come and go", func(t *testing.T) {
		for i := n; i < 20*n; i++ {
			table.Delete(0, intKey(i-n, groups))
			buf = valueOf(buf, i, i/n)
			table.Put(0, intKey(i, groups), buf)
		}
		if got := s.Usage(); got.Keys != n || got.Memory > full*3/2 {
			t.Errorf("%d keys take %d bytes, at first it was %d", got.Keys, got.Memory, full)
		}
	})
	t.Run("while values change their size", func(t *testing.T) {
		before := s.Usage().Memory
		r := rand.New(rand.NewPCG(1, 1))
		for range 20 * n {
			table.Put(0, intKey(19*n+r.IntN(n), groups), make([]byte, 8+r.IntN(8)*8))
		}
		if got := s.Usage(); got.Keys != n || got.Memory > before*5/2 {
			t.Errorf("%d keys take %d bytes, before it was %d", got.Keys, got.Memory, before)
		}
	})
	t.Run("after most have gone", func(t *testing.T) {
		for i := 19*n + n/100; i < 20*n; i++ {
			table.Delete(0, intKey(i, groups))
		}
		if got := s.Usage(); got.Keys != n/100 || got.Memory > full/8 {
			t.Errorf("%d keys take %d bytes, all took %d", got.Keys, got.Memory, full)
		}
	})
	t.Run("with their namespaces", func(t *testing.T) {
		for ns := range int64(1000) {
			for i := range 20 {
				table.Upsert(ns, intKey(i, groups), 8)
			}
		}
		for ns := range int64(1000) {
			table.Drop(ns)
		}
		if got := s.Usage(); got.Keys != 0 || got.Memory > 1<<10 {
			t.Errorf("%d keys take %d bytes", got.Keys, got.Memory)
		}
	})
}

func TestASnapshotHoldsMemoryUntilItIsWritten(t *testing.T) {
	const groups, n = 8, 50_000
	s := openMemory(t, groups, nil)
	table := s.Table("t")
	touch := func(ns int64) {
		for i := range n {
			v, _ := table.Upsert(ns, intKey(i, groups), 8)
			v[0]++
		}
	}
	touch(0)
	touch(1)
	full := s.Usage().Memory
	snap := fork(t, s)
	if got := s.Usage().Memory; got != full {
		t.Errorf("a fork takes %d bytes", got-full)
	}
	touch(0)
	if got := s.Usage().Memory; got < full*5/4 || got > full*2 {
		t.Errorf("after half of it has changed the state takes %d bytes, %d before the fork", got, full)
	}
	table.Drop(1)
	if _, err := snap.Write(t.Context(), &connectortest.Files{}, state.Form{}); err != nil {
		t.Fatal(err)
	}
	if got := s.Usage().Memory; got > full*2/3 {
		t.Errorf("when the snapshot is written one of two namespaces takes %d of %d bytes", got, full)
	}
	left := s.Usage().Memory
	snap = fork(t, s)
	touch(0)
	snap.Release()
	if got := s.Usage().Memory; got > left*11/10 {
		t.Errorf("after a snapshot that was given up it is %d bytes, %d before", got, left)
	}
}

func TestWhatASnapshotHasWrittenIsNotCopiedAnyMore(t *testing.T) {
	const groups, n = 4, 50_000
	s := openMemory(t, groups, nil)
	table := s.Table("t")
	for i := range n {
		table.Upsert(0, intKey(i, groups), 8)
	}
	full := s.Usage().Memory
	snap := fork(t, s).(*state.MemorySnapshot)
	for g := range groups {
		if err := snap.Entries(g, func(state.Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		v, _ := table.Upsert(0, intKey(i, groups), 8)
		v[0]++
	}
	if got := s.Usage().Memory; got > full+full/20 {
		t.Errorf("%d bytes, %d before the fork", got, full)
	}
	snap.Release()
}

func TestAStoreMayBeClosedBeforeItsSnapshotIsWritten(t *testing.T) {
	const groups = 4
	s, err := state.OpenMemory(t.Context(), state.Options{Last: groups - 1, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50_000 {
		v, _ := s.Table("t").Upsert(0, intKey(i, groups), 8)
		binary.LittleEndian.PutUint64(v, uint64(i))
	}
	snap := fork(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := &connectortest.Files{}
	pieces, err := snap.Write(t.Context(), files, state.Form{Compression: "zstd"})
	if err != nil {
		t.Fatal(err)
	}
	again := openMemory(t, groups, &state.Restore{Pieces: pieces, Files: files})
	for i := range 50_000 {
		if v, ok := again.Table("t").Get(0, intKey(i, groups)); !ok || binary.LittleEndian.Uint64(v) != uint64(i) {
			t.Fatalf("key %d is %x", i, v)
		}
	}
}

func TestAForkDoesTheSameWorkHoweverMuchThereIs(t *testing.T) {
	s := openMemory(t, 128, nil)
	table := s.Table("t")
	perFork := func() float64 {
		return testing.AllocsPerRun(10, func() { fork(t, s).Release() })
	}
	few := perFork()
	for ns := range int64(10_000) {
		for i := range 10 {
			table.Upsert(ns, intKey(i, 128), 8)
		}
	}
	if many := perFork(); many > few {
		t.Errorf("%v allocations with 10000 namespaces, %v with none", many, few)
	}
}

func TestNamespacesThatBecomeEmptyGo(t *testing.T) {
	const n = 3000
	s := openMemory(t, 8, nil)
	table := s.Table("t")
	want := map[int64]bool{}
	r := rand.New(rand.NewPCG(1, 1))
	var snap state.Snapshot
	for i := range 20 * n {
		ns := r.Int64N(n)
		if i > 15*n {
			ns = int64(i % n) // and in the end all of them
		}
		if i > 15*n || want[ns] {
			table.Delete(ns, intKey(1, 8))
			delete(want, ns)
		} else {
			table.Upsert(ns, intKey(1, 8), 8)
			want[ns] = true
		}
		if i%n == 0 {
			got := table.Namespaces(nil, 0, n)
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("there are %d namespaces, not %d", len(got), len(want))
			}
		}
		switch i {
		case 10 * n:
			snap = fork(t, s)
		case 18 * n:
			snap.Release()
		}
	}
	if got := s.Usage(); got.Keys != 0 || got.Memory > 64<<10 {
		t.Errorf("%d keys take %d bytes", got.Keys, got.Memory)
	}
}

func TestTenThousandNamespacesOfOneKeyStaySmall(t *testing.T) {
	s := openMemory(t, 128, nil)
	for ns := range int64(10_000) {
		s.Table("t").Upsert(ns, intKey(int(ns), 128), 8)
	}
	if got := s.Usage().Memory; got > 10_000*1024 {
		t.Errorf("%d bytes", got)
	}
}

func TestUpdatesDoNotAllocate(t *testing.T) {
	s := openMemory(t, 128, nil)
	table := s.Table("t")
	keys := make([]state.Key, 10_000)
	value := make([]byte, 16)
	for i := range keys {
		keys[i] = intKey(i, 128)
		table.Put(0, keys[i], value)
	}
	i := 0
	next := func() state.Key { i++; return keys[i%len(keys)] }
	for name, do := range map[string]func(){
		"upsert": func() { v, _ := table.Upsert(0, next(), 16); v[0]++ },
		"get":    func() { table.Get(0, next()) },
		"put":    func() { table.Put(0, next(), value) },
		"pane":   func() { table.Upsert(int64(i%60), keys[0], 16); i++ },
		"churn":  func() { k := next(); table.Delete(0, k); table.Put(0, k, value) },
		"once":   func() { table.Put(-1, keys[0], value); table.Delete(-1, keys[0]) },
		"append": func() { k := next(); table.Append(0, k, value[:4]); table.Put(0, k, value) },
	} {
		for range 200 {
			do()
		}
		if n := testing.AllocsPerRun(2000, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
