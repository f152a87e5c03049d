package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/sluice-etl/sluice/storage"
)

// Tables are read and written by the program's own storage, with its settings,
// credentials and retries; a local file is durable when its writer is closed.
func init() {
	for _, scheme := range []string{"", "file"} {
		iceio.Unregister(scheme)
	}
	for _, scheme := range []string{"", "file", "s3", "s3a", "hdfs"} {
		iceio.Register(scheme, openFileIO)
	}
}

// fileIO reads and writes the files of tables by their addresses.
type fileIO struct {
	ctx context.Context //nolint:containedctx // the library's calls take none
}

var _ iceio.WriteFileIO = (*fileIO)(nil)

// openFileIO is called anew for each operation, with its context.
func openFileIO(ctx context.Context, _ *url.URL, _ map[string]string) (iceio.IO, error) {
	return &fileIO{ctx}, nil
}

var (
	rootsMu sync.Mutex
	roots   = map[string]storage.FS{}
)

// locate splits the address of a file into the storage that it is in and its name there.
func locate(address string) (storage.FS, string, error) {
	scheme, rest, isURL := strings.Cut(address, "://")
	root, name := "/", address
	switch {
	case isURL && scheme != "file":
		host, key, _ := strings.Cut(rest, "/")
		root, name = strings.Replace(scheme, "s3a", "s3", 1)+"://"+host+"/", key
	case isURL:
		name = rest // as it is written: other readers decode nothing either
	case strings.HasPrefix(address, "file:"):
		name = strings.TrimPrefix(address, "file:")
	}
	rootsMu.Lock()
	defer rootsMu.Unlock()
	f := roots[root]
	if f == nil {
		var err error
		if f, err = storage.Open(root); err != nil {
			return nil, "", err
		}
		roots[root] = f
	}
	return f, strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// Open opens a file.
func (f *fileIO) Open(address string) (iceio.File, error) {
	store, name, err := locate(address)
	if err != nil {
		return nil, err
	}
	r, err := store.Open(f.ctx, name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: address, Err: err}
	}
	return &openFile{r, name}, nil
}

// Remove removes a file.
func (f *fileIO) Remove(address string) error {
	store, name, err := locate(address)
	if err != nil {
		return err
	}
	return store.Remove(f.ctx, name)
}

// Create starts a file.
func (f *fileIO) Create(address string) (iceio.FileWriter, error) {
	store, name, err := locate(address)
	if err != nil {
		return nil, err
	}
	w, err := store.Create(f.ctx, name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", address, err)
	}
	return &fileWriter{w}, nil
}

// WriteFile writes a whole file.
func (f *fileIO) WriteFile(address string, data []byte) error {
	store, name, err := locate(address)
	if err != nil {
		return err
	}
	return storage.WriteFile(f.ctx, store, name, data)
}

// exists reports whether there is a file at an address.
func exists(ctx context.Context, address string) (bool, error) {
	store, name, err := locate(address)
	if err != nil {
		return false, err
	}
	return storage.Exists(ctx, store, name)
}

type fileWriter struct{ storage.Writer }

// ReadFrom copies r into the file.
func (w *fileWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w.Writer}, r)
}

type openFile struct {
	storage.Reader
	name string
}

// Stat describes the file.
func (f *openFile) Stat() (fs.FileInfo, error) { return fileInfo{f}, nil }

// ReadAt reads from an offset; the library takes no short answer without an error.
func (f *openFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Reader.ReadAt(p, off)
	if n == len(p) && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

type fileInfo struct{ f *openFile }

func (i fileInfo) Name() string           { return path.Base(i.f.name) }
func (i fileInfo) Size() int64            { return i.f.Size() }
func (i fileInfo) Mode() fs.FileMode      { return 0o444 }
func (i fileInfo) ModTime() (t time.Time) { return t }
func (i fileInfo) IsDir() bool            { return false }
func (i fileInfo) Sys() any               { return nil }
