package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/sluice-etl/sluice/storage"
)

// Stage starts a staged file.
func (f *FS) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	w, err := f.newOut(ctx, name)
	if err != nil {
		return nil, err
	}
	return &stagedWriter{w}, nil
}

type stagedWriter struct{ *out }

// ReadAt reads what has been written.
func (w *stagedWriter) ReadAt(p []byte, off int64) (int, error) {
	if w.data == nil {
		return 0, &fs.PathError{Op: "read", Path: w.name, Err: fs.ErrClosed}
	}
	return w.data.ReadAt(p, off)
}

// Close makes the file durable under its staged name.
func (w *stagedWriter) Close() (storage.Staged, error) {
	s := storage.Staged{Name: w.name, Token: token()}
	err := w.finish(func(data *spool) error {
		s.Size = data.size
		return w.fs.put(w.ctx, data, w.fs.stagedPath(s))
	})
	if err != nil {
		return storage.Staged{}, err
	}
	return s, nil
}

// stagedPath is where a staged file is kept.
func (f *FS) stagedPath(s storage.Staged) string {
	dir, base := path.Split(s.Name)
	return path.Join(f.root, encode(dir), stagedPrefix+s.Token+tokenEnd+encode(base))
}

func (f *FS) checkStaged(ctx context.Context, s storage.Staged) (string, error) {
	if !validToken(s.Token) {
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
	at := f.stagedPath(s)
	e, err := f.stat(ctx, at)
	if err != nil {
		return f.wrap("publish", s.Name, err)
	}
	if e.size != s.Size {
		return f.wrap("publish", s.Name, fmt.Errorf("%s has %d bytes, not the %d that were staged: it was changed by somebody else", at, e.size, s.Size))
	}
	return f.wrap("publish", s.Name, absent(f.move(ctx, temp{at, e.id}, p)))
}

// Discard removes a staged file.
func (f *FS) Discard(ctx context.Context, s storage.Staged) error {
	if _, err := f.checkStaged(ctx, s); err != nil {
		return err
	}
	err := f.cluster.call(ctx, func(c *client) error { return c.remove(f.stagedPath(s), false) })
	if err = absent(err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.wrap("discard", s.Name, err)
}

// Staged lists the staged files whose names are below a folder.
func (f *FS) Staged(ctx context.Context, dir string) ([]storage.Staged, error) {
	var out []storage.Staged
	err := f.walk(ctx, dir, func(p string, e entry) {
		rest, ok := strings.CutPrefix(e.name, stagedPrefix)
		tok, base, found := strings.Cut(rest, tokenEnd)
		if ok && found && validToken(tok) {
			out = append(out, storage.Staged{Name: f.name(path.Join(p, base)), Token: tok, Size: e.size})
		}
	})
	return out, f.wrap("list staged files of", dir, err)
}
