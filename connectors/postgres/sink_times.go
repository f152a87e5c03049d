package postgres

import (
	"errors"
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

// The first year that has a form in this text, and the last of PostgreSQL's.
const (
	firstYear = 1
	lastYear  = 294275
)

var errYear = errors.New("the time is outside of the years 1 to 294275")

func appendInstant(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := instant(v)
	if err != nil {
		return dst, err
	}
	dst, err = appendMoment(dst, t.UTC())
	return append(dst, "+00"...), err
}

func appendLocal(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := local(v)
	if err != nil {
		return dst, err
	}
	return appendMoment(dst, t)
}

// appendMoment writes a time to the microsecond; what is finer is cut off.
func appendMoment(dst []byte, t time.Time) ([]byte, error) {
	dst, err := appendDay(dst, t)
	if err != nil {
		return dst, err
	}
	h, m, s := t.Clock()
	return appendClock(append(dst, ' '), h, m, s, t.Nanosecond()/1000), nil
}

func appendDay(dst []byte, t time.Time) ([]byte, error) {
	year, month, day := t.Date()
	if year < firstYear || year > lastYear {
		return dst, errYear
	}
	for limit := 1000; limit > year; limit /= 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, int64(year), 10)
	return append(dst, '-', '0'+byte(month/10), '0'+byte(month%10), '-', '0'+byte(day/10), '0'+byte(day%10)), nil
}

func appendClock(dst []byte, h, m, s, micros int) []byte {
	dst = append(dst, '0'+byte(h/10), '0'+byte(h%10), ':', '0'+byte(m/10), '0'+byte(m%10), ':', '0'+byte(s/10), '0'+byte(s%10))
	if micros == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := 100000; micros > 0; unit /= 10 {
		dst = append(dst, '0'+byte(micros/unit))
		micros %= unit
	}
	return dst
}

func appendDate(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := columns.Day(v)
	if err != nil {
		return dst, err
	}
	return appendDay(dst, t)
}

func appendTime(dst []byte, v connectors.Value) ([]byte, error) {
	d, err := columns.TimeOfDay(v)
	if err != nil {
		return dst, err
	}
	s := int(d / time.Second)
	return appendClock(dst, s/3600, s/60%60, s%60, int(d%time.Second/time.Microsecond)), nil
}

func appendInterval(dst []byte, v connectors.Value) ([]byte, error) {
	d, err := columns.Span(v)
	if err != nil {
		return dst, err
	}
	return append(strconv.AppendInt(dst, d.Microseconds(), 10), " microseconds"...), nil
}
