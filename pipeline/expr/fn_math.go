package expr

import (
	"math"
	"strconv"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	define(
		function{Function: doc("abs(value number|duration) same", "gives a number without its sign", `abs(-3)`, `3`), run1: abs},
		function{Function: doc("ceil(value number) same", "rounds up to a whole number", `ceil(1.2)`, `2`), run1: rounding(math.Ceil, apd.RoundCeiling)},
		function{Function: doc("floor(value number) same", "rounds down to a whole number", `floor(-1.2)`, `-2`), run1: rounding(math.Floor, apd.RoundFloor)},
		function{Function: doc("round(value number, digits int?) same", "rounds to a whole number, or to a number of decimal digits; halves go away from zero", `round(2.345, 1)`, `2.3`), run: round},
		function{Function: doc("min(values any...) any", "gives the smallest of values and of the elements of lists; of none it is null", `min(3, [1, 2])`, `1`), run: extreme(less)},
		function{Function: doc("max(values any...) any", "gives the largest of values and of the elements of lists; of none it is null", `max(3, [1, 5])`, `5`), run: extreme(greater)},
		function{Function: doc("mean(values number|list...) number", "gives the average of numbers and of the elements of lists; of none it is 0", `mean([1, 2])`, `1.5`), run: mean},
		function{Function: doc("median(values number|list...) number", "gives the number in the middle, of an even number the average of two; of none it is 0", `median([1, 5, 2])`, `2`), run: median},
	)
}

func abs(e *Env, s *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.Float:
		return connectors.FloatValue(math.Abs(v.Float()))
	case connectors.Decimal:
		if text := v.Text(); text != "" && text[0] == '-' {
			return connectors.DecimalValue(text[1:])
		}
		return v
	default:
	}
	if v.Int() < 0 {
		return e.negate(s, v)
	}
	return v
}

func rounding(f func(float64) float64, r apd.Rounder) func(*Env, *site, connectors.Value) connectors.Value {
	return func(e *Env, s *site, v connectors.Value) connectors.Value {
		switch v.Kind() {
		case connectors.Int:
			return v
		case connectors.Float:
			return connectors.FloatValue(f(v.Float()))
		default:
		}
		return e.quantize(s, v, 0, r)
	}
}

// quantize rounds a decimal to a number of digits behind the point.
func (e *Env) quantize(s *site, v connectors.Value, digits int32, r apd.Rounder) connectors.Value {
	d := &e.dec.x
	if !e.parseDecimal(s, d, v) {
		return failure
	}
	if d.Exponent >= -digits {
		return e.decimalValue(s, d)
	}
	c := apd.Context{Precision: 2 * decimalReach, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: r}
	if _, err := c.Quantize(d, d, -digits); err != nil {
		return e.fail(s, KindOverflow, "the number cannot be rounded so")
	}
	return e.decimalValue(s, d)
}

func round(e *Env, s *site, args []connectors.Value) connectors.Value {
	v, digits := args[0], int64(0)
	if len(args) == 2 {
		if digits = args[1].Int(); digits < 0 || digits > decimalDigits {
			return e.failf(s, KindArgument, "a number is rounded to 0 to %d digits", decimalDigits)
		}
	}
	switch v.Kind() {
	case connectors.Int:
		return v
	case connectors.Decimal:
		return e.quantize(s, v, int32(digits), apd.RoundHalfUp)
	default:
	}
	f := v.Float()
	if digits == 0 || f != f || math.IsInf(f, 0) {
		return connectors.FloatValue(math.Round(f))
	}
	// Round the text that the float stands for, so that 1.005 becomes 1.01.
	d := &e.dec.x
	if !e.floatDecimal(s, d, f) {
		return failure
	}
	if d.Exponent >= -int32(digits) {
		return v
	}
	c := apd.Context{Precision: 2 * decimalReach, MaxExponent: 2 * decimalReach, MinExponent: -2 * decimalReach, Rounding: apd.RoundHalfUp}
	if _, err := c.Quantize(d, d, -int32(digits)); err != nil {
		return e.fail(s, KindOverflow, "the number cannot be rounded so")
	}
	out, err := strconv.ParseFloat(d.Text('f'), 64)
	if err != nil {
		return e.fail(s, KindOverflow, "the number cannot be rounded so")
	}
	return connectors.FloatValue(out)
}

// flat goes over values and the elements of lists among them, within depth
// other lists, until do says false.
func (e *Env) flat(s *site, values []connectors.Value, depth int, do func(connectors.Value) bool) bool {
	for _, v := range values {
		if v.Kind() != connectors.List {
			if !do(v) {
				return false
			}
			continue
		}
		if depth >= deepest {
			e.fail(s, KindLimit, "lists are nested too deeply")
			return false
		}
		if !e.read(s, v) {
			return false
		}
		c := over(v)
		for {
			raw, ok := c.next()
			if !ok {
				break
			}
			one := [1]connectors.Value{elementOf(raw, e.arena())}
			if !e.step(s, 1) || !e.flat(s, one[:], depth+1, do) {
				return false
			}
		}
	}
	return true
}

// deepest is how deeply nested lists are gone into.
const deepest = 1000

func extreme(want relation) func(*Env, *site, []connectors.Value) connectors.Value {
	return func(e *Env, s *site, args []connectors.Value) connectors.Value {
		best, some := connectors.NullValue(), false
		if !e.flat(s, args, 0, func(v connectors.Value) bool {
			if v.IsNull() {
				e.null(s, "compared, since a value of it", "0")
				return false
			}
			if !some {
				best, some = v, true
				return true
			}
			r := e.order(s, v, best)
			if r&want != 0 {
				best = v
			} else if r == 0 && e.err == nil {
				e.failf(s, KindType, "%s and %s have no order", article(v.Kind()), article(best.Kind()))
			}
			return r != 0
		}) {
			return failure
		}
		return best
	}
}

func mean(e *Env, s *site, args []connectors.Value) connectors.Value {
	sum, n := connectors.IntValue(0), int64(0)
	add := &operands{at: s, l: s, r: s, op: opAdd, sign: "+"}
	if !e.flat(s, args, 0, func(v connectors.Value) bool {
		if v.Kind() == connectors.String {
			e.fail(s, KindType, "a mean is of numbers, and a value is a string")
			return false
		}
		n++
		sum = e.arith(add, sum, v)
		return sum.Kind() != failed
	}) {
		return failure
	}
	if n == 0 {
		return connectors.FloatValue(0)
	}
	return e.arith(&operands{at: s, l: s, r: s, op: opDiv, sign: "/"}, sum, connectors.IntValue(n))
}

func median(e *Env, s *site, args []connectors.Value) connectors.Value {
	var all []keyed
	if !e.flat(s, args, 0, func(v connectors.Value) bool {
		if !Number.Has(v.Kind()) {
			e.failf(s, KindType, "a median is of numbers, and a value is %s", article(v.Kind()))
			return false
		}
		all = append(all, keyed{key: v})
		return e.spend(s, 64)
	}) {
		return failure
	}
	if !e.sortKeyed(s, s, all, false) {
		return failure
	}
	n := len(all)
	switch {
	case n == 0:
		return connectors.FloatValue(0)
	case n%2 == 1:
		return all[n/2].key
	}
	two := [2]connectors.Value{all[n/2-1].key, all[n/2].key}
	return mean(e, s, two[:])
}
