package expr

import (
	"math"
	"math/bits"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// operator is an arithmetic operator.
type operator uint8

const (
	opAdd operator = iota
	opSub
	opMul
	opDiv
	opMod
	opPow
)

var operatorUse = [...]string{"added", "subtracted", "multiplied", "divided", "divided", "raised to a power"}

// operands is the place of a binary operator and of its operands.
type operands struct {
	at   *site
	l, r *site
	op   operator
	sign string
}

// addInt adds and reports whether the sum fits.
func addInt(a, b int64) (int64, bool) {
	s := a + b
	return s, (a^s)&(b^s) >= 0
}

// subInt subtracts and reports whether the difference fits.
func subInt(a, b int64) (int64, bool) {
	s := a - b
	return s, (a^b)&(a^s) >= 0
}

// mulInt multiplies and reports whether the product fits.
func mulInt(a, b int64) (int64, bool) {
	ua, ub := magnitude(a), magnitude(b)
	hi, lo := bits.Mul64(ua, ub)
	if hi != 0 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), lo <= 1<<63
	}
	return int64(lo), lo < 1<<63
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

// floatOp is + - * and /, small enough to be inlined.
func floatOp(op operator, a, b float64) float64 {
	switch op {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return a * b
	default:
	}
	return a / b
}

// arith is every operator on all kinds of operands.
func (e *Env) arith(o *operands, a, b connectors.Value) connectors.Value {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == failed || kb == failed:
		return failure
	case ka == connectors.Int && kb == connectors.Int:
		return e.intOp(o, a.Int(), b.Int())
	case Number.Has(ka) && Number.Has(kb):
		if (ka == connectors.Float || kb == connectors.Float) && o.op != opMod || o.op == opPow {
			return e.floatArith(o, a, b)
		}
		if ka != connectors.Float && kb != connectors.Float && o.op != opMod {
			return e.decimalOp(o, a, b)
		}
	case o.op == opAdd && ka == connectors.String && kb == connectors.String:
		return e.concat(o.at, a.Text(), b.Text())
	case a.IsNull():
		return e.null(o.l, operatorUse[o.op], neutral(o.op, kb))
	case b.IsNull():
		return e.null(o.r, operatorUse[o.op], neutral(o.op, ka))
	case ka == connectors.Timestamp || ka == connectors.Duration || kb == connectors.Duration || kb == connectors.Timestamp:
		return e.timeOp(o, a, b)
	}
	return e.failf(o.at, KindType, "`%s` does not take %s and %s", o.sign, article(ka), article(kb))
}

// neutral is what messages propose in place of null.
func neutral(op operator, other connectors.Kind) string {
	switch {
	case other == connectors.String:
		return `""`
	case other == connectors.Timestamp || other == connectors.Duration:
		return `duration("0s")`
	case op == opAdd || op == opSub:
		return "0"
	}
	return "1"
}

func (e *Env) intOp(o *operands, a, b int64) connectors.Value {
	var r int64
	var ok bool
	switch o.op {
	case opAdd:
		r, ok = addInt(a, b)
	case opSub:
		r, ok = subInt(a, b)
	case opMul:
		r, ok = mulInt(a, b)
	case opDiv:
		if b == 0 {
			return e.zero(o)
		}
		return connectors.FloatValue(float64(a) / float64(b))
	case opMod:
		if b == 0 {
			return e.zero(o)
		}
		if b == -1 {
			return connectors.IntValue(0)
		}
		return connectors.IntValue(a % b)
	default:
		return connectors.FloatValue(math.Pow(float64(a), float64(b)))
	}
	if !ok {
		return e.fail(o.at, KindOverflow, "the result of `"+o.sign+"` does not fit an int of 64 bits; use decimal() or float()")
	}
	return connectors.IntValue(r)
}

func (e *Env) zero(o *operands) connectors.Value {
	return e.failf(o.at, KindZero, "%s is zero and cannot be divided by", o.r.name)
}

func (e *Env) floatArith(o *operands, a, b connectors.Value) connectors.Value {
	x, ok := e.toFloat(o.l, a)
	y, ok2 := e.toFloat(o.r, b)
	if !ok || !ok2 {
		return failure
	}
	if o.op == opDiv && y == 0 {
		return e.zero(o)
	}
	if o.op == opPow {
		return connectors.FloatValue(math.Pow(x, y))
	}
	return connectors.FloatValue(floatOp(o.op, x, y))
}

// toFloat is the double nearest to a number.
func (e *Env) toFloat(s *site, v connectors.Value) (float64, bool) {
	switch v.Kind() {
	case connectors.Float:
		return v.Float(), true
	case connectors.Int:
		return float64(v.Int()), true
	default:
	}
	d := &e.dec.x
	if !e.parseDecimal(s, d, v) {
		return 0, false
	}
	f, err := d.Float64()
	if err != nil {
		e.fail(s, KindOverflow, s.name+" is beyond what a float can hold")
		return 0, false
	}
	return f, true
}

// timeOp adds and subtracts timestamps and durations, and scales durations by ints.
func (e *Env) timeOp(o *operands, a, b connectors.Value) connectors.Value {
	ka, kb := a.Kind(), b.Kind()
	const stamp, span, whole = connectors.Timestamp, connectors.Duration, connectors.Int
	switch {
	case o.op == opSub && ka == stamp && kb == stamp:
		d := a.Time().Sub(b.Time())
		if d == math.MaxInt64 || d == math.MinInt64 {
			return e.fail(o.at, KindOverflow, "the time between the timestamps does not fit a duration")
		}
		return connectors.DurationValue(d)
	case o.op == opAdd && ka == stamp && kb == span:
		return connectors.TimestampValue(a.Time().Add(b.Duration()))
	case o.op == opAdd && ka == span && kb == stamp:
		return connectors.TimestampValue(b.Time().Add(a.Duration()))
	case o.op == opSub && ka == stamp && kb == span:
		return connectors.TimestampValue(a.Time().Add(-b.Duration()))
	case ka == span && kb == span && (o.op == opAdd || o.op == opSub),
		o.op == opMul && (ka == span && kb == whole || ka == whole && kb == span):
		r := e.intOp(o, a.Int(), b.Int())
		if r.Kind() != whole {
			return r
		}
		return connectors.DurationValue(time.Duration(r.Int()))
	case o.op == opDiv && ka == span && kb == span:
		return e.intOp(o, a.Int(), b.Int())
	case o.op == opDiv && ka == span && kb == whole:
		if b.Int() == 0 {
			return e.zero(o)
		}
		if b.Int() == -1 {
			return e.negate(o.at, a)
		}
		return connectors.DurationValue(a.Duration() / time.Duration(b.Int()))
	}
	return e.failf(o.at, KindType, "`%s` does not take %s and %s", o.sign, article(ka), article(kb))
}

// negate is the unary minus.
func (e *Env) negate(s *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.Int, connectors.Duration:
		r, ok := subInt(0, v.Int())
		if !ok {
			return e.fail(s, KindOverflow, "the result of `-` does not fit 64 bits")
		}
		if v.Kind() == connectors.Duration {
			return connectors.DurationValue(time.Duration(r))
		}
		return connectors.IntValue(r)
	case connectors.Float:
		return connectors.FloatValue(-v.Float())
	case connectors.Decimal:
		d := &e.dec.x
		if !e.parseDecimal(s, d, v) {
			return failure
		}
		return e.decimalValue(s, d.Neg(d))
	case failed:
		return failure
	case connectors.Absent, connectors.Null:
		return e.null(s, "negated", "0")
	default:
	}
	return e.failf(s, KindType, "`-` does not take %s", article(v.Kind()))
}

// relation is a set of the ways in which two values may compare.
type relation uint8

const (
	less relation = 1 << iota
	equal
	greater
	unordered // NaN with anything
)

var relations = map[string]relation{
	"<": less, "<=": less | equal, ">": greater, ">=": greater | equal,
	"==": equal, "!=": less | greater | unordered,
}

func orderInt(a, b int64) relation {
	switch {
	case a < b:
		return less
	case a > b:
		return greater
	}
	return equal
}

func orderFloat(a, b float64) relation {
	switch {
	case a < b:
		return less
	case a > b:
		return greater
	case a == b:
		return equal
	}
	return unordered
}

// orderIntFloat compares by exact value, where converting either would lose.
func orderIntFloat(a int64, b float64) relation {
	switch {
	case b != b:
		return unordered
	case b >= 1<<63:
		return less
	case b < -1<<63:
		return greater
	}
	whole := math.Trunc(b)
	if r := orderInt(a, int64(whole)); r != equal {
		return r
	}
	return orderFloat(whole, b)
}

func (r relation) flip() relation {
	switch r {
	case less:
		return greater
	case greater:
		return less
	default:
	}
	return r
}

// order compares two values of kinds that have an order; 0 says that they have
// none or that a number is beyond reading.
func (e *Env) order(s *site, a, b connectors.Value) relation {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == connectors.Int && kb == connectors.Int:
		return orderInt(a.Int(), b.Int())
	case Number.Has(ka) && Number.Has(kb):
		return e.orderNumbers(s, a, b)
	case ka != kb:
		return 0
	}
	switch ka {
	case connectors.String, connectors.Bytes:
		if !e.read(s, a) {
			return 0
		}
		x, y := a.Text(), b.Text()
		switch {
		case x < y:
			return less
		case x > y:
			return greater
		}
		return equal
	case connectors.Duration:
		return orderInt(a.Int(), b.Int())
	case connectors.Timestamp:
		return orderInt(int64(a.Time().Compare(b.Time())), 0)
	default:
	}
	return 0
}

func (e *Env) orderNumbers(s *site, a, b connectors.Value) relation {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == connectors.Float && kb == connectors.Float:
		return orderFloat(a.Float(), b.Float())
	case ka == connectors.Int && kb == connectors.Float:
		return orderIntFloat(a.Int(), b.Float())
	case ka == connectors.Float && kb == connectors.Int:
		return orderIntFloat(b.Int(), a.Float()).flip()
	}
	return e.orderDecimals(s, a, b)
}

// compare is the operators < <= > >=.
func (e *Env) compare(o *operands, want relation, a, b connectors.Value) truth {
	r := e.order(o.at, a, b)
	if r != 0 {
		return truthOf(r&want != 0)
	}
	switch {
	case a.Kind() == failed || b.Kind() == failed || e.err != nil:
	case a.IsNull():
		e.null(o.l, "compared with `"+o.sign+"`", placeholder(b.Kind()))
	case b.IsNull():
		e.null(o.r, "compared with `"+o.sign+"`", placeholder(a.Kind()))
	default:
		e.failf(o.at, KindType, "`%s` does not compare %s with %s", o.sign, article(a.Kind()), article(b.Kind()))
	}
	return unknown
}

func placeholder(k connectors.Kind) string {
	if k == connectors.String {
		return `""`
	}
	return "0"
}

// equals is the operator ==, with which null is legal.
func (e *Env) equals(s *site, a, b connectors.Value) truth {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == failed || kb == failed:
		return unknown
	case a.IsNull() || b.IsNull():
		return truthOf(a.IsNull() && b.IsNull())
	case Number.Has(ka) && Number.Has(kb):
		if r := e.orderNumbers(s, a, b); r != 0 {
			return truthOf(r == equal)
		}
		return unknown
	case ka != kb:
		return no
	}
	switch ka {
	case connectors.Bool, connectors.Duration:
		return truthOf(a.Int() == b.Int())
	case connectors.List, connectors.Map:
		return e.sameContainers(s, a, b)
	default:
	}
	r := e.order(s, a, b)
	if r == 0 {
		return unknown
	}
	return truthOf(r == equal)
}
