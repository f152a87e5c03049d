package connectors

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// Kind tells what a Value holds.
type Kind uint8

// The kinds of a value. Absent is the zero Kind, so a zeroed slot is an absent field.
const (
	Absent    Kind = iota // the record has no such field; reads as null
	Null                  // an explicit null
	Bool                  // true or false
	Int                   // a signed integer of 64 bits
	Float                 // an IEEE 754 double
	Decimal               // an exact decimal number, held as its text
	String                // UTF-8 text
	Bytes                 // bytes that are not text
	Timestamp             // a point in time with a zone offset
	Duration              // a span of time
	List                  // a list, held as its JSON text
	Map                   // a map of named fields, held as its JSON text
)

var kindNames = [...]string{"absent", "null", "bool", "int", "float", "decimal", "string", "bytes", "timestamp", "duration", "list", "map"}

// String names the kind in the words of the pipeline language.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Value is one field's value: a tagged union of 24 bytes that needs no
// allocation. Text, bytes and containers borrow the memory they were made from,
// usually the source's fetch buffer or a batch's arena: a Value lives no longer
// than the batch it was read in. Whoever keeps one copies its bytes.
//
// It has three fields since the compiler keeps structs of up to four in
// registers; one with more is copied through memory at every use.
type Value struct {
	p unsafe.Pointer
	n uint64
	// x is the kind in the lowest byte; of a Timestamp, also the minutes east of UTC
	// from bit 16 and the nanoseconds within the second of n from bit 32.
	x uint64
}

// NullValue is the explicit null.
func NullValue() Value { return Value{x: uint64(Null)} }

// BoolValue holds b.
func BoolValue(b bool) Value {
	v := Value{x: uint64(Bool)}
	if b {
		v.n = 1
	}
	return v
}

// IntValue holds i.
func IntValue(i int64) Value { return Value{x: uint64(Int), n: uint64(i)} }

// FloatValue holds f.
func FloatValue(f float64) Value { return Value{x: uint64(Float), n: math.Float64bits(f)} }

// DecimalValue holds the decimal number written as text, which must be a valid
// JSON number. The text is borrowed.
func DecimalValue(text string) Value { return textValue(Decimal, text) }

// StringValue holds s, which is borrowed.
func StringValue(s string) Value { return textValue(String, s) }

// BytesValue holds b, which is borrowed.
func BytesValue(b []byte) Value {
	return Value{x: uint64(Bytes), p: unsafe.Pointer(unsafe.SliceData(b)), n: uint64(len(b))}
}

// ListValue holds a list by its JSON text, which must be valid and is borrowed.
func ListValue(json []byte) Value {
	return Value{x: uint64(List), p: unsafe.Pointer(unsafe.SliceData(json)), n: uint64(len(json))}
}

// MapValue holds a map by its JSON text, which must be valid and is borrowed.
func MapValue(json []byte) Value {
	return Value{x: uint64(Map), p: unsafe.Pointer(unsafe.SliceData(json)), n: uint64(len(json))}
}

// TextValue holds text, which is borrowed, as a value of kind Decimal, String,
// Bytes, List or Map. It is what decoders use, which know the kind.
func TextValue(k Kind, text []byte) Value {
	return Value{x: uint64(k), p: unsafe.Pointer(unsafe.SliceData(text)), n: uint64(len(text))}
}

// TimestampValue holds t with its zone offset in whole minutes, to the nanosecond.
func TimestampValue(t time.Time) Value {
	_, offset := t.Zone()
	x := uint64(Timestamp) | uint64(uint16(offset/60))<<16 | uint64(t.Nanosecond())<<32
	return Value{x: x, n: uint64(t.Unix())}
}

// DurationValue holds d.
func DurationValue(d time.Duration) Value { return Value{x: uint64(Duration), n: uint64(d)} }

func textValue(k Kind, s string) Value {
	return Value{x: uint64(k), p: unsafe.Pointer(unsafe.StringData(s)), n: uint64(len(s))}
}

// Kind is what the value holds.
func (v Value) Kind() Kind { return Kind(v.x) }

// IsNull reports whether the value is null or absent.
func (v Value) IsNull() bool { return Kind(v.x) <= Null }

// Bool is the truth value of a Bool.
func (v Value) Bool() bool { return v.n != 0 }

// Int is the integer of an Int.
func (v Value) Int() int64 { return int64(v.n) }

// Float is the number of a Float.
func (v Value) Float() float64 { return math.Float64frombits(v.n) }

// Duration is the span of a Duration.
func (v Value) Duration() time.Duration { return time.Duration(v.n) }

// Time is the point in time of a Timestamp, in its own zone offset.
func (v Value) Time() time.Time {
	t := time.Unix(int64(v.n), int64(v.x>>32)).UTC()
	zone := int16(v.x >> 16)
	if zone == 0 {
		return t
	}
	return t.In(zoneOf(int(zone)))
}

// maxZone is the largest zone offset that is remembered, in minutes.
const maxZone = 18 * 60

// zones remembers the zones by their offset, since making one allocates.
var zones [2*maxZone + 1]atomic.Pointer[time.Location]

// zoneOf is the zone so many minutes east of UTC.
func zoneOf(minutes int) *time.Location {
	if minutes < -maxZone || minutes > maxZone {
		return time.FixedZone("", minutes*60)
	}
	at := &zones[minutes+maxZone]
	z := at.Load()
	if z == nil {
		z = time.FixedZone("", minutes*60)
		at.Store(z)
	}
	return z
}

// Text is the borrowed text of a Decimal, String, Bytes, List or Map.
func (v Value) Text() string {
	if v.n == 0 {
		return ""
	}
	return unsafe.String((*byte)(v.p), int(v.n))
}

// Raw is the borrowed bytes of a Decimal, String, Bytes, List or Map. They must
// not be written to.
func (v Value) Raw() []byte {
	if v.n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.p), int(v.n))
}
