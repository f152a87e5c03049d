package state

import "encoding/binary"

// ReadTimers shows the timers of one entry of the table that NewTimers is given: of a
// key in the bucket ns. tag is borrowed from value.
func ReadTimers(ns int64, value []byte, visit func(at int64, tag []byte)) error {
	if ns < MinTime>>bucketBits || ns > MaxTime>>bucketBits {
		return ErrCorrupt
	}
	for r := (Reader{Rest: value}); len(r.Rest) > 0; {
		off := binary.LittleEndian.Uint16(r.Next(2))
		tag := r.Bytes()
		if r.Bad || off > bucketMask {
			return ErrCorrupt
		}
		visit(ns<<bucketBits|int64(off), tag)
	}
	return nil
}
