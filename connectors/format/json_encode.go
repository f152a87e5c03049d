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
	plan  *plan // of the last record
	spans []span
	// entries translates the entries of the decoder with the stamp to name ids.
	entries []int32
	stamp   uint32
	arena   *connectors.Arena
}

// unknownEntry marks an entry of a decoder that no record has shown yet.
const unknownEntry = -2

// Why a record cannot be written.
var (
	errEmptyLine = errors.New("an empty value cannot be written as a line of JSON")
	errLineBreak = errors.New("a raw line break within a string cannot be written as a line of JSON")
)

func newJSONEncoder(c *jsonConfig, layout *connectors.Layout, opts EncoderOptions) (*jsonEncoder, error) {
	e := &jsonEncoder{scanner: scanner{limit: c.MaxDepth}, lines: opts.Lines}
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
	e.plan = e.shape.planned()
	return e, nil
}

func (e *jsonEncoder) Encode(rows *connectors.Rows, fail func(i int, err error)) {
	if cap(rows.Values) < len(rows.Sel) {
		rows.Values = make([][]byte, len(rows.Sel))
	}
	rows.Values = rows.Values[:len(rows.Sel)]
	e.arena = &rows.Batch.Arena
	e.begin(rows.Batch)
	for i, r := range rows.Sel {
		value, err := e.record(rows.Batch, int(r))
		if err != nil {
			value = nil
			fail(i, err)
		}
		rows.Values[i] = value
	}
	e.arena = nil
}

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
		return e.made(b.Row(r))
	}
	return e.spliced(b, r, raw)
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

// made writes a value from slots alone.
func (e *jsonEncoder) made(row []connectors.Value) ([]byte, error) {
	out := e.arena.Grow(2 + valueRoom*len(e.plan.added))
	out, err := e.add(append(out, '{'), row, 1)
	if err != nil {
		return nil, err
	}
	return e.line(e.arena.Keep(append(out, '}')), true)
}

// add appends the new fields to an object that is n bytes long without any.
func (e *jsonEncoder) add(out []byte, row []connectors.Value, n int) ([]byte, error) {
	for i := range e.plan.added {
		f := &e.plan.added[i]
		name := f.name
		if len(out) == n {
			name = name[1:]
		}
		out = append(out, name...)
		var err error
		if out, err = AppendValue(out, row[f.slot]); err != nil {
			return out, fieldError(f.name[1:], err)
		}
	}
	return out, nil
}

// fieldError says which field cannot be written; name has quotes and a colon.
func fieldError(name string, err error) error {
	return fmt.Errorf("write field %s: %w", name[:len(name)-1], err)
}

// spliced writes a value that is the raw one with edits.
func (e *jsonEncoder) spliced(b *connectors.Batch, r int, raw []byte) ([]byte, error) {
	if err := e.locate(b, r, raw); err != nil {
		return nil, err
	}
	if !bytes.Equal(e.shape.mask, e.plan.mask) {
		e.plan = e.shape.planned()
	}
	row := b.Row(r)
	out := e.arena.Grow(len(raw) + valueRoom*(1+len(e.plan.added)))
	out, err := e.splice(append(out, '{'), raw, row)
	if err == nil {
		out, err = e.add(out, row, 1)
	}
	if err != nil {
		return nil, err
	}
	return e.line(e.arena.Keep(append(out, '}')), true)
}

// splice appends what stays of the raw fields, neighbours in one piece.
func (e *jsonEncoder) splice(out, raw []byte, row []connectors.Value) ([]byte, error) {
	p, n := e.plan, len(out)
	from, to := uint32(0), uint32(0) // the piece that is still to be copied
	for i := range e.spans {
		s := &e.spans[i]
		what := p.others
		if s.id >= 0 {
			what = p.fields[s.id].what
		}
		if what == fieldStays {
			if to == 0 {
				from = s.key
			}
			to = s.end
			continue
		}
		if to != 0 {
			out = piece(out, raw[from:to], n)
			to = 0
		}
		if what == fieldGoes || !e.first(i) {
			continue
		}
		f := &p.fields[s.id]
		out = piece(out, bytesOf(f.name), n)
		if f.slot == rawSlot {
			last := e.last(i)
			out = append(out, raw[last.value:last.end]...)
			continue
		}
		var err error
		if out, err = AppendValue(out, row[f.slot]); err != nil {
			return out, fieldError(f.name, err)
		}
	}
	if to != 0 {
		out = piece(out, raw[from:to], n)
	}
	return out, nil
}

// piece appends p, with a comma in front unless out is n bytes long, an object
// without fields.
func piece(out, p []byte, n int) []byte {
	if len(out) > n {
		out = append(out, ',')
	}
	return append(out, p...)
}

// first reports whether no field of the same name comes before span i.
func (e *jsonEncoder) first(i int) bool {
	for j := range e.spans[:i] {
		if e.spans[j].id == e.spans[i].id {
			return false
		}
	}
	return true
}

// last is the last span of the name that span i has.
func (e *jsonEncoder) last(i int) span {
	for j := len(e.spans) - 1; j > i; j-- {
		if e.spans[j].id == e.spans[i].id {
			return e.spans[j]
		}
	}
	return e.spans[i]
}
