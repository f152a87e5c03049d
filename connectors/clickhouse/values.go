package clickhouse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

var errNull = errors.New("a value is wanted, not null")

// appendLittle appends an integer in so many bytes.
func appendLittle(dst []byte, n uint64, bytes int) []byte {
	for range bytes {
		dst = append(dst, byte(n))
		n >>= 8
	}
	return dst
}

// appendBig appends an integer in so many bytes, as two's complement.
func appendBig(dst []byte, n *big.Int, bytes int) []byte {
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*bytes)))
	}
	at := len(dst)
	dst = append(dst, make([]byte, bytes)...)
	n.FillBytes(dst[at:])
	slices.Reverse(dst[at:])
	return dst
}

// appendInt writes integers. A truth value is 1 or 0, a duration its milliseconds.
func appendInt(bits int, unsigned bool) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		switch {
		case v.Kind() == connectors.Bool && v.Bool():
			return appendLittle(dst, 1, bits/8), nil
		case v.Kind() == connectors.Bool:
			return appendLittle(dst, 0, bits/8), nil
		case v.Kind() == connectors.Duration:
			v = connectors.IntValue(v.Duration().Milliseconds())
		}
		if unsigned {
			n, err := columns.Uint(v, bits)
			return appendLittle(dst, n, bits/8), err
		}
		n, err := columns.Int(v, bits)
		return appendLittle(dst, uint64(n), bits/8), err
	}
}

// mostDigits is how many digits an integer of 256 bits has.
const mostDigits = 78

// appendWide writes integers of more than 64 bits, as numbers or text.
func appendWide(bits int, unsigned bool) appendFunc {
	most := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	least := new(big.Int)
	if !unsigned {
		most.Rsh(most, 1)
		least.Neg(most)
	}
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		d, err := columns.Decimal(v, mostDigits, 0)
		if err != nil {
			return dst, err
		}
		n := new(big.Int).Set(d.Coeff.MathBigInt())
		if d.Negative {
			n.Neg(n)
		}
		if n.Cmp(least) < 0 || n.Cmp(most) >= 0 {
			return dst, fmt.Errorf("the integer does not fit %d bits", bits)
		}
		return appendBig(dst, n, bits/8), nil
	}
}

func appendReal(bits int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		f, err := columns.Float(v, bits)
		if bits == 32 {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), err
		}
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), err
	}
}

func appendDecimal(precision, scale int) appendFunc {
	bytes := 32
	switch {
	case precision <= 9:
		bytes = 4
	case precision <= 18:
		bytes = 8
	case precision <= 38:
		bytes = 16
	}
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		d, err := columns.Decimal(v, precision, scale)
		if err != nil {
			return dst, err
		}
		n := d.Coeff.MathBigInt()
		if d.Negative {
			n = new(big.Int).Neg(n)
		}
		return appendBig(dst, n, bytes), nil
	}
}

func appendBool(dst []byte, v connectors.Value) ([]byte, error) {
	b, err := columns.Bool(v)
	if b {
		return append(dst, 1), err
	}
	return append(dst, 0), err
}

// textOf is what a String holds of a value: text and bytes as they are, and of lists and
// maps their JSON. Where the field is known to be bytes, its text is base64.
func textOf(v connectors.Value, rows connectors.Base) ([]byte, error) {
	switch kind := v.Kind(); {
	case rows == connectors.Binary:
		return columns.Bytes(v)
	case rows == connectors.Document:
		return format.AppendValue(nil, v)
	case kind == connectors.String || kind == connectors.Bytes || kind == connectors.List || kind == connectors.Map:
		return v.Raw(), nil
	case kind == connectors.Timestamp || kind == connectors.Duration:
		quoted, err := format.AppendValue(nil, v)
		if err != nil {
			return nil, err
		}
		return quoted[1 : len(quoted)-1], nil
	}
	return nil, fmt.Errorf("text is wanted, not %s: string(x) makes text", v.Kind())
}

func appendString(rows connectors.Base) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := textOf(v, rows)
		if err != nil {
			return dst, err
		}
		return appendText(dst, text), nil
	}
}

// appendFixed writes text of so many bytes, with zeros behind a shorter one.
func appendFixed(size int, rows connectors.Base) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := textOf(v, rows)
		if err == nil && len(text) > size {
			err = fmt.Errorf("there are more than %d bytes", size)
		}
		if err != nil {
			return dst, err
		}
		return append(append(dst, text...), make([]byte, size-len(text))...), nil
	}
}

func appendEnum(labels map[string]int16, wide bool) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := columns.Text(v)
		if err != nil {
			return dst, err
		}
		n, ok := labels[text]
		if !ok {
			return dst, errors.New("the text is none of the enum's values")
		}
		if wide {
			return appendLittle(dst, uint64(n), 2), nil
		}
		return append(dst, byte(n)), nil
	}
}

// appendUUID writes a UUID as two integers, each with its lowest byte first.
func appendUUID(dst []byte, v connectors.Value) ([]byte, error) {
	u, err := columns.UUID(v)
	slices.Reverse(u[:8])
	slices.Reverse(u[8:])
	return append(dst, u[:]...), err
}

func appendIP(four bool) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := columns.Text(v)
		if err != nil {
			return dst, err
		}
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "" || four && !a.Unmap().Is4():
			return dst, errors.New("an address of the column's version is wanted, such as 192.0.2.1 or 2001:db8::1")
		case four:
			b := a.Unmap().As4()
			return append(dst, b[3], b[2], b[1], b[0]), nil
		}
		b := a.As16()
		return append(dst, b[:]...), nil
	}
}

func appendArray(elem *codec) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		if v.Kind() != connectors.List {
			return dst, fmt.Errorf("a list is wanted, not %s", v.Kind())
		}
		dst = binary.AppendUvarint(dst, uint64(format.Len(v.Raw())))
		return appendElements(dst, v.Raw(), func(dst []byte, _ int, e connectors.Value) ([]byte, error) { return elem.value(dst, e) })
	}
}

func appendElements(dst, list []byte, one func(dst []byte, i int, e connectors.Value) ([]byte, error)) ([]byte, error) {
	var arena connectors.Arena
	var err error
	i := 0
	format.Elements(list, &arena, func(e connectors.Value) bool {
		dst, err = one(dst, i, e)
		i++
		return err == nil
	})
	return dst, err
}

func appendMap(key, elem *codec) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		if v.Kind() != connectors.Map {
			return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
		}
		dst = binary.AppendUvarint(dst, uint64(format.Len(v.Raw())))
		var arena connectors.Arena
		var err error
		format.Entries(v.Raw(), &arena, func(name string, e connectors.Value) bool {
			k := connectors.StringValue(name)
			if n, ok := format.Number(name); ok && key.number {
				k = n
			}
			if dst, err = key.value(dst, k); err == nil {
				dst, err = elem.value(dst, e)
			}
			return err == nil
		})
		return dst, err
	}
}

// appendTuple writes an object by the names of a tuple, or a list by its places.
func appendTuple(names []string, inner []*codec) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		n := 0
		if v.Kind() == connectors.List || v.Kind() == connectors.Map {
			n = format.Len(v.Raw())
		}
		switch {
		case v.Kind() == connectors.List && n == len(inner):
			return appendElements(dst, v.Raw(), func(dst []byte, i int, e connectors.Value) ([]byte, error) { return inner[i].value(dst, e) })
		case v.Kind() != connectors.Map || names[0] == "":
			return dst, fmt.Errorf("a list of %d values, or an object where the tuple has names, is wanted", len(inner))
		}
		var arena connectors.Arena
		var err error
		for i, name := range names {
			e, there := format.Lookup(v.Raw(), name, &arena)
			if there {
				n--
			}
			if dst, err = inner[i].value(dst, e); err != nil {
				return dst, fmt.Errorf("%s: %w", name, err)
			}
		}
		if n > 0 {
			return dst, errors.New("the object has fields that the tuple does not have")
		}
		return dst, nil
	}
}
