package disk

import (
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// snapshot implements state.Snapshot: a directory with hard links to the files that
// the database had when the epoch before the barrier was flushed.
type snapshot struct {
	s      *store
	number uint64
	done   chan struct{} // closed once dir and err stand

	mu       sync.Mutex
	finished bool
	released bool
	dir      string
	err      error
}

// finish is the flushing goroutine's answer.
func (f *snapshot) finish(dir string, err error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		return
	}
	f.finished, f.dir, f.err = true, dir, err
	close(f.done)
	if f.released {
		f.remove()
	}
}

// Release implements state.Snapshot.
func (f *snapshot) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.released {
		f.released = true
		f.remove()
	}
}

// remove removes the directory. The caller holds the lock.
func (f *snapshot) remove() {
	if f.dir == "" {
		return
	}
	if err := f.s.fs.RemoveAll(f.dir); err != nil {
		f.s.log.Warn("remove a checkpoint's directory", "dir", f.dir, "err", err)
	}
	f.dir = ""
}

// checkpoint links the database's files into a directory, unless nobody wants it.
func (s *store) checkpoint(f *snapshot) (string, error) {
	f.mu.Lock()
	released := f.released
	f.mu.Unlock()
	if released {
		return "", nil
	}
	dir := s.fs.PathJoin(s.dir, fmt.Sprintf("checkpoint-%d-%d", f.number, s.fileSeq.Add(1)))
	if err := s.Err(); err != nil {
		return "", err
	}
	if err := s.db.Checkpoint(dir); err != nil {
		return "", fmt.Errorf("link the state's files into %s: %w%s", dir, err, explain(err, s.dir))
	}
	if err := s.Err(); err != nil { // the list of files may be wrong
		_ = s.fs.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

// Write implements state.Snapshot.
func (f *snapshot) Write(ctx context.Context, files connectors.CheckpointFiles, form state.Form) ([]state.Piece, error) {
	defer f.Release()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	dir, err := f.dir, f.err
	f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("take the state of checkpoint %d: %w", f.number, err)
	}
	if form.Neutral {
		pieces, err := f.s.writeNeutral(ctx, files, form, dir)
		if err == nil {
			// Files that the checkpoint before it has are not kept for the sake of this one.
			f.s.uploads.wrote(f.number, nil)
		}
		return pieces, err
	}
	f.s.failpoint("state.upload.before")
	pieces, err := f.s.upload(ctx, files, dir)
	if err != nil {
		return nil, fmt.Errorf("upload the state of checkpoint %d: %w", f.number, err)
	}
	f.s.uploads.wrote(f.number, pieces)
	return pieces, nil
}

// writeNeutral writes what a directory of files holds in the neutral form.
func (s *store) writeNeutral(ctx context.Context, files connectors.CheckpointFiles, form state.Form, dir string) (_ []state.Piece, err error) {
	db, names, err := s.openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("open the state's files in %s: %w", dir, err)
	}
	defer func() {
		if cerr := closeDB(db); err == nil && cerr != nil {
			err = cerr
		}
	}()
	return state.WriteNeutral(ctx, files, form, s.first, s.last, func(group int, emit func(state.Entry) error) error {
		iter, err := db.NewIter(groupRange(group))
		if err != nil {
			return err
		}
		return s.eachEntry(iter, names, emit)
	})
}

func groupRange(group int) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: appendGroup(nil, group), UpperBound: appendGroup(nil, group+1)}
}

// eachEntry shows what an iterator walks over and closes it.
func (s *store) eachEntry(iter *pebble.Iterator, names map[uint16]string, visit func(state.Entry) error) (err error) {
	defer func() {
		if cerr := iter.Close(); err == nil {
			err = cerr
		}
	}()
	for ok := iter.First(); ok; ok = iter.Next() {
		_, table, ns, key, err := splitKey(iter.Key())
		if err != nil {
			return err
		}
		name, ok := names[table]
		if !ok {
			return fmt.Errorf("a key of table %d, which has no name: %w", table, errDamaged)
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		if err := visit(state.Entry{Table: name, NS: ns, Key: state.MakeKey(key, s.groups), Value: value}); err != nil {
			return err
		}
	}
	return iter.Error()
}
