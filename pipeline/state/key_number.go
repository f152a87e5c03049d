package state

import (
	"bytes"
	"math"
	"strconv"
)

// digits is a number apart from its sign: the whole number that text writes,
// without zeros at its ends, times ten to the power of exp. No text is zero.
type digits struct {
	text []byte
	exp  int64
}

// maxKeyExponent is up to which exponent numbers are computed with. Expressions
// read up to 1000.
const maxKeyExponent = 1e15

// appendDecimalKey appends the encoding of the number that a JSON text writes.
func appendDecimalKey(dst, text []byte) []byte {
	negative := len(text) > 0 && text[0] == '-'
	var buf [64]byte
	d, ok := readDigits(buf[:0], text)
	if !ok {
		return appendKeyText(dst, keyDecimal, text)
	}
	if i, ok := d.whole(negative); ok {
		return appendKey8(dst, keyInt, uint64(i))
	}
	if f, ok := d.float(); ok {
		if negative {
			f = -f
		}
		return appendKey8(dst, keyFloat, math.Float64bits(f))
	}
	var out [64]byte
	return appendKeyText(dst, keyDecimal, d.append(out[:0], negative))
}

// readDigits takes a number apart; buf is where its digits may go.
func readDigits(buf, text []byte) (d digits, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	d.text = buf
	point, seen := false, false
	for i, c := range text {
		switch {
		case c-'0' <= 9:
			seen = true
			if point {
				d.exp--
			}
			if c != '0' || len(d.text) > 0 {
				d.text = append(d.text, c)
			}
		case c == '.' && !point:
			point = true
		case c|0x20 == 'e' && seen:
			e, err := strconv.ParseInt(string(text[i+1:]), 10, 64)
			if err != nil || e > maxKeyExponent || e < -maxKeyExponent {
				return d, false
			}
			d.exp += e
			return d.trim(), true
		default:
			return d, false
		}
	}
	return d.trim(), seen
}

func (d digits) trim() digits {
	short := bytes.TrimRight(d.text, "0")
	d.exp += int64(len(d.text) - len(short))
	d.text = short
	return d
}

// whole is the number as an int, where it is one of 64 bits.
func (d digits) whole(negative bool) (int64, bool) {
	if len(d.text) == 0 {
		return 0, true
	}
	if d.exp < 0 || d.exp+int64(len(d.text)) > 19 {
		return 0, false
	}
	var n uint64 // at most 19 digits
	for _, c := range d.text {
		n = n*10 + uint64(c-'0')
	}
	for range d.exp {
		n *= 10
	}
	switch {
	case n < 1<<63 && negative:
		return -int64(n), true
	case n < 1<<63:
		return int64(n), true
	}
	return math.MinInt64, n == 1<<63 && negative
}

// float is the float whose value is exactly the number, if there is one. No whole
// number of 64 bits gets here.
func (d digits) float() (float64, bool) {
	size := d.exp + int64(len(d.text)) // digits before the point
	if size > 309 || size < -323 || d.exp < 0 && len(d.text) > 17 {
		return 0, false
	}
	var buf [352]byte
	text := strconv.AppendInt(append(append(buf[:0], d.text...), 'e'), d.exp, 10)
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f == 0 || (f == math.Trunc(f)) != (d.exp >= 0) {
		return 0, false
	}
	form, precision := byte('e'), -1
	if d.exp >= 0 {
		form, precision = 'f', 0
	}
	text = strconv.AppendFloat(buf[:0], f, form, precision, 64)
	var again [320]byte
	other, ok := readDigits(again[:0], text)
	return f, ok && other.exp == d.exp && bytes.Equal(other.text, d.text)
}

// plainDigits is up to how many digits decimals are written without an exponent.
const plainDigits = 38

// append writes the number as JSON, always in the same way.
func (d digits) append(dst []byte, negative bool) []byte {
	if negative {
		dst = append(dst, '-')
	}
	size := d.exp + int64(len(d.text)) // digits before the point
	switch {
	case d.exp >= 0 && size <= plainDigits:
		return append(append(dst, d.text...), zeroDigits[:d.exp]...)
	case d.exp < 0 && size > 0:
		dst = append(append(dst, d.text[:size]...), '.')
		return append(dst, d.text[size:]...)
	case d.exp < 0 && d.exp >= -plainDigits:
		dst = append(append(dst, "0."...), zeroDigits[:-size]...)
		return append(dst, d.text...)
	}
	dst = append(dst, d.text[0])
	if len(d.text) > 1 {
		dst = append(append(dst, '.'), d.text[1:]...)
	}
	return strconv.AppendInt(append(dst, 'e'), size-1, 10)
}

const zeroDigits = "00000000000000000000000000000000000000"

// appendFloatText writes a float that is no int as JSON, by its shortest digits.
func appendFloatText(dst []byte, f float64) []byte {
	if a := math.Abs(f); a < 1e-6 || a >= 1e21 {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
