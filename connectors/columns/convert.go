package columns

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
)

// The errors of this file say in users' words what is wrong with a value, without it.

func wrong(want string, v connectors.Value) error {
	return fmt.Errorf("%s is wanted, not %s", want, v.Kind())
}

// Int reads an integer of so many bits.
func Int(v connectors.Value, bits int) (int64, error) {
	var n int64
	switch v.Kind() {
	case connectors.Int:
		n = v.Int()
	case connectors.Float:
		f := v.Float()
		if f != math.Trunc(f) || f < -(1<<63) || f >= 1<<63 {
			return 0, errors.New("an integer is wanted, not a number with a fraction or beyond 64 bits")
		}
		n = int64(f)
	case connectors.Decimal:
		var err error
		if n, err = decimalInt(v.Text()); err != nil {
			return 0, err
		}
	default:
		return 0, wrong("an integer", v)
	}
	if bits > 0 && bits < 64 && (n < -(1<<(bits-1)) || n >= 1<<(bits-1)) {
		return 0, fmt.Errorf("the integer does not fit %d bits", bits)
	}
	return n, nil
}

func decimalInt(text string) (int64, error) {
	d, _, err := apd.NewFromString(text)
	if err != nil {
		return 0, errors.New("an integer is wanted")
	}
	n, err := d.Int64()
	if err != nil {
		return 0, errors.New("an integer of 64 bits is wanted, not a number with a fraction or beyond them")
	}
	return n, nil
}

// Uint reads an integer without sign of so many bits.
func Uint(v connectors.Value, bits int) (uint64, error) {
	var n uint64
	if v.Kind() == connectors.Decimal {
		u, err := strconv.ParseUint(v.Text(), 10, 64)
		if err != nil {
			return 0, errors.New("an integer from 0 on, of 64 bits, is wanted")
		}
		n = u
	} else {
		i, err := Int(v, 64)
		if err != nil {
			return 0, err
		}
		if i < 0 {
			return 0, errors.New("an integer from 0 on is wanted, not a negative one")
		}
		n = uint64(i)
	}
	if bits > 0 && bits < 64 && n >= 1<<bits {
		return 0, fmt.Errorf("the integer does not fit %d bits without a sign", bits)
	}
	return n, nil
}

// Float reads a number; NaN and the infinities as text too. With 32 bits it is rounded to
// them, and what is too large for them is an error.
func Float(v connectors.Value, bits int) (float64, error) {
	var f float64
	switch v.Kind() {
	case connectors.Int:
		f = float64(v.Int())
	case connectors.Float:
		f = v.Float()
	case connectors.Decimal:
		var err error
		if f, err = strconv.ParseFloat(v.Text(), 64); err != nil {
			return 0, errors.New("the number is beyond the range of a float")
		}
	case connectors.String:
		switch v.Text() {
		case "NaN":
			return math.NaN(), nil
		case "Infinity", "Inf", "+Infinity":
			return math.Inf(1), nil
		case "-Infinity", "-Inf":
			return math.Inf(-1), nil
		}
		return 0, wrong("a number", v)
	default:
		return 0, wrong("a number", v)
	}
	if bits == 32 && !math.IsInf(f, 0) && math.Abs(f) > math.MaxFloat32 {
		return 0, errors.New("the number is beyond the range of a float of 32 bits")
	}
	return f, nil
}

// Decimal reads a number or text exactly. With a precision it must fit: no digit is
// dropped, and zeros are added behind the point up to scale.
func Decimal(v connectors.Value, precision, scale int) (*apd.Decimal, error) {
	var d *apd.Decimal
	switch v.Kind() {
	case connectors.Int:
		d = apd.New(v.Int(), 0)
	case connectors.Float:
		d = new(apd.Decimal)
		if _, err := d.SetFloat64(v.Float()); err != nil || d.Form != apd.Finite {
			return nil, errors.New("a decimal number is wanted, not NaN or an infinity")
		}
	case connectors.Decimal, connectors.String:
		var err error
		if d, _, err = apd.NewFromString(v.Text()); err != nil || d.Form != apd.Finite {
			return nil, errors.New("a decimal number is wanted")
		}
	default:
		return nil, wrong("a decimal number", v)
	}
	if precision == 0 {
		return d, nil
	}
	return fit(d, precision, scale)
}

func fit(d *apd.Decimal, precision, scale int) (*apd.Decimal, error) {
	c := apd.BaseContext.WithPrecision(uint32(max(precision, int(d.NumDigits())) + scale + 1))
	c.Traps = apd.Inexact | apd.InvalidOperation | apd.Overflow
	out := new(apd.Decimal)
	if _, err := c.Quantize(out, d, int32(-scale)); err != nil {
		return nil, fmt.Errorf("the number has more than %d digits behind the point", scale)
	}
	if out.NumDigits() > int64(precision) && !out.IsZero() {
		return nil, fmt.Errorf("the number has more than the %d digits of decimal(%d, %d)", precision, precision, scale)
	}
	return out, nil
}

// Time reads a point in time: a timestamp, RFC 3339 text or epoch milliseconds.
func Time(v connectors.Value) (time.Time, error) {
	switch v.Kind() {
	case connectors.Timestamp:
		return v.Time(), nil
	case connectors.Int:
		return epoch(v.Int())
	case connectors.String:
		if t, err := time.Parse(time.RFC3339Nano, v.Text()); err == nil {
			return t, nil
		}
		return time.Time{}, errors.New("a point in time like 2026-01-31T23:59:59Z is wanted (a time without a zone belongs into a column without one)")
	}
	return time.Time{}, wrong("a point in time", v)
}

// epoch is a time by its milliseconds. Beyond the years that have a text, columns of
// microseconds would wrap around.
func epoch(ms int64) (time.Time, error) {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Time{}, errors.New("the time is outside of the years 0 to 9999: epoch milliseconds are wanted")
	}
	return t, nil
}

// LocalTime reads a date and time without a zone, as a time in UTC. Of a point in time it
// is what a clock in its own zone shows.
func LocalTime(v connectors.Value) (time.Time, error) {
	switch v.Kind() {
	case connectors.Timestamp:
		t := v.Time()
		_, offset := t.Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second), nil
	case connectors.String:
		text := v.Text()
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02"} {
			if t, err := time.Parse(layout, text); err == nil {
				return t, nil
			}
		}
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			_, offset := t.Zone()
			return t.UTC().Add(time.Duration(offset) * time.Second), nil
		}
		return time.Time{}, errors.New("a date and time like 2026-01-31T23:59:59 is wanted")
	case connectors.Int:
		return epoch(v.Int())
	}
	return time.Time{}, wrong("a date and time", v)
}

// Day reads a date, as midnight in UTC.
func Day(v connectors.Value) (time.Time, error) {
	t, err := LocalTime(v)
	if err != nil {
		return t, wrong("a date like 2026-01-31", v)
	}
	return t.Truncate(24 * time.Hour), nil
}

// TimeOfDay reads a time of day like 23:59:59.5, as the time since midnight.
func TimeOfDay(v connectors.Value) (time.Duration, error) {
	if v.Kind() == connectors.String {
		for _, layout := range []string{"15:04:05", "15:04"} {
			if t, err := time.Parse(layout, v.Text()); err == nil {
				return t.Sub(t.Truncate(24 * time.Hour)), nil
			}
		}
	}
	return 0, wrong("a time of day like 23:59:59", v)
}

// Span reads a duration.
func Span(v connectors.Value) (time.Duration, error) {
	switch v.Kind() {
	case connectors.Duration:
		return v.Duration(), nil
	case connectors.String:
		if d, err := connectors.ParseDuration(v.Text()); err == nil {
			return d, nil
		}
	}
	return 0, wrong("a duration like 1h30m", v)
}

// Bytes reads bytes, or text in base64, in memory of its own for the latter.
func Bytes(v connectors.Value) ([]byte, error) {
	switch v.Kind() {
	case connectors.Bytes:
		return v.Raw(), nil
	case connectors.String:
		b, err := base64.StdEncoding.AppendDecode(nil, v.Raw())
		if err != nil {
			return nil, errors.New("bytes are wanted, as text in base64")
		}
		return b, nil
	}
	return nil, wrong("bytes", v)
}

// Bool reads a truth value.
func Bool(v connectors.Value) (bool, error) {
	if v.Kind() != connectors.Bool {
		return false, wrong("true or false", v)
	}
	return v.Bool(), nil
}

// Text reads text, which is borrowed.
func Text(v connectors.Value) (string, error) {
	if v.Kind() != connectors.String {
		return "", wrong("text", v)
	}
	return v.Text(), nil
}

// UUID reads a UUID in its usual form, or 16 bytes.
func UUID(v connectors.Value) (u [16]byte, err error) {
	switch v.Kind() {
	case connectors.Bytes:
		if len(v.Raw()) == 16 {
			return [16]byte(v.Raw()), nil
		}
	case connectors.String:
		plain := strings.ReplaceAll(v.Text(), "-", "")
		if len(plain) == 32 {
			if _, err = hex.Decode(u[:], []byte(plain)); err == nil {
				return u, nil
			}
		}
	}
	return u, wrong("a UUID", v)
}
