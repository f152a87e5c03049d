package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-etl/sluice/storage"
)

// notThere makes a file in the place of a folder an absence: what would be below it
// is not there.
func notThere(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return err
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes a folder and those above it durable. Others may be making the same
// ones at the same time and have not synced them yet, so a folder counts only once
// this file system has synced the one above it.
func (f *FS) makeDir(dir string) error {
	if _, ok := f.dirs.Load(dir); ok {
		return nil
	}
	parent := filepath.Dir(dir)
	if dir != f.root && parent != dir {
		if err := f.makeDir(parent); err != nil {
			return err
		}
	}
	if dir == f.root {
		if err := makeRoot(dir); err != nil {
			return err
		}
	} else {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := syncDir(parent); err != nil {
			return err
		}
	}
	if _, known := f.dirs.LoadOrStore(dir, true); !known {
		clean(dir)
	}
	return nil
}

// makeRoot makes the root's folder with those above it that are missing. One that
// exists already is not synced: this process may not be allowed to read what is above.
func makeRoot(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeRoot(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// forget drops what is known of a folder and those below it.
func (f *FS) forget(dir string) {
	f.dirs.Range(func(key, _ any) bool {
		if known, ok := key.(string); ok && (known == dir || strings.HasPrefix(known, dir+string(filepath.Separator))) {
			f.dirs.Delete(key)
		}
		return true
	})
}

func token() string {
	var b [tokenLen / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// hidden writes one file under a hidden name beside the one that it will have.
type hidden struct {
	fs   *FS
	ctx  context.Context //nolint:containedctx // a writer lives within the call that made it
	name string
	path string // of the hidden file
	file *os.File
	size int64
	err  error
}

// hideTries bounds how often a new file is made that another process removed in
// the moment before it was locked. Each try meets a process that has just begun.
const hideTries = 1000

// hide starts a hidden file. It is locked as long as it is written, so that others
// can tell it from one that a crash left.
func (f *FS) hide(ctx context.Context, name string) (*hidden, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return nil, err
	}
	for range hideTries {
		at := filepath.Join(filepath.Dir(p), tempPrefix+token())
		file, err := f.open(at, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return nil, f.explain(err)
		}
		if lock(file) && sameAs(file, at) {
			return &hidden{fs: f, ctx: ctx, name: name, path: at, file: file}, nil
		}
		_ = file.Close() // another process took it for a left one
		_ = os.Remove(at)
	}
	return nil, fmt.Errorf("create %s: others remove the new file again and again", name)
}

func sameAs(file *os.File, at string) bool {
	x, errX := file.Stat()
	y, errY := os.Stat(at)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// clean removes the files in a folder that writers of crashed processes left.
func clean(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		p := filepath.Join(dir, e.Name())
		if file, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			if abandoned(file) {
				_ = os.Remove(p)
			}
			_ = file.Close()
		}
	}
}

func (w *hidden) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	err = w.fs.explain(err)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// finish makes the hidden file's bytes durable and moves it to its place. It stays
// locked until then. A file that a write failed on is never finished.
func (w *hidden) finish(move func(from string) error) error {
	if w.file == nil {
		return &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	file := w.file
	w.file = nil
	err := errors.Join(w.err, w.ctx.Err())
	if err == nil {
		err = w.fs.explain(file.Sync())
	}
	if err == nil {
		err = w.fs.explain(move(w.path))
	}
	if err != nil {
		_ = os.Remove(w.path)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", w.name, err)
	}
	return syncDir(filepath.Dir(w.path))
}

// Abort drops the file.
func (w *hidden) Abort() {
	if w.file == nil {
		return
	}
	_ = w.file.Close()
	w.file = nil
	_ = os.Remove(w.path)
}

// Create starts a file.
func (f *FS) Create(ctx context.Context, name string) (storage.Writer, error) {
	w, err := f.hide(ctx, name)
	if err != nil {
		return nil, err
	}
	return &writer{w}, nil
}

type writer struct{ *hidden }

// Close makes the file durable, then visible, then its name durable.
func (w *writer) Close() error {
	p := filepath.Join(w.fs.root, filepath.FromSlash(w.name))
	return w.finish(func(from string) error { return moveNew(from, p) })
}

// Stage starts a staged file.
func (f *FS) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	w, err := f.hide(ctx, name)
	if err != nil {
		return nil, err
	}
	return &stagedWriter{w}, nil
}

type stagedWriter struct{ *hidden }

// ReadAt reads what has been written.
func (w *stagedWriter) ReadAt(p []byte, off int64) (int, error) {
	if w.file == nil {
		return 0, &fs.PathError{Op: "read", Path: w.name, Err: fs.ErrClosed}
	}
	return w.file.ReadAt(p, off)
}

// Close makes the file durable under its staged name.
func (w *stagedWriter) Close() (storage.Staged, error) {
	s := storage.Staged{Name: w.name, Token: token(), Size: w.size}
	if err := w.finish(func(from string) error { return os.Rename(from, w.fs.stagedPath(s)) }); err != nil {
		return storage.Staged{}, err
	}
	return s, nil
}

// stagedPath is where a staged file is kept.
func (f *FS) stagedPath(s storage.Staged) string {
	dir, base := path.Split(s.Name)
	return filepath.Join(f.root, filepath.FromSlash(dir), stagedPrefix+s.Token+tokenEnd+base)
}

func (f *FS) checkStaged(ctx context.Context, s storage.Staged) (string, error) {
	if len(s.Token) != tokenLen || strings.Trim(s.Token, "0123456789abcdef") != "" {
		return "", fmt.Errorf("staged file %s: token %q is none of this storage", s.Name, s.Token)
	}
	return f.path(ctx, s.Name)
}

// Publish makes a staged file visible.
func (f *FS) Publish(ctx context.Context, s storage.Staged) error {
	p, err := f.checkStaged(ctx, s)
	if err != nil {
		return err
	}
	err = moveNew(f.stagedPath(s), p)
	if err = notThere(err); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Also where it is gone: who moved it may have crashed before this.
	return errors.Join(err, notThere(syncDir(filepath.Dir(p))))
}

// Discard removes a staged file.
func (f *FS) Discard(ctx context.Context, s storage.Staged) error {
	if _, err := f.checkStaged(ctx, s); err != nil {
		return err
	}
	p := f.stagedPath(s)
	if err := removeFile(p); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(p)); err != nil && !errors.Is(notThere(err), fs.ErrNotExist) {
		return err
	}
	return nil
}

// Staged lists the staged files whose names are below a folder.
func (f *FS) Staged(ctx context.Context, dir string) ([]storage.Staged, error) {
	var out []storage.Staged
	err := f.walk(ctx, dir, func(p string, e fs.DirEntry) error {
		rest, ok := strings.CutPrefix(e.Name(), stagedPrefix)
		tok, base, found := strings.Cut(rest, tokenEnd)
		if !ok || !found || len(tok) != tokenLen {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		out = append(out, storage.Staged{Name: path.Join(f.name(filepath.Dir(p)), base), Token: tok, Size: info.Size()})
		return nil
	})
	return out, err
}

// link moves a file by a second name, where the system cannot move without
// replacing. A crash between the two steps leaves both names of one file, which the
// next try recognises.
func link(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, fs.ErrExist) && sameFile(from, to) {
		err = nil
	}
	if err != nil {
		return err
	}
	return os.Remove(from)
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
