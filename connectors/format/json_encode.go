package format

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

type jsonEncoder struct {
	scanner
	lines bool
	shape *shape // nil for the raw value
	keys  keyTable
	// usual says what to do with records of one field order; it is kept for the next
	// record, which mostly has the same one. odd is for a record of no known order.
	usual, odd program
	// words is a block of spans, as decoders leave them, of a record that had none.
	words []uint32
	// entries translates the entries of the decoder with the stamp to name ids.
	entries []int32
	stamp   uint32
	arena   *connectors.Arena
}

// Why a record cannot be written.
var (
	errEmptyLine = errors.New("an empty value cannot be written as a line of JSON")
	errLineBreak = errors.New("a raw line break within a string cannot be written as a line of JSON")
	errNoObject  = errors.New("fields can be changed in an object only, and the value is none")
)

func newJSONEncoder(c *jsonConfig, layout *connectors.Layout, opts EncoderOptions) (*jsonEncoder, error) {
	e := &jsonEncoder{scanner: newScanner(c.MaxDepth), lines: opts.Lines}
	if layout == nil || layout.Untouched() {
		return e, nil
	}
	for _, edit := range layout.Edits {
		if edit.Kind == connectors.EditSet && edit.Slot < 0 {
			return nil, fmt.Errorf("the field %q is set from no slot", edit.Name)
		}
	}
	e.shape = newShape(layout)
	e.keys = newKeyTable(e.shape.names)
	e.usual.plan = e.shape.planned()
	e.odd.plan = e.usual.plan
	return e, nil
}

func (e *jsonEncoder) Encode(rows *connectors.Rows, fail func(i int, err error)) {
	if cap(rows.Values) < len(rows.Sel) {
		rows.Values = make([][]byte, len(rows.Sel))
	}
	rows.Values = rows.Values[:len(rows.Sel)]
	e.arena = &rows.Batch.Arena
	e.meet(rows.Batch)
	for i, r := range rows.Sel {
		value, err := e.record(rows.Batch, int(r))
		if err != nil {
			value = nil
			fail(i, err)
		}
		rows.Values[i] = value
	}
	e.arena = nil
	if cap(e.words) > keepWords {
		e.words, e.usual, e.odd = nil, program{plan: e.usual.plan}, program{plan: e.odd.plan}
	}
}

// keepWords is the largest block that is kept from batch to batch.
const keepWords = 1 << 16

var nullLine = []byte("null")

func (e *jsonEncoder) record(b *connectors.Batch, r int) ([]byte, error) {
	raw := b.Records[r].Value
	switch {
	case raw == nil && e.lines:
		return nullLine, nil
	case raw == nil:
		return nil, nil
	case e.shape == nil:
		return e.line(raw, false)
	case e.shape.empty:
		return e.object(&e.usual, nil, nil, b.Row(r))
	}
	prog, spans, err := e.locate(b, r, raw)
	if err != nil {
		return nil, err
	}
	return e.object(prog, raw, spans, b.Row(r))
}

// line makes value fit a line where lines are written. It is changed in place
// if it is the encoder's own, and copied first if not.
func (e *jsonEncoder) line(value []byte, own bool) ([]byte, error) {
	if !e.lines {
		return value, nil
	}
	if len(value) == 0 || value[0] <= ' ' && len(bytes.TrimSpace(value)) == 0 {
		return nil, errEmptyLine
	}
	if !hasLineBreak(value) {
		return value, nil
	}
	if !own {
		value = e.arena.Copy(value)
	}
	if lineBreaks(value) >= 0 {
		return nil, errLineBreak
	}
	return value, nil
}

// What is reserved for each new value, about.
const valueRoom = 32

// object writes an object: what prog takes over from raw, whose fields are
// at spans, and the new fields.
func (e *jsonEncoder) object(prog *program, raw []byte, spans []uint32, row []connectors.Value) ([]byte, error) {
	p := prog.plan
	out := e.arena.Grow(len(raw) + 2 + p.room)
	out = append(out, '{')
	var err error
	for i := range prog.ops {
		o := &prog.ops[i]
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case o.name == "":
			out = append(out, raw[spans[o.from+spanKey]:spans[o.to+spanEnd]]...)
		case o.slot == rawSlot:
			out = append(out, o.name...)
			out = append(out, raw[spans[o.to+spanValue]:spans[o.to+spanEnd]]...)
		default:
			out = append(out, o.name...)
			if out, err = AppendValue(out, row[o.slot]); err != nil {
				return nil, fieldError(o.name, err)
			}
		}
	}
	for i := range p.added {
		f := &p.added[i]
		name := f.name
		if i == 0 && len(prog.ops) == 0 {
			name = name[1:]
		}
		out = append(out, name...)
		if out, err = AppendValue(out, row[f.slot]); err != nil {
			return nil, fieldError(f.name[1:], err)
		}
	}
	return e.line(e.arena.Keep(append(out, '}')), true)
}

// fieldError says which field cannot be written; name has quotes and a colon.
func fieldError(name string, err error) error {
	return fmt.Errorf("write field %s: %w", name[:len(name)-1], err)
}
