package transform

import (
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// topLayout is how a top keeps its rows.
type topLayout struct {
	Keys   []string      `json:"keys"`
	Order  []string      `json:"order"` // what rows are sorted by
	All    bool          `json:"all,omitempty"`
	Window *windowLayout `json:"window,omitempty"`
	Fields []string      `json:"fields,omitempty"` // that are kept beside records
}

// Layout implements Layouter.
func (t *top) Layout() any {
	l := topLayout{Keys: t.keys, Order: t.texts, All: t.all, Fields: t.fields}
	if t.window != nil {
		l.Window = t.window.layout()
	}
	return l
}

// topReader implements StateReader for a top.
type topReader struct {
	*topLayout
	grid    window.Grid
	records *recordReader
}

func openTop(layout []byte) (StateReader, error) {
	l, err := layoutOf[topLayout](layout)
	if err != nil {
		return nil, err
	}
	r := &topReader{topLayout: l, records: newRecordReader(l.Fields)}
	if l.Window != nil {
		r.grid, err = l.Window.grid()
	}
	return r, err
}

// Show implements StateReader.
func (r *topReader) Show(e *state.Entry, s *Shown) error {
	if r.Window != nil {
		s.Span = r.span(e.NS)
	}
	var o shownObject
	var err error
	switch {
	case e.Table == "rows" && r.All && e.NS == 0:
		err = r.whole(&o, e.Value)
	case e.Table == "rows":
		err = r.rows(&o, "rows", e.Value)
	case e.Table == "out" || e.Table == "dirty":
		err = r.rows(&o, "given", e.Value)
	default:
		err = errNoField
	}
	s.Value = o.done()
	return err
}

// span is the window that ends at a namespace.
func (r *topReader) span(end int64) *Span {
	switch {
	case end != window.Clamp(end):
		return nil
	case r.Window.Kind == "sliding":
		return &Span{What: "window", Start: end - r.Window.Size, End: end}
	case r.grid == nil:
		return nil
	}
	return spanOf(r.grid, r.Window.Kind, end)
}

// whole shows a group of which all rows are kept: its rows, or how many parts it has,
// which are entries of their own, under namespaces above 0.
func (r *topReader) whole(o *shownObject, value []byte) error {
	switch {
	case len(value) == 0:
		return state.ErrCorrupt
	case value[0] == flatRows:
		return r.rows(o, "rows", value[1:])
	case value[0] != chunkedRows:
		return state.ErrCorrupt
	}
	n := int64(0)
	for c := (state.Reader{Rest: value[1:]}); len(c.Rest) > 0; n++ {
		c.Uvarint()
		c.Bytes()
		if c.Bad {
			return state.ErrCorrupt
		}
	}
	o.int("parts", n)
	return nil
}

// rows shows a list of rows, best first.
func (r *topReader) rows(o *shownObject, name string, value []byte) error {
	var list shownList
	for c := (state.Reader{Rest: value}); len(c.Rest) > 0; {
		entry := state.Reader{Rest: c.Bytes()}
		order := entry.Bytes()
		if c.Bad || entry.Bad {
			return state.ErrCorrupt
		}
		var by, one shownObject
		if err := showValues(&by, order, r.Order); err != nil {
			return err
		}
		record, err := r.records.show(entry.Rest)
		if err != nil {
			return err
		}
		one.raw("order", by.done())
		one.raw("record", record)
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw(name, list.done())
	return nil
}
