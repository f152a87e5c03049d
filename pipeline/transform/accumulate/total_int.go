package accumulate

import (
	"math/bits"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// intTotal is the sum or mean of ints, or of durations, where the types say that
// there is nothing else. Its state is the number of values and their sum, of 64 and
// 128 bits.
type intTotal struct {
	name string
	kind connectors.Kind
	mean bool
	typ  expr.Type
}

const intTotalSize = 24

func (f *intTotal) Size() int       { return intTotalSize }
func (f *intTotal) Retracts() bool  { return true }
func (f *intTotal) Type() expr.Type { return f.typ }

func (f *intTotal) Add(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.Kind() != f.kind || len(b) != intTotalSize {
		b, err := f.room(b, v)
		if err != nil || v.IsNull() {
			return b, err
		}
		return f.Add(b, in)
	}
	x := v.Int()
	lo, c := bits.Add64(word(b, 1), uint64(x), 0)
	setWord(b, 1, lo)
	setWord(b, 2, word(b, 2)+uint64(x>>63)+c)
	setWord(b, 0, word(b, 0)+1)
	return b, nil
}

func (f *intTotal) Retract(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.Kind() != f.kind || len(b) != intTotalSize {
		b, err := f.room(b, v)
		if err != nil || v.IsNull() {
			return b, err
		}
		return f.Retract(b, in)
	}
	x := v.Int()
	lo, c := bits.Sub64(word(b, 1), uint64(x), 0)
	setWord(b, 1, lo)
	setWord(b, 2, word(b, 2)-uint64(x>>63)-c)
	setWord(b, 0, word(b, 0)-1)
	return b, nil
}

// room makes a state ready for v, or says why v is not added.
func (f *intTotal) room(b []byte, v connectors.Value) ([]byte, error) {
	if v.Kind() != f.kind && !v.IsNull() {
		return b, foreign(f.name, v)
	}
	return sized(b, intTotalSize)
}

func (f *intTotal) Merge(b, other []byte) ([]byte, error) {
	if len(other) == 0 {
		return b, nil
	}
	if _, err := sized(other, intTotalSize); err != nil {
		return b, err
	}
	b, err := sized(b, intTotalSize)
	if err != nil {
		return b, err
	}
	lo, c := bits.Add64(word(b, 1), word(other, 1), 0)
	setWord(b, 1, lo)
	setWord(b, 2, word(b, 2)+word(other, 2)+c)
	setWord(b, 0, word(b, 0)+word(other, 0))
	return b, nil
}

func (f *intTotal) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	b, err := sized(b, intTotalSize)
	if err != nil {
		return connectors.Value{}, err
	}
	ext := uint64(int64(word(b, 2)) >> 63)
	sum := wide{word(b, 1), word(b, 2), ext, ext, ext}
	return intResult(f.name, f.mean, f.kind, sum, int64(word(b, 0)))
}

// intResult is the sum or mean of n ints or durations.
func intResult(name string, mean bool, kind connectors.Kind, sum wide, n int64) (connectors.Value, error) {
	switch {
	case n == 0:
		return connectors.NullValue(), nil
	case mean && kind == connectors.Int:
		return connectors.FloatValue(sum.float(n)), nil
	case mean && n > 0:
		minus := sum.magnitude()
		sum.div(uint64(n))
		if minus {
			sum.negate()
		}
	}
	i, ok := sum.int64()
	switch {
	case !ok && kind == connectors.Duration:
		return connectors.Value{}, fail(expr.KindOverflow, "the result of %s() does not fit a duration", name)
	case !ok:
		return connectors.Value{}, fail(expr.KindOverflow, "the result of %s() does not fit an int of 64 bits; use %s(decimal(…)) or %s(float(…))", name, name, name)
	case kind == connectors.Duration:
		return connectors.DurationValue(time.Duration(i)), nil
	}
	return connectors.IntValue(i), nil
}
