package parquet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// Compressions are the compressions within a file, by the names that users write.
var Compressions = []string{"none", "gzip", "zstd", "snappy", "lz4"}

func codec(name string) compress.Codec {
	switch name {
	case "gzip":
		return &parquet.Gzip
	case "zstd":
		return &parquet.Zstd
	case "snappy":
		return &parquet.Snappy
	case "lz4":
		return &parquet.Lz4Raw
	}
	return &parquet.Uncompressed
}

// Layout is how files are made.
type Layout struct {
	Columns     []connectors.Column `json:"columns"`
	Compression string              `json:"compression"`
	// RowGroup is about how many bytes of rows are in memory at once, and in a row group.
	RowGroup int64 `json:"row_group"`
}

// What is handed to the writers of columns at once: so many rows, or about so many bytes.
// They end a page only between two calls.
const (
	rowsAtOnce  = 256
	bytesAtOnce = 256 << 10
)

// maxRow keeps damaged bytes from asking for any amount of memory.
const maxRow = 1 << 30

// Convert writes a file of rows, which are in the encoding of package typed, each with
// its length in front.
func Convert(ctx context.Context, w io.Writer, rows io.Reader, l Layout) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("write Parquet: %v", p)
		}
	}()
	schema := schemaOf(l.Columns)
	out := parquet.NewGenericWriter[any](w, schema, parquet.Compression(codec(l.Compression)), parquet.DataPageStatistics(true),
		parquet.DictionaryMaxBytes(1<<20), parquet.CreatedBy("sluice", "1", ""))
	c := &converter{layout: l, in: bufio.NewReaderSize(rows, 256<<10), out: out}
	c.cols = make([][]parquet.Value, len(schema.Columns()))
	if err := c.run(ctx); err != nil {
		return err
	}
	return out.Close()
}

type converter struct {
	layout Layout
	in     *bufio.Reader
	out    *parquet.GenericWriter[any]
	cols   [][]parquet.Value // the values of the rows that are not written yet, by leaf
	rows   int               // how many those are
	size   int               // their bytes
	bytes  []byte            // what values borrow
	group  int64             // bytes of the row group
}

func (c *converter) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := c.next()
		if errors.Is(err, io.EOF) {
			return c.flush()
		}
		if err != nil {
			return err
		}
		if err := c.add(row); err != nil {
			return err
		}
		c.rows++
		c.size += len(row)
		c.group += int64(len(row))
		if c.rows < rowsAtOnce && c.size < bytesAtOnce && c.group < c.layout.RowGroup {
			continue
		}
		if err := c.flush(); err != nil {
			return err
		}
		if c.group < c.layout.RowGroup {
			continue
		}
		if err := c.out.Flush(); err != nil {
			return err
		}
		c.group = 0
	}
}

// next reads a row into memory of its own, until the rows are written.
func (c *converter) next() ([]byte, error) {
	n, err := binary.ReadUvarint(c.in)
	if err != nil {
		return nil, err
	}
	if n > maxRow {
		return nil, typed.ErrCut
	}
	if len(c.bytes)+int(n) > cap(c.bytes) {
		// What was borrowed stays as it is.
		c.bytes = make([]byte, 0, max(1<<20, int(n)))
	}
	at := len(c.bytes)
	c.bytes = c.bytes[:at+int(n)]
	row := c.bytes[at:]
	if _, err := io.ReadFull(c.in, row); err != nil {
		return nil, fmt.Errorf("read the rows of a file: %w", err)
	}
	return row, nil
}

// add takes a row apart into the values of its columns.
func (c *converter) add(row []byte) error {
	cur := typed.Cursor{B: row}
	leaf := 0
	for i := range c.layout.Columns {
		leaf = c.value(&cur, &c.layout.Columns[i].Type, leaf, levels{})
	}
	if cur.Err != nil || len(cur.B) > 0 {
		return fmt.Errorf("read the rows of a file: %w", typed.ErrCut)
	}
	return nil
}

// flush gives the values to the writers of their columns: what a row is to the library
// would be taken apart again.
func (c *converter) flush() error {
	for i, w := range c.out.ColumnWriters() {
		if _, err := w.WriteRowValues(c.cols[i]); err != nil {
			return err
		}
		clear(c.cols[i])
		c.cols[i] = c.cols[i][:0]
	}
	c.rows, c.size, c.bytes = 0, 0, c.bytes[:0]
	return nil
}

// levels say how much of the way to a value is there: rep is at what depth it repeats,
// depth how many lists it is in, def how many optional and repeated things are there.
type levels struct{ rep, depth, def int }

func (c *converter) put(leaf int, v parquet.Value, l levels) {
	if l.rep|l.def != 0 { // the writer of a column knows which one it is
		v = v.Level(l.rep, l.def, leaf)
	}
	c.cols[leaf] = append(c.cols[leaf], v)
}

// value adds the leaves of a value, and returns the leaf behind them.
func (c *converter) value(cur *typed.Cursor, t *connectors.Type, leaf int, l levels) int {
	if t.Nullable {
		if cur.Int() == 0 {
			return c.nothing(t, leaf, l)
		}
		l.def++
	}
	switch t.Base {
	case connectors.Struct:
		for i := range t.Fields {
			leaf = c.value(cur, &t.Fields[i].Type, leaf, l)
		}
		return leaf
	case connectors.Sequence, connectors.Dictionary:
		return c.items(cur, t, leaf, l)
	}
	c.put(leaf, c.scalar(cur, t), l)
	return leaf + 1
}

func (c *converter) items(cur *typed.Cursor, t *connectors.Type, leaf int, l levels) int {
	n := cur.Block()
	if n == 0 {
		return c.nothing(t, leaf, l)
	}
	in := levels{rep: l.rep, depth: l.depth + 1, def: l.def + 1}
	next := leaf
	for n > 0 && cur.Err == nil {
		for range n {
			if cur.Err != nil {
				break
			}
			next = leaf
			if t.Base == connectors.Dictionary {
				c.put(next, parquet.ByteArrayValue(cur.Bytes()), in)
				next++
			}
			next = c.value(cur, t.Elem, next, in)
			in.rep = in.depth
		}
		n = cur.Block()
	}
	return next
}

// nothing marks all leaves below a value as not being there.
func (c *converter) nothing(t *connectors.Type, leaf int, l levels) int {
	switch t.Base {
	case connectors.Struct:
		for i := range t.Fields {
			leaf = c.nothing(&t.Fields[i].Type, leaf, l)
		}
		return leaf
	case connectors.Dictionary:
		c.put(leaf, parquet.NullValue(), l)
		return c.nothing(t.Elem, leaf+1, l)
	case connectors.Sequence:
		return c.nothing(t.Elem, leaf, l)
	}
	c.put(leaf, parquet.NullValue(), l)
	return leaf + 1
}

func (c *converter) scalar(cur *typed.Cursor, t *connectors.Type) parquet.Value {
	switch t.Base {
	case connectors.Boolean:
		return parquet.BooleanValue(cur.Bool())
	case connectors.Integer:
		if t.Bits > 0 && t.Bits < 64 {
			return parquet.Int32Value(int32(cur.Int()))
		}
		return parquet.Int64Value(cur.Int())
	case connectors.Real:
		if t.Bits == 32 {
			return parquet.FloatValue(cur.Float32())
		}
		return parquet.DoubleValue(cur.Float64())
	case connectors.Exact:
		return decimal(cur.Take(int64(typed.DecimalSize(t.Precision))), t.Precision)
	case connectors.Instant, connectors.Local, connectors.TimeOfDay:
		return parquet.Int64Value(cur.Int())
	case connectors.Date:
		return parquet.Int32Value(int32(cur.Int()))
	case connectors.UUID:
		return parquet.FixedLenByteArrayValue(cur.Take(16))
	default:
		return parquet.ByteArrayValue(cur.Bytes())
	}
}

func decimal(b []byte, precision int) parquet.Value {
	if precision > digits64 {
		return parquet.FixedLenByteArrayValue(b)
	}
	var n int64
	if len(b) > 0 {
		n = int64(int8(b[0]))
		for _, c := range b[1:] {
			n = n<<8 | int64(c)
		}
	}
	if precision <= digits32 {
		return parquet.Int32Value(int32(n))
	}
	return parquet.Int64Value(n)
}
