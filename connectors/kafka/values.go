package kafka

import (
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// appendValue appends the text of v as a key or header holds it: text and bytes
// as they are, containers as JSON, numbers in decimal, times in RFC 3339.
func appendValue(dst []byte, v connectors.Value) []byte {
	switch v.Kind() {
	case connectors.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10)
	case connectors.Float:
		return strconv.AppendFloat(dst, v.Float(), 'g', -1, 64)
	case connectors.Timestamp:
		return v.Time().AppendFormat(dst, time.RFC3339Nano)
	case connectors.Duration:
		return append(dst, v.Duration().String()...)
	case connectors.Absent, connectors.Null:
		return dst
	}
	return append(dst, v.Raw()...)
}

// maxFixedText bounds the text of a value that is no text by itself.
const maxFixedText = 64

// valueBytes is at least what appendValue needs.
func valueBytes(v connectors.Value) int {
	switch v.Kind() {
	case connectors.Decimal, connectors.String, connectors.Bytes, connectors.List, connectors.Map:
		return len(v.Raw())
	}
	return maxFixedText
}
