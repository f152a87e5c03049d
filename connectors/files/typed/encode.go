// Package typed is rows of columns as bytes: the binary encoding of Avro, for a schema
// that follows from the columns. Avro files hold it as it is; others are made of it.
package typed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Encoder turns rows of JSON into bytes. It serves one goroutine.
type Encoder struct {
	cols   []connectors.Column
	opts   Options
	reader *columns.Reader
	values [][]byte
	bad    map[int]string
	arena  connectors.Arena
}

// Options is what a format cannot hold.
type Options struct {
	// NoUnsigned64 says that integers above those with a sign have no place.
	NoUnsigned64 bool
}

// NewEncoder makes an encoder of rows with these columns.
func NewEncoder(cols []connectors.Column, opts Options) (*Encoder, error) {
	r, err := columns.NewReader(cols)
	if err != nil {
		return nil, err
	}
	return &Encoder{cols: cols, opts: opts, reader: r, bad: map[int]string{}}, nil
}

// Begin takes the values of rows, at most connectors.MaxBatch.
func (e *Encoder) Begin(values [][]byte) {
	clear(e.bad)
	e.values = values
	e.reader.Read(values, func(i int, err *format.SyntaxError) { e.bad[i] = err.Error() })
}

// Append adds row i. An error says which column has no place for the value, and why.
func (e *Encoder) Append(dst []byte, i int) ([]byte, error) {
	if reason, bad := e.bad[i]; bad {
		return dst, errors.New(reason)
	}
	if v := e.values[i]; v == nil || string(v) == "null" {
		return dst, errors.New("a row without a value (a tombstone) has no place in a file of columns")
	}
	e.arena.Reset()
	out := dst
	for c := range e.cols {
		var err error
		if out, err = e.append(out, &e.cols[c].Type, e.reader.Value(i, c)); err != nil {
			return dst, fmt.Errorf("column %s: %w", e.cols[c].Name, err)
		}
	}
	return out, nil
}

func (e *Encoder) append(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	if v.IsNull() {
		if !t.Nullable {
			return dst, fmt.Errorf("there is no value, and it is none that may be null: declare it as %s?", t.Base)
		}
		return append(dst, 0), nil
	}
	if t.Nullable {
		dst = append(dst, 2) // the second branch of [null, type]
	}
	switch t.Base {
	case connectors.Sequence:
		return e.list(dst, t, v)
	case connectors.Struct:
		return e.object(dst, t, v)
	case connectors.Dictionary:
		return e.dictionary(dst, t, v)
	case connectors.Document, connectors.Dynamic:
		at := len(dst)
		text, err := format.AppendValue(dst, v)
		if err != nil {
			return dst, err
		}
		return prefix(text, at), nil
	}
	return e.scalar(dst, t, v)
}

func (e *Encoder) scalar(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	switch t.Base {
	case connectors.Boolean:
		b, err := columns.Bool(v)
		if b {
			return append(dst, 1), err
		}
		return append(dst, 0), err
	case connectors.Integer:
		return e.integer(dst, t, v)
	case connectors.Real:
		f, err := columns.Float(v, t.Bits)
		if t.Bits == 32 {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), err
		}
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), err
	case connectors.Exact:
		d, err := columns.Decimal(v, t.Precision, t.Scale)
		if err != nil {
			return dst, err
		}
		return appendDecimal(dst, d, DecimalSize(t.Precision)), nil
	case connectors.Instant:
		at, err := columns.Time(v)
		return appendMicros(dst, at, err)
	case connectors.Local:
		at, err := columns.LocalTime(v)
		return appendMicros(dst, at, err)
	case connectors.Date:
		at, err := columns.Day(v)
		return binary.AppendVarint(dst, floorDiv(at.Unix(), 86400)), err
	case connectors.TimeOfDay:
		d, err := columns.TimeOfDay(v)
		if err == nil && d%time.Microsecond != 0 {
			err = errFiner
		}
		return binary.AppendVarint(dst, d.Microseconds()), err
	case connectors.UUID:
		u, err := columns.UUID(v)
		return append(dst, u[:]...), err
	case connectors.Binary:
		b, err := columns.Bytes(v)
		return append(binary.AppendVarint(dst, int64(len(b))), b...), err
	case connectors.Span:
		d, err := columns.Span(v)
		text := d.String()
		return append(binary.AppendVarint(dst, int64(len(text))), text...), err
	default:
		s, err := columns.Text(v)
		if err == nil && !utf8.ValidString(s) {
			err = errors.New("the text is not UTF-8: declare bytes, and give it in base64")
		}
		return append(binary.AppendVarint(dst, int64(len(s))), s...), err
	}
}

func (e *Encoder) integer(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	if !t.Unsigned {
		n, err := columns.Int(v, t.Bits)
		return binary.AppendVarint(dst, n), err
	}
	n, err := columns.Uint(v, t.Bits)
	if err == nil && e.opts.NoUnsigned64 && n > math.MaxInt64 {
		err = errors.New("this format has no integers of 64 bits without a sign: declare decimal(20, 0)")
	}
	return binary.AppendVarint(dst, int64(n)), err
}

var errFiner = errors.New("the time is finer than a microsecond, which is what files hold: declare a string, or cut it before")

func appendMicros(dst []byte, at time.Time, err error) ([]byte, error) {
	if err != nil {
		return dst, err
	}
	if at.Nanosecond()%1000 != 0 {
		return dst, errFiner
	}
	return binary.AppendVarint(dst, at.UnixMicro()), nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// DecimalSize is how many bytes a number of so many digits takes, with its sign.
func DecimalSize(precision int) int {
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
	return most.BitLen()/8 + 1
}

// appendDecimal writes the digits of a number as an integer with its sign, of so many
// bytes, the highest first.
func appendDecimal(dst []byte, d *apd.Decimal, size int) []byte {
	n := d.Coeff.MathBigInt()
	if d.Negative {
		n.Neg(n)
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(size*8)))
	}
	at := len(dst)
	dst = append(dst, make([]byte, size)...)
	n.FillBytes(dst[at:])
	return dst
}

// prefix puts the length of what dst holds behind at in front of it.
func prefix(dst []byte, at int) []byte {
	var n [binary.MaxVarintLen64]byte
	size := binary.PutVarint(n[:], int64(len(dst)-at))
	dst = append(dst, n[:size]...)
	copy(dst[at+size:], dst[at:])
	copy(dst[at:], n[:size])
	return dst
}

func (e *Encoder) list(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	if v.Kind() != connectors.List {
		return dst, fmt.Errorf("a list is wanted, not %s", v.Kind())
	}
	n := format.Len(v.Raw())
	if n == 0 {
		return append(dst, 0), nil
	}
	dst = binary.AppendVarint(dst, int64(n))
	var err error
	i := 0
	format.Elements(v.Raw(), &e.arena, func(item connectors.Value) bool {
		dst, err = e.append(dst, t.Elem, item)
		if err != nil {
			err = fmt.Errorf("element %d: %w", i, err)
		}
		i++
		return err == nil
	})
	return append(dst, 0), err
}

func (e *Encoder) object(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	if v.Kind() != connectors.Map {
		return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	var err error
	for i := range t.Fields {
		f := &t.Fields[i]
		item, _ := format.Lookup(v.Raw(), f.Name, &e.arena)
		if dst, err = e.append(dst, &f.Type, item); err != nil {
			return dst, fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return dst, nil
}

func (e *Encoder) dictionary(dst []byte, t *connectors.Type, v connectors.Value) ([]byte, error) {
	if v.Kind() != connectors.Map {
		return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	n := format.Len(v.Raw())
	if n == 0 {
		return append(dst, 0), nil
	}
	dst = binary.AppendVarint(dst, int64(n))
	var err error
	format.Entries(v.Raw(), &e.arena, func(key string, item connectors.Value) bool {
		dst = append(binary.AppendVarint(dst, int64(len(key))), key...)
		if dst, err = e.append(dst, t.Elem, item); err != nil {
			err = fmt.Errorf("entry %.40s: %w", strings.ToValidUTF8(key, "?"), err)
		}
		return err == nil
	})
	return append(dst, 0), err
}
