package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/sluice-etl/sluice/connectors"
)

// checkedFiles are files of checkpoints that can be verified.
type checkedFiles interface {
	connectors.CheckpointFiles
	verifiable
}

// wrap lets files be copied and read by way of the local disk; f itself for nil.
func (l *Local) wrap(f *files) checkedFiles {
	if l == nil {
		return f
	}
	return &localFiles{files: f, local: l}
}

// localFiles writes what it writes to the local disk too, and reads there first.
type localFiles struct {
	files *files
	local *Local
}

func (f *localFiles) Create(ctx context.Context) (connectors.StateWriter, error) {
	w, err := f.files.begin(ctx)
	if err != nil {
		return nil, err
	}
	return &teeWriter{stateWriter: w, copied: f.local.create(path.Base(w.rel))}, nil
}

func (f *localFiles) Open(ctx context.Context, s connectors.StateFile) (io.ReadCloser, error) {
	if err := checkStateFile(s); err != nil {
		return nil, err
	}
	if r := f.local.open(s); r != nil {
		return r, nil
	}
	return f.files.Open(ctx, s)
}

// verify takes a right copy for a right file, as long as the file is there: later
// checkpoints go on referring to it.
func (f *localFiles) verify(ctx context.Context, s connectors.StateFile) error {
	if f.local.has(s) {
		return f.files.isThere(ctx, s)
	}
	return f.files.verify(ctx, s)
}

// isThere is verify by the size alone.
func (f *files) isThere(ctx context.Context, s connectors.StateFile) error {
	if err := checkStateFile(s); err != nil {
		return err
	}
	name := path.Join(f.dir, s.Path)
	info, err := f.fs.Stat(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &DamageError{File: name, Err: errors.New("it is missing")}
	case err != nil:
		return fmt.Errorf("look at %s: %w", name, err)
	case info.Size != s.Size:
		return &DamageError{File: name, Err: fmt.Errorf("it has %d bytes, not %d", info.Size, s.Size)}
	}
	return nil
}

// teeWriter writes a file and its copy.
type teeWriter struct {
	*stateWriter
	copied *localWriter
}

func (w *teeWriter) Write(p []byte) (int, error) {
	n, err := w.stateWriter.Write(p)
	w.copied.write(p[:n])
	return n, err
}

func (w *teeWriter) Close() (connectors.StateFile, error) {
	f, err := w.stateWriter.Close()
	if err != nil {
		w.copied.abort()
		return f, err
	}
	w.copied.keep()
	return f, nil
}

func (w *teeWriter) Abort() {
	w.copied.abort()
	w.stateWriter.Abort()
}
