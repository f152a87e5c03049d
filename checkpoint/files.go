package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// State files carry a CRC-32C (Castagnoli) of all their bytes beside their size:
// the processor computes it at memory speed, it finds every error burst of up to
// 32 bits, and any other damage but one in four billion.
const checksumPrefix = "crc32c:"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func formatChecksum(sum uint32) string { return fmt.Sprintf("%s%08x", checksumPrefix, sum) }

// smallFile is up to which size a file is read and verified before its first
// byte is handed out.
const smallFile = 1 << 20

// files implements connectors.CheckpointFiles for the checkpoint in folder dir.
type files struct {
	fs  storage.FS
	dir string
	id  ID // of the checkpoint being taken; zero for one that is only read
	// inside says that files go into the folder itself and not into the shared one.
	inside bool
	// state notes what is written, for the state of steps; nil for all else.
	state *stateFiles
}

// Create starts a file in the shared folder of the checkpoint's job, or in that of a
// savepoint. Its name ends in 16 random hex digits.
func (f *files) Create(ctx context.Context) (connectors.StateWriter, error) {
	w, err := f.begin(ctx)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (f *files) begin(ctx context.Context) (*stateWriter, error) {
	if f.id == (ID{}) {
		return nil, errors.New("create a state file: the restored checkpoint is only read")
	}
	var unique [8]byte
	_, _ = rand.Read(unique[:]) // never fails
	rel := sharedName(f.id, hex.EncodeToString(unique[:]))
	if !f.inside {
		rel = path.Join("..", sharedDir, rel)
	}
	name := path.Join(f.dir, rel)
	if f.state != nil {
		if err := f.state.add(name); err != nil {
			return nil, fmt.Errorf("create %s: %w", name, err)
		}
	}
	w, err := f.fs.Create(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return &stateWriter{files: f, ctx: ctx, w: w, name: name, rel: rel}, nil
}

// Open reads a file. One of up to a mebibyte is verified before it returns; a
// larger one while it is read, with the error in place of io.EOF.
func (f *files) Open(ctx context.Context, s connectors.StateFile) (io.ReadCloser, error) {
	if err := checkStateFile(s); err != nil {
		return nil, err
	}
	name := path.Join(f.dir, s.Path)
	r, err := f.fs.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &DamageError{File: name, Err: errors.New("it is missing")}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	v := &verifier{r: r, name: name, want: s, sum: crc32.New(castagnoli)}
	if r.Size() != s.Size {
		_ = r.Close()
		return nil, v.sizeError(r.Size())
	}
	if s.Size > smallFile {
		return v, nil
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(v)
	if err != nil {
		return nil, err
	}
	return &memFile{data: data}, nil
}

// verify reads a whole file and reports whether it is what was written.
func (f *files) verify(ctx context.Context, s connectors.StateFile) error {
	r, err := f.Open(ctx, s)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

type memFile struct{ data []byte }

func (m *memFile) Read(p []byte) (int, error) {
	if len(m.data) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, m.data)
	m.data = m.data[n:]
	return n, nil
}

func (m *memFile) Close() error { return nil }

// verifier hands out what it reads, and an error in place of the end where the
// whole was not what the reference says.
type verifier struct {
	r    storage.Reader
	name string
	want connectors.StateFile
	sum  hash.Hash32
	n    int64
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	if errors.Is(err, fs.ErrNotExist) {
		return n, &DamageError{File: v.name, Err: errors.New("it is missing")}
	}
	_, _ = v.sum.Write(p[:n])
	v.n += int64(n)
	if v.n > v.want.Size || errors.Is(err, io.EOF) && v.n != v.want.Size || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, v.sizeError(v.n)
	}
	if errors.Is(err, io.EOF) && formatChecksum(v.sum.Sum32()) != v.want.Checksum {
		return n, &DamageError{File: v.name, Err: fmt.Errorf("its checksum is %s, not %s", formatChecksum(v.sum.Sum32()), v.want.Checksum)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read %s: %w", v.name, err)
	}
	return n, err
}

func (v *verifier) sizeError(got int64) error {
	return &DamageError{File: v.name, Err: fmt.Errorf("it has %d bytes, not %d", got, v.want.Size)}
}

func (v *verifier) Close() error { return v.r.Close() }

// stateWriter writes one file and takes its checksum on the way.
type stateWriter struct {
	files *files
	ctx   context.Context //nolint:containedctx // a writer lives within the call that made it
	w     storage.Writer
	name  string
	rel   string
	sum   uint32
	n     int64
}

func (w *stateWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.sum = crc32.Update(w.sum, castagnoli, p[:n])
	w.n += int64(n)
	if err != nil {
		return n, fmt.Errorf("write %s: %w", w.name, err)
	}
	return n, nil
}

// Close makes the file durable. Where the outcome is unknown, reading the file
// back decides. That of an attempt that has failed meanwhile is removed again.
func (w *stateWriter) Close() (connectors.StateFile, error) {
	f, err := w.close()
	if err != nil || w.files.state == nil || !w.files.state.abandoned() {
		return f, err
	}
	err = errors.Join(errAbandoned, w.files.fs.Remove(context.WithoutCancel(w.ctx), w.name))
	return connectors.StateFile{}, fmt.Errorf("close %s: %w", w.name, err)
}

func (w *stateWriter) close() (connectors.StateFile, error) {
	f := connectors.StateFile{Path: w.rel, Size: w.n, Checksum: formatChecksum(w.sum)}
	err := w.w.Close()
	if err == nil {
		return f, nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrClosed) {
		return connectors.StateFile{}, fmt.Errorf("close %s: %w", w.name, err)
	}
	if w.files.verify(w.ctx, f) == nil {
		return f, nil
	}
	return connectors.StateFile{}, fmt.Errorf("close %s: %w", w.name, err)
}

func (w *stateWriter) Abort() { w.w.Abort() }
