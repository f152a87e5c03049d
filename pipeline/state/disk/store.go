// Package disk holds the state of a step in a Pebble database with a write-back
// cache in front. What is in the cache is changed at memory speed; at a barrier the
// cache is frozen and goes on empty of changes, and what it had is written to the
// database beside the stream. A checkpoint uploads the files of the database that
// no earlier one did.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// Format is the format of the pieces that a store writes of its own.
const Format = "pebble"

const (
	defaultMemory = 64 << 20
	minCache      = 16 * pageSize
	minBlockCache = 1 << 20
)

var errDamaged = errors.New("the state is damaged")

// store implements state.Store. All but the atomic fields, flusher, compactor and
// uploads belongs to the goroutine that uses the store.
type store struct {
	first, last, groups int
	dir                 string
	fs                  vfs.FS
	lock                *pebble.Lock
	db                  *pebble.DB
	opts                *pebble.Options
	log                 *slog.Logger
	failpoint           func(string)

	tables []*table
	shares []uint64 // by key group

	pages   *pages
	index   *index
	spaces  spaces
	filters filters
	limit   int64         // bytes that pages and index may take
	epoch   uint64        // the current one
	flushed uint64        // the last one known to be flushed
	head    uint32        // page that entries are added to; 0 is none
	mutable []uint32      // pages of the epoch
	open    int64         // bytes in them
	granted int           // size of a large entry that there is room for
	closed  []closedEpoch // epochs not known to be flushed
	clean   []uint32      // pages whose entries the database has, oldest first
	drops   []drop        // of the epoch
	dropped []uint32      // their spaces
	names   []tableName   // of tables made in the epoch
	cursors []*cursor
	scans   int  // under way
	heldAny bool // an entry may be marked as held

	keyBuf, keptKey, keptValue, shown []byte
	ids                               []uint32

	flusher   *flusher
	compactor *compactor
	uploads   uploads
	life      context.Context //nolint:containedctx // of the goroutines, until Close
	cancel    context.CancelFunc
	filling   sync.WaitGroup // a filter

	err     atomic.Pointer[error]
	keys    atomic.Int64
	memory  atomic.Int64
	blocks  atomic.Int64 // bytes of the database's caches
	onDisk  atomic.Int64
	fileSeq atomic.Uint64
	shut    bool
}

// Open opens a store in o.Dir, which is its own: what an earlier process left there
// is removed. o.Memory bounds its caches in bytes; it needs some more while it
// flushes and compacts.
func Open(ctx context.Context, o state.Options) (state.Store, error) {
	return open(ctx, o, vfs.Default)
}

func open(ctx context.Context, o state.Options, fs vfs.FS) (*store, error) {
	s, err := prepare(o, fs)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, o.Memory, o.Restore); err != nil {
		return nil, errors.Join(fmt.Errorf("open the state in %s: %w%s", s.dir, err, explain(err, s.dir)), s.Close())
	}
	if err := s.Err(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare takes hold of the working directory and empties it.
func prepare(o state.Options, fs vfs.FS) (*store, error) {
	switch {
	case o.Dir == "":
		return nil, errors.New("open the state: the disk backend needs a directory")
	case o.Groups < 1 || o.Groups > MaxGroups || o.First < 0 || o.Last >= o.Groups:
		return nil, fmt.Errorf("open the state in %s: key groups %d to %d of %d; there can be 1 to %d", o.Dir, o.First, o.Last, o.Groups, MaxGroups)
	}
	s := &store{
		first: o.First, last: o.Last, groups: o.Groups, dir: o.Dir, log: o.Log, failpoint: o.Failpoint,
		pages: newPages(), index: newIndex(), epoch: 1,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.failpoint == nil {
		s.failpoint = func(string) {}
	}
	s.fs = &workFS{FS: fs, fail: s.fail}
	s.shares = make([]uint64, o.Groups)
	for g := s.first; g <= s.last; g++ {
		n := s.last - s.first + 1
		s.shares[g] = 1 << ((g - s.first) * min(n, 64) / n)
	}
	if err := s.occupy(); err != nil {
		s.index.close()
		return nil, fmt.Errorf("open the state in %s: %w%s", s.dir, err, explain(err, s.dir))
	}
	return s, nil
}

// share is the bit of a key group in the masks of spaces; 0 where it is another
// store's.
func (s *store) share(group int) uint64 {
	if uint(group) >= uint(len(s.shares)) {
		return 0
	}
	return s.shares[group]
}

func (s *store) occupy() error {
	if err := s.fs.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(s.dir, s.fs)
	if err != nil {
		return fmt.Errorf("the directory is in use by another process or task: %w", err)
	}
	s.lock = lock
	if err := s.clear(); err != nil {
		return errors.Join(err, lock.Close())
	}
	return nil
}

// clear removes all in the working directory but its lock.
func (s *store) clear() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("remove what an earlier process left: %w", err)
		}
	}
	return nil
}

func (s *store) start(ctx context.Context, memory int64, from *state.Restore) error {
	if memory <= 0 {
		memory = defaultMemory
	}
	s.limit = max(minCache, memory*9/16)
	for _, d := range []string{"new", "db"} {
		if err := s.fs.MkdirAll(s.fs.PathJoin(s.dir, d), 0o755); err != nil {
			return err
		}
	}
	plan, err := s.plan(from)
	if err != nil {
		return err
	}
	if plan.own != nil {
		if err := s.download(ctx, from.Files, plan.own, s.fs.PathJoin(s.dir, "db")); err != nil {
			return err
		}
		if from.Reuse {
			s.uploads.restored(plan.own)
		}
	}
	s.opts = databaseOptions(s.fs, max(minBlockCache, memory/4), listener{s.log, s.fail})
	if s.db, err = pebble.Open(s.fs.PathJoin(s.dir, "db"), s.opts); err != nil {
		return err
	}
	var life context.Context
	life, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.life = life
	s.filters.memory = memory
	s.flusher, s.compactor = newFlusher(s), newCompactor(s)
	go s.flusher.run(life)
	go s.compactor.run(life)
	return s.bring(ctx, from, plan)
}

// Table implements state.Store.
func (s *store) Table(name string) state.Table {
	for _, t := range s.tables {
		if t.name == name {
			return t
		}
	}
	id := uint16(len(s.tables))
	s.names = append(s.names, tableName{id, name})
	return s.addTable(id, name)
}

func (s *store) addTable(id uint16, name string) *table {
	t := &table{s: s, id: id, name: name}
	s.tables = append(s.tables, t)
	return t
}

// Fork implements state.Store.
func (s *store) Fork(number uint64) (state.Snapshot, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	s.collect()
	f := &snapshot{s: s, number: number, done: make(chan struct{})}
	s.endEpoch(f)
	s.account()
	return f, nil
}

// Complete implements state.Store.
func (s *store) Complete(number uint64) { s.uploads.complete(number) }

// Err implements state.Store.
func (s *store) Err() error {
	if p := s.err.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *store) failed() bool { return s.err.Load() != nil }

// fail makes the store's first failure of what it was doing.
func (s *store) fail(doing string, err error) {
	s.failWith(fmt.Errorf("%s in %s: %w%s", doing, s.dir, err, explain(err, s.dir)))
}

func (s *store) failWith(err error) {
	if s.err.CompareAndSwap(nil, &err) && s.flusher != nil {
		s.flusher.cond.Broadcast()
	}
}

// account keeps the figures of Usage.
func (s *store) account() {
	s.memory.Store(int64(len(s.pages.chunks))*chunkSize + s.index.bytes() + int64(cap(s.spaces.all))*80 +
		s.filters.now.bytes() + s.filters.next.bytes())
}

// measure takes the size of the database and about the number of its entries.
func (s *store) measure(levels [][]pebble.SSTableInfo) (total int64) {
	var entries int64
	known := true
	for _, l := range levels {
		for _, t := range l {
			total += int64(t.Size)
			entries += int64(t.TableStats.NumEntries) - int64(t.TableStats.NumDeletions)
			known = known && t.TableStats.NumEntries > 0
		}
	}
	if known {
		s.flusher.entries.Store(entries)
	}
	m := s.db.Metrics()
	s.onDisk.Store(int64(m.DiskSpaceUsage()))
	s.blocks.Store(m.BlockCache.Size + int64(m.MemTable.Size))
	return total
}

// Usage implements state.Store.
func (s *store) Usage() state.Usage {
	return state.Usage{Keys: max(0, s.keys.Load()), Memory: s.memory.Load() + s.blocks.Load(), Disk: s.onDisk.Load()}
}

// Close implements state.Store.
func (s *store) Close() error {
	if s.shut {
		return nil
	}
	s.shut = true
	if s.cancel != nil {
		s.cancel()
		s.flusher.stop()
		<-s.compactor.done
		s.filling.Wait()
	}
	var err error
	if s.db != nil {
		err = closeDB(s.db)
	}
	s.pages.close()
	s.index.close()
	err = errors.Join(err, s.clear(), s.lock.Close())
	_ = s.fs.RemoveAll(s.dir) // a directory that cannot go holds nothing more than the lock
	if err != nil {
		return fmt.Errorf("close the state in %s: %w", s.dir, err)
	}
	return nil
}

// closeDB closes a database. One that has met a failure may not be in the order
// that Pebble insists on; it is thrown away all the same.
func closeDB(db *pebble.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close the database: %v", p)
		}
	}()
	return db.Close()
}
