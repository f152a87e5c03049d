package state

import "encoding/binary"

// Reader takes stored bytes apart. Where there are too few, or none that make sense,
// Bad says so, nothing is left, and what was read means nothing.
type Reader struct {
	Rest []byte
	Bad  bool
}

var zeros [8]byte

func (r *Reader) fail() { r.Bad, r.Rest = true, nil }

// Next is the next n bytes, at most 8; zeros where there are too few.
func (r *Reader) Next(n int) []byte {
	if len(r.Rest) < n {
		r.fail()
		return zeros[:n]
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Byte is the next byte.
func (r *Reader) Byte() byte { return r.Next(1)[0] }

// Varint is the next number that binary.AppendVarint wrote.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Uvarint is the next number that binary.AppendUvarint wrote.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes is the next bytes with their length, as a uvarint, in front. They borrow
// from what is read.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.fail()
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}
