package accumulate

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// total is the sum or mean of numbers or durations of several kinds, or of kinds
// that are not known before. Its state is
//
//	0  the number of values, 8 bytes
//	8  the kinds seen so far, a set of the bits below; 0 where updating
//	9  the scale of the exact sum; 6 bytes of zeros follow
//	16 the exact sum of ints, decimals and durations, in units of 10^-scale; not where
//	   there are only floats
//	.. the sum of the floats within the window; not where there can be none
//	.. the sum of the other floats, a double
//
// and, where updating, the numbers of floats, durations, NaNs, positive and negative
// infinities, of 8 bytes each, and for each scale of the decimals that are there
// the scale in one byte and the number of decimals in 8.
type total struct {
	name     string
	mean     bool
	typ      expr.Type
	decimals bool // there may be decimals
	updating bool
	// exact, window and counts are where these parts begin, and size is the length of
	// the fixed part. exact or window is 0 where there is none.
	exact, window, counts, size int
}

const totalHead = 16

// The kinds that a total has seen.
const (
	sawInt = 1 << iota
	sawDecimal
	sawFloat
	sawDuration
)

// The counts of an updating total.
const (
	countFloats = iota
	countDurations
	countNaN
	countUp
	countDown
	countAll
)

// scaleEntry is the length of the count of decimals of one scale.
const scaleEntry = 9

const addends = expr.Number | expr.Type(1<<connectors.Duration)

// newTotal makes sum and avg.
func newTotal(call *expr.AggregateCall, o Options) (Function, error) {
	t := argument(call, 0, addends)
	mean := call.Name == "avg"
	typ := resulting(call, totalType(t.NonNull(), mean))
	if k, one := t.NonNull().Kind(); one && (k == connectors.Int || k == connectors.Duration) {
		return &intTotal{name: call.Name, kind: k, mean: mean, typ: typ}, nil
	}
	f := &total{name: call.Name, mean: mean, typ: typ, updating: o.Updating, size: totalHead}
	floats := expr.Of(connectors.Float)
	if t.NonNull() != floats {
		f.exact = f.size
		f.size += wideSize
		f.decimals = t.Has(connectors.Decimal)
	}
	if t.Overlaps(floats) {
		f.window = f.size
		f.size += wideSize + 8
	}
	if o.Updating {
		f.counts = f.size
		f.size += 8 * countAll
	}
	return f, nil
}

// totalType is the type of the sum or mean of values of t.
func totalType(t expr.Type, mean bool) expr.Type {
	if whole := expr.Of(connectors.Int); mean && t.Overlaps(whole) {
		t = t&^whole | expr.Of(connectors.Float)
	}
	return t
}

func (f *total) Size() int {
	if f.updating && f.decimals {
		return -1
	}
	return f.size
}

func (f *total) Retracts() bool  { return f.updating }
func (f *total) Type() expr.Type { return f.typ }

func (f *total) Add(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.Kind() == connectors.Int && f.exact > 0 && !f.updating && len(b) == f.size && b[9] == 0 {
		// The commonest by far.
		b[8] |= sawInt
		x := v.Int()
		addPair(b[f.exact:], 0, uint64(x), uint64(x>>63), uint64(x>>63))
		setWord(b, 0, word(b, 0)+1)
		return b, nil
	}
	return f.change(b, v, false)
}

func (f *total) Retract(b []byte, in *Input) ([]byte, error) { return f.change(b, in.Args[0], true) }

// change adds v or takes it back.
func (f *total) change(b []byte, v connectors.Value, minus bool) ([]byte, error) {
	if v.IsNull() {
		return b, nil
	}
	b, err := f.room(b)
	if err != nil {
		return b, err
	}
	switch k := v.Kind(); {
	case k == connectors.Int && f.exact > 0:
		b[8] |= f.saw(sawInt)
		f.addInt(b, v.Int(), minus)
	case k == connectors.Float && f.window > 0:
		b[8] |= f.saw(sawFloat)
		f.addFloat(b, v.Float(), minus)
	case k == connectors.Duration && f.exact > 0:
		b[8] |= f.saw(sawDuration)
		f.count(b, countDurations, minus)
		f.addInt(b, v.Int(), minus)
	case k == connectors.Decimal && f.decimals:
		d, ok := parseDecimal(v.Raw())
		if !ok {
			return b, fail(expr.KindOverflow, "%s() takes numbers of up to 38 digits, and this one is longer; use %s(float(…))", f.name, f.name)
		}
		b[8] |= f.saw(sawDecimal)
		b = f.addDecimal(b, d, minus)
	default:
		return b, foreign(f.name, v)
	}
	if minus {
		setWord(b, 0, word(b, 0)-1)
	} else {
		setWord(b, 0, word(b, 0)+1)
	}
	return b, nil
}

// saw is the bit of a kind, where kinds are not counted.
func (f *total) saw(bit byte) byte {
	if f.updating {
		return 0
	}
	return bit
}

// room checks the length of a state, and makes an empty one as long as it must be.
func (f *total) room(b []byte) ([]byte, error) {
	if len(b) == f.size && (f.exact == 0 || b[9] <= maxDigits) {
		return b, nil
	}
	if len(b) == 0 {
		return append(b, make([]byte, f.size)...), nil
	}
	if f.Size() >= 0 || len(b) < f.size || (len(b)-f.size)%scaleEntry != 0 || b[9] > maxDigits {
		return b, state.ErrCorrupt
	}
	return b, nil
}

func (f *total) count(b []byte, which int, minus bool) {
	if !f.updating {
		return
	}
	by := uint64(1)
	if minus {
		by = ^uint64(0)
	}
	at := b[f.counts:]
	setWord(at, which, word(at, which)+by)
}

func (f *total) addInt(b []byte, i int64, minus bool) {
	if b[9] == 0 {
		addInt(b[f.exact:], i, minus)
		return
	}
	w := wide{uint64(i)}
	if i < 0 {
		w = wide{-uint64(i)}
	}
	w.scale(int(b[9]))
	if (i < 0) != minus {
		w.negate()
	}
	f.addWide(b, &w)
}

func (f *total) addWide(b []byte, w *wide) {
	sum := loadWide(b[f.exact:])
	sum.add(w)
	sum.store(b[f.exact:])
}

func (f *total) addFloat(b []byte, x float64, minus bool) {
	f.count(b, countFloats, minus)
	if addFloat(b[f.window:], x, minus) {
		return
	}
	if f.updating && (math.IsNaN(x) || math.IsInf(x, 0)) {
		// What they leave in a sum cannot be taken back.
		which := countNaN
		switch {
		case math.IsInf(x, 1):
			which = countUp
		case math.IsInf(x, -1):
			which = countDown
		}
		f.count(b, which, minus)
		return
	}
	if minus {
		x = -x
	}
	far := b[f.window+wideSize:]
	setWord(far, 0, math.Float64bits(math.Float64frombits(word(far, 0))+x))
}

// addDecimal adds d, or takes it back. The scale of the sum is the largest of its
// decimals.
func (f *total) addDecimal(b []byte, d decimal, minus bool) []byte {
	if d.scale > int(b[9]) {
		f.rescale(b, d.scale)
	}
	w := d.wide(int(b[9]))
	if minus {
		w.negate()
	}
	f.addWide(b, &w)
	if f.updating {
		by := int64(1)
		if minus {
			by = -1
		}
		b = f.countScale(b, d.scale, by)
	}
	return b
}

func (f *total) rescale(b []byte, scale int) {
	sum := loadWide(b[f.exact:])
	sum.scale(scale - int(b[9]))
	sum.store(b[f.exact:])
	b[9] = byte(scale)
}

// countScale counts the decimals of a scale, and takes from the scale of the sum what
// no decimal needs any more.
func (f *total) countScale(b []byte, scale int, by int64) []byte {
	at := f.size
	for at < len(b) && int(b[at]) != scale {
		at += scaleEntry
	}
	if at == len(b) {
		b = append(b, byte(scale), 0, 0, 0, 0, 0, 0, 0, 0)
	}
	n := int64(binary.LittleEndian.Uint64(b[at+1:])) + by
	binary.LittleEndian.PutUint64(b[at+1:], uint64(n))
	if n != 0 {
		return b
	}
	last := len(b) - scaleEntry
	copy(b[at:], b[last:])
	b = b[:last]
	most := 0
	for at = f.size; at < len(b); at += scaleEntry {
		most = max(most, int(b[at]))
	}
	if most < int(b[9]) {
		f.rescale(b, most)
	}
	return b
}

func (f *total) Merge(b, other []byte) ([]byte, error) {
	if len(other) == 0 {
		return b, nil
	}
	if _, err := f.room(other); err != nil {
		return b, err
	}
	b, err := f.room(b)
	if err != nil {
		return b, err
	}
	setWord(b, 0, word(b, 0)+word(other, 0))
	b[8] |= other[8]
	if f.exact > 0 {
		if other[9] > b[9] {
			f.rescale(b, int(other[9]))
		}
		w := loadWide(other[f.exact:])
		w.scale(int(b[9]) - int(other[9]))
		f.addWide(b, &w)
	}
	if f.window > 0 {
		sum, more := loadWide(b[f.window:]), loadWide(other[f.window:])
		sum.add(&more)
		sum.store(b[f.window:])
		far, add := b[f.window+wideSize:], other[f.window+wideSize:]
		setWord(far, 0, math.Float64bits(math.Float64frombits(word(far, 0))+math.Float64frombits(word(add, 0))))
	}
	if f.updating {
		for i := range countAll {
			setWord(b[f.counts:], i, word(b[f.counts:], i)+word(other[f.counts:], i))
		}
		for at := f.size; at < len(other); at += scaleEntry {
			b = f.countScale(b, int(other[at]), int64(binary.LittleEndian.Uint64(other[at+1:])))
		}
	}
	return b, nil
}

// seen is the set of the kinds of the values that are there.
func (f *total) seen(b []byte) byte {
	if !f.updating {
		return b[8]
	}
	kinds := byte(0)
	rest := int64(word(b, 0))
	mark := func(n int64, bit byte) {
		if rest -= n; n != 0 {
			kinds |= bit
		}
	}
	mark(int64(word(b[f.counts:], countFloats)), sawFloat)
	mark(int64(word(b[f.counts:], countDurations)), sawDuration)
	for at := f.size; at < len(b); at += scaleEntry {
		mark(int64(binary.LittleEndian.Uint64(b[at+1:])), sawDecimal)
	}
	if rest != 0 {
		kinds |= sawInt
	}
	return kinds
}

func (f *total) Result(b []byte, arena *connectors.Arena) (connectors.Value, error) {
	b, err := f.room(b)
	if err != nil {
		return connectors.Value{}, err
	}
	n, kinds := int64(word(b, 0)), f.seen(b)
	if n <= 0 {
		return connectors.NullValue(), nil
	}
	var sum wide
	if f.exact > 0 {
		sum = loadWide(b[f.exact:])
	}
	scale := int(b[9])
	switch {
	case kinds&sawDuration != 0 && kinds != sawDuration:
		return connectors.Value{}, fail(expr.KindType, "%s() saw durations and numbers, which do not add up", f.name)
	case kinds == sawDuration && scale == 0:
		return intResult(f.name, f.mean, connectors.Duration, sum, n)
	case kinds&sawFloat != 0:
		return connectors.FloatValue(f.float(b, sum, scale, n)), nil
	case kinds&sawDecimal != 0 || scale > 0:
		return f.decimal(sum, scale, n, arena)
	}
	return intResult(f.name, f.mean, connectors.Int, sum, n)
}

func (f *total) decimal(sum wide, scale int, n int64, arena *connectors.Arena) (v connectors.Value, err error) {
	var ok bool
	if f.mean {
		v, ok = quotient(sum, scale, n, arena)
	} else {
		v, ok = decimalValue(sum, scale, arena)
	}
	if !ok {
		return v, fail(expr.KindOverflow, "the result of %s() needs more than 38 decimal digits; use %s(float(…))", f.name, f.name)
	}
	return v, nil
}

// float is the double nearest to the sum, or to the mean. Floats beyond the window
// are added after rounding.
func (f *total) float(b []byte, sum wide, scale int, n int64) float64 {
	far := math.Float64frombits(word(b[f.window+wideSize:], 0))
	if f.updating {
		far += f.specials(b)
	}
	if !f.mean {
		n = 1
	}
	if far == 0 {
		return windowed(loadWide(b[f.window:]), sum, scale, n)
	}
	return (windowed(loadWide(b[f.window:]), sum, scale, 1) + far) / float64(n)
}

// specials is the sum of the infinities and of what is no number, otherwise 0.
func (f *total) specials(b []byte) float64 {
	x, at := 0.0, b[f.counts:]
	if int64(word(at, countNaN)) > 0 {
		x = math.NaN()
	}
	if int64(word(at, countUp)) > 0 {
		x += math.Inf(1)
	}
	if int64(word(at, countDown)) > 0 {
		x += math.Inf(-1)
	}
	return x
}

// windowed is the double nearest to (window * 2^windowLow + sum * 10^-scale) / n.
func windowed(window, sum wide, scale int, n int64) float64 {
	if scale == 0 {
		return ratio(window, sum, n)
	}
	r := ratOf(window)
	r.Mul(r, new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), -windowLow)))
	s := ratOf(sum)
	s.Mul(s, new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	r.Add(r, s)
	x, _ := r.Mul(r, big.NewRat(1, n)).Float64()
	return x
}

// ratOf is w as a rational.
func ratOf(w wide) *big.Rat {
	minus := w.magnitude()
	var buf [wideSize]byte
	for i, x := range w {
		binary.BigEndian.PutUint64(buf[wideSize-8*(i+1):], x)
	}
	r := new(big.Rat).SetInt(new(big.Int).SetBytes(buf[:]))
	if minus {
		r.Neg(r)
	}
	return r
}
