package disk

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
)

// squeeze flushes the cache and empties it, as a small budget would.
func (s *store) squeeze() {
	s.endEpoch(nil)
	for len(s.closed) > 0 && s.awaitFlush() {
	}
	s.collect()
	for len(s.clean) > 0 {
		id := s.clean[0]
		s.clean = s.clean[1:]
		s.evict(id, false)
	}
}

const testGroups = 12

// world is a step at some parallelism next to the model of its state.
type world struct {
	t      *rapid.T
	stores []*store
	model  *statetest.Model
	files  *connectortest.Files
	number uint64
	opened int
	mem    vfs.FS
	saved  *saved
}

type saved struct {
	pieces []state.Piece
	model  *statetest.Model
	number uint64
}

func (w *world) open(parallelism int, from *state.Restore) {
	w.stores = nil
	for i := range parallelism {
		first, last := state.GroupsOf(i, parallelism, testGroups)
		w.opened++
		s, err := open(context.Background(), state.Options{First: first, Last: last, Groups: testGroups, Dir: fmt.Sprintf("work-%d", w.opened), Memory: 1, Restore: from}, w.mem)
		if err != nil {
			w.t.Fatalf("open: %v", err)
		}
		if rapid.Bool().Draw(w.t, "filter") {
			s.filling.Wait()
			s.collect()
		}
		w.stores = append(w.stores, s)
	}
}

func (w *world) close() {
	for _, s := range w.stores {
		if err := s.Err(); err != nil {
			w.t.Fatalf("store failed: %v", err)
		}
		if err := s.Close(); err != nil {
			w.t.Fatalf("close: %v", err)
		}
	}
}

func (w *world) of(k state.Key) *store {
	return w.stores[state.SubtaskOf(k.Group, len(w.stores), testGroups)]
}

// checkpoint writes one, while more is written to the store.
func (w *world) checkpoint(form state.Form, between func()) []state.Piece {
	w.number++
	var forks []state.Snapshot
	for _, s := range w.stores {
		f, err := s.Fork(w.number)
		if err != nil {
			w.t.Fatalf("fork: %v", err)
		}
		forks = append(forks, f)
	}
	w.saved = &saved{model: w.model.Clone(), number: w.number}
	between()
	for _, f := range forks {
		p, err := f.Write(context.Background(), w.files, form)
		if err != nil {
			w.t.Fatalf("write: %v", err)
		}
		w.saved.pieces = append(w.saved.pieces, p...)
	}
	for _, s := range w.stores {
		s.Complete(w.number)
	}
	refs := []connectors.StateFile{}
	for _, p := range w.saved.pieces {
		refs = append(refs, p.File)
	}
	w.files.Retain(refs)
	return w.saved.pieces
}

// same demands that the stores hold what the model does.
func (w *world) same() {
	for _, name := range []string{"a", "b"} {
		got, want := map[int64]map[string]string{}, map[int64]map[string]string{}
		m := w.model.Table(name)
		for _, ns := range m.Namespaces(nil, state.MinTime, state.MaxTime) {
			want[ns] = map[string]string{}
			m.Scan(ns, func(k state.Key, v []byte) bool { want[ns][string(k.Bytes)] = string(v); return true })
		}
		for _, s := range w.stores {
			t := s.Table(name)
			for _, ns := range t.Namespaces(nil, state.MinTime, state.MaxTime) {
				if got[ns] == nil {
					got[ns] = map[string]string{}
				}
				t.Scan(ns, func(k state.Key, v []byte) bool {
					if _, ok := got[ns][string(k.Bytes)]; ok {
						w.t.Fatalf("scan of %s %d shows %q twice", name, ns, k.Bytes)
					}
					got[ns][string(k.Bytes)] = string(v)
					return true
				})
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			w.t.Fatalf("table %s:\n got %v\nwant %v", name, got, want)
		}
	}
}

func (w *world) step() {
	t := w.t
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "table")
	ns := rapid.SampledFrom([]int64{state.MinTime, -3, 0, 1, 2, state.MaxTime}).Draw(t, "ns")
	k := state.MakeKey([]byte(rapid.SampledFrom([]string{"", "k", "k1", "k2", "long-key-of-some-length", "\xff\xff", "k3", "k4", "k5"}).Draw(t, "key")), testGroups)
	got, want := w.of(k).Table(name), w.model.Table(name)
	switch rapid.IntRange(0, 11).Draw(t, "op") {
	case 0, 1:
		g, gok := got.Get(ns, k)
		m, mok := want.Get(ns, k)
		if gok != mok || gok && !bytes.Equal(g, m) {
			t.Fatalf("get %s %d %q = %q %v, want %q %v", name, ns, k.Bytes, g, gok, m, mok)
		}
	case 2, 3:
		size := rapid.SampledFrom([]int{0, 1, 8, 8, 16, 40}).Draw(t, "size")
		g, gfresh := got.Upsert(ns, k, size)
		m, mfresh := want.Upsert(ns, k, size)
		if gfresh != mfresh || !bytes.Equal(g, m) {
			t.Fatalf("upsert %s %d %q = %q %v, want %q %v", name, ns, k.Bytes, g, gfresh, m, mfresh)
		}
		b := rapid.Byte().Draw(t, "fill")
		for i := range g {
			g[i], m[i] = b+byte(i), b+byte(i)
		}
	case 4:
		v := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value")
		got.Put(ns, k, v)
		want.Put(ns, k, v)
	case 5:
		v := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "tail")
		got.Append(ns, k, v)
		want.Append(ns, k, v)
	case 6, 7:
		if g, m := got.Delete(ns, k), want.Delete(ns, k); g != m {
			t.Fatalf("delete %s %d %q = %v, want %v", name, ns, k.Bytes, g, m)
		}
	case 8:
		for _, s := range w.stores {
			s.Table(name).Drop(ns)
		}
		want.Drop(ns)
	case 9:
		w.squeezeSome()
	case 10:
		from := rapid.SampledFrom([]int64{state.MinTime, -3, 0, 1}).Draw(t, "from")
		var g []int64
		for _, s := range w.stores {
			g = s.Table(name).Namespaces(g, from, ns)
		}
		slices.SortFunc(g, cmp.Compare[int64])
		if m := want.Namespaces(nil, from, ns); !slices.Equal(slices.Compact(g), m) {
			t.Fatalf("namespaces %s %d..%d = %v, want %v", name, from, ns, g, m)
		}
	case 11:
		w.same()
	}
}

func (w *world) squeezeSome() {
	s := w.stores[rapid.IntRange(0, len(w.stores)-1).Draw(w.t, "store")]
	if s.filters.next == nil && rapid.Bool().Draw(w.t, "filter") {
		s.buildFilter()
	}
	if rapid.Bool().Draw(w.t, "wait") {
		s.squeeze()
	} else {
		s.endEpoch(nil)
	}
}

// TestAnswersLikeTheModel is the metamorphic test: the same operations, the same
// answers, whatever the cache holds, whatever is on disk, and across checkpoints
// that are restored at any parallelism.
func TestAnswersLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, model: statetest.NewModel(testGroups), files: &connectortest.Files{}, mem: vfs.NewMem()}
		w.open(rapid.IntRange(1, 2).Draw(t, "parallelism"), nil)
		defer func() { w.close() }()
		for range rapid.IntRange(1, 3).Draw(t, "lives") {
			for range rapid.IntRange(0, 40).Draw(t, "steps") {
				w.step()
			}
			w.checkpoint(state.Form{}, func() {
				for range rapid.IntRange(0, 5).Draw(t, "between") {
					w.step()
				}
			})
			if rapid.Bool().Draw(t, "crash") {
				n, was := len(w.stores), len(w.stores)
				w.close()
				if rapid.Bool().Draw(t, "rescale") {
					n = rapid.IntRange(1, 3).Draw(t, "parallelism")
				}
				w.model = w.saved.model
				w.open(n, &state.Restore{Pieces: w.saved.pieces, Files: w.files, Reuse: n == was})
				w.same()
			}
		}
		w.same()
	})
}
