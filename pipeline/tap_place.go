package pipeline

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// tapPlace is a place of a task where taps can look at records. It belongs to the
// task's goroutine.
type tapPlace struct {
	list   *tapList
	branch string
	layout *connectors.Layout // of the records; nil for values as they are
	encode format.Encoder     // made for the first tap
	rows   connectors.Rows
}

// tapAt is the place of a task where what goes out of an operator, or comes in, can be
// looked at. view is what records look like there; nil for their values as they are.
func (t *task) tapAt(operator string, input bool, view *transform.View) *tapPlace {
	point := t.attempt.opts.Control.taps.points[operator]
	p := &tapPlace{list: &point.out}
	if input {
		p.list = &point.in
	}
	if view != nil {
		p.layout = view.Layout()
	}
	return p
}

// before shows what goes to next.
func (p *tapPlace) before(next receiver) receiver {
	return func(ctx context.Context, b *connectors.Batch, sel []uint16) error {
		if taps := p.list.now.Load(); taps != nil {
			p.show(*taps, b, sel)
		}
		return next(ctx, b, sel)
	}
}

// source shows records as their source gave them.
func (p *tapPlace) source(b *connectors.Batch) {
	taps := p.list.now.Load()
	if taps == nil {
		return
	}
	sel := make([]uint16, len(b.Records))
	for i := range sel {
		sel[i] = uint16(i)
	}
	p.show(*taps, b, sel)
}

// written shows rows that are encoded already.
func (p *tapPlace) written(rows *connectors.Rows) {
	taps := p.list.now.Load()
	if taps == nil {
		return
	}
	for _, t := range *taps {
		t.sample(len(rows.Sel), func(i int) Tapped {
			return t.render(rows.Batch, rows.Sel[i], rows.Values[i], p.branch)
		})
	}
}

// show encodes what the taps have room for, and gives the memory back.
func (p *tapPlace) show(taps []*tap, b *connectors.Batch, sel []uint16) {
	for _, t := range taps {
		t.sample(len(sel), func(i int) Tapped {
			return t.render(b, sel[i], p.value(b, sel[i]), p.branch)
		})
	}
}

// sample shows as many of n records as there is room for, spread over all of them.
func (t *tap) sample(n int, record func(i int) Tapped) {
	room, next := t.admit(n, time.Now()), 0
	for k := range room {
		i := k * n / room
		t.leave(i - next)
		t.offer(record(i))
		next = i + 1
	}
	t.leave(n - next)
}

// value is a copy of a record's value as it would be written: the one that it came with
// where it has no encoded form.
func (p *tapPlace) value(b *connectors.Batch, row uint16) []byte {
	raw := b.Records[row].Value
	if p.layout == nil || raw == nil && p.layout.Untouched() {
		return raw
	}
	if p.encode == nil {
		enc, err := format.NewEncoder(connectors.FormatConfig{}, p.layout, format.EncoderOptions{})
		if err != nil {
			return raw
		}
		p.encode = enc
	}
	mark, failed := b.Arena.Mark(), false
	p.rows.Batch, p.rows.Sel, p.rows.Layout = b, append(p.rows.Sel[:0], row), p.layout
	p.encode.Encode(&p.rows, func(int, error) { failed = true })
	value := append([]byte(nil), p.rows.Values[0]...)
	empty := p.rows.Values[0] == nil
	b.Arena.Rewind(mark)
	p.rows.Batch = nil
	switch {
	case failed:
		return raw
	case empty:
		return nil
	}
	return value
}

// shownText is text for people: at most so many bytes of it, and bytes that are no UTF-8
// escaped. cut says that it is not all.
func shownText(b []byte, most int) (text string, cut bool) {
	if len(b) <= most && utf8.Valid(b) {
		return string(b), false
	}
	const digits = "0123456789abcdef"
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		piece := b[:size]
		if r == utf8.RuneError && size == 1 {
			piece = []byte{'\\', 'x', digits[b[0]>>4], digits[b[0]&15]}
		}
		if out.Len()+len(piece) > most {
			return out.String(), true
		}
		out.Write(piece)
		b = b[size:]
	}
	return out.String(), false
}
