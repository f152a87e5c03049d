package accumulate

import (
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// collect makes a list. Its state is, for each value, the record's place and the
// value's JSON with its length before it, in the order in which they came.
type collect struct{ irrevocable }

// CollectLimit is the largest state of collect, in bytes.
const CollectLimit = 1 << 20

func newCollect(*expr.AggregateCall, Options) (Function, error) { return collect{}, nil }

func (collect) Size() int       { return -1 }
func (collect) Type() expr.Type { return expr.Of(connectors.List) }

func (collect) Add(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.IsNull() {
		return b, nil
	}
	var buf [128]byte
	text, err := format.AppendValue(buf[:0], v)
	if err != nil {
		return b, fail(expr.KindArgument, "collect() makes JSON, and %v", err)
	}
	had := len(b)
	if had > 0 && b[0] == 0 {
		b = b[:0]
	}
	b = placeOf(in.Record).append(b)
	b = appendText(b, text)
	if len(b) > CollectLimit {
		return b[:had], tooMuch()
	}
	return b, nil
}

func tooMuch() error {
	return fail(expr.KindLimit, "collect() holds at most %d KiB for a group; collect less per record, or over shorter windows", CollectLimit>>10)
}

func (collect) Merge(b, other []byte) ([]byte, error) {
	switch {
	case none(other):
		return b, nil
	case none(b):
		return append(b[:0], other...), nil
	case len(b)+len(other) > CollectLimit:
		return b, tooMuch()
	}
	return append(b, other...), nil
}

// collected is an element of a list.
type collected struct {
	at   place
	text []byte
}

func (collect) Result(b []byte, arena *connectors.Arena) (connectors.Value, error) {
	if len(b) > 0 && b[0] == 0 {
		b = nil
	}
	var list []collected
	size := 2
	for len(b) > 0 {
		var c collected
		var err error
		if c.at, b, err = readPlace(b); err != nil {
			return connectors.Value{}, err
		}
		r := state.Reader{Rest: b}
		c.text = r.Bytes()
		if b = r.Rest; r.Bad {
			return connectors.Value{}, state.ErrCorrupt
		}
		list = append(list, c)
		size += len(c.text) + 1
	}
	slices.SortStableFunc(list, func(x, y collected) int { return x.at.compare(y.at) })
	out := append(arena.Grow(size), '[')
	for i, c := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, c.text...)
	}
	return connectors.ListValue(arena.Keep(append(out, ']'))), nil
}
