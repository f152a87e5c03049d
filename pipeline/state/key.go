package state

import (
	"github.com/sluice-etl/sluice/connectors"
)

// AppendKey appends the canonical encoding of one value of a key to dst. Values
// that the language calls equal have the same encoding: numbers go by exact value,
// whatever their kind. The encodings of several values in a row are a composite key.
func AppendKey(dst []byte, v connectors.Value) []byte { return AppendValue(dst, v) }

// ReadKey reads the first value of a key and returns what is behind it: the
// canonical one of all values that are equal to it, an int where there is one.
func ReadKey(src []byte) (v connectors.Value, rest []byte, err error) { return ReadValue(src) }
