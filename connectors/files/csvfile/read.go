package csvfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// ErrTooLong is reported of a record that is longer than allowed.
var ErrTooLong = errors.New("the record is longer than max_line")

const bufferSize = 256 << 10

// Reader reads records as JSON objects.
type Reader struct {
	in     *bufio.Reader
	opts   *Options
	limit  int
	pos    int64 // behind the last record
	names  []string
	types  []connectors.Type
	raw    []byte
	fields []cell
	text   []byte
}

type cell struct {
	from, to int // in text
	quoted   bool
}

// NewReader reads a file from its beginning. Records may be limit bytes long.
func NewReader(r io.Reader, o *Options, limit int) (*Reader, error) {
	out := &Reader{in: bufio.NewReaderSize(r, bufferSize), opts: o, limit: limit}
	for _, c := range o.Columns {
		out.names, out.types = append(out.names, c.Name), append(out.types, c.Type)
	}
	if b, err := out.in.Peek(len(bom)); err == nil && bytes.Equal(b, bom) {
		_, _ = out.in.Discard(len(bom))
		out.pos = int64(len(bom))
	}
	if !o.Header {
		return out, nil
	}
	if err := out.record(); err != nil {
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		return nil, err
	}
	if !out.split() {
		return nil, errors.New("its first line is no line of names: a quote is not closed")
	}
	if err := out.header(); err != nil {
		return nil, fmt.Errorf("its first line is no line of names: %w", err)
	}
	return out, nil
}

func (r *Reader) header() error {
	r.names, r.types = nil, nil
	for _, c := range r.fields {
		name := string(r.text[c.from:c.to])
		if !utf8.ValidString(name) {
			return errors.New("it is not UTF-8")
		}
		if name != "" && slices.Contains(r.names, name) {
			return fmt.Errorf("%q stands there twice", name)
		}
		t := connectors.Type{Base: connectors.Text, Nullable: true}
		for _, known := range r.opts.Columns {
			if known.Name == name {
				t = known.Type
			}
		}
		r.names, r.types = append(r.names, name), append(r.types, t)
	}
	return nil
}

// Skip goes on to a position, where it is not there yet.
func (r *Reader) Skip(pos int64) error {
	if pos <= r.pos {
		return nil
	}
	n, err := io.CopyN(io.Discard, r.in, pos-r.pos)
	r.pos += n
	return err
}

// Pos is the position behind the last record.
func (r *Reader) Pos() int64 { return r.pos }

// Next adds the next record to dst: as JSON, or as it is where it cannot be taken apart,
// with an error that is format.IsRefused. io.EOF says that there is none.
func (r *Reader) Next(dst []byte) ([]byte, error) {
	for {
		if err := r.record(); err != nil {
			return dst, err
		}
		if len(r.raw) == 0 {
			continue // an empty line
		}
		out, err := r.object(dst)
		if err != nil {
			return append(dst, r.raw...), format.Refuse(err)
		}
		return out, nil
	}
}

// record reads up to the line break that stands outside of quotes.
func (r *Reader) record() error {
	r.raw = r.raw[:0]
	from, at := r.pos, begins
	for {
		piece, err := r.in.ReadSlice('\n')
		r.raw = append(r.raw, piece...)
		r.pos += int64(len(piece))
		at = at.behind(piece, r.opts.Delimiter[0])
		if len(r.raw) > r.limit+2 {
			return tooLong(from, at)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			if len(r.raw) == 0 {
				return io.EOF
			}
			return nil
		case err != nil:
			return err
		case at == within:
			continue
		}
		r.raw = bytes.TrimSuffix(bytes.TrimSuffix(r.raw, []byte{'\n'}), []byte{'\r'})
		return nil
	}
}

func tooLong(from int64, at place) error {
	if at == within {
		return fmt.Errorf("%w, which begins at byte %d with a quote that is not closed", ErrTooLong, from)
	}
	return fmt.Errorf("%w, which begins at byte %d", ErrTooLong, from)
}

// place is where in a record a byte stands. Only a quote at the beginning of a field opens
// it for line breaks: one that stands anywhere else is text, or an error of its own line,
// and joins no lines.
type place uint8

const (
	begins place = iota // of a field
	plain               // in a field without quotes, or behind the quotes of one that goes on
	within              // quotes
	closed              // behind a quote, which ends the field or is the first of two
)

// behind is the place behind some more bytes.
func (p place) behind(piece []byte, delimiter byte) place {
	if p != within && bytes.IndexByte(piece, '"') < 0 { // as nearly always
		switch n := len(piece); {
		case n == 0:
			return p
		case piece[n-1] == delimiter:
			return begins
		}
		return plain
	}
	for _, c := range piece {
		switch {
		case p == within:
			if c == '"' {
				p = closed
			}
		case c == '"' && (p == begins || p == closed):
			p = within
		case c == delimiter:
			p = begins
		default:
			p = plain
		}
	}
	return p
}

// split takes the record apart; false where quotes are wrong.
func (r *Reader) split() bool {
	r.fields, r.text = r.fields[:0], r.text[:0]
	delimiter := r.opts.Delimiter[0]
	for rest := r.raw; ; {
		from := len(r.text)
		if len(rest) == 0 || rest[0] != '"' {
			at := bytes.IndexByte(rest, delimiter)
			if at < 0 {
				r.text = append(r.text, rest...)
				r.fields = append(r.fields, cell{from, len(r.text), false})
				return true
			}
			r.text = append(r.text, rest[:at]...)
			r.fields = append(r.fields, cell{from, len(r.text), false})
			rest = rest[at+1:]
			continue
		}
		rest = rest[1:]
		for {
			at := bytes.IndexByte(rest, '"')
			if at < 0 {
				return false
			}
			r.text = append(r.text, rest[:at]...)
			if rest = rest[at+1:]; len(rest) == 0 || rest[0] != '"' {
				break
			}
			r.text = append(r.text, '"')
			rest = rest[1:]
		}
		r.fields = append(r.fields, cell{from, len(r.text), true})
		if len(rest) == 0 {
			return true
		}
		if rest[0] != delimiter {
			return false
		}
		rest = rest[1:]
	}
}

func (r *Reader) object(dst []byte) ([]byte, error) {
	if !r.split() {
		return nil, errors.New("a quote is not closed, or text stands behind the one that closes a field")
	}
	if len(r.fields) != len(r.names) {
		return nil, fmt.Errorf("the record has %d fields, and there are %d columns", len(r.fields), len(r.names))
	}
	dst = append(dst, '{')
	for i, c := range r.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, r.names[i]), ':')
		text := r.text[c.from:c.to]
		if !c.quoted && string(text) == r.opts.Null {
			dst = append(dst, "null"...)
			continue
		}
		var err error
		if dst, err = appendTyped(dst, text, r.types[i]); err != nil {
			return nil, fmt.Errorf("field %s: %w", r.names[i], err)
		}
	}
	return append(dst, '}'), nil
}

// appendTyped adds a field as its column has it; lists and maps stand in it as JSON.
func appendTyped(dst, text []byte, t connectors.Type) ([]byte, error) {
	switch t.Base {
	case connectors.Sequence, connectors.Struct, connectors.Dictionary, connectors.Dynamic:
		t = connectors.Type{Base: connectors.Document}
	default:
	}
	return columns.AppendText(dst, t, text)
}
