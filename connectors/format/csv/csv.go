// Package csv holds the format csv: a value is one row of fields with a delimiter between
// them.
package csv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// config is the options of the format.
type config struct {
	Columns   names  `key:"columns" doc:"The fields in their order: names, or names with types, as in [{id: int}, {price: \"decimal(10, 2)\"}]; names alone hold text, and take any value of a sink. A sink without them takes those of its rows, where the plan knows them."`
	Header    bool   `key:"header" doc:"The first line of each value names its fields."`
	Delimiter string `key:"delimiter" doc:"Character between fields."`
	Quote     string `key:"quote" doc:"Character around fields that hold a delimiter, a quote or a line break; within them it is doubled."`
	Null      string `key:"null" doc:"Text that stands, without quotes, for null."`
}

// names are columns, of which each can be a mere name.
type names []connectors.Column

// UnmarshalConfig reads both forms.
func (n *names) UnmarshalConfig(v any) error {
	list, ok := v.([]any)
	if !ok {
		return errors.New("a list of names, or of names with types, is wanted")
	}
	typed := make([]any, len(list))
	for i, item := range list {
		typed[i] = item
		if name, ok := item.(string); ok {
			typed[i] = map[string]any{name: "string?"}
		}
	}
	if err := (*columns.List)(n).UnmarshalConfig(typed); err != nil {
		return err
	}
	for i, item := range list {
		if _, ok := item.(string); ok {
			(*n)[i].Type = connectors.Type{Nullable: true}
		}
	}
	return nil
}

// read are the columns as rows that are read have them: a mere name holds text.
func (n names) read() []connectors.Column {
	out := slices.Clone(n)
	for i := range out {
		if t := &out[i].Type; t.Base == connectors.Dynamic {
			t.Base = connectors.Text
		}
	}
	return out
}

// Validate reports what contradicts itself.
func (c *config) Validate() error {
	var faults []error
	for key, v := range map[string]string{"delimiter": c.Delimiter, "quote": c.Quote} {
		if len(v) != 1 || v[0] >= 0x80 || v == "\n" || v == "\r" {
			faults = append(faults, &connectors.FieldError{Key: key, Msg: "one ASCII character is wanted"})
		}
	}
	if c.Delimiter == c.Quote {
		faults = append(faults, &connectors.FieldError{Key: "quote", Msg: "it is the delimiter too"})
	}
	if strings.ContainsAny(c.Null, "\r\n"+c.Delimiter+c.Quote) {
		faults = append(faults, &connectors.FieldError{Key: "null", Msg: "a text without quotes, delimiters and line breaks is wanted"})
	}
	for _, col := range c.Columns {
		switch col.Type.Base {
		case connectors.Sequence, connectors.Struct, connectors.Dictionary:
			faults = append(faults, &connectors.FieldError{Key: "columns", Msg: col.Name + " is a list or a map, and CSV has none", Help: "declare it as json"})
		default:
		}
	}
	return errors.Join(faults...)
}

func init() {
	format.Register(format.Spec{
		Name:      "csv",
		Doc:       "Comma-separated values, by RFC 4180: one row in each value.",
		NewConfig: func() any { return &config{Delimiter: ",", Quote: `"`} },
		Input: func(c any) (format.Input, error) {
			cfg := c.(*config)
			if len(cfg.Columns) == 0 && !cfg.Header {
				return nil, &connectors.FieldError{Key: "columns", Msg: "CSV is read with columns or with header: true", Help: "write columns: [id, name]"}
			}
			return &input{config: cfg, parser: parser{delimiter: cfg.Delimiter[0], quote: cfg.Quote[0]}}, nil
		},
		Output: func(c any) (format.Output, error) { return &output{config: c.(*config)}, nil },
		Columns: func(c any) ([]connectors.Column, error) {
			return c.(*config).Columns.read(), nil
		},
		Example: `{csv: {columns: [{id: int}, {name: string}]}}`,
	})
}

// input reads rows.
type input struct {
	*config
	parser
	order []int // by field of a value with a header, the column; -1 for none
	names []string
}

// Start implements format.Input.
func (in *input) Start(context.Context, format.Env) error { return nil }

// JSON implements format.Input.
func (in *input) JSON(_ context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	rest := r.Value
	in.names = in.names[:0]
	if in.Header {
		fields, tail, err := in.parse(rest)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			in.names = append(in.names, string(f.text))
		}
		if tail == nil {
			return nil, format.Refuse(errors.New("there is no row behind the header"))
		}
		rest = tail
	}
	fields, rest, err := in.parse(rest)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, format.Refuse(errors.New("there is more than one row in the value"))
	}
	return in.row(dst, fields)
}

// row appends the object that fields make.
func (in *input) row(dst []byte, fields []field) ([]byte, error) {
	if err := in.arrange(len(fields)); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	open := len(dst)
	for i, f := range fields {
		var name string
		typ := connectors.Type{Base: connectors.Text, Nullable: true}
		switch at := in.order[i]; {
		case at >= 0:
			name, typ = in.Columns[at].Name, in.Columns[at].Type
		case len(in.Columns) > 0:
			continue // the header has a field that is no column
		default:
			name = in.names[i]
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, name), ':')
		if !f.quoted && string(f.text) == in.Null && (typ.Nullable || in.Null != "" || typ.Base != connectors.Text) {
			if !typ.Nullable {
				return nil, format.Refuse(fmt.Errorf("field %s is null: declare it with a ? if it may be", name))
			}
			dst = append(dst, "null"...)
			continue
		}
		var err error
		if dst, err = columns.AppendText(dst, typ, f.text); err != nil {
			return nil, format.Refuse(fmt.Errorf("field %s: %w", name, err))
		}
	}
	return append(dst, '}'), nil
}

// arrange finds the column of each field.
func (in *input) arrange(n int) error {
	in.order = in.order[:0]
	if !in.Header {
		if n != len(in.Columns) {
			return format.Refuse(fmt.Errorf("the row has %d fields, and %d columns are declared", n, len(in.Columns)))
		}
		for i := range n {
			in.order = append(in.order, i)
		}
		return nil
	}
	if n != len(in.names) {
		return format.Refuse(fmt.Errorf("the row has %d fields, and its header %d", n, len(in.names)))
	}
	found := 0
	for i, name := range in.names {
		at := -1
		for j := range in.Columns {
			if in.Columns[j].Name == name {
				at = j
				found++
			}
		}
		for _, other := range in.names[:i] {
			if other == name {
				return format.Refuse(errors.New("the header names a field twice"))
			}
		}
		in.order = append(in.order, at)
	}
	if found < len(in.Columns) {
		return format.Refuse(errors.New("the header lacks a declared column"))
	}
	return nil
}

// field is one field of a row.
type field struct {
	text   []byte
	quoted bool
}

// parser takes rows apart.
type parser struct {
	delimiter, quote byte
	fields           []field
	plain            []byte // what quoted fields hold, without their quotes
}

func syntax(at int, msg string) error { return &format.SyntaxError{Offset: at, Msg: msg} }

// parse takes the first row of b and returns what is behind its line break. The fields
// borrow from b and from the parser.
func (p *parser) parse(b []byte) (fields []field, rest []byte, err error) {
	p.fields, p.plain = p.fields[:0], p.plain[:0]
	if cap(p.plain) < len(b) {
		p.plain = make([]byte, 0, len(b))
	}
	for i := 0; ; i++ {
		f := field{}
		if i < len(b) && b[i] == p.quote {
			if f.text, i, err = p.quoted(b, i); err != nil {
				return nil, nil, err
			}
			f.quoted = true
		} else {
			start := i
			for i < len(b) && b[i] != p.delimiter && b[i] != '\n' && b[i] != '\r' {
				if b[i] == p.quote {
					return nil, nil, syntax(i, "a quote within a field that does not begin with one")
				}
				i++
			}
			f.text = b[start:i]
		}
		p.fields = append(p.fields, f)
		switch {
		case i >= len(b):
			return p.fields, nil, nil
		case b[i] == p.delimiter:
		case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
			return p.fields, b[i+2:], nil
		case b[i] == '\n':
			return p.fields, b[i+1:], nil
		default:
			return nil, nil, syntax(i, "a delimiter or the end of the row is wanted")
		}
	}
}

// quoted reads a field from its quote on, and returns where its last one is passed.
func (p *parser) quoted(b []byte, i int) (text []byte, end int, err error) {
	begin := len(p.plain)
	for j := i + 1; j < len(b); j++ {
		if b[j] != p.quote {
			p.plain = append(p.plain, b[j])
			continue
		}
		if j+1 < len(b) && b[j+1] == p.quote {
			p.plain = append(p.plain, p.quote)
			j++
			continue
		}
		return p.plain[begin:len(p.plain):len(p.plain)], j + 1, nil
	}
	return nil, 0, syntax(i, "the quote that begins here has no end")
}
