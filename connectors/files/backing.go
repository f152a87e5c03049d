package files

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// backing holds the bytes of a file in the making. One goroutine writes; reading
// what is written may go on beside it.
type backing interface {
	io.Writer
	io.ReaderAt
	// stage makes the file durable in the store, still hidden.
	stage(ctx context.Context) (storage.Staged, error)
	// drop frees everything that stage did not make durable.
	drop()
}

// readableStage is a staged file that can be read while it is written, as the
// local store's can.
type readableStage interface {
	storage.StagedWriter
	io.ReaderAt
}

// direct is a file that is written where it will be staged.
type direct struct{ readableStage }

func (d direct) stage(context.Context) (storage.Staged, error) { return d.Close() }
func (d direct) drop()                                         { d.Abort() }

// spool is a file that is kept in a local temporary one until it is complete. The
// temporary file has no name, so that no crash leaves it behind.
type spool struct {
	*os.File
	fs   storage.FS
	name string
	size int64
}

func newSpool(f storage.FS, name string) (*spool, error) {
	tmp, err := os.CreateTemp("", "sluice-spool-")
	if err != nil {
		return nil, fmt.Errorf("make a local spool for %s: %w", name, err)
	}
	if err := os.Remove(tmp.Name()); err != nil {
		_ = tmp.Close()
		return nil, fmt.Errorf("make a local spool for %s: %w", name, err)
	}
	return &spool{File: tmp, fs: f, name: name}, nil
}

func (s *spool) Write(b []byte) (int, error) {
	n, err := s.File.Write(b)
	s.size += int64(n)
	return n, err
}

func (s *spool) stage(ctx context.Context) (storage.Staged, error) {
	defer s.drop()
	return stageFrom(ctx, s.fs, s.name, func(w io.Writer) error {
		_, err := io.CopyBuffer(onlyWriter{w}, io.NewSectionReader(s.File, 0, s.size), make([]byte, bufferSize))
		return err
	})
}

func (s *spool) drop() { _ = s.File.Close() }

// joined is a file made of the segments that a restored checkpoint holds.
type joined struct {
	fs       storage.FS
	name     string
	files    connectors.CheckpointFiles
	segments []connectors.StateFile
}

func (j *joined) stage(ctx context.Context) (storage.Staged, error) {
	buf := make([]byte, bufferSize)
	return stageFrom(ctx, j.fs, j.name, func(w io.Writer) error {
		for _, seg := range j.segments {
			if err := j.copy(ctx, w, seg, buf); err != nil {
				return fmt.Errorf("join segment %s: %w", seg.Path, err)
			}
		}
		return nil
	})
}

func (j *joined) copy(ctx context.Context, w io.Writer, seg connectors.StateFile, buf []byte) error {
	r, err := j.files.Open(ctx, seg)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	n, err := io.CopyBuffer(onlyWriter{w}, onlyReader{r}, buf)
	if err == nil && n != seg.Size {
		err = fmt.Errorf("it has %d bytes, the checkpoint says %d", n, seg.Size)
	}
	return err
}

func (j *joined) drop() {}

func (j *joined) Write([]byte) (int, error) { return 0, os.ErrClosed }

func (j *joined) ReadAt([]byte, int64) (int, error) { return 0, os.ErrClosed }

// stageFrom stages what fill writes.
func stageFrom(ctx context.Context, f storage.FS, name string, fill func(io.Writer) error) (storage.Staged, error) {
	w, err := f.Stage(ctx, name)
	if err != nil {
		return storage.Staged{}, err
	}
	if err := fill(w); err != nil {
		w.Abort()
		return storage.Staged{}, err
	}
	return w.Close()
}

// onlyWriter and onlyReader hide methods by which io.CopyBuffer would go around
// its buffer, and copy in smaller pieces.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
