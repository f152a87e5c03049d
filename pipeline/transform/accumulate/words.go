package accumulate

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// wideWords is the length of an exact sum, a two's complement number in little
// endian words of 64 bits: 2^63 decimals of 38 digits in units of 10^-38 fit, and
// so do 2^63 floats of the window.
const (
	wideWords = 5
	wideSize  = 8 * wideWords
)

// wide is an exact sum in memory.
type wide [wideWords]uint64

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

func setWord(b []byte, i int, x uint64) { binary.LittleEndian.PutUint64(b[8*i:], x) }

// addPair adds to an exact sum a number of two words whose lowest is the word at;
// ext is its sign: 0, or all ones for a negative one.
func addPair(b []byte, at int, lo, hi, ext uint64) {
	b = b[:wideSize]
	s, c := bits.Add64(word(b, at), lo, 0)
	setWord(b, at, s)
	if at+1 == wideWords {
		return
	}
	s, c = bits.Add64(word(b, at+1), hi, c)
	setWord(b, at+1, s)
	for i := at + 2; i < wideWords && ext+c != 0; i++ {
		s, c = bits.Add64(word(b, i), ext, c)
		setWord(b, i, s)
	}
}

func loadWide(b []byte) wide {
	var w wide
	for i := range w {
		w[i] = word(b, i)
	}
	return w
}

func (w *wide) store(b []byte) {
	for i := range w {
		setWord(b, i, w[i])
	}
}

func (w *wide) negative() bool { return int64(w[wideWords-1]) < 0 }

func (w *wide) zero() bool { return *w == wide{} }

func (w *wide) add(x *wide) {
	c := uint64(0)
	for i := range w {
		w[i], c = bits.Add64(w[i], x[i], c)
	}
}

func (w *wide) negate() {
	c := uint64(1)
	for i := range w {
		w[i], c = bits.Add64(^w[i], 0, c)
	}
}

// magnitude makes w its absolute value and reports whether it was negative.
func (w *wide) magnitude() bool {
	if !w.negative() {
		return false
	}
	w.negate()
	return true
}

// mul multiplies a number that is not negative by m, modulo 2^320.
func (w *wide) mul(m uint64) {
	c := uint64(0)
	for i := range w {
		hi, lo := bits.Mul64(w[i], m)
		var over uint64
		w[i], over = bits.Add64(lo, c, 0)
		c = hi + over
	}
}

// div divides a number that is not negative by d and gives the remainder.
func (w *wide) div(d uint64) uint64 {
	r := uint64(0)
	for i := wideWords - 1; i >= 0; i-- {
		w[i], r = bits.Div64(r, w[i], d)
	}
	return r
}

// digitsOfWord is how many decimal digits always fit a word.
const digitsOfWord = 19

var powers = func() (p [digitsOfWord + 1]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// scale multiplies by 10^n, or divides where n is negative and the quotient whole.
func (w *wide) scale(n int) {
	minus := w.magnitude()
	for up := n; up > 0; up -= digitsOfWord {
		w.mul(powers[min(up, digitsOfWord)])
	}
	for down := -n; down > 0; down -= digitsOfWord {
		w.div(powers[min(down, digitsOfWord)])
	}
	if minus {
		w.negate()
	}
}

// int64 gives the number where 64 bits hold it.
func (w *wide) int64() (int64, bool) {
	ext := uint64(int64(w[0]) >> 63)
	for _, x := range w[1:] {
		if x != ext {
			return 0, false
		}
	}
	return int64(w[0]), true
}

// float is the double nearest to w/n, halves to even.
func (w *wide) float(n int64) float64 {
	const exactly = 1 << 53
	if i, ok := w.int64(); ok && i >= -exactly && i <= exactly && n <= exactly {
		return float64(i) / float64(n)
	}
	return ratio(wide{}, *w, n)
}

// below is how many words of a ratio are below one: those of the window, and as many
// again as a quotient needs to be rounded.
const below = -windowLow/64 + 2

// ratio is the double nearest to (window * 2^windowLow + whole) / n, halves to even.
func ratio(window, whole wide, n int64) float64 {
	var x [wideWords + below]uint64
	copy(x[below:], whole[:])
	c, ext := uint64(0), uint64(int64(window[wideWords-1])>>63)
	for i, w := range window {
		x[2+i], c = bits.Add64(x[2+i], w, c)
	}
	for i := 2 + wideWords; i < len(x); i++ {
		x[i], c = bits.Add64(x[i], ext, c)
	}
	minus := int64(x[len(x)-1]) < 0
	if minus {
		c = 1
		for i := range x {
			x[i], c = bits.Add64(^x[i], 0, c)
		}
	}
	if n != 1 {
		r := uint64(0)
		for i := len(x) - 1; i >= 0; i-- {
			x[i], r = bits.Div64(r, x[i], uint64(n))
		}
		if r != 0 {
			x[0] |= 1 // only tells on which side of a half it is
		}
	}
	f := floatOf(x[:], -64*below)
	if minus {
		return -f
	}
	return f
}

// floatOf is the double nearest to the number of these words times 2^exp.
func floatOf(w []uint64, exp int) float64 {
	top := len(w) - 1
	for top > 0 && w[top] == 0 {
		top--
	}
	shift := bits.LeadingZeros64(w[top])
	if shift == 64 {
		return 0
	}
	m := w[top] << shift
	exp += 64*top - shift
	rest := uint64(0)
	if top > 0 {
		m |= w[top-1] >> (64 - shift) // 0 for shift 0
		rest = w[top-1] << shift
		for _, x := range w[:top-1] {
			rest |= x
		}
	}
	if rest != 0 {
		m |= 1 // the lowest bits decide only on which side of a half it is
	}
	return math.Ldexp(float64(m), exp)
}

// The window is where floats are summed up exactly: an exact sum in units of
// 2^windowLow. Floats below 2^windowTop whose lowest bit is not below 2^windowLow
// fit, that is every one of a magnitude from 1.4e-23 to 1.7e38.
const (
	windowLow = -128
	windowTop = 127
)

// addFloat adds f, or takes it back, and reports whether it fits the window.
func addFloat(b []byte, f float64, minus bool) bool {
	u := math.Float64bits(f)
	exp, m := int(u>>52&0x7FF), u&(1<<52-1)
	switch {
	case exp == 0:
		return m == 0 // a subnormal is far below
	case exp-1023 >= windowTop:
		return false
	}
	m |= 1 << 52
	at := exp - 1023 - 52 - windowLow
	if at < 0 {
		down := bits.TrailingZeros64(m)
		if at+down < 0 {
			return false
		}
		m, at = m>>down, at+down
	}
	shift := uint(at & 63)
	lo, hi, ext := m<<shift, m>>(64-shift), uint64(0)
	if (u>>63 != 0) != minus {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
		ext = ^uint64(0)
	}
	addPair(b, at>>6, lo, hi, ext)
	return true
}

// addInt adds i, or takes it back.
func addInt(b []byte, i int64, minus bool) {
	lo, ext := uint64(i), uint64(i>>63)
	if minus {
		lo, ext = negated(lo, ext)
	}
	addPair(b, 0, lo, ext, ext)
}

// negated is the negative of a number of two words.
func negated(lo, hi uint64) (uint64, uint64) {
	lo, borrow := bits.Sub64(0, lo, 0)
	hi, _ = bits.Sub64(0, hi, borrow)
	return lo, hi
}
