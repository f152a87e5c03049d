package accumulate

import (
	"math/bits"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
)

// maxDigits is how many digits a decimal has, written without an exponent.
const maxDigits = 38

// decimal is a number of up to 38 digits: hi*2^64+lo in units of 10^-scale.
type decimal struct {
	lo, hi uint64
	scale  int
	minus  bool
}

// parseDecimal reads the text of a decimal and reports whether it has at most 38
// digits, written without an exponent.
func parseDecimal(text []byte) (d decimal, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		d.minus, text = true, text[1:]
	}
	point, digits := false, 0
	for i, c := range text {
		switch {
		case c-'0' <= 9:
			if digits > 0 || c != '0' {
				digits++
			}
			if digits > maxDigits {
				return d, false
			}
			d.times10(uint64(c - '0'))
			if point {
				d.scale++
			}
		case c == '.' && !point:
			point = true
		case c|0x20 == 'e':
			return d, d.exponent(text[i+1:], digits)
		default:
			return d, false
		}
	}
	return d, len(text) > 0 && d.scale <= maxDigits
}

func (d *decimal) times10(plus uint64) {
	hi, lo := bits.Mul64(d.lo, 10)
	var c uint64
	d.lo, c = bits.Add64(lo, plus, 0)
	d.hi = d.hi*10 + hi + c
}

// exponent applies the exponent of a number of so many digits.
func (d *decimal) exponent(text []byte, digits int) bool {
	minus := len(text) > 0 && text[0] == '-'
	if minus || len(text) > 0 && text[0] == '+' {
		text = text[1:]
	}
	const most = 1000
	n := 0
	for _, c := range text {
		if c-'0' > 9 {
			return false
		}
		n = min(10*n+int(c-'0'), most)
	}
	if minus {
		n = -n
	}
	d.scale -= n
	if d.lo|d.hi == 0 {
		d.scale = max(d.scale, 0)
	}
	if digits-min(d.scale, 0) > maxDigits {
		return false
	}
	for ; d.scale < 0; d.scale++ {
		d.times10(0)
	}
	return len(text) > 0 && d.scale <= maxDigits
}

// wide is the number in units of 10^-scale, which must not be less than its own.
func (d *decimal) wide(scale int) wide {
	w := wide{d.lo, d.hi}
	w.scale(scale - d.scale)
	if d.minus {
		w.negate()
	}
	return w
}

// decimalValue writes a number in units of 10^-scale, or tells that it has more
// than 38 digits.
func decimalValue(w wide, scale int, arena *connectors.Arena) (connectors.Value, bool) {
	var buf [100]byte
	at := len(buf)
	minus := w.magnitude()
	for digits := 0; digits <= scale || !w.zero(); digits++ {
		if digits == maxDigits && !w.zero() {
			return connectors.Value{}, false
		}
		if digits == scale && scale > 0 {
			at--
			buf[at] = '.'
		}
		at--
		buf[at] = byte('0' + w.div(10))
	}
	if minus {
		at--
		buf[at] = '-'
	}
	text := append(arena.Grow(len(buf)-at), buf[at:]...)
	return connectors.TextValue(connectors.Decimal, arena.Keep(text)), true
}

// The division of decimals is that of the language: rounded once, half to even, to
// 38 digits and to as many behind the point.
var (
	dividing = &apd.Context{Precision: 4 * maxDigits, MaxExponent: 2000, MinExponent: -2000, Rounding: apd.RoundHalfEven}
	rounding = &apd.Context{Precision: 2000, MaxExponent: 2000, MinExponent: -2000, Rounding: apd.RoundHalfEven}
)

// quotient is w * 10^-scale / n.
func quotient(w wide, scale int, n int64, arena *connectors.Arena) (connectors.Value, bool) {
	var x, y apd.Decimal
	x.Exponent = -int32(scale)
	minus := w.magnitude()
	for i := wideWords - 1; i >= 0; i-- {
		x.Coeff.Lsh(&x.Coeff, 64)
		var part apd.BigInt
		x.Coeff.Add(&x.Coeff, part.SetUint64(w[i]))
	}
	x.Negative = minus
	y.SetInt64(n)
	if _, err := dividing.Quo(&x, &x, &y); err != nil {
		return connectors.Value{}, false
	}
	digits := maxDigits - max(x.NumDigits()+int64(x.Exponent), 0)
	if digits < 0 {
		return connectors.Value{}, false
	}
	if int64(x.Exponent) < -digits {
		if _, err := rounding.Quantize(&x, &x, -int32(digits)); err != nil {
			return connectors.Value{}, false
		}
	}
	x.Reduce(&x)
	return connectors.TextValue(connectors.Decimal, arena.Keep(x.Append(arena.Grow(2*maxDigits), 'f'))), true
}
