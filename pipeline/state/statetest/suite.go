package statetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Open opens a store of the backend under test. The options have everything but what
// only the backend knows, such as how much memory it may take.
type Open func(ctx context.Context, o state.Options) (state.Store, error)

// Run is the suite: it gives a backend and a Model the same operations and demands the
// same answers, also across forks that are written while the stream goes on,
// crashes, restores of any checkpoint taken before, other numbers of subtasks, and
// the way through the neutral form into the memory backend and back.
func Run(t *testing.T, open Open) {
	t.Helper()
	t.Run("answers like the model", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) { playWorld(t, r, open) })
	})
	t.Run("large keys and values", func(t *testing.T) { largeEntries(t, open) })
	t.Run("key groups of others are refused", func(t *testing.T) { foreignGroups(t, open) })
}

// world is a job's keyed state: stores that share the key groups, the model, and
// what was taken of it.
type world struct {
	t       *testing.T
	r       *rapid.T
	open    Open
	ctx     context.Context //nolint:containedctx // lives within one check
	groups  int
	model   *Model
	stores  []state.Store
	files   *connectortest.Files
	taken   []*taken // forks that are not written, in order
	saved   []saved
	number  uint64
	rng     *rand.Rand
	tables  []string
	spaces  []int64
	keys    []state.Key
	scratch []byte
}

// taken is a fork of all stores.
type taken struct {
	number uint64
	snaps  []state.Snapshot
	model  *Model
	form   state.Form
	done   chan error // where it is being written
	pieces [][]state.Piece
}

// saved is a checkpoint that was written.
type saved struct {
	pieces  []state.Piece
	model   *Model
	neutral bool
}

func playWorld(t *testing.T, r *rapid.T, open Open) {
	t.Helper()
	w := newWorld(t, r, open)
	defer w.stop()
	w.start(w.subtasks(), open, nil)
	for range rapid.IntRange(1, 30).Draw(r, "steps") {
		switch rapid.SampledFrom([]string{"work", "work", "work", "work", "fork", "fork", "write", "write", "release", "crash", "through"}).Draw(r, "step") {
		case "work":
			w.work()
		case "fork":
			w.fork()
		case "write":
			w.write()
		case "release":
			w.release()
		case "crash":
			w.crash()
		case "through":
			w.through()
		}
	}
	w.compare()
}

func newWorld(t *testing.T, r *rapid.T, open Open) *world {
	t.Helper()
	w := &world{t: t, r: r, open: open, ctx: t.Context(), files: &connectortest.Files{}}
	w.groups = rapid.SampledFrom([]int{1, 2, 7, 128}).Draw(r, "groups")
	w.model = NewModel(w.groups)
	w.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
	w.tables = []string{"a", "", "a longer name"}[:rapid.IntRange(1, 3).Draw(r, "tables")]
	w.spaces = []int64{0, 1, -1, math.MinInt64, math.MaxInt64, 1 << 40}
	for range rapid.SampledFrom([]int{0, 5, 500}).Draw(r, "namespaces") {
		w.spaces = append(w.spaces, w.rng.Int64N(10000)-5000)
	}
	for i := range rapid.SampledFrom([]int{1, 20, 300}).Draw(r, "keys") {
		key := make([]byte, w.size(i))
		for j := range key {
			key[j] = byte(w.rng.Uint32())
		}
		w.keys = append(w.keys, state.MakeKey(key, w.groups))
	}
	return w
}

// size draws the length of a key or a value: mostly short.
func (w *world) size(i int) int {
	switch {
	case i%50 == 7:
		return 100 + w.rng.IntN(2000)
	case i%200 == 77:
		return 10000 + w.rng.IntN(60000)
	case i%3 == 0:
		return 9
	}
	return w.rng.IntN(40)
}

func (w *world) subtasks() int { return rapid.IntRange(1, 3).Draw(w.r, "subtasks") }

// must ends the check at an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.r.Fatal(err)
	}
}

// start opens the stores, from what is restored.
func (w *world) start(n int, open Open, r *state.Restore) {
	for i := range n {
		first, last := state.GroupsOf(i, n, w.groups)
		s, err := open(w.ctx, state.Options{First: first, Last: last, Groups: w.groups, Dir: w.t.TempDir(), Memory: 1 << 20, Restore: r})
		w.must(err)
		w.stores = append(w.stores, s)
	}
	for _, name := range w.tables {
		for _, s := range w.stores {
			s.Table(name)
		}
	}
}

// stop ends everything as a crash would.
func (w *world) stop() {
	for len(w.taken) > 0 {
		w.end(w.taken[0], false)
		w.taken = w.taken[1:]
	}
	for _, s := range w.stores {
		w.must(s.Close())
	}
	w.stores = nil
}

// table gives the table of the store that owns a key, and that of the model.
func (w *world) table(name string, k state.Key) (got, want state.Table) {
	return w.stores[state.SubtaskOf(k.Group, len(w.stores), w.groups)].Table(name), w.model.Table(name)
}

func (w *world) fork() {
	w.number++
	f := &taken{number: w.number, model: w.model.Clone(), form: state.Form{
		Compression: rapid.SampledFrom([]string{"none", "zstd"}).Draw(w.r, "compression"),
		Neutral:     rapid.Bool().Draw(w.r, "neutral"),
	}}
	for _, s := range w.stores {
		snap, err := s.Fork(w.number)
		w.must(err)
		f.snaps = append(f.snaps, snap)
	}
	w.taken = append(w.taken, f)
	if rapid.Bool().Draw(w.r, "at once") {
		w.begin(f)
	}
}

// begin starts to write a fork beside the stream.
func (w *world) begin(f *taken) {
	f.done = make(chan error, 1)
	f.pieces = make([][]state.Piece, len(f.snaps))
	go func() {
		var failed error
		for i, snap := range f.snaps {
			pieces, err := snap.Write(w.ctx, w.files, f.form)
			f.pieces[i] = pieces
			failed = errors.Join(failed, err)
		}
		f.done <- failed
	}()
}

// write writes the oldest fork to its end.
func (w *world) write() {
	if len(w.taken) == 0 {
		return
	}
	f := w.taken[0]
	w.taken = w.taken[1:]
	if f.done == nil {
		w.begin(f)
	}
	w.end(f, true)
}

// end waits for a fork that is being written, and gives up one that is not.
func (w *world) end(f *taken, keep bool) {
	if f.done == nil {
		for _, snap := range f.snaps {
			snap.Release()
		}
		return
	}
	w.must(<-f.done)
	if !keep {
		return
	}
	done := saved{model: f.model, neutral: f.form.Neutral}
	for _, p := range f.pieces {
		done.pieces = append(done.pieces, p...)
	}
	w.saved = append(w.saved, done)
	if rapid.IntRange(0, 4).Draw(w.r, "complete") > 0 {
		for _, s := range w.stores {
			s.Complete(f.number)
		}
	}
}

// release gives up a fork in the middle.
func (w *world) release() {
	if len(w.taken) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.taken)-1).Draw(w.r, "which")
	w.end(w.taken[i], false)
	w.taken = slices.Delete(w.taken, i, i+1)
}

// crash drops the stores and begins with a checkpoint, in any number of subtasks.
func (w *world) crash() {
	w.compare()
	w.stop()
	if len(w.saved) == 0 {
		w.model = NewModel(w.groups)
		w.start(w.subtasks(), w.open, nil)
		return
	}
	i := rapid.IntRange(0, len(w.saved)-1).Draw(w.r, "checkpoint")
	from := w.saved[i]
	w.model = from.model.Clone()
	reuse := i == len(w.saved)-1 && rapid.Bool().Draw(w.r, "reuse")
	if !reuse { // another job: what it takes has numbers of its own
		w.saved = w.saved[i : i+1]
	}
	w.start(w.subtasks(), w.open, &state.Restore{Pieces: from.pieces, Files: w.files, Reuse: reuse})
	w.compare()
}

// through takes a savepoint and goes on from it by way of the memory backend.
func (w *world) through() {
	w.model = w.model.Clone()
	pieces := w.savepoint()
	w.stop()
	w.saved = nil
	w.start(w.subtasks(), state.OpenMemory, &state.Restore{Pieces: pieces, Files: w.files})
	w.compare()
	pieces = w.savepoint()
	w.stop()
	w.start(w.subtasks(), w.open, &state.Restore{Pieces: pieces, Files: w.files})
	w.compare()
}

func (w *world) savepoint() (all []state.Piece) {
	w.number++
	for _, s := range w.stores {
		snap, err := s.Fork(w.number)
		w.must(err)
		pieces, err := snap.Write(w.ctx, w.files, state.Form{Neutral: true, Compression: "zstd"})
		w.must(err)
		all = append(all, pieces...)
	}
	for _, p := range all {
		if p.Format != "" || p.First != p.Last {
			w.r.Fatalf("a piece of a savepoint is %+v", p)
		}
	}
	return all
}

// compare demands that the stores hold what the model holds.
func (w *world) compare() {
	for _, name := range w.tables {
		spaces := w.model.Table(name).Namespaces(nil, math.MinInt64, math.MaxInt64)
		var got []int64
		for _, s := range w.stores {
			own := s.Table(name).Namespaces(nil, math.MinInt64, math.MaxInt64)
			if !slices.IsSorted(own) {
				w.r.Fatalf("namespaces of %q are %v", name, own)
			}
			got = append(got, own...)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, spaces) {
			w.r.Fatalf("namespaces of %q are %v, not %v", name, got, spaces)
		}
		for _, ns := range spaces {
			w.compareSpace(name, ns)
		}
	}
	var keys, want int64
	want = w.model.Usage().Keys
	for _, s := range w.stores {
		w.must(s.Err())
		keys += s.Usage().Keys
	}
	if keys < want/2-1000 || keys > 2*want+1000 {
		w.r.Fatalf("usage says %d keys, and there are %d", keys, want)
	}
}

func (w *world) compareSpace(name string, ns int64) {
	want := map[string][]byte{}
	w.model.Table(name).Scan(ns, func(k state.Key, v []byte) bool {
		want[string(k.Bytes)] = v
		return true
	})
	n := 0
	for i, s := range w.stores {
		s.Table(name).Scan(ns, func(k state.Key, v []byte) bool {
			n++
			if made := state.MakeKey(k.Bytes, w.groups); made.Hash != k.Hash || made.Group != k.Group || state.SubtaskOf(k.Group, len(w.stores), w.groups) != i {
				w.r.Fatalf("a scan shows %x with hash %x and group %d", k.Bytes, k.Hash, k.Group)
			}
			if old, ok := want[string(k.Bytes)]; !ok || !bytes.Equal(old, v) {
				w.r.Fatalf("in namespace %d of %q the value of %x is %x, not %x", ns, name, k.Bytes, v, old)
			}
			return true
		})
	}
	if n != len(want) {
		w.r.Fatalf("namespace %d of %q has %d entries, not %d", ns, name, n, len(want))
	}
}

// check compares one answer.
func (w *world) check(what string, ok bool, got, want any) {
	if !ok {
		w.r.Fatalf("%s gives %v, not %v", what, got, want)
	}
}

var _ connectors.CheckpointFiles = (*connectortest.Files)(nil)
