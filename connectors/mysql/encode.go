package mysql

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/format"
)

// packetMargin is room in a statement for what is around a row.
const packetMargin = 16 << 10

// rowEncoder makes the tuples of an INSERT, and of a row to delete that of its key:
//
//	operation, 1 byte; shape, a varint; the tuple
//
// What a value cannot be is found here, as far as this program knows the type.
type rowEncoder struct {
	mapper  *table.Mapper
	columns []sinkColumn
	deletes bool
	most    int // bytes of a row
}

// Begin reads a batch.
func (e *rowEncoder) Begin(rows *connectors.Rows) error {
	e.mapper.Begin(rows)
	return nil
}

// Append appends the kept form of row i.
func (e *rowEncoder) Append(dst []byte, i int) ([]byte, error) {
	op, err := e.mapper.Op(i)
	if err != nil {
		return dst, err
	}
	at := len(dst)
	shape := uint64(0)
	if op == table.Write {
		shape = e.mapper.Shape(i)
	}
	dst = binary.AppendUvarint(append(dst, byte(op)), shape)
	dst = append(dst, '(')
	first := true
	for c := range e.columns {
		key := e.deletes && slices.Contains(e.mapper.Keys(), c)
		if op == table.Delete && !key {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if dst, err = e.value(dst, i, c, key, shape); err != nil {
			return dst, err
		}
	}
	if len(dst)-at > e.most {
		return dst, &deferred.Refused{Kind: "too_large", Reason: fmt.Sprintf("the row has %d bytes, and the server takes %d at most (max_allowed_packet)", len(dst)-at, e.most)}
	}
	return append(dst, ')'), nil
}

func (e *rowEncoder) value(dst []byte, i, c int, key bool, shape uint64) ([]byte, error) {
	col := &e.columns[c]
	v := e.mapper.Value(i, c)
	if !e.mapper.Has(shape, c) {
		if col.numbers { // DEFAULT would be 0, which asks for no number here
			return append(dst, "NULL"...), nil
		}
		return append(dst, "DEFAULT"...), nil
	}
	if v.IsNull() {
		if key || col.notNull {
			return dst, &deferred.Refused{Kind: "null", Reason: fmt.Sprintf("column %s must have a value", col.name)}
		}
		return append(dst, "NULL"...), nil
	}
	dst, err := col.write(dst, v)
	if err != nil {
		return dst, &deferred.Refused{Kind: "type", Reason: fmt.Sprintf("column %s (%s): %s", col.name, col.text, err)}
	}
	return dst, nil
}

// appendFunc appends a value, which is not null, as SQL.
type appendFunc func(dst []byte, v connectors.Value) ([]byte, error)

// writerOf is how values of a column are written, and what is asked of the rows for it.
func writerOf(c *sinkColumn) (appendFunc, connectors.Type) {
	of := func(b connectors.Base) connectors.Type { return connectors.Type{Base: b} }
	if c.isJSON {
		return appendJSON, of(connectors.Exact) // numbers keep their digits
	}
	if bits := map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[c.typ]; bits > 0 {
		return appendInt(bits, strings.Contains(c.text, "unsigned")), of(connectors.Exact)
	}
	switch c.typ {
	case "float":
		return appendReal(32), of(connectors.Real)
	case "double":
		return appendReal(64), of(connectors.Real)
	case "decimal":
		return appendDecimal(c.precision, c.scale), of(connectors.Exact)
	case "year":
		return appendInt(32, true), of(connectors.Integer)
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return appendText(c.length, c.octets), of(connectors.Text)
	case "enum":
		return appendLabel(labels(c.text)), of(connectors.Text)
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return appendBinary(c.octets), of(connectors.Binary)
	case "bit":
		return appendInt(64, true), of(connectors.Exact)
	case "timestamp":
		return appendInstant(c.fraction), of(connectors.Instant)
	case "datetime":
		return appendLocal(c.fraction), of(connectors.Local)
	case "date":
		return appendDate, of(connectors.Date)
	case "time":
		return appendTime(c.fraction), of(connectors.TimeOfDay)
	case "uuid":
		return appendUUID, of(connectors.UUID)
	}
	return appendOther, of(connectors.Dynamic)
}

// appendInt writes integers. A truth value is 1 or 0, which is what boolean means here.
func appendInt(bits int, unsigned bool) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		switch {
		case v.Kind() == connectors.Bool && v.Bool():
			return append(dst, '1'), nil
		case v.Kind() == connectors.Bool:
			return append(dst, '0'), nil
		case v.Kind() == connectors.Duration: // in milliseconds, as create makes them
			return strconv.AppendInt(dst, v.Duration().Milliseconds(), 10), nil
		case unsigned:
			n, err := columns.Uint(v, bits)
			return strconv.AppendUint(dst, n, 10), err
		}
		n, err := columns.Int(v, bits)
		return strconv.AppendInt(dst, n, 10), err
	}
}

func appendReal(bits int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		f, err := columns.Float(v, bits)
		if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			err = errors.New("MySQL has no NaN and no infinity")
		}
		return strconv.AppendFloat(dst, f, 'e', -1, bits), err
	}
}

func appendDecimal(precision, scale int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		d, err := columns.Decimal(v, precision, scale)
		if err != nil {
			return dst, err
		}
		return d.Append(dst, 'f'), nil
	}
}

var errUTF8 = errors.New("the text is not UTF-8")

// appendText writes text of at most so many characters and bytes; of any number for 0.
func appendText(most, octets int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		var text []byte
		switch v.Kind() {
		case connectors.String:
			text = v.Raw()
		case connectors.Timestamp, connectors.Duration:
			quoted, err := format.AppendValue(nil, v)
			if err != nil {
				return dst, err
			}
			text = quoted[1 : len(quoted)-1]
		default:
			return dst, fmt.Errorf("text is wanted, not %s: string(x) makes text", v.Kind())
		}
		switch {
		case !utf8.Valid(text):
			return dst, errUTF8
		case most > 0 && len(text) > most && utf8.RuneCount(text) > most:
			return dst, fmt.Errorf("the text has more than %d characters", most)
		case octets > 0 && len(text) > octets:
			return dst, fmt.Errorf("the text has more than %d bytes", octets)
		}
		return appendQuoted(dst, text), nil
	}
}

// appendQuoted writes text as a literal, of a session that takes backslashes as escapes.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '\'')
	from := 0
	for i, c := range text {
		if c != '\'' && c != '\\' && c != 0 {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		if c == 0 {
			dst = append(dst, `\0`...)
		} else {
			dst = append(dst, '\\', c)
		}
	}
	return append(append(dst, text[from:]...), '\'')
}

// labels are those of an enum, from the text of its type: enum('a','it”s').
func labels(text string) (out []string) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "enum("), ")")
	for strings.HasPrefix(text, "'") {
		end := 1
		for end < len(text) && (text[end] != '\'' || strings.HasPrefix(text[end:], "''")) {
			if text[end] == '\'' {
				end++
			}
			end++
		}
		out = append(out, strings.ReplaceAll(text[1:min(end, len(text))], "''", "'"))
		text = strings.TrimPrefix(text[min(end+1, len(text)):], ",")
	}
	return out
}

func appendLabel(labels []string) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := columns.Text(v)
		if err != nil {
			return dst, err
		}
		if !slices.Contains(labels, text) {
			return dst, errors.New("the text is none of the enum's values")
		}
		return appendQuoted(dst, []byte(text)), nil
	}
}

func appendBinary(most int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		b, err := columns.Bytes(v)
		if err == nil && most > 0 && len(b) > most {
			err = fmt.Errorf("there are more than %d bytes", most)
		}
		if err != nil {
			return dst, err
		}
		return append(hex.AppendEncode(append(dst, "X'"...), b), '\''), nil
	}
}

// errYear is about years that date and datetime have no text for.
var errYear = errors.New("the time is outside of the years 1 to 9999")

func appendInstant(fraction int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		t, err := columns.Time(v)
		if err == nil && (t.Unix() < 1 || t.Unix() > math.MaxInt32) {
			err = errors.New("the time is outside of 1970 to 2038, which a timestamp of MySQL holds: use datetime(6)")
		}
		if err != nil {
			return dst, err
		}
		return appendMoment(dst, t.UTC(), fraction)
	}
}

func appendLocal(fraction int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		t, err := columns.LocalTime(v)
		if err != nil {
			return dst, err
		}
		return appendMoment(dst, t, fraction)
	}
}

// appendMoment writes a time with so many digits of seconds; what is finer is cut off,
// where the server would round.
func appendMoment(dst []byte, t time.Time, fraction int) ([]byte, error) {
	if y := t.Year(); y < 1 || y > 9999 {
		return dst, errYear
	}
	dst = t.AppendFormat(append(dst, '\''), "2006-01-02 15:04:05")
	return append(appendFraction(dst, t.Nanosecond(), fraction), '\''), nil
}

func appendFraction(dst []byte, nanos, digits int) []byte {
	if digits == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := 100_000_000; digits > 0; unit, digits = unit/10, digits-1 {
		dst = append(dst, '0'+byte(nanos/unit%10))
	}
	return dst
}

func appendDate(dst []byte, v connectors.Value) ([]byte, error) {
	t, err := columns.Day(v)
	if err != nil {
		return dst, err
	}
	if y := t.Year(); y < 1 || y > 9999 {
		return dst, errYear
	}
	return append(t.AppendFormat(append(dst, '\''), "2006-01-02"), '\''), nil
}

func appendTime(fraction int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		d, err := columns.TimeOfDay(v)
		if err != nil {
			return dst, err
		}
		dst = time.Time{}.Add(d).AppendFormat(append(dst, '\''), "15:04:05")
		return append(appendFraction(dst, int(d%time.Second), fraction), '\''), nil
	}
}

func appendUUID(dst []byte, v connectors.Value) ([]byte, error) {
	u, err := columns.UUID(v)
	if err != nil {
		return dst, err
	}
	return fmt.Appendf(dst, "'%x-%x-%x-%x-%x'", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}

func appendJSON(dst []byte, v connectors.Value) ([]byte, error) {
	if !table.IsUTF8(v) {
		return dst, errUTF8
	}
	text, err := format.AppendValue(nil, v)
	if err != nil {
		return dst, err
	}
	return appendQuoted(dst, text), nil
}

// appendOther writes for a type that only the server knows: text as it is, anything else
// as JSON writes it.
func appendOther(dst []byte, v connectors.Value) ([]byte, error) {
	if v.Kind() == connectors.String {
		return appendText(0, 0)(dst, v)
	}
	return appendJSON(dst, v)
}
