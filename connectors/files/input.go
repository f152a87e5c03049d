package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/storage"
)

// input is a split that is being read.
type input struct {
	split  connectors.Split
	fs     storage.FS
	base   string
	file   *watched
	bytes  io.Reader // of the lines, from the position on
	packed string    // how it is compressed
	limit  int64     // what may come out of it
	zip    io.Closer // of a compressed file
	rows   rowFile   // of a file that is none of lines
	stuck  error     // what ends the reading of rows
	left   int64     // bytes up to Until; not for compressed files
}

// openInput opens a split's file at its position, and refuses one that is not the
// file that the job began with.
func (s *Source) openInput(ctx context.Context, split connectors.Split) (*input, error) {
	u, err := storage.Parse(split.ID)
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("read file %s: %w", split.ID, err))
	}
	dir, base := path.Split(u.Path)
	in := &input{split: split, base: base, packed: s.packed(base), limit: int64(s.config.MaxSize)}
	if in.fs, err = openAt(u, dir); err != nil {
		return nil, fmt.Errorf("read file %s: %w", split.ID, err)
	}
	if err := in.check(ctx); err != nil {
		return nil, err
	}
	file, err := in.fs.Open(ctx, base)
	if err != nil {
		return nil, denied(fmt.Errorf("read file %s: %w", split.ID, err), "let this user read it")
	}
	in.file = &watched{Reader: file}
	if in.rows, err = in.rowsOf(s); err == nil && in.rows == nil {
		err = in.seek()
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// watched notes what the storage says, so that its errors are told from damaged files.
type watched struct {
	storage.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.note(err)
	return n, err
}

// ReadAt reads at an offset.
func (w *watched) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.Reader.ReadAt(p, off)
	w.note(err)
	return n, err
}

func (w *watched) note(err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
}

// check compares the file with how it was when the job began.
func (in *input) check(ctx context.Context) error {
	var was detail
	if err := json.Unmarshal(in.split.Detail, &was); err != nil {
		return connectors.Permanent(fmt.Errorf("read file %s: its description in the checkpoint cannot be read: %w", in.split.ID, err))
	}
	info, err := in.fs.Stat(ctx, in.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connectors.Permanent(fmt.Errorf("read file %s: it is gone since the job began: put it back, or start a new job: %w", in.split.ID, err))
	case err != nil:
		return fmt.Errorf("read file %s: %w", in.split.ID, err)
	case info.Size < was.Size:
		return in.changed(fmt.Sprintf("it has shrunk from %d to %d bytes since the job began", was.Size, info.Size))
	case !info.Modified.Equal(was.Modified) && (info.Size == was.Size || in.split.Until < 0 || in.zipped()):
		return in.changed("it was changed since the job began")
	}
	return nil
}

func (in *input) changed(how string) error {
	return connectors.Permanent(fmt.Errorf("read file %s: %s, so that its positions mean nothing any more: put the file back, or start a new job", in.split.ID, how))
}

// seek goes to the position, which must be the beginning of a line.
func (in *input) seek() error {
	if in.zipped() {
		return in.seekZipped()
	}
	at := in.split.Offset
	in.left = in.split.Until - at
	if at > 0 {
		var before [1]byte
		if _, err := in.file.ReadAt(before[:], at-1); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read file %s: %w", in.split.ID, err)
		}
		if before[0] != '\n' && in.left > 0 {
			return in.changed(fmt.Sprintf("no line begins at position %d of the checkpoint", at))
		}
	}
	if _, err := in.file.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("read file %s: %w", in.split.ID, err)
	}
	in.bytes = in.file
	return nil
}

func (in *input) zipped() bool { return in.packed != compressionNone }

func (in *input) seekZipped() error {
	z, err := compress.NewReader(in.packed, in.file, in.limit)
	if err != nil {
		return in.broken(0, err)
	}
	in.bytes, in.zip = z, z
	if _, err := io.CopyN(io.Discard, z, in.split.Offset); err != nil {
		return in.broken(in.split.Offset, err)
	}
	return nil
}

// read reads on; io.EOF says that all of the split is read.
func (in *input) read(b []byte, at int64) (int, error) {
	if in.zipped() {
		n, err := in.bytes.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, in.broken(at, err)
		}
		return n, err
	}
	if in.left == 0 {
		return 0, io.EOF
	}
	n, err := in.bytes.Read(b[:min(int64(len(b)), in.left)])
	in.left -= int64(n)
	switch {
	case n > 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return 0, in.changed(fmt.Sprintf("it ends %d bytes earlier than when the job began", in.left))
	case err != nil:
		return 0, fmt.Errorf("read file %s: %w", in.split.ID, err)
	}
	return 0, nil
}

// broken reports compressed bytes that cannot be read.
func (in *input) broken(at int64, err error) error {
	switch {
	case errors.Is(err, compress.ErrTooLarge):
		return connectors.Permanent(fmt.Errorf("decompress file %s: %w: raise max_size, if it is no attack", in.split.ID, err))
	case errors.Is(err, compress.ErrDamaged) || errors.Is(err, io.EOF):
		return connectors.Permanent(fmt.Errorf("decompress file %s near byte %d of its text: %w", in.split.ID, at, err))
	}
	return fmt.Errorf("read file %s: %w", in.split.ID, err)
}

func (in *input) close() {
	if in.rows != nil {
		_ = in.rows.Close()
	}
	if in.zip != nil {
		_ = in.zip.Close()
	}
	_ = in.file.Close()
}
