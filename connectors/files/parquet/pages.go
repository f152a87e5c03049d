package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go/format"
)

// ErrTooLarge is reported of a page that is larger than allowed: a few bytes can claim to
// be two gigabytes.
var ErrTooLarge = fmt.Errorf("a page is larger than %d times max_line", pageLines)

// pageLines is how many of the longest records a page may hold, unpacked. Most writers end
// pages at a megabyte, and some have a page for each row group.
const pageLines = 16

// A value takes four bytes at most beside its own, as an index and its levels do, and one
// that repeats takes nothing of the page. So values are counted apart.
const bytesPerValue = 4

// pages reads a file, and looks at its footer and at each header of a page before it gives
// them out. Memory is taken by what they say.
type pages struct {
	io.ReaderAt
	size   int64
	footer int64   // bytes of the footer, once known
	limit  int64   // bytes of a page, unpacked
	chunks []chunk // of the row group that is being read
}

// chunk is where the pages of a column lie.
type chunk struct {
	column string
	next   int64 // the header that comes next
	data   int64 // where pages of data begin, behind the dictionary
	end    int64
}

// enter says which row group is read from now on.
func (p *pages) enter(g *format.RowGroup) {
	p.chunks = p.chunks[:0]
	for i := range g.Columns {
		m := &g.Columns[i].MetaData
		c := chunk{column: strings.Join(m.PathInSchema, "."), next: m.DataPageOffset, data: m.DataPageOffset}
		if m.DictionaryPageOffset != 0 {
			c.next = m.DictionaryPageOffset
		}
		c.end = c.next + min(max(m.TotalCompressedSize, 0), p.size)
		p.chunks = append(p.chunks, c)
	}
}

// ReadAt reads at an offset. One that no file of this size has is not asked of the
// storage, whose errors are taken for such as pass.
func (p *pages) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off > p.size {
		return 0, fmt.Errorf("the file is damaged: something of it is said to be at byte %d of %d", off, p.size)
	}
	n, err := p.ReaderAt.ReadAt(b, off)
	if fault := p.lookAtFooter(b[:n], off); fault != nil {
		return 0, fault
	}
	for i := range p.chunks {
		c := &p.chunks[i]
		if off >= c.end {
			continue
		}
		for c.next < min(off+int64(n), c.end) {
			var have []byte
			if c.next >= off {
				have = b[c.next-off : n]
			}
			if fault := p.look(c, have); fault != nil {
				return 0, fault
			}
		}
	}
	return n, err
}

// trailerSize is the bytes behind the footer: its length and the magic text.
const trailerSize = 8

var errFooter = errors.New("the footer is damaged")

// lookAtFooter looks at the footer's length, and at the footer, where they are what was
// read. Each element of a list takes a byte at least, so that one which is read to its end
// claims no more than it has.
func (p *pages) lookAtFooter(b []byte, off int64) error {
	switch end := off + int64(len(b)); {
	case end == p.size && len(b) >= trailerSize:
		p.footer = int64(binary.LittleEndian.Uint32(b[len(b)-trailerSize:]))
		if p.footer > p.size-trailerSize {
			return fmt.Errorf("%w: it claims %d bytes, and the file has %d", errFooter, p.footer, p.size)
		}
	case end == p.size-trailerSize && int64(len(b)) == p.footer:
		t := compact{rest: b}
		t.fields(0, func(int64, byte) bool { return false })
		if t.err != nil {
			return errFooter
		}
	}
	return nil
}

// look goes behind the next page of a chunk, whose first bytes may be at hand.
func (p *pages) look(c *chunk, have []byte) error {
	h, size, err := parseHeader(have)
	for n := int64(64 << 10); errors.Is(err, errShort); n *= 16 {
		more := make([]byte, min(n, c.end-c.next, p.limit))
		got, readErr := p.ReaderAt.ReadAt(more, c.next)
		if h, size, err = parseHeader(more[:got]); errors.Is(err, errShort) && int64(got) < n {
			if readErr != nil && !errors.Is(readErr, io.EOF) {
				return readErr
			}
			err = errHeader
		}
	}
	if err != nil {
		return fmt.Errorf("column %s: %w", c.column, err)
	}
	left := c.end - c.next - int64(size)
	switch {
	case h.packed < 0 || h.unpacked < 0 || h.packed > left:
		return fmt.Errorf("column %s: a page claims %d bytes, %d unpacked, of %d values, and the column has %d left", c.column, h.packed, h.unpacked, h.values, left)
	case h.unpacked > p.limit, h.packed > p.limit, h.values > p.limit/bytesPerValue:
		return fmt.Errorf("%w: column %s has one of %d bytes, %d unpacked, of %d values", ErrTooLarge, c.column, h.packed, h.unpacked, h.values)
	}
	from := c.next
	c.next += int64(size) + h.packed
	if from < c.data && c.next > c.data {
		return fmt.Errorf("column %s: its dictionary reaches into its pages of data", c.column)
	}
	return nil
}

// header is what the header of a page says of its size.
type header struct {
	unpacked, packed, values int64
}

var (
	errShort  = errors.New("the header of a page goes on")
	errHeader = errors.New("the header of a page is damaged, or too long")
)

// The types of Thrift's compact protocol.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// parseHeader reads a PageHeader of Parquet, and how many bytes it has. It takes no memory
// for what it passes over. errShort says that b ends before it does.
func parseHeader(b []byte) (h header, size int, err error) {
	t := compact{rest: b}
	t.fields(0, func(id int64, kind byte) bool {
		switch {
		case id == 2 && kind == thriftI32:
			h.unpacked = t.varint()
		case id == 3 && kind == thriftI32:
			h.packed = t.varint()
		case (id == 5 || id == 7 || id == 8) && kind == thriftStruct: // of data, a dictionary, data in version 2
			t.fields(1, func(id int64, kind byte) bool {
				if id != 1 || kind != thriftI32 {
					return false
				}
				h.values = max(h.values, t.varint())
				return true
			})
		default:
			return false
		}
		return true
	})
	return h, len(b) - len(t.rest), t.err
}

// compact reads Thrift's compact protocol.
type compact struct {
	rest []byte
	err  error
}

// fields calls take for each field of a struct. What take does not read is passed over.
func (t *compact) fields(depth int, take func(id int64, kind byte) bool) {
	var id int64
	for t.err == nil {
		b := t.byte()
		kind := b & 15
		if kind == thriftStop {
			return
		}
		if delta := int64(b >> 4); delta > 0 {
			id += delta
		} else {
			id = t.varint()
		}
		if t.err == nil && !take(id, kind) {
			t.skip(kind, depth)
		}
	}
}

// maxDepth is how far values lie within each other at most.
const maxDepth = 16

func (t *compact) skip(kind byte, depth int) {
	if depth > maxDepth {
		t.fail(errHeader)
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.varint()
	case thriftDouble:
		t.take(8)
	case thriftBinary:
		t.take(t.uvarint())
	case thriftList, thriftSet:
		t.list(depth)
	case thriftMap:
		if n := t.uvarint(); n > 0 {
			kinds := t.byte()
			for ; n > 0 && t.err == nil; n-- {
				t.item(kinds>>4, depth)
				t.item(kinds&15, depth)
			}
		}
	case thriftStruct:
		t.fields(depth+1, func(int64, byte) bool { return false })
	default:
		t.fail(errHeader)
	}
}

func (t *compact) list(depth int) {
	b := t.byte()
	n := uint64(b >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	for ; n > 0 && t.err == nil; n-- {
		t.item(b&15, depth)
	}
}

// item passes over a value in a list or map, where truth takes a byte.
func (t *compact) item(kind byte, depth int) {
	if kind == thriftTrue || kind == thriftFalse {
		t.byte()
		return
	}
	t.skip(kind, depth+1)
}

func (t *compact) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *compact) take(n uint64) {
	if n > uint64(len(t.rest)) {
		t.fail(errShort)
		return
	}
	t.rest = t.rest[n:]
}

func (t *compact) byte() byte {
	if len(t.rest) == 0 {
		t.fail(errShort)
		return thriftStop
	}
	b := t.rest[0]
	t.rest = t.rest[1:]
	return b
}

func (t *compact) uvarint() uint64 {
	n, size := binary.Uvarint(t.rest)
	t.behind(size)
	return n
}

func (t *compact) varint() int64 {
	n, size := binary.Varint(t.rest)
	t.behind(size)
	return n
}

// behind goes on behind a number of so many bytes.
func (t *compact) behind(size int) {
	switch {
	case size > 0:
		t.rest = t.rest[size:]
	case size == 0:
		t.fail(errShort)
	default:
		t.fail(errHeader)
	}
}
