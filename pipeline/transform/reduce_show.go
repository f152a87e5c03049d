package transform

import (
	"github.com/sluice-etl/sluice/pipeline/state"
)

// reduceLayout is how a reduce keeps its states.
type reduceLayout struct {
	Keys   []string `json:"keys"`
	Fields []string `json:"fields"`
	TTL    int64    `json:"ttl,omitempty"` // milliseconds
}

// Layout implements Layouter.
func (r *reduce) Layout() any {
	return reduceLayout{Keys: r.keys, Fields: r.fields, TTL: r.ttl.Milliseconds()}
}

// reduceReader implements StateReader for a reduce.
type reduceReader struct{ *reduceLayout }

func openReduce(layout []byte) (StateReader, error) {
	l, err := layoutOf[reduceLayout](layout)
	return &reduceReader{l}, err
}

// Show implements StateReader.
func (r *reduceReader) Show(e *state.Entry, s *Shown) error {
	var o shownObject
	var err error
	switch {
	case e.Table == "dirty" && len(e.Value) == 0:
		o.raw("changed", []byte("true")) // since changes were given out
	case e.Table == "state":
		err = r.fold(&o, "state", e.Value)
	case e.Table == "out":
		err = r.fold(&o, "given", e.Value)
	default:
		err = errNoField
	}
	s.Value = o.done()
	return err
}

func (r *reduceReader) fold(o *shownObject, name string, value []byte) error {
	if len(value) < reduceHead {
		return state.ErrCorrupt
	}
	var fields shownObject
	if err := showValues(&fields, value[reduceHead:], r.Fields); err != nil {
		return err
	}
	o.raw(name, fields.done())
	o.time("newest", get64(value, 0))
	if r.TTL > 0 {
		touched := get64(value, 8)
		o.time("touched", touched)
		o.time("expires", plusTime(touched, r.TTL))
	}
	return nil
}
