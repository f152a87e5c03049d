package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-etl/sluice/connectors/files/typed"
	jsontext "github.com/sluice-etl/sluice/connectors/format"
)

// Reader reads the rows of a file as JSON objects, from any row on.
type Reader struct {
	file   *parquet.File
	pages  *pages
	root   *node
	cols   [][]parquet.Value
	groups []parquet.RowGroup // that are still to be read
	rows   parquet.Rows       // of the row group that is being read
	left   int64              // rows of that group that are still to come
	skip   int64              // rows of the next group to pass over
	buf    []parquet.Row
	have   []parquet.Row // of buf, what is not given out
}

// Open reads what the file tells of itself. A page may have 16 times maxLine bytes.
func Open(r io.ReaderAt, size int64, maxLine int) (_ *Reader, err error) {
	defer caught(&err)
	p := &pages{ReaderAt: r, size: size, limit: pageLines * int64(maxLine)}
	f, err := parquet.OpenFile(p, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, fmt.Errorf("read Parquet: %w", err)
	}
	leaf := 0
	out := &Reader{file: f, pages: p, root: build("", f.Schema(), &leaf, 0, 0), groups: f.RowGroups(), buf: make([]parquet.Row, 64)}
	out.cols = make([][]parquet.Value, leaf)
	return out, nil
}

// caught makes an error of a panic: files of strangers are read.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read Parquet: the file is damaged: %v", p)
	}
}

// Rows is how many rows the file has.
func (r *Reader) Rows() int64 { return r.file.NumRows() }

// Skip goes to a row, at the beginning only.
func (r *Reader) Skip(row int64) {
	for len(r.groups) > 0 && row >= r.groups[0].NumRows() {
		row -= r.groups[0].NumRows()
		r.groups = r.groups[1:]
	}
	r.skip = row
}

// Next adds the next row to dst; io.EOF says that there is none.
func (r *Reader) Next(dst []byte) (_ []byte, err error) {
	defer caught(&err)
	for len(r.have) == 0 {
		if err := r.fill(); err != nil {
			return dst, err
		}
	}
	row := r.have[0]
	r.have = r.have[1:]
	for i := range r.cols {
		r.cols[i] = nil
	}
	row.Range(func(column int, values []parquet.Value) bool {
		if column < len(r.cols) {
			r.cols[column] = values
		}
		return true
	})
	return r.value(dst, r.root), nil
}

func (r *Reader) fill() error {
	if r.rows == nil {
		if len(r.groups) == 0 {
			return io.EOF
		}
		all := r.file.Metadata().RowGroups
		r.pages.enter(&all[len(all)-len(r.groups)])
		r.rows, r.left = r.groups[0].Rows(), r.groups[0].NumRows()-r.skip
		r.groups = r.groups[1:]
		if r.skip > 0 {
			if err := r.rows.SeekToRow(r.skip); err != nil {
				return fmt.Errorf("read Parquet: %w", err)
			}
			r.skip = 0
		}
	}
	n, err := r.rows.ReadRows(r.buf)
	r.have = r.buf[:n]
	r.left -= int64(n)
	if n > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read Parquet: %w", err)
	}
	if r.left != 0 {
		return fmt.Errorf("read Parquet: the file is damaged: a group of rows lacks %d of them", r.left)
	}
	err = r.rows.Close()
	r.rows = nil
	return err
}

// Close frees what is held.
func (r *Reader) Close() (err error) {
	defer caught(&err)
	if r.rows != nil {
		err = r.rows.Close()
		r.rows = nil
	}
	return err
}

// node is a part of the schema with what is needed to put rows together.
type node struct {
	name               string
	leaf               int // the first one below it
	leaves             int
	def, rep           int // levels of a value that is there
	optional, repeated bool
	kind               kind
	logical            format.LogicalTypeValue
	physical           parquet.Kind
	fields             []*node
}

type kind uint8

const (
	scalar kind = iota
	object
	list      // its only field repeats, and holds the elements
	pairsList // likewise, of a key and a value
)

func build(name string, n parquet.Node, leaf *int, def, rep int) *node {
	out := &node{name: name, leaf: *leaf, optional: n.Optional(), repeated: n.Repeated()}
	if out.optional || out.repeated {
		def++
	}
	if out.repeated {
		rep++
	}
	out.def, out.rep = def, rep
	if n.Leaf() {
		out.physical, out.leaves = n.Type().Kind(), 1
		if t := n.Type().LogicalType(); t != nil {
			out.logical = t.Value
		}
		*leaf++
		return out
	}
	out.kind = object
	for _, f := range n.Fields() {
		out.fields = append(out.fields, build(f.Name(), f, leaf, def, rep))
	}
	out.leaves = *leaf - out.leaf
	if t := n.Type().LogicalType(); t != nil && len(out.fields) == 1 && out.fields[0].repeated {
		in := out.fields[0]
		switch t.Value.(type) {
		case *format.ListType:
			out.kind = list
		case *format.MapType:
			if in.kind == object && len(in.fields) == 2 {
				out.kind = pairsList
			}
		}
	}
	return out
}

// there is the level of the next value below a node.
func (r *Reader) there(n *node) (def, rep int, ok bool) {
	if n.leaf >= len(r.cols) || len(r.cols[n.leaf]) == 0 {
		return 0, 0, false
	}
	v := r.cols[n.leaf][0]
	return v.DefinitionLevel(), v.RepetitionLevel(), true
}

// pass takes the mark of nothing from all leaves below a node.
func (r *Reader) pass(n *node) {
	for i := n.leaf; i < n.leaf+n.leaves; i++ {
		if len(r.cols[i]) > 0 {
			r.cols[i] = r.cols[i][1:]
		}
	}
}

func (r *Reader) value(dst []byte, n *node) []byte {
	def, _, ok := r.there(n)
	if n.leaves > 0 && (!ok || n.optional && def < n.def) {
		r.pass(n)
		return append(dst, "null"...)
	}
	if n.repeated {
		return r.items(dst, n, false)
	}
	return r.present(dst, n)
}

// present writes a value that is there.
func (r *Reader) present(dst []byte, n *node) []byte {
	switch n.kind {
	case list, pairsList:
		return r.items(dst, n.fields[0], n.kind == pairsList)
	case object:
		dst = append(dst, '{')
		for i, f := range n.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsontext.AppendString(dst, f.name), ':')
			dst = r.value(dst, f)
		}
		return append(dst, '}')
	default:
		v := r.cols[n.leaf][0]
		r.cols[n.leaf] = r.cols[n.leaf][1:]
		return appendScalar(dst, n, v)
	}
}

// items writes what repeats: in is the node that does.
func (r *Reader) items(dst []byte, in *node, pairs bool) []byte {
	open, end := byte('['), byte(']')
	if pairs {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	def, _, ok := r.there(in)
	if !ok || def < in.def {
		r.pass(in)
		return append(dst, end)
	}
	for first := true; ; first = false {
		if !first {
			dst = append(dst, ',')
		}
		switch {
		case pairs:
			dst = r.key(dst, in.fields[0])
			dst = r.value(append(dst, ':'), in.fields[1])
		case in.kind == object && len(in.fields) == 1 && in.fields[0].name != "array":
			dst = r.value(dst, in.fields[0])
		default: // older files, whose elements repeat themselves
			dst = r.present(dst, in)
		}
		if _, rep, ok := r.there(in); !ok || rep != in.rep {
			return append(dst, end)
		}
	}
}

// key writes the key of an entry, which is text in JSON.
func (r *Reader) key(dst []byte, n *node) []byte {
	at := len(dst)
	dst = r.value(dst, n)
	if len(dst) > at && dst[at] == '"' {
		return dst
	}
	text := string(dst[at:])
	return typed.AppendText(dst[:at], []byte(text))
}

func appendScalar(dst []byte, n *node, v parquet.Value) []byte {
	switch t := n.logical.(type) {
	case *format.DecimalType:
		if t.Scale >= 0 && t.Scale <= typed.MaxScale {
			return appendDecimal(dst, v, int(t.Scale))
		}
	case *format.TimestampType:
		at := pointInTime(v.Int64(), t.Unit)
		if t.IsAdjustedToUTC {
			return typed.AppendInstant(dst, at)
		}
		return typed.AppendLocal(dst, at)
	case *format.DateType:
		return typed.AppendDate(dst, int64(v.Int32()))
	case *format.TimeType:
		return typed.AppendTimeOfDay(dst, timeOfDay(v, t.Unit))
	case *format.UUIDType:
		return typed.AppendUUID(dst, v.ByteArray())
	case *format.JsonType:
		if json.Valid(v.ByteArray()) {
			return append(dst, v.ByteArray()...)
		}
		return typed.AppendText(dst, v.ByteArray())
	case *format.StringType, *format.EnumType:
		return typed.AppendText(dst, v.ByteArray())
	case *format.IntType:
		if !t.IsSigned {
			if n.physical == parquet.Int32 {
				return fmt.Append(dst, v.Uint32())
			}
			return fmt.Append(dst, v.Uint64())
		}
	}
	return appendPhysical(dst, n, v)
}

func appendPhysical(dst []byte, n *node, v parquet.Value) []byte {
	switch n.physical {
	case parquet.Boolean:
		return fmt.Append(dst, v.Boolean())
	case parquet.Int32:
		return fmt.Append(dst, v.Int32())
	case parquet.Int64:
		return fmt.Append(dst, v.Int64())
	case parquet.Int96:
		return typed.AppendInstant(dst, int96(v.Int96()))
	case parquet.Float:
		return typed.AppendFloat(dst, float64(v.Float()), 32)
	case parquet.Double:
		return typed.AppendFloat(dst, v.Double(), 64)
	default:
		return typed.AppendBytes(dst, v.ByteArray())
	}
}

// julianEpoch is 1970-01-01 as timestamps of 96 bits count days.
const julianEpoch = 2440588

func int96(v deprecated.Int96) time.Time {
	days := int64(v[2]) - julianEpoch
	return time.Unix(days*86400, int64(v[1])<<32|int64(v[0])).UTC()
}

func appendDecimal(dst []byte, v parquet.Value, scale int) []byte {
	switch v.Kind() {
	case parquet.Int32, parquet.Int64:
		var b [8]byte
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		for i := range b {
			b[i] = byte(n >> (56 - 8*i))
		}
		return typed.AppendDecimal(dst, b[:], scale)
	default:
		return typed.AppendDecimal(dst, v.ByteArray(), scale)
	}
}

func pointInTime(n int64, unit format.TimeUnit) time.Time {
	switch unit.Value.(type) {
	case *format.MilliSeconds:
		return time.UnixMilli(n)
	case *format.NanoSeconds:
		return time.Unix(0, n)
	default:
		return time.UnixMicro(n)
	}
}

func timeOfDay(v parquet.Value, unit format.TimeUnit) time.Duration {
	switch unit.Value.(type) {
	case *format.MilliSeconds:
		return time.Duration(v.Int32()) * time.Millisecond
	case *format.NanoSeconds:
		return time.Duration(v.Int64())
	default:
		return time.Duration(v.Int64()) * time.Microsecond
	}
}
