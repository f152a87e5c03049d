package state

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// ErrCorrupt is what reading bytes fails with that no AppendValue made.
var ErrCorrupt = errors.New("the state is corrupt: a value cannot be read")

// AppendValue appends v to dst so that ReadValue gives back exactly it: the text
// of numbers and containers as it came, the zone of a timestamp. The form is part
// of checkpoints: a kind's tag and layout never change.
func AppendValue(dst []byte, v connectors.Value) []byte {
	k := v.Kind()
	dst = append(dst, byte(k))
	switch k {
	case connectors.Bool:
		if v.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case connectors.Int:
		return binary.AppendVarint(dst, v.Int())
	case connectors.Float:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.Float()))
	case connectors.Duration:
		return binary.AppendVarint(dst, int64(v.Duration()))
	case connectors.Timestamp:
		t := v.Time()
		_, offset := t.Zone()
		dst = binary.AppendVarint(dst, t.Unix())
		dst = binary.AppendVarint(dst, int64(offset/60))
		return binary.AppendUvarint(dst, uint64(t.Nanosecond()))
	case connectors.Decimal, connectors.String, connectors.Bytes, connectors.List, connectors.Map:
		raw := v.Raw()
		dst = binary.AppendUvarint(dst, uint64(len(raw)))
		return append(dst, raw...)
	default:
	}
	return dst
}

// ReadValue reads a value that AppendValue wrote and returns what is behind it.
// Text, bytes and containers borrow from src.
func ReadValue(src []byte) (v connectors.Value, rest []byte, err error) {
	if len(src) == 0 {
		return v, nil, ErrCorrupt
	}
	r := Reader{Rest: src[1:]}
	switch k := connectors.Kind(src[0]); k {
	case connectors.Absent:
	case connectors.Null:
		v = connectors.NullValue()
	case connectors.Bool:
		v = connectors.BoolValue(r.Next(1)[0] != 0)
	case connectors.Int:
		v = connectors.IntValue(r.Varint())
	case connectors.Float:
		v = connectors.FloatValue(math.Float64frombits(binary.LittleEndian.Uint64(r.Next(8))))
	case connectors.Duration:
		v = connectors.DurationValue(time.Duration(r.Varint()))
	case connectors.Timestamp:
		sec, zone, nanos := r.Varint(), r.Varint(), r.Uvarint()
		v = connectors.TimestampValue(time.Unix(sec, int64(nanos)).In(time.FixedZone("", int(zone)*60)))
	case connectors.Decimal, connectors.String, connectors.Bytes, connectors.List, connectors.Map:
		v = connectors.TextValue(k, r.Bytes())
	default:
		r.Bad = true
	}
	if r.Bad {
		return connectors.Value{}, nil, ErrCorrupt
	}
	return v, r.Rest, nil
}
