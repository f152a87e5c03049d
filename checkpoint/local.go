package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-etl/sluice/connectors"
)

// Local keeps copies of the state files of a pipeline's newest checkpoint on a local
// disk, so that a restart does not read them from the storage. A copy is used only where its
// size and checksum are what the checkpoint's metadata says, and nothing hangs on it: a
// disk that is full, slow to come or damaged makes it count failures and no more. Files are
// called as in the shared folder, where no name is used twice, so that several
// processes do not disturb each other.
type Local struct {
	dir string
	log *slog.Logger

	hits, misses, failures atomic.Int64
	failing                atomic.Bool // the last write failed, which was logged

	// begin makes the file of a copy.
	begin func(name string) (io.WriteCloser, error)

	mu      sync.Mutex
	checked map[string]bool // copies that this process has read and found right
}

// LocalStats counts what became of files that a restore asked for, and of copies.
type LocalStats struct {
	Hits     int64 `json:"hits"`     // files that were read from their copy
	Misses   int64 `json:"misses"`   // files without a copy, or with a damaged one
	Failures int64 `json:"failures"` // copies that could not be written, were damaged, or could not be removed
}

// NewLocal makes the copies of a pipeline whose checkpoints are at an address, below
// dir. It does no I/O.
func NewLocal(dir, pipeline, address string, log *slog.Logger) *Local {
	sum := sha256.Sum256([]byte(address))
	return &Local{dir: filepath.Join(dir, pipeline+"-"+hex.EncodeToString(sum[:4])), log: log, begin: beginCopy, checked: map[string]bool{}}
}

func beginCopy(name string) (io.WriteCloser, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Stats are the counts since the process began; all 0 for nil.
func (l *Local) Stats() LocalStats {
	if l == nil {
		return LocalStats{}
	}
	return LocalStats{Hits: l.hits.Load(), Misses: l.misses.Load(), Failures: l.failures.Load()}
}

// beingWritten begins the names of copies that are not whole yet.
const beingWritten = ".new-"

// failed counts a failure and tells of the first in a row.
func (l *Local) failed(what string, err error) {
	l.failures.Add(1)
	if !l.failing.Swap(true) {
		l.log.Warn("checkpoint.local_recovery is of no use for now: state is read from the storage instead", "step", what, "dir", l.dir, "err", err)
	}
}

// create begins the copy of a file; nil where there is none to be.
func (l *Local) create(name string) *localWriter {
	if l == nil {
		return nil
	}
	err := os.MkdirAll(l.dir, 0o700)
	var f io.WriteCloser
	if err == nil {
		f, err = l.begin(filepath.Join(l.dir, beingWritten+name))
	}
	if err != nil {
		l.failed("begin a copy", err)
		return nil
	}
	return &localWriter{local: l, name: name, f: f}
}

// localWriter writes one copy. Its methods do nothing on nil and never fail.
type localWriter struct {
	local *Local
	name  string
	f     io.WriteCloser // nil once it is given up
}

func (w *localWriter) temporary() string { return filepath.Join(w.local.dir, beingWritten+w.name) }

func (w *localWriter) write(p []byte) {
	if w == nil || w.f == nil {
		return
	}
	if _, err := w.f.Write(p); err != nil {
		w.local.failed("write a copy", err)
		w.abort()
	}
}

// keep gives the copy its name, once the file itself is durable. It need not be durable.
func (w *localWriter) keep() {
	if w == nil || w.f == nil {
		return
	}
	err := w.f.Close()
	if err == nil {
		err = os.Rename(w.temporary(), filepath.Join(w.local.dir, w.name))
	}
	if err != nil {
		w.local.failed("keep a copy", err)
		w.abort()
		return
	}
	w.f = nil
	w.local.failing.Store(false)
}

// abort removes what was written.
func (w *localWriter) abort() {
	if w == nil || w.f == nil {
		return
	}
	_ = w.f.Close()
	_ = os.Remove(w.temporary())
	w.f = nil
}

// copyOf is where the copy of a file would be; false for a file that has none.
func (l *Local) copyOf(s connectors.StateFile) (string, bool) {
	name, shared := strings.CutPrefix(s.Path, "../"+sharedDir+"/")
	if _, ours := parseShared(name); l == nil || !shared || !ours {
		return "", false
	}
	return filepath.Join(l.dir, name), true
}

// has reads the copy of a file to its end and reports whether it is what the metadata
// says. One that is not is removed.
func (l *Local) has(s connectors.StateFile) bool {
	name, ok := l.copyOf(s)
	if !ok {
		return false
	}
	f, err := openCopy(name, s)
	if err == nil {
		_, err = io.Copy(io.Discard, f)
		err = errors.Join(err, f.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.checked, name)
		l.spoiled(name, err)
		return false
	}
	l.checked[name] = true
	return true
}

// spoiled removes a copy that cannot be used.
func (l *Local) spoiled(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	l.failed("read a copy", err)
	_ = os.Remove(name)
}

// open opens the copy of a file where it is what the metadata says, and nil otherwise.
func (l *Local) open(s connectors.StateFile) io.ReadCloser {
	name, ok := l.copyOf(s)
	if !ok {
		return nil
	}
	l.mu.Lock()
	checked := l.checked[name]
	delete(l.checked, name) // once: what lies on a disk can change
	l.mu.Unlock()
	if !checked && !l.has(s) {
		l.misses.Add(1)
		return nil
	}
	f, err := openCopy(name, s)
	if err != nil {
		l.spoiled(name, err)
		l.misses.Add(1)
		return nil
	}
	l.hits.Add(1)
	return &copyReader{ReadCloser: f, local: l, name: name}
}

// openCopy opens a copy of the right size for verified reading.
func openCopy(name string, s connectors.StateFile) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != s.Size {
		err = fmt.Errorf("it has %d bytes, not %d", info.Size(), s.Size)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &verifier{r: &localReader{f, s.Size}, name: name, want: s, sum: crc32.New(castagnoli)}, nil
}

// localReader is a storage.Reader.
type localReader struct {
	*os.File
	size int64
}

func (r *localReader) Size() int64 { return r.size }

// copyReader reads a copy that was right a moment ago. If it is not any more, the
// error is one that a restart mends, since the copy is gone then, and is no damage of
// the checkpoint.
type copyReader struct {
	io.ReadCloser
	local *Local
	name  string
}

func (r *copyReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.local.spoiled(r.name, err)
		return n, fmt.Errorf("the local copy has changed while it was read, and is not used any more: %s", err.Error())
	}
	return n, err
}

// restored removes all copies but those of the checkpoint that generation g goes on from.
func (l *Local) restored(g uint64, m *Metadata) {
	if l == nil {
		return
	}
	var refs map[string]bool
	if m != nil {
		refs = sharedRefs(m)
	}
	l.prune(refs, func(id ID) bool { return id.Generation < g })
}

// proven removes the copies that the newest proven checkpoint does not need, but for
// those of attempts after it and of newer processes.
func (l *Local) proven(id ID, refs map[string]bool) {
	if l == nil {
		return
	}
	l.prune(refs, func(of ID) bool {
		return of.Generation < id.Generation || of.Generation == id.Generation && of.Number <= id.Number
	})
}

func (l *Local) prune(refs map[string]bool, over func(ID) bool) {
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.failed("look for old copies", err)
	}
	for _, e := range entries {
		id, ours := parseShared(strings.TrimPrefix(e.Name(), beingWritten))
		if ours && over(id) && !refs[e.Name()] {
			l.remove(e.Name())
		}
	}
}

// drop removes the copies of files, by their names on storage.
func (l *Local) drop(names []string) {
	if l == nil {
		return
	}
	for _, name := range names {
		l.remove(path.Base(name))
	}
}

func (l *Local) remove(name string) {
	if err := os.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.failed("remove an old copy", err)
	}
}
