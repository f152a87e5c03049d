// Package text holds the formats text and raw, in which a value is one field of a row.
package text

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// config is the options of both formats.
type config struct {
	Field string `key:"field" doc:"Name of the field that holds the value."`

	binary bool
}

// Validate reports a field without a name.
func (c *config) Validate() error {
	if c.Field == "" {
		return &connectors.FieldError{Key: "field", Msg: "a name is wanted"}
	}
	return nil
}

func init() {
	register(format.Spec{
		Name: "text", Doc: "Text in UTF-8: the whole value is one field.", Example: "{text: {field: line}}",
	}, false)
	register(format.Spec{
		Name: "raw", Doc: "Any bytes: the whole value is one field.", Example: "{raw: {field: body}}",
	}, true)
}

func register(s format.Spec, binary bool) {
	s.NewConfig = func() any { return &config{Field: "value", binary: binary} }
	s.Input = func(c any) (format.Input, error) { return &codec{config: c.(*config)}, nil }
	s.Output = func(c any) (format.Output, error) {
		out := &codec{config: c.(*config), failed: map[int]error{}}
		var err error
		out.reader, err = columns.NewReader([]connectors.Column{{Name: out.Field}})
		return out, err
	}
	s.Columns = func(c any) ([]connectors.Column, error) {
		base := connectors.Text
		if binary {
			base = connectors.Binary
		}
		return []connectors.Column{{Name: c.(*config).Field, Type: connectors.Type{Base: base}}}, nil
	}
	format.Register(s)
}

// codec is both ways of both formats.
type codec struct {
	*config
	reader *columns.Reader
	failed map[int]error
}

// Start implements format.Input and format.Output.
func (c *codec) Start(context.Context, format.Env) error { return nil }

var errNoText = errors.New("the value is no text in UTF-8: read it with format raw")

// JSON implements format.Input.
func (c *codec) JSON(_ context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	dst = append(format.AppendString(append(dst, '{'), c.Field), ':')
	if c.binary {
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, r.Value)
		return append(dst, '"', '}'), nil
	}
	if !utf8.Valid(r.Value) {
		return nil, format.Refuse(errNoText)
	}
	return append(format.AppendString(dst, string(r.Value)), '}'), nil
}

// Encode implements format.Output.
func (c *codec) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	clear(c.failed)
	c.reader.Read(rows.Values, func(i int, err *format.SyntaxError) { c.failed[i] = err })
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		err := c.failed[i]
		if err == nil {
			rows.Values[i], err = c.value(rows.Batch, c.reader.Value(i, 0))
		}
		if err != nil {
			rows.Values[i] = nil
			fail(i, err)
		}
	}
	return nil
}

// value is what a field holds, in the batch's arena. A row whose field is null is a
// tombstone.
func (c *codec) value(b *connectors.Batch, v connectors.Value) ([]byte, error) {
	switch {
	case v.Kind() == connectors.Absent:
		return nil, fmt.Errorf("there is no field %s, and a %s value is made of it", c.Field, c.name())
	case v.Kind() == connectors.Null:
		return nil, nil
	case c.binary:
		raw, err := columns.Bytes(v)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", c.Field, err)
		}
		return b.Arena.Copy(raw), nil
	}
	text, err := columns.Text(v)
	if err != nil {
		return nil, fmt.Errorf("field %s: %w (string(…) makes text of other values)", c.Field, err)
	}
	return b.Arena.Keep(append(b.Arena.Grow(len(text)), text...)), nil
}

func (c *codec) name() string {
	if c.binary {
		return "raw"
	}
	return "text"
}
