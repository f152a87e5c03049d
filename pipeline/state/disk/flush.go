package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var errClosed = errors.New("the state is closed")

// job is an epoch that is over, to be written to the database: in order, one at a
// time. Nothing in it changes any more.
type job struct {
	epoch uint64
	pages [][]byte
	drops []drop
	names []tableName
	fork  *snapshot // takes a checkpoint of the database right behind it
}

type tableName struct {
	id   uint16
	name string
}

// endEpoch gives what changed since the last one to the flushing goroutine.
func (s *store) endEpoch(fork *snapshot) {
	j := &job{epoch: s.epoch, drops: s.joinDrops(), names: s.names, fork: fork, pages: make([][]byte, len(s.mutable))}
	for i, id := range s.mutable {
		j.pages[i] = s.pages.all[id].buf[:s.pages.all[id].used]
	}
	s.closed = append(s.closed, closedEpoch{epoch: s.epoch, pages: s.mutable, drops: s.dropped})
	s.mutable, s.drops, s.dropped, s.names = nil, nil, nil, nil
	s.head, s.open, s.granted = 0, 0, 0
	s.epoch++
	s.flusher.submit(j)
}

// collect learns what has been flushed.
func (s *store) collect() {
	s.filters.finish()
	flushed := s.flusher.flushed.Load()
	if flushed == s.flushed {
		return
	}
	s.flushed = flushed
	s.tend()
	for len(s.closed) > 0 && s.closed[0].epoch <= flushed {
		s.clean = append(s.clean, s.closed[0].pages...)
		for _, id := range s.closed[0].drops {
			s.retire(id)
		}
		s.closed = s.closed[1:]
	}
	if top := s.flusher.entries.Load(); s.keys.Load() > top+int64(s.index.n) {
		s.keys.Store(top + int64(s.index.n))
	}
}

// awaitFlush waits until an epoch has been flushed. It reports false where that
// will not be.
func (s *store) awaitFlush() bool {
	ok := s.flusher.await(s.flushed)
	s.collect()
	return ok
}

// yieldEvery is after how many entries a flush lets others run. A goroutine that never
// waits keeps its processor for up to 10 ms at a time, and records of few processors then
// stand still for many of them: with two, a checkpoint of 700 MB beside full load left
// gaps of 90 to 280 ms in the second of its barrier, and leaves 50 to 70, where there are
// 40 to 60 without one.
const yieldEvery = 64

// flush writes an epoch to the database: all of it or nothing.
func (s *store) flush(ctx context.Context, j *job) (size int64, err error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	refs := s.sorted(j)
	if len(refs) == 0 && len(j.drops) == 0 && len(j.names) == 0 {
		return 0, nil
	}
	if err := s.compactor.relieve(ctx); err != nil {
		return 0, err
	}
	w := s.newTables(s.rangesOf(j.drops))
	defer func() {
		if err != nil {
			w.abort()
		}
	}()
	var key []byte
	for i, r := range refs {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		e := j.entry(r)
		key = append(appendPrefix(key[:0], e.group(), e.table(), e.ns()), e.key()...)
		if err := w.put(key, e.value(), e.is(deleted)); err != nil {
			return 0, err
		}
	}
	if err := w.putNames(j.names); err != nil {
		return 0, err
	}
	if err := w.cut(nil); err != nil {
		return 0, err
	}
	if err := s.db.Ingest(ctx, w.files); err != nil {
		return 0, fmt.Errorf("add %d tables: %w", len(w.files), err)
	}
	return w.total, nil
}

func (j *job) entry(r ref) entry { return entry(j.pages[r>>pageShift][(r&(1<<pageShift-1))*unit:]) }

// sorted gives the changed entries in the order of the database.
func (s *store) sorted(j *job) []ref {
	counts := make([]int, s.last-s.first+2)
	changes := func(visit func(r ref, e entry)) {
		for i, p := range j.pages {
			for off := 0; off < len(p); {
				e := entry(p[off:])
				if e.flags()&(dirty|dead) == dirty {
					visit(ref(i<<pageShift|off/unit), e)
				}
				off += e.size()
			}
		}
	}
	changes(func(_ ref, e entry) { counts[e.group()-s.first+1]++ })
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	refs, at := make([]ref, counts[len(counts)-1]), slices.Clone(counts)
	changes(func(r ref, e entry) {
		g := e.group() - s.first
		refs[at[g]] = r
		at[g]++
	})
	for g := range len(counts) - 1 {
		runtime.Gosched() // see yieldEvery
		slices.SortFunc(refs[counts[g]:counts[g+1]], func(a, b ref) int {
			x, y := j.entry(a), j.entry(b)
			if x.table() != y.table() {
				return cmp.Compare(x.table(), y.table())
			}
			if x.ns() != y.ns() {
				return cmp.Compare(x.ns(), y.ns())
			}
			return bytes.Compare(x.key(), y.key())
		})
	}
	return refs
}

// span is a range of keys, without its end.
type span struct{ start, end []byte }

// rangesOf gives the ranges of dropped namespaces in order.
func (s *store) rangesOf(drops []drop) []span {
	var spans []span
	for g := s.first; g <= s.last; g++ {
		for _, d := range drops {
			if d.mask&s.share(g) != 0 {
				spans = append(spans, span{appendPrefix(nil, g, d.table, d.first), appendPrefixEnd(nil, g, d.table, d.last)})
			}
		}
	}
	return spans
}

// tableBytes is how much a flush puts into a file of the database, before compression.
const tableBytes = 1 << 20

// tables writes files of the database from keys in order.
type tables struct {
	s      *store
	bounds [][]byte // files end here, so that a slice can be compacted alone
	spans  []span   // to be deleted, those that are not written yet
	files  []string
	w      *sstable.Writer
	size   int
	total  int64
}

func (s *store) newTables(spans []span) *tables {
	return &tables{s: s, spans: spans, bounds: s.compactor.bounds()}
}

func (w *tables) open() error {
	if w.w != nil {
		return nil
	}
	name := w.s.fs.PathJoin(w.s.dir, "new", strconv.FormatUint(w.s.fileSeq.Add(1), 10))
	f, err := w.s.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create a table: %w", err)
	}
	w.files = append(w.files, name)
	w.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), w.s.opts.MakeWriterOptions(0, w.s.db.TableFormat()))
	w.size = 0
	return nil
}

func (w *tables) put(key, value []byte, gone bool) error {
	if len(w.bounds) > 0 && bytes.Compare(key, w.bounds[0]) >= 0 {
		for len(w.bounds) > 0 && bytes.Compare(key, w.bounds[0]) >= 0 {
			if err := w.cut(w.bounds[0]); err != nil {
				return err
			}
			w.bounds = w.bounds[1:]
		}
	} else if w.size >= tableBytes {
		if err := w.cut(key); err != nil {
			return err
		}
	}
	if err := w.open(); err != nil {
		return err
	}
	w.size += len(key) + len(value)
	write := func() error { return w.w.Set(key, value) }
	if gone {
		write = func() error { return w.w.Delete(key) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write a table: %w", err)
	}
	return nil
}

func (w *tables) putNames(names []tableName) error {
	if len(names) == 0 {
		return nil
	}
	slices.SortFunc(names, func(a, b tableName) int { return cmp.Compare(a.id, b.id) })
	if err := w.cut(appendGroup(nil, namesGroup)); err != nil {
		return err
	}
	w.bounds = nil
	for _, n := range names {
		if err := w.put(nameKey(n.id), []byte(n.name), false); err != nil {
			return err
		}
	}
	return nil
}

// cut ends a file before bound, nil for the end, with the deletions of ranges that
// belong to it.
func (w *tables) cut(bound []byte) error {
	for len(w.spans) > 0 && (bound == nil || bytes.Compare(w.spans[0].start, bound) < 0) {
		if err := w.open(); err != nil {
			return err
		}
		sp := w.spans[0]
		if bound != nil && bytes.Compare(sp.end, bound) > 0 {
			w.spans[0].start, sp.end = bytes.Clone(bound), bound
		} else {
			w.spans = w.spans[1:]
		}
		if err := w.w.DeleteRange(sp.start, sp.end); err != nil {
			return fmt.Errorf("write a table: %w", err)
		}
		if bound != nil && bytes.Equal(sp.end, bound) {
			break
		}
	}
	if w.w == nil {
		return nil
	}
	err := w.w.Close()
	if err == nil {
		if m, merr := w.w.Metadata(); merr == nil {
			w.total += int64(m.Size)
		}
	}
	w.w = nil
	if err != nil {
		return fmt.Errorf("write a table: %w", err)
	}
	return nil
}

// abort removes the files.
func (w *tables) abort() {
	if w.w != nil {
		_ = w.w.Close()
	}
	for _, f := range w.files {
		_ = w.s.fs.Remove(f)
	}
}
