package typed

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors/format"
)

// ErrCut is reported of bytes that end too early or are none of the schema.
var ErrCut = errors.New("the bytes of a value end too early, or are none of its type")

// Cursor goes over encoded bytes. It never reads behind their end.
type Cursor struct {
	B   []byte
	Err error
}

// Int reads an integer.
func (c *Cursor) Int() int64 {
	n, size := binary.Varint(c.B)
	if size <= 0 {
		c.fail()
		return 0
	}
	c.B = c.B[size:]
	return n
}

// Take reads n bytes.
func (c *Cursor) Take(n int64) []byte {
	if n < 0 || n > int64(len(c.B)) {
		c.fail()
		return nil
	}
	b := c.B[:n]
	c.B = c.B[n:]
	return b
}

// Bytes reads bytes or text with their length in front.
func (c *Cursor) Bytes() []byte { return c.Take(c.Int()) }

// Bool reads a truth value.
func (c *Cursor) Bool() bool {
	b := c.Take(1)
	return len(b) == 1 && b[0] == 1
}

// Float32 reads a number of 32 bits.
func (c *Cursor) Float32() float32 {
	if b := c.Take(4); b != nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// Float64 reads a number of 64 bits.
func (c *Cursor) Float64() float64 {
	if b := c.Take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// Block reads the number of the items that come next in a list or dictionary, 0 at its end.
func (c *Cursor) Block() int64 {
	n := c.Int()
	if n < 0 { // with the size of the block behind it
		c.Int()
		n = -n
	}
	// A list of empty values takes no bytes: what claims to be more is refused.
	if n < 0 || n > int64(len(c.B)) && n > 1<<20 {
		c.fail()
		return 0
	}
	return n
}

func (c *Cursor) fail() {
	c.B = nil
	if c.Err == nil {
		c.Err = ErrCut
	}
}

// The functions below write values as the JSON that connectors.Base tells of.

// AppendFloat writes a number, NaN and the infinities as text.
func AppendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

// MaxScale is how many digits behind the point a file's decimals may have: more is no
// decimal, and stays bytes.
const MaxScale = 1000

// AppendDecimal writes a number of digits and scale, of its bytes as appendDecimal made them.
func AppendDecimal(dst, b []byte, scale int) []byte {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b)*8)))
	}
	digits := n.Append(nil, 10)
	if len(digits) > 0 && digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	for len(digits) <= scale {
		digits = append([]byte{'0'}, digits...)
	}
	at := len(digits) - scale
	dst = append(dst, digits[:at]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[at:]...)
	}
	return dst
}

// AppendText writes text. Bytes that are no UTF-8 stay as they are, so that who reads the
// record finds it wrong, with its bytes.
func AppendText(dst, b []byte) []byte {
	if utf8.Valid(b) {
		return format.AppendString(dst, string(b))
	}
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range b {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// AppendBytes writes bytes in base64.
func AppendBytes(dst, b []byte) []byte {
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), b)
	return append(dst, '"')
}

// AppendInstant writes a point in time.
func AppendInstant(dst []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(dst, '"'), time.RFC3339Nano), '"')
}

// AppendLocal writes a date and time without a zone.
func AppendLocal(dst []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(dst, '"'), "2006-01-02T15:04:05.999999999"), '"')
}

// AppendDate writes a date, of days since 1970.
func AppendDate(dst []byte, days int64) []byte {
	return append(time.Unix(days*86400, 0).UTC().AppendFormat(append(dst, '"'), "2006-01-02"), '"')
}

// AppendTimeOfDay writes a time of day.
func AppendTimeOfDay(dst []byte, d time.Duration) []byte {
	return append(time.Unix(0, 0).UTC().Add(d).AppendFormat(append(dst, '"'), "15:04:05.999999999"), '"')
}

// AppendUUID writes a UUID of its 16 bytes.
func AppendUUID(dst, u []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hex[c>>4], hex[c&15])
	}
	return append(dst, '"')
}
