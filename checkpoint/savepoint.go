package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// Pin keeps checkpoint n from being removed until release is called. It is called
// while n is the newest proven one or not proven yet.
func (j *Job) Pin(n uint64) (release func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pins[n]++
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.pins[n]--; j.pins[n] == 0 {
			delete(j.pins, n)
		}
	})
}

// Savepoint copies checkpoint m, which is proven and pinned, into a new folder below
// dir, an address as storage.Open takes it, and returns the savepoint's path. The copy
// needs no file outside its folder and holds no committable. Where it fails it leaves
// nothing behind.
func (j *Job) Savepoint(ctx context.Context, m *Metadata, dir string) (path string, err error) {
	to, err := j.newSavepoint(m, dir)
	if err == nil {
		err = j.checkSavepoint(ctx, m)
	}
	if err != nil {
		return "", fmt.Errorf("copy checkpoint %d into a savepoint in %s: %w", m.Number, dir, err)
	}
	if err := j.fillSavepoint(ctx, m, to); err != nil {
		j.dropSavepoint(ctx, to)
		return "", fmt.Errorf("copy checkpoint %d into a savepoint in %s: %w", m.Number, dir, err)
	}
	return addressOf(to.fs, to.dir), nil
}

// checkSavepoint refuses a checkpoint that cannot become a savepoint.
func (j *Job) checkSavepoint(ctx context.Context, m *Metadata) error {
	committed, err := storage.Exists(ctx, j.store.fs, j.dir(m.Number)+"/"+committedName)
	if err != nil {
		return err
	}
	if !committed {
		return connectors.Permanent(errors.New("its commits are not proven, and a savepoint cannot finish them"))
	}
	for i := range m.Operators {
		for _, k := range m.Operators[i].KeyGroups {
			if k.Format != "" {
				return connectors.Permanent(fmt.Errorf("the state of operator %s is in the form of its backend (%s), not in the one that every backend reads: only a checkpoint that was triggered as a savepoint can become one",
					m.Operators[i].UID, k.Format))
			}
		}
	}
	return nil
}

// newSavepoint names the folder of a savepoint. It does no I/O.
func (j *Job) newSavepoint(m *Metadata, dir string) (*files, error) {
	u, err := storage.Parse(dir)
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	if own, name := j.store.within(u); own {
		if parts := strings.Split(name, "/"); len(parts) > 1 && parts[0] == j.store.pipeline && isJobID(parts[1]) {
			return nil, connectors.Permanent(errors.New("it lies in the folder of a job, which goes with the job's checkpoints; name a directory beside the pipeline's"))
		}
	}
	to, err := storage.Open(dir)
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	var unique [6]byte
	_, _ = rand.Read(unique[:]) // never fails
	return &files{fs: to, dir: savepointName(j.id, hex.EncodeToString(unique[:])), id: m.ID(), inside: true}, nil
}

// fillSavepoint copies the files and then writes the metadata.
func (j *Job) fillSavepoint(ctx context.Context, m *Metadata, to *files) error {
	ops, err := copyOperators(ctx, &files{fs: j.store.fs, dir: j.dir(m.Number)}, to, m)
	if err != nil {
		return err
	}
	s := *m
	s.Kind, s.Operators, s.Committables = Savepoint, ops, []connectors.Committable{}
	data, err := s.Encode()
	if err != nil {
		return connectors.Permanent(err)
	}
	return j.store.durable("savepoint", func() error { return writeOnce(ctx, to.fs, to.dir+"/"+metadataName, data) })
}

// dropWithin bounds the removal of a savepoint that failed.
const dropWithin = 30 * time.Second

// dropSavepoint removes what a failed savepoint left, also when it was cancelled.
func (j *Job) dropSavepoint(ctx context.Context, to *files) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWithin)
	defer cancel()
	if err := dropFolder(ctx, to.fs, to.dir); err != nil {
		j.store.log.Warn("what a failed savepoint left cannot be removed; it is no savepoint without its metadata and can be deleted by hand",
			"folder", addressOf(to.fs, to.dir), "err", err)
	}
}

// dropFolder removes the folder of a checkpoint or savepoint, its metadata first: what a
// crash leaves is garbage and no checkpoint with holes.
func dropFolder(ctx context.Context, f storage.FS, dir string) error {
	if err := f.Remove(ctx, dir+"/"+metadataName); err != nil {
		return err
	}
	return f.RemoveAll(ctx, dir)
}

// selfContained reports whether m can be restored wherever it lies: nothing of it is
// unpublished and no file of it lies elsewhere.
func (m *Metadata) selfContained() bool {
	if m.Kind != Savepoint || len(m.Committables) > 0 {
		return false
	}
	for f := range m.files() {
		if strings.HasPrefix(f.Path, "../") {
			return false
		}
	}
	return true
}

// FoundSavepoint is a savepoint in a directory of them.
type FoundSavepoint struct {
	Name string    // of its folder
	Path string    // as -s takes it
	Meta *Metadata // nil where it cannot be read
	Err  error     // why
}

// Savepoints lists the savepoints directly in dir, an address, the newest first and
// those that cannot be read last. Folders without metadata are none: a savepoint in
// the making, or what one that failed has left.
func Savepoints(ctx context.Context, dir string) ([]FoundSavepoint, error) {
	f, err := storage.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list savepoints: %w", err)
	}
	dirs, err := f.Dirs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list savepoints in %s: %w", dir, err)
	}
	dirs = slices.DeleteFunc(dirs, func(d string) bool { return !isSavepointName(d) })
	found := make([]FoundSavepoint, len(dirs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(verifyWorkers)
	for i, d := range dirs {
		g.Go(func() error {
			m, err := readMetadata(gctx, f, d)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			found[i] = FoundSavepoint{Name: d, Path: addressOf(f, d), Meta: m, Err: err}
			if err != nil && !isDamage(err) && !isVersion(err) {
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("list savepoints in %s: %w", dir, err)
	}
	found = slices.DeleteFunc(found, func(s FoundSavepoint) bool { return s.Name == "" })
	slices.SortStableFunc(found, func(a, b FoundSavepoint) int {
		switch {
		case a.Meta == nil && b.Meta == nil:
			return 0
		case a.Meta == nil:
			return 1
		case b.Meta == nil:
			return -1
		}
		return b.Meta.Completed.Compare(a.Meta.Completed)
	})
	return found, nil
}

// addressOf is the address of a folder, as -s takes it.
func addressOf(f storage.FS, dir string) string {
	return strings.TrimSuffix(f.URL(), "/") + "/" + path.Clean(dir)
}
