package accumulate

import (
	"encoding/binary"
	"math"
	"sort"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// quantile is the value that a share of all values does not exceed: the value at the
// rank ceil(q*n), at least 1. Values are kept as doubles. Up to fewMost of them are
// kept as they are, more are counted in buckets whose limits are 64 to an octave, as
// in HdrHistogram: a double's exponent and the first 6 bits of its fraction. A
// bucket stands for the value whose relative distance to both its limits is the same,
// at most 1/129 = 0.78 %, but for subnormal values. Buckets of merged groups add up exactly, and neither
// logarithms nor rounding decide where a value goes.
//
// Its state is the byte formFew and the values in ascending order, 8 bytes each; or
// the byte formBuckets, the smallest value, the largest one and the number of values,
// 8 bytes each, and for each bucket that is not empty, in ascending order, its
// number in 4 bytes and how many values it has in 8. Over an updating stream it is
// always the latter, without the smallest and the largest value.
type quantile struct {
	q        float64
	updating bool
	typ      expr.Type
}

const (
	formFew     = 1
	formBuckets = 2

	fewMost     = 64
	bucketBits  = 6
	bucketHead  = 1 + 3*8
	bucketSize  = 4 + 8
	bucketShift = 52 - bucketBits
)

func newQuantile(call *expr.AggregateCall, o Options) (Function, error) {
	f := &quantile{updating: o.Updating, typ: resulting(call, expr.Of(connectors.Float))}
	v, ok := call.Args[1].Constant()
	if !ok {
		return nil, &expr.Error{Msg: "the share q of quantile() is the same for all records", Help: "write a number, as in quantile(x, 0.99)"}
	}
	f.q, ok = number(v)
	if !ok || !(f.q >= 0 && f.q <= 1) {
		help := "0.99 is the 99th percentile"
		if ok && f.q > 1 && f.q <= 100 {
			help = "the percentile " + strconv.FormatFloat(f.q, 'g', -1, 64) + " is written " + strconv.FormatFloat(f.q/100, 'g', 5, 64)
		}
		return nil, &expr.Error{Msg: "the share q of quantile() is a number from 0 to 1", Help: help}
	}
	return f, nil
}

// number is the double nearest to a number; false where it has none.
func number(v connectors.Value) (float64, bool) {
	switch v.Kind() {
	case connectors.Int:
		return float64(v.Int()), true
	case connectors.Float:
		return v.Float(), true
	case connectors.Decimal:
		f, err := strconv.ParseFloat(v.Text(), 64)
		return f, err == nil
	default:
	}
	return 0, false
}

func (f *quantile) Size() int       { return -1 }
func (f *quantile) Retracts() bool  { return f.updating }
func (f *quantile) Type() expr.Type { return f.typ }

// bucketOf is the number of the bucket of x. NaN is greater than all.
func bucketOf(x float64) int32 {
	switch {
	case x != x:
		return math.MaxInt32
	case x < 0:
		return -int32(math.Float64bits(-x)>>bucketShift) - 1
	}
	return int32(math.Float64bits(math.Abs(x)) >> bucketShift)
}

// valueOf is the value that a bucket stands for.
func valueOf(bucket int32) float64 {
	if bucket == math.MaxInt32 {
		return math.NaN()
	}
	if bucket < 0 {
		return 0 - valueOf(-bucket-1) // no -0
	}
	low := math.Float64frombits(uint64(bucket) << bucketShift)
	high := math.Float64frombits(uint64(bucket+1) << bucketShift)
	if math.IsInf(low, 0) || low == 0 {
		return low
	}
	if math.IsInf(high, 0) {
		high = math.MaxFloat64
	}
	return low * (high / (low/2 + high/2))
}

func (f *quantile) check(b []byte) error {
	switch {
	case none(b):
		return nil
	case b[0] == formFew && !f.updating && len(b)%8 == 1 && len(b) > 1 && len(b) <= 1+8*fewMost,
		b[0] == formBuckets && len(b) >= bucketHead && (len(b)-bucketHead)%bucketSize == 0:
		return nil
	}
	return state.ErrCorrupt
}

func floatAt(b []byte, at int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[at:]))
}

func putFloat(b []byte, at int, x float64) {
	binary.LittleEndian.PutUint64(b[at:], math.Float64bits(x))
}

func (f *quantile) Add(b []byte, in *Input) ([]byte, error) { return f.change(b, in.Args[0], 1) }

func (f *quantile) Retract(b []byte, in *Input) ([]byte, error) { return f.change(b, in.Args[0], -1) }

func (f *quantile) change(b []byte, v connectors.Value, by int64) ([]byte, error) {
	if v.IsNull() {
		return b, nil
	}
	if err := f.check(b); err != nil {
		return b, err
	}
	x, ok := number(v)
	if !ok {
		if v.Kind() == connectors.Decimal {
			return b, fail(expr.KindOverflow, "quantile() was given a number beyond what a float can hold")
		}
		return b, foreign("quantile", v)
	}
	x += 0 // no -0
	if none(b) {
		if b = append(b[:0], formFew); f.updating {
			b = noBuckets(b)
		}
	}
	if b[0] == formFew {
		if len(b) < 1+8*fewMost {
			return insertFew(b, x), nil
		}
		b = bucketed(b)
	}
	f.bounds(b, x, x)
	return countIn(b, bucketOf(x), by), nil
}

// noBuckets makes a state with buckets, all of them empty, in the memory of b.
func noBuckets(b []byte) []byte {
	b = append(b[:0], formBuckets)
	return append(b, make([]byte, bucketHead-1)...)
}

// insertFew puts x where it belongs among values in ascending order, NaN at the end.
func insertFew(b []byte, x float64) []byte {
	n := len(b) / 8
	at := 1 + 8*sort.Search(n, func(i int) bool { y := floatAt(b, 1+8*i); return y > x || y != y })
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	copy(b[at+8:], b[at:])
	putFloat(b, at, x)
	return b
}

// bucketed makes buckets of a few values.
func bucketed(few []byte) []byte {
	n := len(few) / 8
	b := make([]byte, bucketHead, bucketHead+(n+8)*bucketSize)
	b[0] = formBuckets
	putFloat(b, 1, floatAt(few, 1))
	putFloat(b, 9, floatAt(few, 1+8*(n-1)))
	for i := range n {
		b = countIn(b, bucketOf(floatAt(few, 1+8*i)), 1)
	}
	return b
}

// bounds widens the smallest and the largest value. NaN is greater than all.
func (f *quantile) bounds(b []byte, low, high float64) {
	if f.updating {
		return
	}
	if old := floatAt(b, 1); low < old || old != old {
		putFloat(b, 1, low)
	}
	if old := floatAt(b, 9); high > old || high != high {
		putFloat(b, 9, high)
	}
}

func bucketAt(b []byte, i int) int32 {
	return int32(binary.LittleEndian.Uint32(b[bucketHead+bucketSize*i:]))
}

// countIn adds to a bucket and to the number of values.
func countIn(b []byte, bucket int32, by int64) []byte {
	binary.LittleEndian.PutUint64(b[17:], binary.LittleEndian.Uint64(b[17:])+uint64(by))
	n := (len(b) - bucketHead) / bucketSize
	i := sort.Search(n, func(i int) bool { return bucketAt(b, i) >= bucket })
	at := bucketHead + bucketSize*i
	if i == n || bucketAt(b, i) != bucket {
		b = append(b, make([]byte, bucketSize)...)
		copy(b[at+bucketSize:], b[at:])
		binary.LittleEndian.PutUint32(b[at:], uint32(bucket))
		binary.LittleEndian.PutUint64(b[at+4:], 0)
	}
	had := binary.LittleEndian.Uint64(b[at+4:]) + uint64(by)
	if had != 0 {
		binary.LittleEndian.PutUint64(b[at+4:], had)
		return b
	}
	b = append(b[:at], b[at+bucketSize:]...)
	if len(b) == bucketHead {
		return b[:0]
	}
	return b
}

func (f *quantile) Merge(b, other []byte) ([]byte, error) {
	if err := f.check(b); err != nil {
		return b, err
	}
	if err := f.check(other); err != nil {
		return b, err
	}
	switch {
	case none(other):
		return b, nil
	case none(b):
		return append(b[:0], other...), nil
	}
	if b[0] == formFew && other[0] == formFew && len(b)+len(other)-2 <= 8*fewMost {
		for at := 1; at < len(other); at += 8 {
			b = insertFew(b, floatAt(other, at))
		}
		return b, nil
	}
	if other[0] == formFew {
		other = bucketed(other)
	}
	if b[0] == formFew {
		b = bucketed(b)
	}
	f.bounds(b, floatAt(other, 1), floatAt(other, 9))
	for i := range (len(other) - bucketHead) / bucketSize {
		n := binary.LittleEndian.Uint64(other[bucketHead+bucketSize*i+4:])
		if len(b) == 0 {
			b = noBuckets(b)
		}
		b = countIn(b, bucketAt(other, i), int64(n))
	}
	return b, nil
}

// rank is which of n values in ascending order is the result, from 1 on.
func (f *quantile) rank(n int64) int64 {
	r := f.q * float64(n)
	if near := math.Round(r); math.Abs(r-near) < 1e-9*max(near, 1) {
		r = near // 0.07 * 100 is a little more than 7
	}
	return min(max(int64(math.Ceil(r)), 1), n)
}

func (f *quantile) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	if err := f.check(b); err != nil {
		return connectors.Value{}, err
	}
	if none(b) {
		return connectors.NullValue(), nil
	}
	if b[0] == formFew {
		return connectors.FloatValue(floatAt(b, 1+8*int(f.rank(int64(len(b)/8))-1))), nil
	}
	n := int64(binary.LittleEndian.Uint64(b[17:]))
	if n <= 0 {
		return connectors.NullValue(), nil
	}
	rank := f.rank(n)
	if !f.updating && (rank == 1 || rank == n) {
		at := 1
		if rank == n {
			at = 9
		}
		return connectors.FloatValue(floatAt(b, at)), nil
	}
	for i := range (len(b) - bucketHead) / bucketSize {
		if rank -= int64(binary.LittleEndian.Uint64(b[bucketHead+bucketSize*i+4:])); rank > 0 {
			continue
		}
		x := valueOf(bucketAt(b, i))
		if !f.updating && x == x {
			x = max(x, floatAt(b, 1))
			if high := floatAt(b, 9); high == high {
				x = min(x, high)
			}
		}
		return connectors.FloatValue(x), nil
	}
	return connectors.Value{}, state.ErrCorrupt
}
