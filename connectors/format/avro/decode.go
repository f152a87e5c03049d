package avro

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors/format"
)

// Bounds of one value: how deep records and lists are nested, and how long the digits of
// a decimal are.
const (
	maxDepth   = 200
	maxDecimal = 512
)

// decoder turns one value into JSON.
type decoder struct {
	buf   []byte
	pos   int
	dst   []byte
	limit int // most bytes of dst
	depth int
	path  string // of the field at fault
}

// decode appends the value in buf as JSON to dst.
func decode(dst, buf []byte, n *node, limit int) ([]byte, error) {
	d := decoder{buf: buf, dst: dst, limit: len(dst) + limit}
	err := d.value(n)
	if err == nil && d.pos < len(buf) {
		err = d.wrong("the end of the value, which goes on: it is written with another schema")
	}
	if err == nil {
		return d.dst, nil
	}
	if d.path != "" {
		err = fmt.Errorf("field %s: %w", d.path, err)
	}
	return nil, format.Refuse(err)
}

func (d *decoder) wrong(want string) error {
	return &format.SyntaxError{Offset: d.pos, Msg: want + " is wanted"}
}

func (d *decoder) long() (int64, error) {
	v, n := binary.Varint(d.buf[d.pos:])
	if n <= 0 {
		return 0, d.wrong("an integer")
	}
	d.pos += n
	return v, nil
}

func (d *decoder) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(d.buf)-d.pos) {
		return nil, d.wrong("as many bytes as the length before them says")
	}
	b := d.buf[d.pos : d.pos+int(n)]
	d.pos += int(n)
	return b, nil
}

func (d *decoder) bytes() ([]byte, error) {
	n, err := d.long()
	if err != nil {
		return nil, err
	}
	return d.take(n)
}

func (d *decoder) value(n *node) error {
	if len(d.dst) > d.limit {
		return errors.New("the value is larger than max_size as JSON")
	}
	switch n.kind {
	case "null":
		d.dst = append(d.dst, "null"...)
	case "boolean":
		b, err := d.take(1)
		if err != nil || b[0] > 1 {
			return d.wrong("a boolean")
		}
		d.dst = strconv.AppendBool(d.dst, b[0] == 1)
	case "int", "long":
		return d.integer(n)
	case "float":
		b, err := d.take(4)
		if err != nil {
			return err
		}
		d.dst = appendFloat(d.dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case "double":
		b, err := d.take(8)
		if err != nil {
			return err
		}
		d.dst = appendFloat(d.dst, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	case "string":
		b, err := d.bytes()
		if err != nil {
			return err
		}
		return d.text(b)
	case "bytes":
		b, err := d.bytes()
		if err != nil {
			return err
		}
		return d.binary(n, b)
	case "fixed":
		b, err := d.take(int64(n.size))
		if err != nil {
			return err
		}
		return d.binary(n, b)
	case "enum":
		return d.enum(n)
	case "union":
		return d.union(n)
	default:
		return d.container(n)
	}
	return nil
}

func (d *decoder) enum(n *node) error {
	i, err := d.index(len(n.symbols), "a symbol of the enum")
	if err != nil {
		return err
	}
	if n.symbols[i] == "" {
		return errors.New("the symbol is none of the reader's schema, which has no default")
	}
	d.dst = format.AppendString(d.dst, n.symbols[i])
	return nil
}

func (d *decoder) union(n *node) error {
	i, err := d.index(len(n.branches), "a branch of the union")
	if err != nil {
		return err
	}
	if n.branches[i] == nil {
		return errors.New("the value is of a type that the reader's schema does not have here")
	}
	return d.value(n.branches[i])
}

func (d *decoder) index(n int, want string) (int, error) {
	i, err := d.long()
	if err != nil || i < 0 || i >= int64(n) {
		return 0, d.wrong(want)
	}
	return int(i), nil
}

func (d *decoder) container(n *node) error {
	if d.depth++; d.depth > maxDepth {
		return fmt.Errorf("the value is nested deeper than %d", maxDepth)
	}
	defer func() { d.depth-- }()
	switch n.kind {
	case "record":
		return d.record(n)
	case "array":
		d.dst = append(d.dst, '[')
		err := d.blocks(func() error { return d.value(n.elem) })
		d.dst = append(d.dst, ']')
		return err
	}
	d.dst = append(d.dst, '{')
	err := d.blocks(func() error {
		key, err := d.bytes()
		if err != nil {
			return err
		}
		if err := d.text(key); err != nil {
			return err
		}
		d.dst = append(d.dst, ':')
		return d.value(n.elem)
	})
	d.dst = append(d.dst, '}')
	return err
}

// blocks reads the blocks of an array or a map.
func (d *decoder) blocks(item func() error) error {
	first := true
	for {
		n, err := d.long()
		if err != nil || n == 0 {
			return err
		}
		if n < 0 { // the size in bytes follows
			if n = -n; n < 0 {
				return d.wrong("a number of items")
			}
			if _, err := d.long(); err != nil {
				return err
			}
		}
		for ; n > 0; n-- {
			if !first {
				d.dst = append(d.dst, ',')
			}
			first = false
			if err := item(); err != nil {
				return err
			}
		}
	}
}

func (d *decoder) record(n *node) error {
	d.dst = append(d.dst, '{')
	open := len(d.dst)
	for i := range n.fields {
		f := &n.fields[i]
		mark := len(d.dst)
		if mark > open {
			d.dst = append(d.dst, ',')
		}
		d.dst = append(d.dst, f.key...)
		if err := d.value(f.node); err != nil {
			if d.path != "" {
				d.path = "." + d.path
			}
			d.path = f.name + d.path
			return err
		}
		if f.skip {
			d.dst = d.dst[:mark]
		}
	}
	if len(n.more) > 0 {
		if len(d.dst) > open {
			d.dst = append(d.dst, ',')
		}
		d.dst = append(d.dst, n.more...)
	}
	d.dst = append(d.dst, '}')
	return nil
}

func (d *decoder) text(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("the text is no UTF-8, as Avro wants it: bytes are for that")
	}
	d.dst = format.AppendString(d.dst, string(b))
	return nil
}

// appendFloat appends a number; NaN and the infinities, of which JSON has none, as text.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, bits)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, bits)
}

func (d *decoder) integer(n *node) error {
	v, err := d.long()
	if err != nil {
		return err
	}
	if n.kind == "int" && (v < math.MinInt32 || v > math.MaxInt32) {
		return d.wrong("an integer of 32 bits")
	}
	d.dst, err = appendInteger(d.dst, n.logical, v)
	return err
}

var errYear = errors.New("the time is outside of the years 0 to 9999, and has no text then")

// appendInteger appends an integer of a logical type.
func appendInteger(dst []byte, logical string, v int64) ([]byte, error) {
	var t time.Time
	layout := `"` + time.RFC3339Nano + `"`
	switch logical {
	case "":
		return strconv.AppendInt(dst, v, 10), nil
	case "time-millis", "time-micros":
		unit := time.Millisecond
		if logical == "time-micros" {
			unit = time.Microsecond
		}
		if v < 0 || v >= int64(24*time.Hour/unit) {
			return dst, errors.New("a time of day below 24 hours is wanted")
		}
		return time.Unix(0, v*int64(unit)).UTC().AppendFormat(dst, `"15:04:05.999999"`), nil
	case "date":
		t, layout = time.Unix(v*86400, 0), `"2006-01-02"`
	case "timestamp-millis", "local-timestamp-millis":
		t = time.UnixMilli(v)
	case "timestamp-micros", "local-timestamp-micros":
		t = time.UnixMicro(v)
	default:
		t = time.Unix(v/1e9, v%1e9)
	}
	if len(logical) > 5 && logical[:5] == "local" {
		layout = `"2006-01-02T15:04:05.999999999"`
	}
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return dst, errYear
	}
	return t.AppendFormat(dst, layout), nil
}

// binary appends bytes of a logical type.
func (d *decoder) binary(n *node, b []byte) (err error) {
	switch n.logical {
	case "decimal":
		if len(b) > maxDecimal {
			return fmt.Errorf("a decimal of at most %d bytes is wanted", maxDecimal)
		}
		d.dst = appendDecimal(d.dst, b, n.scale)
	case "uuid":
		d.dst = fmt.Appendf(d.dst, `"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	case "duration":
		d.dst = appendDuration(d.dst, b)
	default:
		d.dst = append(d.dst, '"')
		d.dst = base64.StdEncoding.AppendEncode(d.dst, b)
		d.dst = append(d.dst, '"')
	}
	return nil
}

// appendDecimal appends the number that b is, in two's complement, with scale digits behind
// the point.
func appendDecimal(dst, b []byte, scale int) []byte {
	var room [64]byte
	digits := room[:0]
	negative := len(b) > 0 && b[0] >= 0x80
	if len(b) <= 8 {
		var v int64
		if negative {
			v = -1
		}
		for _, c := range b {
			v = v<<8 | int64(c)
		}
		digits = strconv.AppendUint(digits, magnitude(v), 10)
	} else {
		v := new(big.Int).SetBytes(b)
		if negative {
			v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		digits = v.Abs(v).Append(digits, 10)
	}
	if negative {
		dst = append(dst, '-')
	}
	if len(digits) <= scale {
		dst = append(dst, '0', '.')
		for range scale - len(digits) {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[len(digits)-scale:]...)
	}
	return dst
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// appendDuration appends months, days and milliseconds in the form of ISO 8601.
func appendDuration(dst, b []byte) []byte {
	months, days, ms := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	dst = append(dst, '"', 'P')
	if months > 0 {
		dst = append(strconv.AppendUint(dst, uint64(months), 10), 'M')
	}
	if days > 0 {
		dst = append(strconv.AppendUint(dst, uint64(days), 10), 'D')
	}
	if ms > 0 || months == 0 && days == 0 {
		dst = append(dst, 'T')
		dst = append(strconv.AppendFloat(dst, float64(ms)/1000, 'f', -1, 64), 'S')
	}
	return append(dst, '"')
}
