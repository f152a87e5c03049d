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
	// fetch makes all bytes readable, those too that a restored checkpoint holds.
	fetch(ctx context.Context) error
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

func (d direct) fetch(context.Context) error                   { return nil }
func (d direct) stage(context.Context) (storage.Staged, error) { return d.Close() }
func (d direct) drop()                                         { d.Abort() }

// converter writes the file of what its backing holds, where that is not the file
// itself; nil where it is.
type converter func(ctx context.Context, w io.Writer, rows io.Reader) error

// spool is a file that is kept in a local temporary one until it is complete. The
// temporary file has no name, so that no crash leaves it behind.
type spool struct {
	*os.File
	fs      storage.FS
	name    string
	size    int64
	convert converter
	// restored are the first bytes, which come from a checkpoint, until they are
	// fetched. There is a hole in their place.
	restored *joined
}

func newSpool(f storage.FS, name string, convert converter, restored *joined) (*spool, error) {
	tmp, err := os.CreateTemp("", "sluice-spool-")
	if err != nil {
		return nil, fmt.Errorf("make a local spool for %s: %w", name, err)
	}
	if err := os.Remove(tmp.Name()); err != nil {
		_ = tmp.Close()
		return nil, fmt.Errorf("make a local spool for %s: %w", name, err)
	}
	s := &spool{File: tmp, fs: f, name: name, convert: convert, restored: restored}
	if restored != nil {
		s.size = restored.size()
	}
	return s, nil
}

func (s *spool) Write(b []byte) (int, error) {
	n, err := s.WriteAt(b, s.size)
	s.size += int64(n)
	return n, err
}

// fetch is called by one goroutine at a time.
func (s *spool) fetch(ctx context.Context) error {
	if s.restored == nil {
		return nil
	}
	if err := s.restored.copyTo(ctx, io.NewOffsetWriter(s.File, 0)); err != nil {
		return err
	}
	s.restored = nil
	return nil
}

func (s *spool) stage(ctx context.Context) (storage.Staged, error) {
	defer s.drop()
	if err := s.fetch(ctx); err != nil {
		return storage.Staged{}, err
	}
	return stageFrom(ctx, s.fs, s.name, func(w io.Writer) error {
		rows := io.NewSectionReader(s.File, 0, s.size)
		if s.convert != nil {
			return s.convert(ctx, w, rows)
		}
		_, err := io.CopyBuffer(onlyWriter{w}, rows, make([]byte, bufferSize))
		return err
	})
}

func (s *spool) drop() { _ = s.Close() }

// joined is a file made of the segments that a restored checkpoint holds.
type joined struct {
	fs       storage.FS
	name     string
	files    connectors.CheckpointFiles
	segments []connectors.StateFile
	convert  converter
}

func (j *joined) size() (n int64) {
	for _, s := range j.segments {
		n += s.Size
	}
	return n
}

func (j *joined) stage(ctx context.Context) (storage.Staged, error) {
	return stageFrom(ctx, j.fs, j.name, func(w io.Writer) error {
		if j.convert == nil {
			return j.copyTo(ctx, w)
		}
		r, in := io.Pipe()
		go func() {
			var err error
			defer func() { in.CloseWithError(err) }()
			defer connectors.Recovered(&err)
			err = j.copyTo(ctx, in)
		}()
		err := j.convert(ctx, w, r)
		_ = r.CloseWithError(io.ErrClosedPipe) // ends the copying
		return err
	})
}

// copyTo writes all segments.
func (j *joined) copyTo(ctx context.Context, w io.Writer) error {
	buf := make([]byte, bufferSize)
	for _, seg := range j.segments {
		if err := j.copy(ctx, w, seg, buf); err != nil {
			return fmt.Errorf("join segment %s: %w", seg.Path, err)
		}
	}
	return nil
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
