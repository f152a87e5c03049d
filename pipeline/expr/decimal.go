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

func (d *decimals) a() *apd.Decimal { return &d.x }
func (d *decimals) b() *apd.Decimal { return &d.y }

// exactly computes with room to see whether a result is too long.
var (
	exactly = &apd.Context{Precision: 2 * decimalReach, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundHalfEven}
	rounded = &apd.Context{Precision: decimalDigits, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundHalfEven}
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
	return parseDecimalText(d, strconv.FormatFloat(f, format, precision, 64))
}

func parseDecimalText(d *apd.Decimal, text string) bool {
	if len(text) == 0 || len(text) > decimalReach || !exponentWithin(text) {
		return false
	}
	_, cond, err := d.SetString(text)
	return err == nil && cond&^(apd.Rounded|apd.Inexact) == 0 && d.Form == apd.Finite
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
		if _, err = rounded.Quo(r, x, y); err == nil {
			shorten(r)
		}
	}
	if err != nil {
		return e.fail(o.at, KindOverflow, "the result of `"+o.sign+"` is beyond what a decimal can hold")
	}
	return e.decimalValue(o.at, r)
}

// shorten drops the zeros that a division pads with, and what is beyond the
// smallest scale.
func shorten(d *apd.Decimal) {
	if d.Exponent < -decimalDigits {
		_, _ = rounded.Quantize(d, d, -decimalDigits)
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
