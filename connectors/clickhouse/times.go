package clickhouse

import (
	"errors"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

const day = 24 * 60 * 60 // seconds

// The days that Date32 and DateTime64 have.
var (
	firstDay = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2299, 12, 31, 0, 0, 0, 0, time.UTC)
)

func appendDate(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := columns.Day(v)
	days := t.Unix() / day
	if err == nil && (t.Unix() < 0 || days > math.MaxUint16) {
		err = errors.New("the date is outside of 1970-01-01 to 2149-06-06: use Date32")
	}
	return appendLittle(dst, uint64(days), 2), err
}

func appendDate32(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := columns.Day(v)
	if err == nil && (t.Before(firstDay) || t.After(lastDay)) {
		err = errors.New("the date is outside of the years 1900 to 2299")
	}
	return appendLittle(dst, uint64(t.Unix()/day), 4), err
}

// moment reads a point in time. One without a zone is taken by columns whose zone is UTC.
func moment(v connectors.Value, utc bool) (time.Time, error) {
	t, err := columns.Time(v)
	if err == nil || v.Kind() != connectors.String {
		return t, err
	}
	local, fault := columns.LocalTime(v)
	switch {
	case fault != nil:
		return t, errors.New("a point in time like 2026-01-31T23:59:59Z is wanted")
	case !utc:
		return t, errors.New("a time without a zone is taken only by columns of the zone UTC")
	}
	return local, nil
}

func appendSeconds(utc bool) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		t, err := moment(v, utc)
		if err == nil && (t.Unix() < 0 || t.Unix() > math.MaxUint32) {
			err = errors.New("the time is outside of 1970 to 2106-02-07: use DateTime64")
		}
		return appendLittle(dst, uint64(t.Unix()), 4), err
	}
}

// appendTicks writes times with so many digits of seconds; what is finer is cut off.
func appendTicks(digits int, utc bool) appendFunc {
	unit := pow10(digits)
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		t, err := moment(v, utc)
		if err != nil {
			return dst, err
		}
		if sec := t.Unix(); t.Before(firstDay) || !t.Before(lastDay.AddDate(0, 0, 1)) || sec > math.MaxInt64/unit-1 {
			return dst, errors.New("the time is outside of the years 1900 to 2299, or 2262 with 9 digits of seconds")
		}
		ticks := t.Unix()*unit + int64(t.Nanosecond())/pow10(9-digits)
		return appendLittle(dst, uint64(ticks), 8), nil
	}
}

func pow10(n int) int64 {
	out := int64(1)
	for range n {
		out *= 10
	}
	return out
}

func appendTime(dst []byte, v connectors.Value) ([]byte, error) {
	d, err := columns.TimeOfDay(v)
	return appendLittle(dst, uint64(d/time.Second), 4), err
}

func appendTime64(digits int) appendFunc {
	unit := time.Duration(pow10(9 - digits))
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		d, err := columns.TimeOfDay(v)
		return appendLittle(dst, uint64(d/unit), 8), err
	}
}
