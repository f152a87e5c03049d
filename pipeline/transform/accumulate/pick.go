package accumulate

import (
	"bytes"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// pick is first, last, arg_min and arg_max: the value of one record of the group.
// Its state is the record's place, for the latter two the value by which it was
// chosen, with its length before it, and the value. Where values to choose by have no
// order it is the byte unorderedKinds.
type pick struct {
	irrevocable
	name string
	by   bool // chosen by the second argument, then by place
	want int  // what a comparison says of a record that takes the place of another
	typ  expr.Type
}

func newPick(call *expr.AggregateCall, _ Options) (Function, error) {
	f := &pick{name: call.Name, want: -1, by: len(call.Args) > 1, typ: resulting(call, argument(call, 0, expr.Any).NonNull())}
	if call.Name == "last" || call.Name == "arg_max" {
		f.want = 1
	}
	return f, nil
}

func (f *pick) Size() int       { return -1 }
func (f *pick) Type() expr.Type { return f.typ }

// choice is a state in memory.
type choice struct {
	at    place
	by    []byte
	value []byte
}

func (f *pick) read(b []byte) (c choice, err error) {
	c.at, c.value, err = readPlace(b)
	if err != nil || !f.by {
		return c, err
	}
	r := state.Reader{Rest: c.value}
	c.by = r.Bytes()
	if r.Bad {
		return c, state.ErrCorrupt
	}
	c.value = r.Rest
	return c, nil
}

func (f *pick) Add(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.IsNull() || f.by && in.Args[1].IsNull() {
		return b, nil
	}
	if f.by {
		if err := orderable(f.name, in.Args[1]); err != nil {
			return b, err
		}
	}
	at := placeOf(in.Record)
	if !none(b) {
		if b[0] == unorderedKinds {
			return b, nil
		}
		old, err := f.read(b)
		if err != nil {
			return b, err
		}
		c, ok, err := f.compare(at, in, old)
		switch {
		case err != nil:
			return b, err
		case !ok:
			return append(b[:0], unorderedKinds), nil
		case !f.takes(c):
			return b, nil
		}
	}
	b = at.append(b[:0])
	if f.by {
		var buf [64]byte
		b = appendText(b, appendShort(buf[:0], in.Args[1]))
	}
	return appendShort(b, v), nil
}

// takes tells whether a record takes the place of the one before. The last of equal
// records is the last to arrive.
func (f *pick) takes(c int) bool { return c == f.want || c == 0 && f.name == "last" }

// compare compares a record with the one chosen so far. ok is false where there is no
// order.
func (f *pick) compare(at place, in *Input, old choice) (c int, ok bool, err error) {
	if !f.by {
		return at.compare(old.at), true, nil
	}
	by, err := readShort(old.by)
	if err != nil {
		return 0, false, err
	}
	if c, ok = expr.Compare(in.Args[1], by); c != 0 || !ok {
		return c, ok, nil
	}
	return -f.want * at.compare(old.at), true, nil // of equal ones the first
}

func (f *pick) Merge(b, other []byte) ([]byte, error) {
	switch {
	case none(other):
		return b, nil
	case none(b) || other[0] == unorderedKinds:
		return append(b[:0], other...), nil
	case b[0] == unorderedKinds:
		return b, nil
	}
	x, err := f.read(b)
	if err != nil {
		return b, err
	}
	y, err := f.read(other)
	if err != nil {
		return b, err
	}
	in := Input{Args: make([]connectors.Value, 2)}
	if f.by {
		if in.Args[1], err = readShort(y.by); err != nil {
			return b, err
		}
	}
	c, ok, err := f.compare(y.at, &in, x)
	switch {
	case err != nil:
		return b, err
	case !ok:
		return append(b[:0], unorderedKinds), nil
	case c == 0:
		c = f.want * bytes.Compare(x.value, y.value) // whatever the order of merges
	}
	if c == f.want {
		return append(b[:0], other...), nil
	}
	return b, nil
}

func (f *pick) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	if none(b) {
		return connectors.NullValue(), nil
	}
	if b[0] == unorderedKinds {
		return connectors.Value{}, unordered(f.name)
	}
	c, err := f.read(b)
	if err != nil {
		return connectors.Value{}, err
	}
	return readShort(c.value)
}

func unordered(name string) error {
	return fail(expr.KindType, "%s() saw values of kinds that have no order, such as a string and a number", name)
}
