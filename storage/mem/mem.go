// Package mem keeps files in memory: for pipelines without storage and for tests.
// A root named by mem://name is shared by all who open it within the process.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

func init() { storage.Register("mem", open) }

var (
	namedMu sync.Mutex
	named   = map[string]*FS{}
	private atomic.Uint64
)

// open returns the root that the URL's host names, or a folder of it.
func open(u *url.URL) (storage.FS, error) {
	if u.Host == "" {
		return nil, fmt.Errorf("storage address %s has no name: write mem://name", u)
	}
	namedMu.Lock()
	root := named[u.Host]
	if root == nil {
		root = newFS("mem://" + u.Host)
		named[u.Host] = root
	}
	namedMu.Unlock()
	dir := strings.Trim(u.Path, "/")
	if dir == "" {
		return root, nil
	}
	if err := storage.CheckDir(dir); err != nil {
		return nil, err
	}
	return storage.Sub(root, dir), nil
}

// FS is one root in memory. What a call wrote before it returned survives Crash.
type FS struct {
	url string

	mu     sync.Mutex
	epoch  int // counts crashes: writers of an earlier one are dead
	next   uint64
	files  map[string]file
	staged map[storage.Staged][]byte
	now    func() time.Time
}

type file struct {
	data     []byte
	modified time.Time
}

// New makes an empty root that no address leads to.
func New() *FS { return newFS("mem://private-" + strconv.FormatUint(private.Add(1), 10)) }

func newFS(address string) *FS {
	return &FS{url: address, files: map[string]file{}, staged: map[storage.Staged][]byte{}, now: time.Now}
}

// Crash is the end of the process that writes: files that are not closed are
// lost, and their writers fail from now on.
func (f *FS) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
}

// URL is the address of the root.
func (f *FS) URL() string { return f.url }

// Claim makes an empty file if there is none.
func (f *FS) Claim(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	return f.put("claim", name, nil)
}

func (f *FS) put(op, name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putLocked(op, name, data)
}

func (f *FS) putLocked(op, name string, data []byte) error {
	if _, ok := f.files[name]; ok {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	}
	f.files[name] = file{data: data, modified: f.now()}
	return nil
}

// Create starts a file.
func (f *FS) Create(ctx context.Context, name string) (storage.Writer, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	return &writer{fs: f, ctx: ctx, name: name, epoch: f.now0()}, nil
}

func (f *FS) now0() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch
}

// Open reads a file.
func (f *FS) Open(ctx context.Context, name string) (storage.Reader, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got, ok := f.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &reader{bytes.NewReader(got.data)}, nil
}

// Stat describes a file.
func (f *FS) Stat(ctx context.Context, name string) (storage.Info, error) {
	if err := check(ctx, name); err != nil {
		return storage.Info{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got, ok := f.files[name]
	if !ok {
		return storage.Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return got.info(name), nil
}

func (f file) info(name string) storage.Info {
	return storage.Info{Name: name, Size: int64(len(f.data)), Modified: f.modified}
}

// List describes the files below a folder.
func (f *FS) List(ctx context.Context, dir string) ([]storage.Info, error) {
	return f.list(ctx, dir, func(string) bool { return true })
}

// Files describes the files directly in a folder.
func (f *FS) Files(ctx context.Context, dir string) ([]storage.Info, error) {
	return f.list(ctx, dir, func(rest string) bool { return !strings.Contains(rest, "/") })
}

func (f *FS) list(ctx context.Context, dir string, want func(rest string) bool) ([]storage.Info, error) {
	if err := checkDir(ctx, dir); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []storage.Info
	for name, got := range f.files {
		if rest, ok := below(dir, name); ok && want(rest) {
			out = append(out, got.info(name))
		}
	}
	slices.SortFunc(out, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Dirs names the folders directly in a folder: those that hold a file.
func (f *FS) Dirs(ctx context.Context, dir string) ([]string, error) {
	if err := checkDir(ctx, dir); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.files {
		if rest, ok := below(dir, name); ok {
			if first, _, deeper := strings.Cut(rest, "/"); deeper {
				out = append(out, first)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Remove removes files.
func (f *FS) Remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := check(ctx, name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		delete(f.files, name)
	}
	return nil
}

// RemoveAll removes a folder with all that is in it.
func (f *FS) RemoveAll(ctx context.Context, dir string) error {
	if err := check(ctx, dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.files {
		if _, ok := below(dir, name); ok {
			delete(f.files, name)
		}
	}
	for s := range f.staged {
		if _, ok := below(dir, s.Name); ok {
			delete(f.staged, s)
		}
	}
	return nil
}

// Stage starts a staged file.
func (f *FS) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	return &stagedWriter{writer{fs: f, ctx: ctx, name: name, epoch: f.now0()}}, nil
}

// Publish makes a staged file visible.
func (f *FS) Publish(ctx context.Context, s storage.Staged) error {
	if err := check(ctx, s.Name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.staged[s]
	if !ok {
		return &fs.PathError{Op: "publish", Path: s.Name, Err: fs.ErrNotExist}
	}
	if err := f.putLocked("publish", s.Name, data); err != nil {
		return err
	}
	delete(f.staged, s)
	return nil
}

// Discard removes a staged file.
func (f *FS) Discard(ctx context.Context, s storage.Staged) error {
	if err := check(ctx, s.Name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.staged, s)
	return nil
}

// Staged lists the staged files whose names are below a folder.
func (f *FS) Staged(ctx context.Context, dir string) ([]storage.Staged, error) {
	if err := checkDir(ctx, dir); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []storage.Staged
	for s := range f.staged {
		if _, ok := below(dir, s.Name); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b storage.Staged) int {
		return strings.Compare(a.Name+"\x00"+a.Token, b.Name+"\x00"+b.Token)
	})
	return out, nil
}

// writer holds a file back until it is closed. What it has been given can be read while
// more is written.
type writer struct {
	fs    *FS
	ctx   context.Context //nolint:containedctx // a Writer lives within the call that made it
	name  string
	epoch int

	mu   sync.Mutex
	buf  []byte
	done bool
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.alive("write"); err != nil {
		return 0, err
	}
	w.buf = append(w.buf, p...)
	return len(p), nil
}

func (w *writer) Close() error {
	data, err := w.end()
	if err != nil {
		return err
	}
	return w.fs.put("create", w.name, data)
}

// end closes the writer and returns what it was given.
func (w *writer) end() ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.alive("close"); err != nil {
		return nil, err
	}
	w.done = true
	return w.buf, nil
}

func (w *writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
}

// alive reports why the writer can be used no more. The caller holds its lock.
func (w *writer) alive(op string) error {
	if w.done {
		return &fs.PathError{Op: op, Path: w.name, Err: fs.ErrClosed}
	}
	if w.fs.now0() != w.epoch {
		return fmt.Errorf("%s %s: the process of this writer crashed", op, w.name)
	}
	return w.ctx.Err()
}

type stagedWriter struct{ writer }

// ReadAt reads what has been written.
func (w *stagedWriter) ReadAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	written, err := w.buf, w.alive("read")
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return bytes.NewReader(written).ReadAt(p, off)
}

func (w *stagedWriter) Close() (storage.Staged, error) {
	data, err := w.end()
	if err != nil {
		return storage.Staged{}, err
	}
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	w.fs.next++
	s := storage.Staged{Name: w.name, Token: strconv.FormatUint(w.fs.next, 10), Size: int64(len(data))}
	w.fs.staged[s] = data
	return s, nil
}

type reader struct{ *bytes.Reader }

func (r *reader) Close() error { return nil }

var _ io.ReaderAt = (*reader)(nil)

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return storage.CheckName(name)
}

func checkDir(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return storage.CheckDir(dir)
}

// below returns what follows a folder in a name.
func below(dir, name string) (string, bool) {
	if dir == "" {
		return name, true
	}
	return strings.CutPrefix(name, path.Clean(dir)+"/")
}
