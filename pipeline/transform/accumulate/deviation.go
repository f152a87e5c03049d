package accumulate

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// deviation is stddev, the standard deviation of a sample. Sums and sums of squares
// are exact, so that the result depends neither on the order of values nor on their
// size. Decimals count as the double nearest to them. Its state is
//
//	0   the number of values of which the sums are, 8 bytes
//	8   their sum in units of 2^windowLow, 5 words
//	48  the sum of their squares in units of 2^squareLow, 7 words
//	104 the number of other values, their mean and the root of the sum of their squared
//	    distances to it, 8 bytes each, in the way of Welford
//	128 the number of infinities and NaN, with which there is no deviation, 8 bytes
//
// Where there are only ints it is their number, sum and sum of squares in 8, 16 and
// 24 bytes.
type deviation struct {
	ints bool
	typ  expr.Type
}

const (
	squareWords = 7
	squareLow   = -192

	devSum     = 8
	devSquares = devSum + wideSize
	devFar     = devSquares + 8*squareWords
	devOdd     = devFar + 24
	devSize    = devOdd + 8

	intDevSize = 48
)

func newDeviation(call *expr.AggregateCall, _ Options) (Function, error) {
	t := argument(call, 0, expr.Number).NonNull()
	return &deviation{ints: t == expr.Of(connectors.Int), typ: expr.Of(connectors.Float).Nullable()}, nil
}

func (f *deviation) Size() int {
	if f.ints {
		return intDevSize
	}
	return devSize
}

func (f *deviation) Retracts() bool  { return true }
func (f *deviation) Type() expr.Type { return f.typ }

func (f *deviation) Add(b []byte, in *Input) ([]byte, error) { return f.change(b, in.Args[0], false) }

func (f *deviation) Retract(b []byte, in *Input) ([]byte, error) {
	return f.change(b, in.Args[0], true)
}

func (f *deviation) change(b []byte, v connectors.Value, minus bool) ([]byte, error) {
	if v.IsNull() {
		return b, nil
	}
	b, err := sized(b, f.Size())
	if err != nil {
		return b, err
	}
	if f.ints {
		if v.Kind() != connectors.Int {
			return b, foreign("stddev", v)
		}
		changeWord(b, 1, minus)
		addTo(b[8:24], 0, uint64(v.Int()), uint64(v.Int()>>63), minus)
		hi, lo := square(v.Int())
		addTo(b[24:48], 0, lo, hi, minus)
		return b, nil
	}
	if v.Kind() == connectors.Int {
		changeWord(b, 1, minus)
		addTo(b[devSum:devSquares], -windowLow/64, uint64(v.Int()), uint64(v.Int()>>63), minus)
		hi, lo := square(v.Int())
		addTo(b[devSquares:devFar], -squareLow/64, lo, hi, minus)
		return b, nil
	}
	x, ok := number(v)
	switch {
	case !ok && v.Kind() == connectors.Decimal:
		return b, fail(expr.KindOverflow, "stddev() was given a number beyond what a float can hold")
	case !ok:
		return b, foreign("stddev", v)
	case math.IsNaN(x) || math.IsInf(x, 0):
		changeWord(b[devOdd:], 1, minus)
	case !f.addExactly(b, x, minus):
		changeFar(b[devFar:], x, minus)
	}
	return b, nil
}

func square(i int64) (hi, lo uint64) {
	u := uint64(i)
	if i < 0 {
		u = -u
	}
	return bits.Mul64(u, u)
}

func changeWord(b []byte, by uint64, minus bool) {
	if minus {
		by = -by
	}
	setWord(b, 0, word(b, 0)+by)
}

// addTo adds a number of two words, the lower one at the word at, or takes it back.
func addTo(b []byte, at int, lo, hi uint64, minus bool) {
	if minus {
		lo, hi = negated(lo, hi)
	}
	ext := uint64(int64(hi) >> 63)
	c := uint64(0)
	for i := at; i < len(b)/8; i++ {
		x := ext
		switch i {
		case at:
			x = lo
		case at + 1:
			x = hi
		}
		var s uint64
		s, c = bits.Add64(word(b, i), x, c)
		setWord(b, i, s)
	}
}

// addExactly adds a double whose square is within the window of squares, and reports
// whether it is.
func (f *deviation) addExactly(b []byte, x float64, minus bool) bool {
	u := math.Float64bits(x)
	exp, m := int(u>>52&0x7FF)-1023, u&(1<<52-1)|1<<52
	if x == 0 {
		changeWord(b, 1, minus)
		return true
	}
	down := bits.TrailingZeros64(m)
	m >>= down
	low := exp - 52 + down // of the lowest bit
	if exp >= (64*squareWords+squareLow-64)/2 || 2*low < squareLow || exp == -1023 || !addFloat(b[devSum:devSquares], x, minus) {
		return false
	}
	changeWord(b, 1, minus)
	hi, lo := bits.Mul64(m, m)
	at := 2*low - squareLow
	shift := uint(at % 64)
	top := hi >> (64 - shift)
	hi, lo = hi<<shift|lo>>(64-shift), lo<<shift
	addThree(b[devSquares:devFar], at/64, lo, hi, top, minus)
	return true
}

// addThree adds a number of three words that is not negative, or takes it back.
func addThree(b []byte, at int, lo, mid, hi uint64, minus bool) {
	c := uint64(0)
	for i := at; i < len(b)/8; i++ {
		x := uint64(0)
		switch i {
		case at:
			x = lo
		case at + 1:
			x = mid
		case at + 2:
			x = hi
		}
		var s uint64
		if minus {
			s, c = bits.Sub64(word(b, i), x, c)
		} else {
			s, c = bits.Add64(word(b, i), x, c)
		}
		setWord(b, i, s)
	}
}

// changeFar adds to the number, the mean and the distances of values that do not fit
// the windows. Distances are kept by their root, since their squares may be beyond
// a double.
func changeFar(b []byte, x float64, minus bool) {
	n, mean, dist := float64(int64(word(b, 0))), floatAt(b, 8), floatAt(b, 16)
	switch {
	case !minus:
		n, mean, dist = chan3([3]float64{n, mean, dist}, [3]float64{1, x, 0})
	case n <= 1:
		n, mean, dist = n-1, 0, 0
	default:
		n--
		d := x - mean
		mean -= d / n
		d = math.Abs(x-mean) * math.Sqrt(n/(n+1))
		dist = math.Sqrt(max(dist-d, 0)) * math.Sqrt(dist+d)
	}
	setWord(b, 0, uint64(int64(n)))
	putFloat(b, 8, mean)
	putFloat(b, 16, dist)
}

func (f *deviation) Merge(b, other []byte) ([]byte, error) {
	if len(other) == 0 {
		return b, nil
	}
	if len(other) != f.Size() {
		return b, state.ErrCorrupt
	}
	b, err := sized(b, f.Size())
	if err != nil {
		return b, err
	}
	addWords(b[:8], other[:8])
	if f.ints {
		addWords(b[8:24], other[8:24])
		addWords(b[24:], other[24:])
		return b, nil
	}
	addWords(b[devSum:devSquares], other[devSum:devSquares])
	addWords(b[devSquares:devFar], other[devSquares:devFar])
	addWords(b[devOdd:], other[devOdd:])
	x, y := b[devFar:], other[devFar:]
	n, mean, dist := chan3(
		[3]float64{float64(int64(word(x, 0))), floatAt(x, 8), floatAt(x, 16)},
		[3]float64{float64(int64(word(y, 0))), floatAt(y, 8), floatAt(y, 16)})
	if n > 0 {
		setWord(x, 0, word(x, 0)+word(y, 0))
		putFloat(x, 8, mean)
		putFloat(x, 16, dist)
	}
	return b, nil
}

// addWords adds two sums of the same length.
func addWords(b, other []byte) {
	c := uint64(0)
	for i := range len(b) / 8 {
		var s uint64
		s, c = bits.Add64(word(b, i), word(other, i), c)
		setWord(b, i, s)
	}
}

// chan3 puts together the numbers, means and roots of squared distances of two groups,
// in the way of Chan, Golub and LeVeque (1979).
func chan3(x, y [3]float64) (n, mean, dist float64) {
	switch {
	case x[0] <= 0:
		return y[0], y[1], y[2]
	case y[0] <= 0:
		return x[0], x[1], x[2]
	}
	n = x[0] + y[0]
	d := y[1] - x[1]
	return n, x[1] + d/n*y[0], math.Hypot(math.Hypot(x[2], y[2]), d*math.Sqrt(x[0]/n*y[0]))
}

func (f *deviation) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	b, err := sized(b, f.Size())
	if err != nil {
		return connectors.Value{}, err
	}
	n := int64(word(b, 0))
	if f.ints {
		if n < 2 {
			return connectors.NullValue(), nil
		}
		_, dist := distances(n, b[8:24], b[24:], 0)
		return connectors.FloatValue(root(dist, n-1)), nil
	}
	far := b[devFar:]
	rest := int64(word(far, 0))
	odd := int64(word(b[devOdd:], 0))
	switch {
	case n < 0 || rest < 0 || odd < 0 || n+rest+odd < 2:
		return connectors.NullValue(), nil
	case odd > 0:
		return connectors.FloatValue(math.NaN()), nil
	case rest == 0:
		_, dist := distances(n, b[devSum:devSquares], b[devSquares:devFar], squareLow)
		return connectors.FloatValue(root(dist, n-1)), nil
	}
	x := [3]float64{float64(n)}
	if n > 0 {
		mean, dist := distances(n, b[devSum:devSquares], b[devSquares:devFar], squareLow)
		x[1], _ = mean.Float64()
		x[2] = root(dist, 1)
	}
	total, _, dist := chan3(x, [3]float64{float64(rest), floatAt(far, 8), floatAt(far, 16)})
	return connectors.FloatValue(dist / math.Sqrt(total-1)), nil
}

const devPrecision = 256

// distances are the mean and the sum of squared distances to it, of n values with that
// sum and sum of squares; the latter is in units of 2^low.
func distances(n int64, sum, squares []byte, low int) (mean, dist *big.Float) {
	unit := 0
	if low != 0 {
		unit = windowLow
	}
	s, q, count := signedInt(sum), signedInt(squares), big.NewInt(n)
	d := new(big.Int).Mul(q, count)
	d.Lsh(d, uint(low-2*unit)) // in units of the square of that of the sum
	d.Sub(d, new(big.Int).Mul(s, s))
	by := new(big.Float).SetPrec(devPrecision).SetInt(count)
	mean = new(big.Float).SetPrec(devPrecision).SetInt(s)
	mean.SetMantExp(mean, unit)
	dist = new(big.Float).SetPrec(devPrecision).SetInt(d)
	dist.SetMantExp(dist, 2*unit)
	return mean.Quo(mean, by), dist.Quo(dist, by)
}

// root is the root of dist / n.
func root(dist *big.Float, n int64) float64 {
	dist.Quo(dist, new(big.Float).SetInt64(n))
	if dist.Sign() <= 0 {
		return 0
	}
	x, _ := dist.Sqrt(dist).Float64()
	return x
}

// signedInt is a two's complement number in words.
func signedInt(b []byte) *big.Int {
	var buf [8 * squareWords]byte
	words := len(b) / 8
	minus := int64(word(b, words-1)) < 0
	c := uint64(1)
	for i := range words {
		x := word(b, i)
		if minus {
			x, c = bits.Add64(^x, 0, c)
		}
		binary.BigEndian.PutUint64(buf[8*(squareWords-1-i):], x)
	}
	out := new(big.Int).SetBytes(buf[:])
	if minus {
		out.Neg(out)
	}
	return out
}
