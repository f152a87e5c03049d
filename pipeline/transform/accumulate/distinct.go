package accumulate

import (
	"errors"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// distinct is count_distinct: its state is the set of the values' canonical keys, see
// state.AppendKey. Over an updating stream they are counted.
type distinct struct{ set set }

func newDistinct(_ *expr.AggregateCall, o Options) (Function, error) {
	return &distinct{set{counted: o.Updating}}, nil
}

func (f *distinct) Size() int       { return -1 }
func (f *distinct) Retracts() bool  { return f.set.counted }
func (f *distinct) Type() expr.Type { return expr.Of(connectors.Int) }

func (f *distinct) Add(b []byte, in *Input) ([]byte, error) { return f.change(b, in, 1) }

func (f *distinct) Retract(b []byte, in *Input) ([]byte, error) { return f.change(b, in, -1) }

func (f *distinct) change(b []byte, in *Input, by int64) ([]byte, error) {
	v := in.Args[0]
	if v.IsNull() {
		return b, nil
	}
	b, err := f.set.change(b, in.keyOf(v), by)
	return b, full("count_distinct", err)
}

// full tells of a set that is full in words for users.
func full(name string, err error) error {
	if errors.Is(err, errFull) {
		return tooLarge(name)
	}
	return err
}

func (f *distinct) Merge(b, other []byte) ([]byte, error) {
	b, err := f.set.merge(b, other)
	return b, full("count_distinct", err)
}

func (f *distinct) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	n, err := f.set.size(b)
	return connectors.IntValue(n), err
}
