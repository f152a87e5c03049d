package format

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unsafe"

	"github.com/sluice-etl/sluice/connectors"
)

// Number is the value of a JSON number: an int where it has neither fraction nor
// exponent and fits 64 bits, a float where the double prints back as the same
// number, and else a decimal that borrows text. ok is false if text is no JSON
// number.
func Number(text string) (v connectors.Value, ok bool) {
	var s scanner
	b := bytesOf(text)
	if len(b) == 0 || b[0] != '-' && b[0]-'0' > 9 {
		return v, false
	}
	v, end := s.number(b, 0)
	return v, end == len(b)
}

func bytesOf(s string) []byte  { return unsafe.Slice(unsafe.StringData(s), len(s)) }
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// number reads the number at i.
func (s *scanner) number(b []byte, i int) (v connectors.Value, end int) {
	start, negative := i, b[i] == '-'
	if negative {
		i++
	}
	if i+8 > len(b) {
		return s.slowNumber(b, start)
	}
	w := binary.LittleEndian.Uint64(b[i:])
	free := 64 - bits.TrailingZeros64(noDigit(w))&^7 // bits that are not of digits
	if free == 64 || b[i] == '0' && free < 56 {
		return s.slowNumber(b, start)
	}
	n := eightDigits((w ^ ones*'0') << free)
	end = i + 8 - free>>3
	for free == 0 && uint(end) < uint(len(b)) && b[end]-'0' <= 9 {
		n = n*10 + uint64(b[end]-'0')
		end++
	}
	if end-i > 18 || uint(end) < uint(len(b)) && numberByte[b[end]] {
		return s.slowNumber(b, start)
	}
	if negative {
		n = -n
	}
	return connectors.IntValue(int64(n)), end
}

// eightDigits is the number of eight digits, the first one in the lowest byte, by
// three multiplications. (D. Lemire, "Quickly parsing eight digits".)
func eightDigits(w uint64) uint64 {
	w = w*10 + w>>8
	const pairs = 0x000000FF000000FF
	return ((w&pairs)*(100+1000000<<32) + (w>>16&pairs)*(1+10000<<32)) >> 32
}

func (s *scanner) slowNumber(b []byte, start int) (v connectors.Value, end int) {
	if end = s.checkNumber(b, start); end < 0 {
		return v, end
	}
	text := b[start:end]
	d := parseDecimal(text)
	if i, ok := d.int(); ok {
		return connectors.IntValue(i), end
	}
	if f, ok := d.float(text); ok {
		return connectors.FloatValue(f), end
	}
	return connectors.TextValue(connectors.Decimal, text), end
}

// checkNumber checks the number at i against the grammar and returns its end.
func (s *scanner) checkNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	first := i
	if i = digitsEnd(b, i); i == first {
		return s.expected(b, i, wantDigit)
	}
	if b[first] == '0' && i > first+1 {
		return s.fail(first+1, wantNoZero)
	}
	if i < len(b) && b[i] == '.' {
		first = i + 1
		if i = digitsEnd(b, first); i == first {
			return s.expected(b, i, wantDigit)
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		first = i
		if i = digitsEnd(b, i); i == first {
			return s.expected(b, i, wantDigit)
		}
	}
	return i
}

func digitsEnd(b []byte, i int) int {
	for uint(i) < uint(len(b)) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// decimal is a number taken apart: mantissa times ten to the power of exp, the
// mantissa without zeros at its end.
type decimal struct {
	mantissa uint64 // meaningless beyond 19 digits
	digits   int    // of the mantissa
	exp      int
	negative bool
	point    bool // it has a fraction or an exponent
}

// An exponent beyond it, of either sign, is as good as infinite.
const hugeExp = 1 << 30

func parseDecimal(text []byte) decimal {
	var d decimal
	i, zeros, fraction := 0, 0, false
	if text[0] == '-' {
		d.negative, i = true, 1
	}
	for ; i < len(text) && text[i]|0x20 != 'e'; i++ {
		c := text[i]
		if c == '.' {
			d.point, fraction = true, true
			continue
		}
		if fraction {
			d.exp--
		}
		if c == '0' {
			if d.digits > 0 {
				zeros++
			} else if !fraction {
				continue
			}
			continue
		}
		for ; zeros > 0; zeros-- {
			d.mantissa *= 10
			d.digits++
		}
		d.mantissa = d.mantissa*10 + uint64(c-'0')
		d.digits++
	}
	d.exp += zeros
	if i < len(text) {
		d.point = true
		d.exp += parseExp(text[i+1:])
	}
	return d
}

func parseExp(text []byte) int {
	negative, e := false, 0
	if text[0] == '-' || text[0] == '+' {
		negative = text[0] == '-'
		text = text[1:]
	}
	for _, c := range text {
		if e = e*10 + int(c-'0'); e > hugeExp {
			e = hugeExp
		}
	}
	if negative {
		return -e
	}
	return e
}

// Powers of ten that a double holds exactly.
var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// int is the number if it was written as an integer and fits 64 bits.
func (d decimal) int() (i int64, ok bool) {
	if d.point || d.digits+d.exp > 19 {
		return 0, false
	}
	n := d.mantissa
	for range d.exp {
		n *= 10
	}
	if d.negative {
		return int64(-n), n <= 1<<63
	}
	return int64(n), n <= math.MaxInt64
}

// float is the double next to the number, and whether its shortest form is that
// number again. Up to 15 digits are always told apart by normal doubles, more
// than 17 are never printed.
func (d decimal) float(text []byte) (f float64, same bool) {
	switch {
	case d.digits == 0:
		if d.negative {
			return math.Copysign(0, -1), true
		}
		return 0, true
	case d.digits > 17 || d.exp+d.digits > 310 || d.exp+d.digits < -330:
		return 0, false
	case d.digits <= 15 && d.exp >= -22 && d.exp <= 22:
		// Both operands are exact, so that one rounding makes the result.
		// (W. D. Clinger, How to read floating point numbers accurately.)
		f = float64(d.mantissa)
		if d.exp < 0 {
			f /= pow10[-d.exp]
		} else {
			f *= pow10[d.exp]
		}
		if d.negative {
			f = -f
		}
		return f, true
	}
	f, err := strconv.ParseFloat(stringOf(text), 64)
	if err != nil {
		return 0, false
	}
	if d.digits <= 15 && d.exp > -290 {
		return f, true
	}
	var buf [32]byte
	p := parseDecimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return f, p.mantissa == d.mantissa && p.exp == d.exp
}

// appendFloat appends the shortest text that reads back as f, which is finite:
// plain from 1e-6 to 1e21, and with an exponent beyond, as encoding/json does.
func appendFloat(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs >= 1e-3 && abs < 1e9 {
		if out, ok := appendShortDecimal(dst, f, abs); ok {
			return out
		}
	}
	if abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		// 1e-09 becomes 1e-9.
		if n := len(dst); n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
		return dst
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// appendShortDecimal appends f if it is the double next to a number with at most
// six decimal places. Such a number has at most 15 digits here, and so no other
// one as short reads back as f.
func appendShortDecimal(dst []byte, f, abs float64) ([]byte, bool) {
	places, scaled := 3, math.RoundToEven(abs*1e3)
	if scaled/1e3 != abs {
		places, scaled = 6, math.RoundToEven(abs*1e6)
		if scaled/1e6 != abs {
			return dst, false
		}
	}
	n := uint64(scaled)
	for places > 0 && n%10 == 0 {
		n /= 10
		places--
	}
	if f < 0 {
		dst = append(dst, '-')
	}
	whole, fraction := n, uint64(0)
	if places > 0 {
		p := uint64(pow10[places])
		whole, fraction = n/p, n%p
	}
	dst = strconv.AppendUint(dst, whole, 10)
	if places == 0 {
		return dst, true
	}
	dst = append(dst, ".000000"[:places+1]...)
	for at := len(dst) - 1; fraction > 0; at-- {
		dst[at] = byte('0' + fraction%10)
		fraction /= 10
	}
	return dst, true
}
