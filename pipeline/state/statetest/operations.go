package statetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// work does some operations on the stores and the model. Which ones is drawn by a seed,
// since that is a hundred times faster than drawing each.
func (w *world) work() {
	n := rapid.IntRange(1, 400).Draw(w.r, "operations")
	deletes := rapid.IntRange(0, 5).Draw(w.r, "deletes")
	for range n {
		name := w.tables[w.rng.IntN(len(w.tables))]
		ns := w.spaces[w.rng.IntN(len(w.spaces))]
		if w.rng.IntN(3) > 0 {
			ns = w.spaces[w.rng.IntN(min(3, len(w.spaces)))] // some hot ones
		}
		k := w.keys[w.rng.IntN(len(w.keys))]
		got, want := w.table(name, k)
		switch op := w.rng.IntN(24 + 4*deletes); {
		case op < 5:
			w.get(got, want, ns, k)
		case op < 11:
			w.upsert(got, want, ns, k)
		case op < 16:
			v := w.value()
			got.Put(ns, k, v)
			want.Put(ns, k, v)
		case op < 20:
			w.append(got, want, ns, k)
		case op == 20:
			w.namespaces(name)
		case op == 21:
			w.scan(name, ns)
		case op == 22:
			w.putBorrowed(got, want, ns, k)
		case op == 23 && w.rng.IntN(2) == 0:
			w.empty(name, ns)
		case op == 23 && w.rng.IntN(2) == 0:
			for _, s := range w.stores {
				s.Table(name).Drop(ns)
			}
			want.Drop(ns)
		case op >= 24:
			a, b := got.Delete(ns, k), want.Delete(ns, k)
			w.check("delete", a == b, a, b)
		}
	}
	for _, s := range w.stores {
		w.must(s.Err())
	}
}

// value draws a value, valid until the next one.
func (w *world) value() []byte {
	n := 16 // as in upsert: a value that is put in the place of another
	if w.rng.IntN(3) > 0 {
		n = w.size(w.rng.IntN(400))
	}
	w.scratch = w.scratch[:0]
	for len(w.scratch) < n {
		w.scratch = binary.LittleEndian.AppendUint64(w.scratch, w.rng.Uint64())
	}
	return w.scratch[:n]
}

func (w *world) get(got, want state.Table, ns int64, k state.Key) {
	a, okA := got.Get(ns, k)
	b, okB := want.Get(ns, k)
	w.check("get", okA == okB && bytes.Equal(a, b), a, b)
}

func (w *world) upsert(got, want state.Table, ns int64, k state.Key) {
	size := 16
	if w.rng.IntN(4) == 0 {
		size = w.size(w.rng.IntN(400))
	}
	a, freshA := got.Upsert(ns, k, size)
	b, freshB := want.Upsert(ns, k, size)
	w.check("upsert", freshA == freshB && len(a) == size && bytes.Equal(a, b), a, b)
	for range min(3, size) {
		i := w.rng.IntN(size)
		a[i]++
		b[i]++
	}
}

func (w *world) append(got, want state.Table, ns int64, k state.Key) {
	const most = 100_000
	for range 1 + w.rng.IntN(4) {
		v := w.value()
		if old, _ := want.Get(ns, k); len(old)+len(v) > most {
			return
		}
		got.Append(ns, k, v)
		want.Append(ns, k, v)
	}
}

// putBorrowed gives a key a value that is borrowed from the same table.
func (w *world) putBorrowed(got, want state.Table, ns int64, k state.Key) {
	other := w.spaces[w.rng.IntN(min(3, len(w.spaces)))]
	a, ok := got.Get(other, k)
	b, _ := want.Get(other, k)
	if !ok {
		return
	}
	from := w.rng.IntN(len(a) + 1)
	if w.rng.IntN(3) == 0 {
		got.Append(ns, k, a[from:])
		want.Append(ns, k, slices.Clone(b[from:]))
		return
	}
	got.Put(ns, k, a[from:])
	want.Put(ns, k, b[from:])
}

func (w *world) namespaces(name string) {
	from, to := w.spaces[w.rng.IntN(len(w.spaces))], w.spaces[w.rng.IntN(len(w.spaces))]
	if w.rng.IntN(3) == 0 {
		from, to = math.MinInt64, math.MaxInt64
	}
	before := []int64{42}
	all := slices.Clone(before)
	for _, s := range w.stores {
		all = s.Table(name).Namespaces(all, from, to)
	}
	slices.Sort(all[1:])
	got := slices.Concat(all[:1], slices.Compact(all[1:]))
	want := w.model.Table(name).Namespaces(before, from, to)
	w.check("namespaces", slices.Equal(got, want), got, want)
}

// empty deletes all keys of a namespace, one by one.
func (w *world) empty(name string, ns int64) {
	var keys []state.Key
	w.model.Table(name).Scan(ns, func(k state.Key, _ []byte) bool {
		keys = append(keys, k)
		return true
	})
	for _, k := range keys {
		got, want := w.table(name, k)
		a, b := got.Delete(ns, k), want.Delete(ns, k)
		w.check("delete", a && b, a, b)
	}
}

// scan visits a namespace, changes others meanwhile with what it is shown, and may stop.
func (w *world) scan(name string, ns int64) {
	other := w.spaces[w.rng.IntN(len(w.spaces))]
	if other == ns {
		return
	}
	most := w.rng.IntN(50)
	for _, s := range w.stores {
		n := 0
		s.Table(name).Scan(ns, func(k state.Key, v []byte) bool {
			want, ok := w.model.Table(name).Get(ns, k)
			w.check("scan", ok && bytes.Equal(v, want), v, want)
			w.model.Table(name).Put(other, k, want) // first, as k is borrowed until the store's next call
			s.Table(name).Put(other, k, v)
			n++
			return n < most
		})
	}
}

// largeEntries puts what is far larger than what is usual through a checkpoint.
func largeEntries(t *testing.T, open Open) {
	t.Helper()
	files := &connectortest.Files{}
	options := state.Options{Last: 7, Groups: 8, Dir: t.TempDir(), Memory: 8 << 20}
	s, err := open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	long := state.MakeKey(bytes.Repeat([]byte("k"), 1<<20), 8)
	empty := state.MakeKey(nil, 8)
	table := s.Table("t")
	want := bytes.Repeat([]byte("v"), 1<<20)
	for _, k := range []state.Key{long, empty} {
		table.Put(-1, k, want[:1<<19])
		table.Append(-1, k, want[1<<19:])
	}
	table.Put(5, long, nil)
	snap, err := s.Fork(1)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := table.Upsert(-1, empty, 1<<20)
	v[0] = 'x'
	table.Delete(-1, long)
	pieces, err := snap.Write(context.WithoutCancel(t.Context()), files, state.Form{Neutral: true, Compression: "zstd"})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := table.Get(-1, empty); len(v) != 1<<20 || v[0] != 'x' || v[1] != 'v' {
		t.Error("the value is not what was written to it after the fork")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	options.Dir, options.Restore = t.TempDir(), &state.Restore{Pieces: pieces, Files: files}
	if s, err = open(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	table = s.Table("t")
	for _, k := range []state.Key{long, empty} {
		if v, ok := table.Get(-1, k); !ok || !bytes.Equal(v, want) {
			t.Errorf("the key of %d bytes has a value of %d bytes", len(k.Bytes), len(v))
		}
	}
	if v, ok := table.Get(5, long); !ok || len(v) != 0 {
		t.Errorf("an empty value is %q, %v", v, ok)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// foreignGroups writes keys that the store does not own: the store fails, and does not panic.
func foreignGroups(t *testing.T, open Open) {
	t.Helper()
	s, err := open(t.Context(), state.Options{First: 2, Last: 3, Groups: 8, Dir: t.TempDir(), Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		k := state.MakeKey([]byte{byte(i)}, 8)
		s.Table("t").Upsert(0, k, 8)
	}
	if s.Err() == nil {
		t.Error("a store took keys that others own, without an error")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
