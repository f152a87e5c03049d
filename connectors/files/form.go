package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/avrofile"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/connectors/files/csvfile"
	"github.com/sluice-etl/sluice/connectors/files/parquet"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// form is how the rows of a sink become the bytes of a file.
type form struct {
	// ext is the ending of its files.
	ext string
	// id tells rows that can stand in one file from others: a file that a checkpoint
	// holds is gone on with only where it is the same.
	id string
	// detail is what convert is made of again by a later process, of a sink that is
	// set up otherwise by then.
	detail json.RawMessage
	// head is what a file begins with.
	head []byte
	// encoder and packer make what each writer has of its own; packer is nil where rows
	// stand in a file as they are.
	encoder func() (rowEncoder, error)
	packer  func() packer
	// convert makes the file of what is kept of its rows; nil where that is the file.
	convert converter
}

// rowEncoder turns rows, which are JSON, into those of a file.
type rowEncoder interface {
	// Begin takes the values of rows.
	Begin(values [][]byte)
	// Append adds row i to dst. An error says in words why this row has no place there;
	// what dst holds behind its length is undefined then.
	Append(dst []byte, i int) ([]byte, error)
}

// packer turns some rows into a piece of a file that stands for itself, so that a
// file can be cut between any two: a member of a compressed stream, a block.
type packer interface {
	// Pack adds the piece to dst.
	Pack(dst, rows []byte, n int) ([]byte, error)
}

// lines writes one row a line; the engine has made sure that each is one.
type lines struct{ values [][]byte }

func (l *lines) Begin(values [][]byte) { l.values = values }

func (l *lines) Append(dst []byte, i int) ([]byte, error) {
	return append(append(dst, l.values[i]...), '\n'), nil
}

// textLines writes text that can hold anything.
type textLines struct{ lines }

// Append adds row i, which must be one line.
func (l *textLines) Append(dst []byte, i int) ([]byte, error) {
	switch v := l.values[i]; {
	case v == nil:
		return dst, errors.New("a row without a value (a tombstone) has no place in a file of lines")
	case len(v) == 0 || bytes.ContainsAny(v, "\r\n"):
		return dst, errors.New("the text is empty or has a line break, and would not be one line: write it as json")
	}
	return l.lines.Append(dst, i)
}

// formOf is the form of a configuration that Validate accepts. salt tells its files from
// those of other sinks.
func formOf(c *SinkConfig, known []connectors.Column, salt string) (*form, error) {
	cols, err := c.rowColumns(known)
	if err != nil {
		return nil, err
	}
	l, err := layoutOf(c.Format)
	switch {
	case err != nil:
		return nil, err
	case l.avro != nil:
		return avroForm(cols, c.compression(), salt)
	case l.parquet != nil:
		return parquetForm(parquet.Layout{Columns: cols, Compression: c.compression(), RowGroup: int64(l.parquet.RowGroup)})
	case l.csv != nil:
		f := linesForm("csv", c.compression())
		f.encoder = func() (rowEncoder, error) { return csvfile.NewEncoder(l.csv, cols) }
		f.head = csvfile.Head(l.csv, cols)
		names := make([]string, len(cols))
		for i := range cols {
			names[i] = cols[i].Name
		}
		f.id = digest(f.ext, string(f.head), l.csv.Delimiter, l.csv.Null, strings.Join(names, "\x01"))
		if f.packer != nil {
			f.head, err = f.packer().Pack(nil, f.head, 1)
		}
		return f, err
	case c.Format.Name == formatRaw || c.Format.Name == formatText:
		f := linesForm("txt", c.compression())
		f.encoder = func() (rowEncoder, error) { return new(textLines), nil }
		return f, nil
	}
	return linesForm("jsonl", c.compression()), nil
}

// digest is a short name of what makes files differ.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// linesForm is the form of files of lines.
func linesForm(ext, compression string) *form {
	f := &form{ext: ext + compress.Ending(compression), encoder: func() (rowEncoder, error) { return new(lines), nil }}
	f.id = f.ext
	if compression != compressionNone {
		f.packer = func() packer { return compress.NewPacker(compression) }
	}
	return f
}

func avroForm(cols []connectors.Column, compression, salt string) (*form, error) {
	schema, err := avrofile.Schema(cols)
	if err != nil {
		return nil, err
	}
	head, mark := avrofile.Head(schema, compression, salt)
	return &form{
		ext: formatAvro, id: digest(string(head)), head: head,
		encoder: func() (rowEncoder, error) { return typed.NewEncoder(cols, typed.Options{NoUnsigned64: true}) },
		packer:  func() packer { return avrofile.NewPacker(compression, mark) },
	}, nil
}

// parquetForm keeps rows in a form of their own until a file is complete: what has been
// written of a Parquet file cannot be gone on with.
func parquetForm(l parquet.Layout) (*form, error) {
	detail, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return &form{
		ext: formatParquet, id: digest(string(detail)), detail: detail, convert: parquetConverter(l),
		encoder: func() (rowEncoder, error) {
			e, err := typed.NewEncoder(l.Columns, typed.Options{})
			return &measured{Encoder: e}, err
		},
		packer: func() packer { return compress.NewPacker(compress.Zstd) },
	}, nil
}

func parquetConverter(l parquet.Layout) converter {
	return func(ctx context.Context, w io.Writer, rows io.Reader) error {
		r, err := compress.NewReader(compress.Zstd, rows, 0)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		return parquet.Convert(ctx, w, r, l)
	}
}

// measured puts the length of each row in front of it.
type measured struct {
	*typed.Encoder
	row []byte
}

// Append adds row i.
func (m *measured) Append(dst []byte, i int) ([]byte, error) {
	row, err := m.Encoder.Append(m.row[:0], i)
	if err != nil {
		return dst, err
	}
	m.row = row
	return append(binary.AppendUvarint(dst, uint64(len(row))), row...), nil
}

// restoredForm is the form of a file that a checkpoint holds, where the sink makes other
// files by now: nothing is added to it.
func restoredForm(o *openPart) (*form, error) {
	f := &form{ext: o.Ext, id: o.Form, detail: o.Detail}
	switch name, packed, _ := strings.Cut(o.Ext, "."); {
	case o.Ext == formatAvro:
		return f, nil
	case o.Ext == formatParquet:
		var l parquet.Layout
		if err := json.Unmarshal(o.Detail, &l); err != nil {
			return nil, fmt.Errorf("the columns of a file that it holds cannot be read: %w", err)
		}
		f.convert = parquetConverter(l)
		return f, nil
	case slices.Contains([]string{"jsonl", "txt", "csv"}, name) && (packed == "" || compress.ByName("."+packed) != compressionNone):
		return f, nil
	}
	return nil, fmt.Errorf("it holds a file of the unknown kind %q", o.Ext)
}
