package disk

import (
	"encoding/binary"
	"fmt"
)

// The database's keys are
//
//	key group (2 bytes) | table (2) | namespace (8, the sign turned) | key
//
// in big endian, so that a namespace of a group is one range, and a group too.
// Behind all groups stand the names of the tables.
const (
	groupSize  = 2
	prefixSize = groupSize + 2 + 8
	namesGroup = 0xFFFF
	// MaxGroups is how many key groups there can be in all.
	MaxGroups = namesGroup
)

func appendGroup(dst []byte, group int) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(group))
}

func appendPrefix(dst []byte, group int, table uint16, ns int64) []byte {
	dst = appendGroup(dst, group)
	dst = binary.BigEndian.AppendUint16(dst, table)
	return binary.BigEndian.AppendUint64(dst, uint64(ns)^1<<63)
}

// appendPrefixEnd appends the first key behind all of a prefix.
func appendPrefixEnd(dst []byte, group int, table uint16, ns int64) []byte {
	at := len(dst)
	dst = appendPrefix(dst, group, table, ns)
	return after(dst, at)
}

// after makes of the bytes behind at the first that no key with them as its prefix
// reaches.
func after(key []byte, at int) []byte {
	for i := len(key) - 1; i >= at; i-- {
		key[i]++
		if key[i] != 0 {
			return key
		}
	}
	return append(key[:at], 0xFF, 0xFF, 0xFF)
}

func splitKey(b []byte) (group int, table uint16, ns int64, key []byte, err error) {
	if len(b) < prefixSize {
		return 0, 0, 0, nil, fmt.Errorf("a key of %d bytes: %w", len(b), errDamaged)
	}
	group = int(binary.BigEndian.Uint16(b))
	table = binary.BigEndian.Uint16(b[groupSize:])
	ns = int64(binary.BigEndian.Uint64(b[groupSize+2:]) ^ 1<<63)
	return group, table, ns, b[prefixSize:], nil
}

func nameKey(table uint16) []byte {
	return binary.BigEndian.AppendUint16(appendGroup(nil, namesGroup), table)
}
