package deferred

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sluice-etl/sluice/connectors"
)

// Rows are kept in blocks, each compressed by itself:
//
//	length before and after compression, 4 bytes each; checksum of these and of what
//	follows, 8 bytes; then, compressed: the rows; what is known of the records that they
//	were made of; the length of each row, a varint; and in the last 13 bytes how long the
//	rows and the part about records are, the number of rows, and 1 where records are kept
//	whole, else 0
//
// The rows stand first so that they are compressed where they were made. A file begins
// with a line of its own that says so.
const (
	blockSize    = 256 << 10
	blockHeader  = 16
	blockTrailer = 13
	maxBlock     = 1 << 30 // a longer one is damage
)

// fileMagic begins a file of kept rows; the last byte is the version.
const fileMagic = "sluice rows 2\n"

var errDamaged = errors.New("the kept rows are damaged")

// packer collects rows into blocks.
type packer struct {
	originals bool // records are kept whole
	lens      []int
	rows      []byte
	meta      []byte
	last      *connectors.Origin
	offset    int64
	out       []byte
}

// record notes what row i of rows was made of.
func (p *packer) record(rows *connectors.Rows, i int) {
	r := rows.Record(i)
	switch {
	case r.Origin == nil:
		p.meta = append(p.meta, noOrigin)
	case p.last == r.Origin || p.last != nil && *p.last == *r.Origin:
		p.meta = append(p.meta, sameOrigin)
		p.meta = binary.AppendVarint(p.meta, r.Offset-p.offset)
		p.offset = r.Offset
	default:
		p.meta = append(p.meta, newOrigin)
		p.meta = appendBytes(p.meta, r.Origin.Topic)
		p.meta = binary.AppendVarint(p.meta, int64(r.Origin.Partition))
		p.meta = binary.AppendVarint(p.meta, r.Offset)
		p.last, p.offset = r.Origin, r.Offset
	}
	if !p.originals {
		return
	}
	value := rows.Values[i]
	if r.Origin != nil || rows.Batch.Originals != nil {
		value = rows.Batch.Original(int(rows.Sel[i]))
	}
	p.meta = appendNullable(p.meta, r.Key)
	p.meta = appendNullable(p.meta, value)
	p.meta = binary.AppendVarint(p.meta, r.Time)
	p.meta = binary.AppendUvarint(p.meta, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		p.meta = appendBytes(p.meta, h.Key)
		p.meta = appendNullable(p.meta, h.Value)
	}
}

// What the note of a row begins with.
const (
	noOrigin   = 0
	sameOrigin = 1 // as the row before it
	newOrigin  = 2
)

func appendBytes[T string | []byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...)
}

func (p *packer) size() int { return len(p.rows) + len(p.meta) }

// pack makes a block of what was collected, in memory of its own, and begins anew.
func (p *packer) pack() []byte {
	raw := append(p.rows, p.meta...)
	for _, n := range p.lens {
		raw = binary.AppendUvarint(raw, uint64(n))
	}
	for _, n := range [...]int{len(p.rows), len(p.meta), len(p.lens)} {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(n))
	}
	if p.originals {
		raw = append(raw, 1)
	} else {
		raw = append(raw, 0)
	}
	if n := blockHeader + s2.MaxEncodedLen(len(raw)); cap(p.out) < n {
		p.out = make([]byte, n)
	}
	packed := s2.Encode(p.out[blockHeader:cap(p.out)], raw)
	block := make([]byte, blockHeader+len(packed))
	copy(block[blockHeader:], packed)
	binary.LittleEndian.PutUint32(block, uint32(len(raw)))
	binary.LittleEndian.PutUint32(block[4:], uint32(len(packed)))
	binary.LittleEndian.PutUint64(block[8:], checksum(block[:8], block[blockHeader:]))
	p.lens, p.last, p.offset = p.lens[:0], nil, 0
	p.rows, p.meta, p.out = keep(raw), keep(p.meta), keep(p.out)
	return block
}

// keep empties a buffer, and lets go of one that a long row has grown.
func keep(b []byte) []byte {
	if cap(b) > 8*blockSize {
		return nil
	}
	return b[:0]
}

func checksum(header, packed []byte) uint64 {
	d := xxhash.New()
	_, _ = d.Write(header)
	_, _ = d.Write(packed)
	return d.Sum64()
}

// Block is some rows, valid until the next one is read.
type Block struct {
	// Data is the kept forms of the rows, one behind the other.
	Data []byte
	// Rows are the same by themselves.
	Rows [][]byte

	records   []connectors.Record // once asked for
	meta      []byte
	originals bool
	raw       []byte
	packed    []byte
}

// Record is what row i was made of: where it is from, and, where on_error is
// dead_letter, its key, value, headers and time.
func (b *Block) Record(i int) connectors.Record {
	if len(b.records) == 0 {
		b.unpackRecords()
	}
	return b.records[i]
}

// read reads the next block; io.EOF says that there is none.
func (b *Block) read(r io.Reader) error {
	var header [blockHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errDamaged
		}
		return err
	}
	plain, packed := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[4:])
	if plain > maxBlock || packed > maxBlock+maxBlock/4 {
		return errDamaged
	}
	if cap(b.packed) < int(packed) {
		b.packed = make([]byte, packed)
	}
	b.packed = b.packed[:packed]
	if _, err := io.ReadFull(r, b.packed); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errDamaged
		}
		return err
	}
	if checksum(header[:8], b.packed) != binary.LittleEndian.Uint64(header[8:]) {
		return errDamaged
	}
	raw, err := s2.Decode(b.raw[:cap(b.raw)], b.packed)
	if err != nil || len(raw) != int(plain) {
		return errDamaged
	}
	b.raw = raw
	return b.unpack()
}

func (b *Block) unpack() error {
	end := len(b.raw) - blockTrailer
	if end < 0 {
		return errDamaged
	}
	trailer := b.raw[end:]
	number := func(i int) int { return int(binary.LittleEndian.Uint32(trailer[4*i:])) }
	rows, meta, n := number(0), number(1), number(2)
	if rows+meta+n > end { // a length takes a byte at least
		return errDamaged
	}
	b.originals = trailer[12] == 1
	b.Data, b.meta = b.raw[:rows:rows], b.raw[rows:rows+meta]
	b.Rows, b.records = b.Rows[:0], b.records[:0]
	c := cursor{rest: b.raw[rows+meta : end]}
	rest := b.Data
	for range n {
		l := c.uvarint()
		if l > uint64(len(rest)) {
			return errDamaged
		}
		b.Rows = append(b.Rows, rest[:l:l])
		rest = rest[l:]
	}
	if c.bad || len(rest) > 0 || len(c.rest) > 0 {
		return errDamaged
	}
	return nil
}

// unpackRecords reads the notes about records, which few callers ask for. The checksum
// was right, so they are.
func (b *Block) unpackRecords() {
	c := cursor{rest: b.meta}
	var last *connectors.Origin
	var offset int64
	for range b.Rows {
		r := connectors.Record{Mark: connectors.NoMark}
		switch c.byte() {
		case sameOrigin:
			offset += c.varint()
			r.Origin, r.Offset = last, offset
		case newOrigin:
			last = &connectors.Origin{Topic: string(c.bytes()), Partition: int32(c.varint())}
			offset = c.varint()
			r.Origin, r.Offset = last, offset
		}
		if b.originals {
			c.original(&r)
		}
		b.records = append(b.records, r)
	}
}

// cursor reads what a block holds.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) original(r *connectors.Record) {
	r.Key, r.Value, r.Time = c.nullable(), c.nullable(), c.varint()
	for range c.length() {
		r.Headers = append(r.Headers, connectors.Header{Key: string(c.bytes()), Value: c.nullable()})
	}
}

func (c *cursor) byte() byte {
	if len(c.rest) == 0 {
		c.bad = true
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uvarint() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.bad, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

func (c *cursor) varint() int64 {
	n, size := binary.Varint(c.rest)
	if size <= 0 {
		c.bad, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

// length is a number of things or bytes, of which each takes a byte at least.
func (c *cursor) length() int {
	n := c.uvarint()
	if n > uint64(len(c.rest)) {
		c.bad, c.rest = true, nil
		return 0
	}
	return int(n)
}

func (c *cursor) bytes() []byte {
	n := c.length()
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) nullable() []byte {
	n := c.uvarint()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(c.rest)) {
		c.bad, c.rest = true, nil
		return nil
	}
	b := c.rest[: n-1 : n-1]
	c.rest = c.rest[n-1:]
	return b
}

// damaged says which rows cannot be read.
func damaged(what string, err error) error {
	if errors.Is(err, errDamaged) {
		return connectors.Permanent(fmt.Errorf("read %s: %w", what, err))
	}
	return fmt.Errorf("read %s: %w", what, err)
}
