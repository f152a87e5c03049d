package files

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/compress"
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

// formOf is the form of a configuration that Validate accepts, once the columns of the
// rows are known.
func formOf(c *SinkConfig, _ []connectors.Column) (*form, error) {
	switch c.Format.Name {
	case formatJSON:
		return linesForm("jsonl", c.Compression), nil
	case formatRaw:
		return linesForm("txt", c.Compression), nil
	}
	return nil, fmt.Errorf("%q is no format of files", c.Format.Name)
}

// linesForm is the form of files of lines.
func linesForm(ext, compression string) *form {
	if compression == compressionAuto {
		compression = compressionNone
	}
	f := &form{ext: ext + compress.Ending(compression), encoder: func() (rowEncoder, error) { return new(lines), nil }}
	f.id = f.ext
	if compression != compressionNone {
		f.packer = func() packer { return compress.NewPacker(compression) }
	}
	return f
}

// restoredForm is the form of a file that a checkpoint holds, where the sink makes other
// files by now: nothing is added to it.
func restoredForm(o *openPart) (*form, error) {
	kind, packed, _ := strings.Cut(o.Ext, ".")
	if !slices.Contains([]string{"jsonl", "txt"}, kind) || packed != "" && compress.ByName("."+packed) == compressionNone {
		return nil, fmt.Errorf("it holds a file of the unknown kind %q", o.Ext)
	}
	return &form{ext: o.Ext, id: o.Form, detail: o.Detail}, nil
}
