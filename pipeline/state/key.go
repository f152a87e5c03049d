package state

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Tags of the encoding of keys. They are part of checkpoints and decide where
// keys live: a tag and its layout never change.
const (
	keyNull      = 1  // nothing behind it
	keyBool      = 2  // 1 byte
	keyInt       = 3  // 8 bytes, little endian
	keyFloat     = 4  // 8 bytes, little endian
	keyDecimal   = 5  // uvarint length, canonical text
	keyString    = 6  // uvarint length, the text's bytes
	keyBytes     = 7  // uvarint length, the bytes
	keyTimestamp = 8  // 8 bytes of seconds since 1970, 4 of nanoseconds, little endian
	keyDuration  = 9  // 8 bytes of nanoseconds, little endian
	keyList      = 10 // uvarint length, canonical JSON
	keyMap       = 11 // uvarint length, canonical JSON
)

// keyNaN is the one NaN that keys know.
const keyNaN = 0x7FF8000000000001

// AppendKey appends the canonical encoding of one value of a key to dst. Values
// that the language calls equal have the same encoding:
//
//   - Numbers go by value, whatever their kind: a whole one that fits 64 bits is an
//     int (1 = 1.0 = decimal 1.00, -0 = 0); another one a float where a float has
//     exactly that value (a float that is no whole number has the value of its shortest
//     text, 0.1 = decimal 0.1); the rest are decimals without needless zeros.
//     Beyond the language's ==, NaN is one key. A decimal whose exponent is beyond
//     10^15 goes by its text, as no expression reads it.
//   - Text goes by its bytes; bytes are never equal to text.
//   - Timestamps go by their instant, whatever their zone.
//   - Lists go by their elements and maps by their fields, whatever the order: they
//     are canonical JSON.
//   - Null and absent are one key.
//
// The encodings of several values in a row are a composite key: none is the beginning
// of another. Only lists, maps and very long decimals allocate.
func AppendKey(dst []byte, v connectors.Value) []byte {
	switch v.Kind() {
	case connectors.Int:
		return appendKey8(dst, keyInt, uint64(v.Int()))
	case connectors.String:
		return appendKeyText(dst, keyString, v.Raw())
	case connectors.Bool:
		if v.Bool() {
			return append(dst, keyBool, 1)
		}
		return append(dst, keyBool, 0)
	case connectors.Float:
		return appendFloatKey(dst, v.Float())
	case connectors.Decimal:
		return appendDecimalKey(dst, v.Raw())
	case connectors.Bytes:
		return appendKeyText(dst, keyBytes, v.Raw())
	case connectors.Timestamp:
		t := v.Time()
		dst = appendKey8(dst, keyTimestamp, uint64(t.Unix()))
		return binary.LittleEndian.AppendUint32(dst, uint32(t.Nanosecond()))
	case connectors.Duration:
		return appendKey8(dst, keyDuration, uint64(v.Duration()))
	case connectors.List:
		return appendContainerKey(dst, keyList, v)
	case connectors.Map:
		return appendContainerKey(dst, keyMap, v)
	default:
	}
	return append(dst, keyNull)
}

// appendKey8 appends a tag and 8 bytes. The length is fixed since xxh64 takes such
// a key in one step, and since keys of equal size lie densely in tables.
func appendKey8(dst []byte, tag byte, x uint64) []byte {
	return append(dst, tag, byte(x), byte(x>>8), byte(x>>16), byte(x>>24),
		byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56))
}

func appendKeyText(dst []byte, tag byte, text []byte) []byte {
	if len(text) < 0x80 {
		dst = append(dst, tag, byte(len(text)))
	} else {
		dst = binary.AppendUvarint(append(dst, tag), uint64(len(text)))
	}
	return append(dst, text...)
}

func appendFloatKey(dst []byte, f float64) []byte {
	switch {
	case f == math.Trunc(f) && f >= -1<<63 && f < 1<<63:
		return appendKey8(dst, keyInt, uint64(int64(f)))
	case f != f:
		return appendKey8(dst, keyFloat, keyNaN)
	}
	return appendKey8(dst, keyFloat, math.Float64bits(f))
}

// ReadKey reads the first value of a key and returns what is behind it: the
// canonical one of all values that are equal to it, an int where there is one, and
// timestamps in UTC. Text, bytes and containers borrow from src.
func ReadKey(src []byte) (v connectors.Value, rest []byte, err error) {
	if len(src) == 0 {
		return v, nil, ErrCorrupt
	}
	r := Reader{Rest: src[1:]}
	switch src[0] {
	case keyNull:
		v = connectors.NullValue()
	case keyBool:
		b := r.Next(1)[0]
		v, r.Bad = connectors.BoolValue(b != 0), r.Bad || b > 1
	case keyInt:
		v = connectors.IntValue(int64(binary.LittleEndian.Uint64(r.Next(8))))
	case keyFloat:
		v = connectors.FloatValue(math.Float64frombits(binary.LittleEndian.Uint64(r.Next(8))))
	case keyDuration:
		v = connectors.DurationValue(time.Duration(binary.LittleEndian.Uint64(r.Next(8))))
	case keyTimestamp:
		sec := int64(binary.LittleEndian.Uint64(r.Next(8)))
		nanos := binary.LittleEndian.Uint32(r.Next(4))
		v = connectors.TimestampValue(time.Unix(sec, int64(nanos)).UTC())
		r.Bad = r.Bad || nanos >= 1e9
	case keyDecimal:
		v = connectors.TextValue(connectors.Decimal, r.Bytes())
	case keyString:
		v = connectors.TextValue(connectors.String, r.Bytes())
	case keyBytes:
		v = connectors.TextValue(connectors.Bytes, r.Bytes())
	case keyList:
		v = connectors.TextValue(connectors.List, r.Bytes())
	case keyMap:
		v = connectors.TextValue(connectors.Map, r.Bytes())
	default:
		r.Bad = true
	}
	if r.Bad {
		return connectors.Value{}, nil, ErrCorrupt
	}
	return v, r.Rest, nil
}
