package expr

import (
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Type is what is known of a value before it is there: the set of kinds that it
// may have. An absent field counts as null.
type Type uint32

// Sets of kinds. Single kinds are made with Of.
const (
	// Any is a value of which nothing is known.
	Any = nullBit | Type(1<<connectors.Bool|1<<connectors.Int|1<<connectors.Float|1<<connectors.Decimal|
		1<<connectors.String|1<<connectors.Bytes|1<<connectors.Timestamp|1<<connectors.Duration|
		1<<connectors.List|1<<connectors.Map)
	// Bool is what a condition must be.
	Bool = Type(1 << connectors.Bool)
	// Number is any of the three kinds of number.
	Number = Type(1<<connectors.Int | 1<<connectors.Float | 1<<connectors.Decimal)
	// Text is a string.
	Text = Type(1 << connectors.String)
	// Time is what functions of time take: a timestamp, epoch milliseconds or RFC 3339 text.
	Time = Type(1<<connectors.Timestamp | 1<<connectors.Int | 1<<connectors.String)
)

const (
	nullBit  = Type(1<<connectors.Absent | 1<<connectors.Null)
	intBit   = Type(1 << connectors.Int)
	floatBit = Type(1 << connectors.Float)
	decBit   = Type(1 << connectors.Decimal)
	textBit  = Type(1 << connectors.String)
	bytesBit = Type(1 << connectors.Bytes)
	stampBit = Type(1 << connectors.Timestamp)
	spanBit  = Type(1 << connectors.Duration)
	listBit  = Type(1 << connectors.List)
	mapBit   = Type(1 << connectors.Map)
)

// Of is the type of values of one kind.
func Of(k connectors.Kind) Type {
	if k <= connectors.Null {
		return nullBit
	}
	return 1 << k
}

// Nullable is t or null.
func (t Type) Nullable() Type { return t | nullBit }

// MayBeNull reports whether a value of t may be null.
func (t Type) MayBeNull() bool { return t&nullBit != 0 }

// NonNull is t without null.
func (t Type) NonNull() Type { return t &^ nullBit }

// Has reports whether a value of t may be of kind k.
func (t Type) Has(k connectors.Kind) bool { return t&(1<<k) != 0 }

// Overlaps reports whether a value may be of t and of u.
func (t Type) Overlaps(u Type) bool { return t&u != 0 }

// Within reports whether every value of t is one of u.
func (t Type) Within(u Type) bool { return t&^u == 0 }

// Kind is the only kind that a value of t may have, and false where there are
// several.
func (t Type) Kind() (connectors.Kind, bool) {
	if t == nullBit {
		return connectors.Null, true
	}
	for k := connectors.Bool; k <= connectors.Map; k++ {
		if t == 1<<k {
			return k, true
		}
	}
	return connectors.Absent, false
}

// String names the type in the words of the pipeline language, such as
// "int or null".
func (t Type) String() string {
	switch {
	case t == Any:
		return "any"
	case t == Any.NonNull():
		return "any but null"
	case t == 0:
		return "nothing"
	}
	var names []string
	for k := connectors.Bool; k <= connectors.Map; k++ {
		if t.Has(k) {
			names = append(names, k.String())
		}
	}
	if t&Number == Number {
		names = append([]string{"number"}, without(names, "int", "float", "decimal")...)
	}
	if t.MayBeNull() {
		names = append(names, "null")
	}
	if n := len(names); n > 2 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, " or ")
}

func without(names []string, drop ...string) []string {
	var kept []string
next:
	for _, n := range names {
		for _, d := range drop {
			if n == d {
				continue next
			}
		}
		kept = append(kept, n)
	}
	return kept
}
