package format

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Why AppendValue refuses a value.
var (
	errNotFinite = errors.New("NaN and infinity cannot be written as JSON")
	errYear      = errors.New("a timestamp outside of the years 0 to 9999 cannot be written as RFC 3339")
)

// AppendValue appends v as JSON: an absent value as null, a timestamp in RFC 3339
// with its offset, a duration in Go's form, bytes in base64, a decimal with its
// scale, a float in the shortest form that reads back as it. Lists and maps are
// copied. It fails for a float that is not finite and for a year that RFC 3339
// cannot express, and returns dst then.
func AppendValue(dst []byte, v connectors.Value) ([]byte, error) {
	switch v.Kind() {
	case connectors.Absent, connectors.Null:
		return append(dst, "null"...), nil
	case connectors.Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case connectors.String:
		return AppendString(dst, v.Text()), nil
	case connectors.Float:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return dst, errNotFinite
		}
		return appendFloat(dst, f), nil
	case connectors.Bytes, connectors.Timestamp, connectors.Duration:
		return appendQuoted(dst, v)
	default:
		// A Decimal, a List or a Map is held as its JSON text.
		return append(dst, v.Text()...), nil
	}
}

// appendQuoted appends bytes, a duration or a timestamp as a string.
func appendQuoted(dst []byte, v connectors.Value) ([]byte, error) {
	dst = append(dst, '"')
	switch v.Kind() {
	case connectors.Bytes:
		dst = base64.StdEncoding.AppendEncode(dst, v.Raw())
	case connectors.Duration:
		dst = append(dst, v.Duration().String()...)
	default:
		t := v.Time()
		if y := t.Year(); y < 0 || y > 9999 {
			return dst[:len(dst)-1], errYear
		}
		dst = t.AppendFormat(dst, time.RFC3339Nano)
	}
	return append(dst, '"'), nil
}
