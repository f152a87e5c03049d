// Package csvfile writes and reads CSV files (RFC 4180) of rows.
package csvfile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Options are how a file is written.
type Options struct {
	Header    bool         `key:"header" doc:"The first line holds the names of the columns."`
	Delimiter string       `key:"delimiter" doc:"The character between fields."`
	Null      string       `key:"null" doc:"What stands for null, without quotes; text that reads like it is quoted."`
	Columns   columns.List `key:"columns" doc:"The columns in their order, such as [{id: int}, {note: string?}]."`
}

// NewOptions are the defaults.
func NewOptions() *Options { return &Options{Header: true, Delimiter: ","} }

// Validate refuses what no file can have.
func (o *Options) Validate() error {
	if len(o.Delimiter) != 1 || o.Delimiter[0] >= 0x80 || bytes.ContainsAny([]byte(o.Delimiter), "\"\r\n") {
		return &connectors.FieldError{Key: "delimiter", Msg: "must be one character of ASCII, and no quote or line break", Help: `write "," or ";" or "\t"`}
	}
	if bytes.ContainsAny([]byte(o.Null), "\"\r\n"+o.Delimiter) {
		return &connectors.FieldError{Key: "null", Msg: "cannot hold a quote, a line break or the delimiter"}
	}
	return nil
}

// Encoder turns rows of JSON into lines. It serves one goroutine.
type Encoder struct {
	opts   *Options
	cols   []connectors.Column
	reader *columns.Reader
	values [][]byte
	bad    map[int]string
	text   []byte
}

// NewEncoder makes an encoder of rows with these columns.
func NewEncoder(o *Options, cols []connectors.Column) (*Encoder, error) {
	r, err := columns.NewReader(cols)
	return &Encoder{opts: o, cols: cols, reader: r, bad: map[int]string{}}, err
}

// Head is the line of names, with its end; nothing where none is wanted.
func Head(o *Options, cols []connectors.Column) []byte {
	if !o.Header {
		return nil
	}
	e := &Encoder{opts: o}
	var dst []byte
	for i := range cols {
		if i > 0 {
			dst = append(dst, o.Delimiter...)
		}
		dst = e.field(dst, []byte(cols[i].Name), false)
	}
	return append(dst, '\n')
}

// Begin takes the values of rows, at most connectors.MaxBatch.
func (e *Encoder) Begin(values [][]byte) {
	clear(e.bad)
	e.values = values
	e.reader.Read(values, func(i int, err *format.SyntaxError) { e.bad[i] = err.Error() })
}

// Append adds row i as a line.
func (e *Encoder) Append(dst []byte, i int) ([]byte, error) {
	if reason, bad := e.bad[i]; bad {
		return dst, errors.New(reason)
	}
	if v := e.values[i]; v == nil || string(v) == "null" {
		return dst, errors.New("a row without a value (a tombstone) has no place in a file of columns")
	}
	out := dst
	for c := range e.cols {
		if c > 0 {
			out = append(out, e.opts.Delimiter...)
		}
		v := e.reader.Value(i, c)
		if v.IsNull() {
			out = append(out, e.opts.Null...)
			if len(e.cols) == 1 && e.opts.Null == "" {
				return dst, fmt.Errorf("column %s: null would be an empty line, which readers pass over: set null to another text", e.cols[c].Name)
			}
			continue
		}
		var err error
		if e.text, err = columns.TextOf(e.text[:0], e.cols[c].Type, v); err != nil {
			return dst, fmt.Errorf("column %s: %w", e.cols[c].Name, err)
		}
		out = e.field(out, e.text, true)
	}
	return append(out, '\n'), nil
}

// field writes a field, in quotes where it needs them: also where it would read like null,
// or alone in its line like no row at all.
func (e *Encoder) field(dst, text []byte, value bool) []byte {
	if !bytes.ContainsAny(text, "\"\r\n"+e.opts.Delimiter) && !(value && string(text) == e.opts.Null) &&
		len(text) > 0 && text[0] != ' ' && text[len(text)-1] != ' ' && !bytes.HasPrefix(text, bom) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

var bom = []byte("\xef\xbb\xbf")
