package transform

import (
	"github.com/sluice-etl/sluice/pipeline/state"
)

// dedupLayout is how a dedup keeps what it has seen.
type dedupLayout struct {
	Keys   []string `json:"keys"`
	First  bool     `json:"first"`
	Within int64    `json:"within,omitempty"` // milliseconds, 0 for ever
	Fields []string `json:"fields,omitempty"` // that are kept beside records
}

// Layout implements Layouter.
func (d *dedup) Layout() any {
	return dedupLayout{Keys: d.keys, First: d.first, Within: d.within, Fields: d.fields}
}

// dedupReader implements StateReader for a dedup.
type dedupReader struct {
	*dedupLayout
	records *recordReader
}

func openDedup(layout []byte) (StateReader, error) {
	l, err := layoutOf[dedupLayout](layout)
	if err != nil {
		return nil, err
	}
	return &dedupReader{l, newRecordReader(l.Fields)}, nil
}

// Show implements StateReader.
func (r *dedupReader) Show(e *state.Entry, s *Shown) error {
	var o shownObject
	var err error
	switch {
	case e.Table == "dirty" && len(e.Value) == 0:
		o.raw("changed", []byte("true")) // since changes were given out
	case e.Table != "kept":
		err = errNoField
	case r.First:
		err = r.times(&o, e.Value)
	default:
		err = r.spans(&o, e.Value)
	}
	s.Value = o.done()
	return err
}

// times shows when records passed. Without a span there is nothing but the key.
func (r *dedupReader) times(o *shownObject, value []byte) error {
	if len(value)%8 != 0 || r.Within == 0 && len(value) > 0 {
		return state.ErrCorrupt
	}
	var list shownList
	for ; len(value) > 0; value = value[8:] {
		at := get64(value, 0)
		var one shownObject
		one.time("seen", at)
		one.time("expires", plusTime(at, r.Within))
		list.next()
		list.b = append(list.b, one.done()...)
	}
	if r.Within > 0 {
		o.raw("records", list.done())
	}
	return nil
}

// spans shows the last records of the spans of a key.
func (r *dedupReader) spans(o *shownObject, value []byte) error {
	var list shownList
	for c := (state.Reader{Rest: value}); len(c.Rest) > 0; {
		var one shownObject
		first, given := c.Varint(), c.Byte()
		one.time("first_seen", first)
		if r.Within > 0 {
			one.time("expires", plusTime(first, r.Within))
		}
		if given == givenOther {
			if err := r.record(&one, "given", c.Bytes()); err != nil {
				return err
			}
		}
		last := c.Bytes()
		if c.Bad || given > givenOther {
			return state.ErrCorrupt
		}
		if err := r.record(&one, "last", last); err != nil {
			return err
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("records", list.done())
	return nil
}

func (r *dedupReader) record(o *shownObject, name string, stored []byte) error {
	record, err := r.records.show(stored)
	if err != nil {
		return err
	}
	o.raw(name, record)
	return nil
}
