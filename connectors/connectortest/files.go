package connectortest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// Files is the shared folder of a job's checkpoints, in memory. The zero Files
// is ready.
type Files struct {
	mu    sync.Mutex
	next  int
	files map[string][]byte
}

var _ connectors.CheckpointFiles = (*Files)(nil)

// Create starts a file.
func (f *Files) Create(ctx context.Context) (connectors.StateWriter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return &stateWriter{files: f, ctx: ctx, path: fmt.Sprintf("../shared/%d", f.next)}, nil
}

// Open reads a file and verifies it.
func (f *Files) Open(ctx context.Context, ref connectors.StateFile) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.files[ref.Path]
	if !ok {
		return nil, fmt.Errorf("open state file %s: %w", ref.Path, fs.ErrNotExist)
	}
	if got := describe(ref.Path, data); got != ref {
		return nil, fmt.Errorf("open state file %s: it is %+v, the checkpoint says %+v", ref.Path, got, ref)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Retain removes all files but those given, as retention does.
func (f *Files) Retain(refs []connectors.StateFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := map[string][]byte{}
	for _, r := range refs {
		if data, ok := f.files[r.Path]; ok {
			keep[r.Path] = data
		}
	}
	f.files = keep
}

// Len is the number of files.
func (f *Files) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.files)
}

func describe(path string, data []byte) connectors.StateFile {
	sum := sha256.Sum256(data)
	return connectors.StateFile{Path: path, Size: int64(len(data)), Checksum: "sha256:" + hex.EncodeToString(sum[:])}
}

type stateWriter struct {
	files *Files
	ctx   context.Context //nolint:containedctx // ends with the call that made the writer
	path  string
	buf   []byte
}

func (w *stateWriter) Write(b []byte) (int, error) {
	w.buf = append(w.buf, b...)
	return len(b), w.ctx.Err()
}

func (w *stateWriter) Close() (connectors.StateFile, error) {
	if err := w.ctx.Err(); err != nil {
		return connectors.StateFile{}, err
	}
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	if w.files.files == nil {
		w.files.files = map[string][]byte{}
	}
	w.files.files[w.path] = w.buf
	return describe(w.path, w.buf), nil
}

func (w *stateWriter) Abort() {}
