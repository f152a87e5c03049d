package avrofile

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/sluice-etl/sluice/connectors/files/typed"
	jsontext "github.com/sluice-etl/sluice/connectors/format"
)

// The bounds of what one file may ask memory for.
const (
	maxHead  = 16 << 20
	maxBlock = 256 << 20
	maxDepth = 200
	// maxEmptyRows is how many rows of no bytes a block may claim.
	maxEmptyRows = 1 << 20
)

// ErrTooLong is reported of a row that is longer than allowed: a few bytes can stand for
// any number of empty values.
var ErrTooLong = errors.New("the record is longer than max_line")

// ErrDamaged is reported of files that are no Avro files, or not whole.
var ErrDamaged = errors.New("the Avro file is damaged")

// Reader reads the rows of a file as JSON objects.
type Reader struct {
	in    *bufio.Reader
	codec ocf.Codec
	mark  [16]byte
	root  *avro.SchemaNode
	named map[string]*avro.SchemaNode
	data  []byte
	cur   typed.Cursor
	left  int64 // rows of the block
	skip  int64
	limit int // of a row's JSON
	begin int // of the row in dst
}

// Open reads the head of a file. Rows may be limit bytes long.
func Open(r io.Reader, limit int) (*Reader, error) {
	out := &Reader{in: bufio.NewReaderSize(r, 256<<10), named: map[string]*avro.SchemaNode{}, limit: limit}
	var m [4]byte
	if _, err := io.ReadFull(out.in, m[:]); err != nil || string(m[:]) != string(magic) {
		return nil, out.broken("it does not begin as one", err)
	}
	meta, err := out.meta()
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(out.in, out.mark[:]); err != nil {
		return nil, out.broken("its head ends too early", err)
	}
	schema, err := avro.Parse(string(meta["avro.schema"]))
	if err != nil {
		return nil, fmt.Errorf("%w: its schema: %w", ErrDamaged, err)
	}
	if out.codec, err = codec(string(meta["avro.codec"])); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	out.root = schema.Root()
	out.collect(out.root)
	return out, nil
}

func (r *Reader) broken(what string, err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err // of the storage
	}
	return fmt.Errorf("%w: %s", ErrDamaged, what)
}

func (r *Reader) meta() (map[string][]byte, error) {
	out := map[string][]byte{}
	size := 0
	for {
		n, err := binary.ReadVarint(r.in)
		if err == nil && n < 0 {
			n = -n
			_, err = binary.ReadVarint(r.in)
		}
		if err != nil {
			return nil, r.broken("its head ends too early", err)
		}
		if n == 0 {
			return out, nil
		}
		for range n {
			var kv [2][]byte
			for i := range kv {
				length, err := binary.ReadVarint(r.in)
				if err != nil || length < 0 || length > int64(maxHead-size) {
					return nil, r.broken("its head is cut, or too long", err)
				}
				size += int(length)
				kv[i] = make([]byte, length)
				if _, err := io.ReadFull(r.in, kv[i]); err != nil {
					return nil, r.broken("its head ends too early", err)
				}
			}
			out[string(kv[0])] = kv[1]
		}
	}
}

// collect finds named types, which are defined once and then referred to.
func (r *Reader) collect(n *avro.SchemaNode) {
	if n == nil {
		return
	}
	if n.Name != "" {
		r.named[n.Name] = n
		if n.Namespace != "" {
			r.named[n.Namespace+"."+n.Name] = n
		}
	}
	for i := range n.Fields {
		r.collect(&n.Fields[i].Type)
	}
	for i := range n.Branches {
		r.collect(&n.Branches[i])
	}
	r.collect(n.Items)
	r.collect(n.Values)
}

// Skip passes over rows, at the beginning only.
func (r *Reader) Skip(row int64) { r.skip = row }

// Next adds the next row to dst; io.EOF says that there is none.
func (r *Reader) Next(dst []byte) ([]byte, error) {
	for {
		for r.left == 0 {
			if err := r.block(); err != nil {
				return dst, err
			}
		}
		r.left--
		r.begin = len(dst)
		out := r.value(dst, r.root, 0)
		if errors.Is(r.cur.Err, ErrTooLong) {
			return dst, r.cur.Err
		}
		if r.cur.Err != nil {
			return dst, fmt.Errorf("%w: %w", ErrDamaged, r.cur.Err)
		}
		if r.left == 0 && len(r.cur.B) > 0 {
			return dst, fmt.Errorf("%w: a block has more bytes than rows", ErrDamaged)
		}
		if r.skip == 0 {
			return out, nil
		}
		r.skip--
	}
}

// block reads the next block. One that is passed over as a whole is not unpacked.
func (r *Reader) block() error {
	n, err := binary.ReadVarint(r.in)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	size, sizeErr := binary.ReadVarint(r.in)
	if err != nil || sizeErr != nil {
		return r.broken("a block is cut", errors.Join(err, sizeErr))
	}
	if n < 0 || size < 0 || size > maxBlock {
		return fmt.Errorf("%w: a block of %d rows in %d bytes", ErrDamaged, n, size)
	}
	if n <= r.skip {
		r.skip -= n
		if _, err := io.CopyN(io.Discard, r.in, size); err != nil {
			return r.broken("a block is cut", err)
		}
		return r.endOfBlock()
	}
	if int64(cap(r.data)) < size {
		r.data = make([]byte, size)
	}
	r.data = r.data[:size]
	if _, err := io.ReadFull(r.in, r.data); err != nil {
		return r.broken("a block is cut", err)
	}
	data := r.data
	if r.codec != nil {
		bounded, ok := r.codec.(ocf.BoundedDecompressor)
		if !ok {
			return fmt.Errorf("%w: its compression knows no bounds", ErrDamaged)
		}
		if data, err = bounded.DecompressBounded(data, maxBlock); err != nil {
			return fmt.Errorf("%w: a block cannot be decompressed, or to more than %d bytes: %w", ErrDamaged, maxBlock, err)
		}
	}
	if n > int64(len(data)) && n > maxEmptyRows {
		return fmt.Errorf("%w: a block of %d rows in %d bytes", ErrDamaged, n, len(data))
	}
	r.cur, r.left = typed.Cursor{B: data}, n
	return r.endOfBlock()
}

func (r *Reader) endOfBlock() error {
	var m [16]byte
	if _, err := io.ReadFull(r.in, m[:]); err != nil || m != r.mark {
		return r.broken("a block does not end with the mark of the file", err)
	}
	return nil
}

// Close frees what is held.
func (r *Reader) Close() error {
	if r.codec != nil {
		return r.codec.Close()
	}
	return nil
}

func (r *Reader) value(dst []byte, n *avro.SchemaNode, depth int) []byte {
	if depth > maxDepth {
		r.cur.B, r.cur.Err = nil, typed.ErrCut
	}
	if r.cur.Err == nil && len(dst)-r.begin > r.limit {
		r.cur.B, r.cur.Err = nil, ErrTooLong
	}
	if r.cur.Err != nil {
		return dst
	}
	switch n.Type {
	case "null":
		return append(dst, "null"...)
	case "union":
		if at := r.cur.Int(); at >= 0 && at < int64(len(n.Branches)) {
			return r.value(dst, &n.Branches[at], depth+1)
		}
		r.cur.B, r.cur.Err = nil, typed.ErrCut
		return dst
	case "record", "error":
		dst = append(dst, '{')
		for i := range n.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsontext.AppendString(dst, n.Fields[i].Name), ':')
			dst = r.value(dst, &n.Fields[i].Type, depth+1)
		}
		return append(dst, '}')
	case "array", "map":
		return r.items(dst, n, depth)
	}
	if def := r.named[n.Type]; def != nil && def != n {
		return r.value(dst, def, depth+1)
	}
	return r.scalar(dst, n)
}

func (r *Reader) items(dst []byte, n *avro.SchemaNode, depth int) []byte {
	item, open, end := n.Items, byte('['), byte(']')
	if n.Type == "map" {
		item, open, end = n.Values, '{', '}'
	}
	dst = append(dst, open)
	first := true
	for left := r.cur.Block(); left > 0 && r.cur.Err == nil; left = r.cur.Block() {
		for range left {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if n.Type == "map" {
				dst = append(typed.AppendText(dst, r.cur.Bytes()), ':')
			}
			if dst = r.value(dst, item, depth+1); r.cur.Err != nil {
				return dst
			}
		}
	}
	return append(dst, end)
}

func (r *Reader) scalar(dst []byte, n *avro.SchemaNode) []byte {
	switch n.Type {
	case "boolean":
		return fmt.Append(dst, r.cur.Bool())
	case "int", "long":
		return appendInt(dst, n.LogicalType, r.cur.Int())
	case "float":
		return typed.AppendFloat(dst, float64(r.cur.Float32()), 32)
	case "double":
		return typed.AppendFloat(dst, r.cur.Float64(), 64)
	case "string":
		if n.Props[contentType] == jsonContent {
			text := r.cur.Bytes()
			if json.Valid(text) {
				return append(dst, text...)
			}
			return typed.AppendText(dst, text)
		}
		return typed.AppendText(dst, r.cur.Bytes())
	case "bytes":
		return appendBytes(dst, n, r.cur.Bytes())
	case "fixed":
		return appendBytes(dst, n, r.cur.Take(int64(n.Size)))
	case "enum":
		if at := r.cur.Int(); at >= 0 && at < int64(len(n.Symbols)) {
			return jsontext.AppendString(dst, n.Symbols[at])
		}
	}
	r.cur.B, r.cur.Err = nil, typed.ErrCut
	return dst
}

func appendInt(dst []byte, logical string, v int64) []byte {
	switch logical {
	case "date":
		return typed.AppendDate(dst, v)
	case "time-millis":
		return typed.AppendTimeOfDay(dst, time.Duration(v)*time.Millisecond)
	case "time-micros":
		return typed.AppendTimeOfDay(dst, time.Duration(v)*time.Microsecond)
	case "timestamp-millis":
		return typed.AppendInstant(dst, time.UnixMilli(v))
	case "timestamp-micros":
		return typed.AppendInstant(dst, time.UnixMicro(v))
	case "timestamp-nanos":
		return typed.AppendInstant(dst, time.Unix(0, v))
	case "local-timestamp-millis":
		return typed.AppendLocal(dst, time.UnixMilli(v))
	case "local-timestamp-micros":
		return typed.AppendLocal(dst, time.UnixMicro(v))
	case "local-timestamp-nanos":
		return typed.AppendLocal(dst, time.Unix(0, v))
	}
	return fmt.Append(dst, v)
}

func appendBytes(dst []byte, n *avro.SchemaNode, b []byte) []byte {
	switch {
	case n.LogicalType == "decimal" && n.Scale >= 0 && n.Scale <= typed.MaxScale:
		return typed.AppendDecimal(dst, b, n.Scale)
	case n.LogicalType == "uuid" && len(b) == 16:
		return typed.AppendUUID(dst, b)
	}
	return typed.AppendBytes(dst, b)
}
