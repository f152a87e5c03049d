// Package local keeps files on a local disk, or on what is mounted as one. Every
// call that writes returns only when the bytes and all names on the way to them
// are on the disk.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-etl/sluice/storage"
)

func init() {
	storage.Register("file", func(u *url.URL) (storage.FS, error) { return New(filepath.FromSlash(u.Path)) })
}

// Hidden files: those being written, which a crash leaves behind, and staged ones.
// A staged file is called stagedPrefix, its token, tokenEnd, and the last element
// of the name that it will have.
const (
	tempPrefix   = storage.HiddenPrefix + "new-"
	stagedPrefix = storage.HiddenPrefix + "staged-"
	tokenEnd     = "~"
	tokenLen     = 16
)

// FS is a folder on a local disk.
type FS struct {
	root string
	dirs sync.Map // folders known to be on the disk, by path
}

// New makes the file system of a folder, which need not exist yet. It does no I/O.
func New(root string) (*FS, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", root, err)
	}
	return &FS{root: abs}, nil
}

// URL is the address of the folder.
func (f *FS) URL() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(f.root)}).String()
}

// path is where a name is kept.
func (f *FS) path(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := storage.CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(f.root, filepath.FromSlash(name)), nil
}

func (f *FS) folder(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		return f.root, ctx.Err()
	}
	return f.path(ctx, dir)
}

// Claim makes an empty file if there is none.
func (f *FS) Claim(ctx context.Context, name string) error {
	p, err := f.path(ctx, name)
	if err != nil {
		return err
	}
	file, err := f.open(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return f.explain(err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return f.explain(fmt.Errorf("claim %s: %w", name, err))
	}
	return syncDir(filepath.Dir(p))
}

// open opens a file for writing, in a folder that it makes.
func (f *FS) open(p string, flags int) (*os.File, error) {
	var err error
	for range 3 {
		var file *os.File
		err = f.makeDir(filepath.Dir(p))
		if err == nil {
			file, err = os.OpenFile(p, flags, 0o644)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		f.forget(f.root) // somebody removed the folder, or one above it
	}
	return nil, fmt.Errorf("open %s: its folder cannot be made, or is removed again and again: %w", p, err)
}

// Open reads a file.
func (f *FS) Open(ctx context.Context, name string) (storage.Reader, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(p)
	if err != nil {
		return nil, notThere(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &reader{file, info.Size()}, nil
}

type reader struct {
	*os.File
	size int64
}

func (r *reader) Size() int64 { return r.size }

// Stat describes a file.
func (f *FS) Stat(ctx context.Context, name string) (storage.Info, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return storage.Info{}, err
	}
	info, err := os.Stat(p)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		return storage.Info{}, notThere(err)
	}
	return storage.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}, nil
}

// List describes the files below a folder.
func (f *FS) List(ctx context.Context, dir string) ([]storage.Info, error) {
	var out []storage.Info
	err := f.walk(ctx, dir, func(p string, e fs.DirEntry) error {
		if strings.HasPrefix(e.Name(), storage.HiddenPrefix) {
			return nil
		}
		return f.describe(&out, p, e)
	})
	// A walk goes folder by folder: a/x comes before a-b, which sorts first by its bytes.
	slices.SortFunc(out, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Files describes the files directly in a folder.
func (f *FS) Files(ctx context.Context, dir string) ([]storage.Info, error) {
	p, entries, err := f.entries(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []storage.Info
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), storage.HiddenPrefix) {
			continue
		}
		if err := f.describe(&out, filepath.Join(p, e.Name()), e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// describe adds a regular file; one that has gone since is left out.
func (f *FS) describe(out *[]storage.Info, p string, e fs.DirEntry) error {
	if e.IsDir() {
		return nil
	}
	info, err := os.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	*out = append(*out, storage.Info{Name: f.name(p), Size: info.Size(), Modified: info.ModTime()})
	return nil
}

// name is the reverse of path.
func (f *FS) name(p string) string {
	return filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(p, f.root), string(filepath.Separator)))
}

func (f *FS) entries(ctx context.Context, dir string) (string, []fs.DirEntry, error) {
	p, err := f.folder(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(p)
	if errors.Is(notThere(err), fs.ErrNotExist) {
		return p, nil, nil
	}
	return p, entries, err
}

// walk calls visit for every file below a folder, hidden ones too.
func (f *FS) walk(ctx context.Context, dir string, visit func(p string, e fs.DirEntry) error) error {
	top, err := f.folder(ctx, dir)
	if err != nil {
		return err
	}
	// The separator makes a link to a folder count as that folder, and a file as none.
	return filepath.WalkDir(top+string(filepath.Separator), func(p string, e fs.DirEntry, err error) error {
		if errors.Is(notThere(err), fs.ErrNotExist) {
			return nil // never there, or removed meanwhile
		}
		if err != nil {
			return err
		}
		if e.IsDir() {
			return ctx.Err()
		}
		return visit(p, e)
	})
}

// Dirs names the folders directly in a folder.
func (f *FS) Dirs(ctx context.Context, dir string) ([]string, error) {
	p, entries, err := f.entries(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(filepath.Join(p, e.Name()))
			isDir = err == nil && info.IsDir()
		}
		if isDir && !strings.HasPrefix(e.Name(), storage.HiddenPrefix) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Remove removes files.
func (f *FS) Remove(ctx context.Context, names ...string) error {
	dirs := map[string]bool{}
	for _, name := range names {
		p, err := f.path(ctx, name)
		if err != nil {
			return err
		}
		if err := removeFile(p); err != nil {
			return err
		}
		dirs[filepath.Dir(p)] = true
	}
	for dir := range dirs {
		if err := syncDir(dir); err != nil && !errors.Is(notThere(err), fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func removeFile(p string) error {
	if info, err := os.Lstat(p); err == nil && info.IsDir() {
		return nil // a folder is no file
	}
	if err := os.Remove(p); err != nil && !errors.Is(notThere(err), fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveAll removes a folder with all that is in it.
func (f *FS) RemoveAll(ctx context.Context, dir string) error {
	p, err := f.path(ctx, dir)
	if err != nil {
		return err
	}
	f.forget(p)
	if info, err := os.Lstat(p); err != nil || !info.IsDir() {
		if errors.Is(notThere(err), fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.RemoveAll(p); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
