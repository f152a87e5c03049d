package expr

import (
	"math"
	"strconv"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
)

// Decimals have at most decimalDigits digits, written without an exponent.
// Numbers of more digits or of a larger exponent than decimalReach are not read
// as numbers at all: comparing them would cost memory by their exponent.
const (
	decimalDigits = 38
	decimalReach  = 1000
)

// decimals is scratch space of decimal arithmetic.
type decimals struct{ x, y, r apd.Decimal }

// exactly computes with room to see whether a result is too long.
var (
	exactly = &apd.Context{Precision: 2 * decimalReach, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundHalfEven}
	// dividing has digits enough to tell a quotient of two decimals from one that is
	// half-way between two neighbours.
	dividing = &apd.Context{Precision: 4 * decimalDigits, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundHalfEven}
)

// parseDecimal reads a number of any kind.
func (e *Env) parseDecimal(s *site, d *apd.Decimal, v connectors.Value) bool {
	switch v.Kind() {
	case connectors.Int:
		d.SetInt64(v.Int())
		return true
	case connectors.Float:
		return e.floatDecimal(s, d, v.Float())
	case connectors.Decimal:
		if parseDecimalText(d, v.Text()) {
			return true
		}
		e.fail(s, KindOverflow, s.name+" is a number too long or too large to compute with")
		return false
	default:
	}
	return false
}

// floatDecimal reads a float by the value that its shortest text has, as JSON
// shows it, so that 0.1 is decimal("0.1"); a whole number by its exact value, so
// that it compares with ints. Both keep the order of floats.
func (e *Env) floatDecimal(s *site, d *apd.Decimal, f float64) bool {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		e.fail(s, KindOverflow, s.name+" is not a finite number")
		return false
	}
	format, precision := byte('e'), -1
	if f == math.Trunc(f) {
		format, precision = 'f', 0
	}
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], f, format, precision, 64)
	return parseShort(d, text) || parseDecimalText(d, string(text))
}

func parseDecimalText(d *apd.Decimal, text string) bool {
	if parseShort(d, bytesOf(text)) {
		return true
	}
	if len(text) == 0 || len(text) > decimalReach || !exponentWithin(text) {
		return false
	}
	_, cond, err := d.SetString(text)
	return err == nil && cond&^(apd.Rounded|apd.Inexact) == 0 && d.Form == apd.Finite
}

// parseShort reads numbers of up to 18 digits with an exponent of up to two,
// which most are, without an allocation.
func parseShort(d *apd.Decimal, text []byte) bool {
	const most = 18
	negative, coefficient, exp, digits, point := false, int64(0), 0, 0, false
	i := 0
	if i < len(text) && text[i] == '-' {
		negative, i = true, 1
	}
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c-'0' <= 9:
			if digits++; digits > most {
				return false
			}
			coefficient = coefficient*10 + int64(c-'0')
			if point {
				exp--
			}
		case c == '.' && !point && digits > 0:
			point = true
		case (c == 'e' || c == 'E') && digits > 0:
			shift, ok := shortExponent(text[i+1:])
			if !ok {
				return false
			}
			exp += shift
			i = len(text)
		default:
			return false
		}
	}
	if digits == 0 || text[len(text)-1] == '.' {
		return false
	}
	d.SetFinite(coefficient, int32(exp))
	d.Negative = negative
	return true
}

func shortExponent(text []byte) (int, bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative || len(text) > 0 && text[0] == '+' {
		text = text[1:]
	}
	if len(text) == 0 || len(text) > 2 {
		return 0, false
	}
	n := 0
	for _, c := range text {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// exponentWithin looks at a number's exponent before it is turned into digits.
func exponentWithin(text string) bool {
	for i := range len(text) {
		if text[i]|0x20 != 'e' {
			continue
		}
		n, err := strconv.Atoi(text[i+1:])
		return err == nil && n >= -decimalReach && n <= decimalReach
	}
	return true
}

// decimalValue writes d, of at most 38 digits, into the arena.
func (e *Env) decimalValue(s *site, d *apd.Decimal) connectors.Value {
	if !fitsDecimal(d) {
		return e.fail(s, KindOverflow, "the result needs more than 38 decimal digits; use float() or round()")
	}
	a := e.arena()
	return connectors.TextValue(connectors.Decimal, a.Keep(d.Append(a.Grow(decimalDigits+4), 'f')))
}

func fitsDecimal(d *apd.Decimal) bool {
	digits, exp := d.NumDigits(), int64(d.Exponent)
	if exp > 0 && !d.IsZero() {
		return digits+exp <= decimalDigits
	}
	return max(digits, -exp) <= decimalDigits
}

// decimalOp is + - * / of decimals and ints. Sums and products are exact. A
// quotient is exact where 38 digits hold it, otherwise rounded half to even.
func (e *Env) decimalOp(o *operands, a, b connectors.Value) connectors.Value {
	x, y, r := &e.dec.x, &e.dec.y, &e.dec.r
	if !e.parseDecimal(o.l, x, a) || !e.parseDecimal(o.r, y, b) {
		return failure
	}
	var err error
	switch o.op {
	case opAdd:
		_, err = exactly.Add(r, x, y)
	case opSub:
		_, err = exactly.Sub(r, x, y)
	case opMul:
		_, err = exactly.Mul(r, x, y)
	default:
		if y.IsZero() {
			return e.zero(o)
		}
		if _, err = dividing.Quo(r, x, y); err == nil {
			roundQuotient(r)
		}
	}
	if err != nil {
		return e.fail(o.at, KindOverflow, "the result of `"+o.sign+"` is beyond what a decimal can hold")
	}
	return e.decimalValue(o.at, r)
}

// roundQuotient rounds a quotient once, to 38 digits and to 38 behind the point,
// and drops the zeros that the division padded it with.
func roundQuotient(d *apd.Decimal) {
	whole := d.NumDigits() + int64(d.Exponent)
	scale := decimalDigits - max(whole, 0)
	if scale >= 0 && int64(d.Exponent) < -scale {
		_, _ = exactly.Quantize(d, d, int32(-scale))
	}
	d.Reduce(d)
}

// orderDecimals compares two numbers of which at least one is a decimal.
func (e *Env) orderDecimals(s *site, a, b connectors.Value) relation {
	if r := orderSpecial(a, b); r != 0 {
		return r
	}
	x, y := &e.dec.x, &e.dec.y
	if !e.parseDecimal(s, x, a) || !e.parseDecimal(s, y, b) {
		return 0
	}
	return orderInt(int64(x.Cmp(y)), 0)
}

// orderSpecial compares a decimal with NaN and the infinities.
func orderSpecial(a, b connectors.Value) relation {
	if a.Kind() == connectors.Float {
		return orderSpecial(b, a).flip()
	}
	if b.Kind() != connectors.Float {
		return 0
	}
	switch f := b.Float(); {
	case f != f:
		return unordered
	case math.IsInf(f, 1):
		return less
	case math.IsInf(f, -1):
		return greater
	}
	return 0
}
