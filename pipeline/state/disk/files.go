package disk

import (
	"errors"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// workFS is the file system of a working directory. Nothing in it outlives the
// process, so nothing is synced. Pebble ends the process where it cannot write its
// manifest; here such a failure is the store's, and Pebble is told that all went
// well: the database is thrown away all the same.
type workFS struct {
	vfs.FS
	fail func(doing string, err error)
}

func (fs *workFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	manifest := strings.HasPrefix(fs.PathBase(name), "MANIFEST")
	if err != nil {
		return nil, err
	}
	return workFile{File: f, fs: fs, manifest: manifest}, nil
}

func (fs *workFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.wrap(name, f, err)
}

func (fs *workFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, o...)
	return fs.wrap(name, f, err)
}

func (fs *workFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.wrap(name, f, err)
}

func (fs *workFS) Unwrap() vfs.FS { return fs.FS }

type workFile struct {
	vfs.File
	fs       *workFS
	manifest bool
}

func (f workFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil && f.manifest {
		f.fs.fail("write the list of the state's files", err)
		return len(p), nil
	}
	return n, err
}

func (f workFile) Sync() error                  { return nil }
func (f workFile) SyncData() error              { return nil }
func (f workFile) SyncTo(int64) (bool, error)   { return false, nil }
func (f workFile) Preallocate(_, _ int64) error { return nil }

// explain says what to do about a failure of the working directory.
func explain(err error, dir string) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; the disk of " + dir + " is full: free space there, or set state.dir to a larger one"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "; raise the limit of open files"
	}
	return ""
}
