package csv

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// output writes rows.
type output struct {
	*config
	reader *columns.Reader
	cols   []connectors.Column
	header []byte
	text   []byte
	failed map[int]error
}

// Start implements format.Output.
func (o *output) Start(_ context.Context, env format.Env) error {
	o.cols = o.Columns
	if len(o.cols) == 0 {
		o.cols = env.Columns
	}
	if len(o.cols) == 0 {
		return connectors.Permanent(errors.New("the columns of the CSV rows are not known: " +
			"write columns: [id, name] below csv, or a map step before the sink"))
	}
	if o.Header {
		for i, c := range o.cols {
			if i > 0 {
				o.header = append(o.header, o.Delimiter...)
			}
			o.header = o.field(o.header, []byte(c.Name))
		}
		o.header = append(o.header, '\n')
	}
	o.failed = map[int]error{}
	var err error
	o.reader, err = columns.NewReader(o.cols)
	return err
}

// Encode implements format.Output.
func (o *output) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	clear(o.failed)
	o.reader.Read(rows.Values, func(i int, err *format.SyntaxError) { o.failed[i] = err })
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		err := o.failed[i]
		room := rows.Batch.Arena.Grow(len(value) + len(o.header) + len(o.cols))
		if err == nil {
			room, err = o.row(append(room, o.header...), i)
		}
		if err != nil {
			rows.Values[i] = nil
			fail(i, err)
			continue
		}
		rows.Values[i] = rows.Batch.Arena.Keep(room)
	}
	return nil
}

func (o *output) row(dst []byte, i int) ([]byte, error) {
	for j, c := range o.cols {
		if j > 0 {
			dst = append(dst, o.Delimiter...)
		}
		v := o.reader.Value(i, j)
		if v.IsNull() {
			if !c.Type.Nullable {
				return dst, fmt.Errorf("field %s is null: declare it with a ? if it may be", c.Name)
			}
			dst = append(dst, o.Null...)
			continue
		}
		var err error
		if o.text, err = columns.TextOf(o.text[:0], c.Type, v); err != nil {
			return dst, fmt.Errorf("field %s: %w", c.Name, err)
		}
		dst = o.field(dst, o.text)
	}
	return dst, nil
}

// field appends text, in quotes where it needs them: also where it would be read as null.
func (o *output) field(dst, text []byte) []byte {
	if string(text) != o.Null && len(text) > 0 && !bytes.ContainsAny(text, "\r\n"+o.Delimiter+o.Quote) {
		return append(dst, text...)
	}
	dst = append(dst, o.Quote...)
	for _, c := range text {
		if c == o.Quote[0] {
			dst = append(dst, c)
		}
		dst = append(dst, c)
	}
	return append(dst, o.Quote...)
}
