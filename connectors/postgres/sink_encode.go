package postgres

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/format"
)

// rowEncoder makes lines of COPY's text form, which every type has:
//
//	operation, 1 byte; shape, a varint; the line
//
// What a value cannot be is found here, as far as this program knows the type.
type rowEncoder struct {
	mapper  *table.Mapper
	columns []sinkColumn
	deletes bool
	scratch []byte
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
	shape := uint64(0)
	if op == table.Write {
		shape = e.mapper.Shape(i)
	}
	dst = binary.AppendUvarint(append(dst, byte(op)), shape)
	for c := range e.columns {
		if c > 0 {
			dst = append(dst, '\t')
		}
		col := &e.columns[c]
		key := e.deletes && slices.Contains(e.mapper.Keys(), c)
		if op == table.Delete && !key {
			dst = append(dst, `\N`...)
			continue
		}
		v := e.mapper.Value(i, c)
		if v.IsNull() {
			if key || col.notNull && e.mapper.Has(shape, c) {
				return dst, &deferred.Refused{Kind: "null", Reason: fmt.Sprintf("column %s must have a value", col.name)}
			}
			dst = append(dst, `\N`...)
			continue
		}
		if col.free && v.Kind() == connectors.String && isPlain(v.Raw()) {
			dst = append(dst, v.Raw()...)
			continue
		}
		at := len(dst)
		if dst, err = col.write(dst, v); err != nil {
			return dst, &deferred.Refused{Kind: "type", Reason: fmt.Sprintf("column %s (%s): %s", col.name, col.text, err)}
		}
		if !col.plain {
			dst = e.escape(dst, at)
		}
	}
	return append(dst, '\n'), nil
}

// isPlain reports whether text is ASCII without control characters and backslashes, which
// PostgreSQL stores and COPY takes as it is. Nearly all text is, and eight bytes are looked
// at at once.
func isPlain(text []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		slash := w ^ '\\'*ones
		// Less one, or less 32, a byte without its highest bit gets it if it was smaller.
		if (w|(w-' '*ones)|(slash-ones)&^slash)&highs != 0 {
			return false
		}
	}
	for _, c := range text {
		if c < ' ' || c >= utf8.RuneSelf || c == '\\' {
			return false
		}
	}
	return true
}

// escape replaces what has a meaning of its own in a line of COPY from at on.
func (e *rowEncoder) escape(dst []byte, at int) []byte {
	if isPlain(dst[at:]) {
		return dst
	}
	e.scratch = append(e.scratch[:0], dst[at:]...)
	dst = dst[:at]
	for _, c := range e.scratch {
		switch c {
		case '\\':
			dst = append(dst, `\\`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendFunc appends a value, which is not null, as the text that the type reads.
type appendFunc func(dst []byte, v connectors.Value) ([]byte, error)

// writerOf is how values of a type are written, and what is asked of the rows for it.
func writerOf(t *columnType) (write appendFunc, plain bool, reads connectors.Type) {
	of := func(b connectors.Base) connectors.Type { return connectors.Type{Base: b} }
	switch {
	case t.elem != nil:
		elem, _, _ := writerOf(t.elem)
		return appendArray(elem, t.elem.name == "json" || t.elem.name == "jsonb"), false, of(connectors.Sequence)
	case t.labels != nil:
		return appendLabel(t.labels), false, of(connectors.Text)
	}
	switch t.name {
	case "int2":
		return appendInt(16), true, of(connectors.Integer)
	case "int4":
		return appendInt(32), true, of(connectors.Integer)
	case "int8":
		return appendInt(64), true, of(connectors.Integer)
	case "float4":
		return appendReal(32), true, of(connectors.Real)
	case "float8":
		return appendReal(64), true, of(connectors.Real)
	case "numeric":
		return appendNumeric(t.mod), true, of(connectors.Exact)
	case "bool":
		return appendBool, true, of(connectors.Boolean)
	case "text", "citext":
		return appendText(0), false, of(connectors.Text)
	case "varchar", "bpchar":
		return appendText(int(t.mod) - 4), false, of(connectors.Text)
	case "bytea":
		return appendBytea, false, of(connectors.Binary)
	case "timestamptz":
		return appendInstant, true, of(connectors.Instant)
	case "timestamp":
		return appendLocal, true, of(connectors.Local)
	case "date":
		return appendDate, true, of(connectors.Date)
	case "time":
		return appendTime, true, of(connectors.TimeOfDay)
	case "interval":
		return appendInterval, true, of(connectors.Span)
	case "uuid":
		return appendUUID, true, of(connectors.UUID)
	case "json":
		return appendJSON, false, of(connectors.Exact) // numbers keep their digits
	case "jsonb":
		return appendJSONB, false, of(connectors.Exact)
	}
	return appendOther, false, of(connectors.Dynamic)
}

func appendInt(bits int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		n, err := columns.Int(v, bits)
		if err != nil {
			return dst, err
		}
		return strconv.AppendInt(dst, n, 10), nil
	}
}

func appendReal(bits int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		f, err := columns.Float(v, bits)
		switch {
		case err != nil:
			return dst, err
		case math.IsInf(f, 1):
			return append(dst, "Infinity"...), nil
		case math.IsInf(f, -1):
			return append(dst, "-Infinity"...), nil
		}
		return strconv.AppendFloat(dst, f, 'g', -1, bits), nil
	}
}

// appendNumeric writes decimals, of a modifier that holds precision and scale.
func appendNumeric(mod int32) appendFunc {
	precision, scale := 0, 0
	if mod >= 4 {
		precision, scale = int(mod-4)>>16, int(mod-4)&0x7ff
		if scale > 1023 { // negative, since PostgreSQL 15
			precision, scale = 0, 0 // left to the server
		}
	}
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		switch v.Kind() {
		case connectors.Int:
			if precision == 0 {
				return strconv.AppendInt(dst, v.Int(), 10), nil
			}
		case connectors.Decimal:
			if text := v.Text(); precision == 0 && len(text) < 100 || digitsFit(text, precision, scale) {
				return append(dst, text...), nil
			}
		case connectors.String:
			if v.Text() == "NaN" {
				return append(dst, "NaN"...), nil
			}
		}
		if v.Kind() == connectors.Float && math.IsNaN(v.Float()) {
			return append(dst, "NaN"...), nil
		}
		d, err := columns.Decimal(v, precision, scale)
		if err != nil {
			return dst, err
		}
		return d.Append(dst, 'G'), nil
	}
}

// digitsFit reports whether a number is written plainly, and surely within the digits.
func digitsFit(text string, precision, scale int) bool {
	before, behind, point := 0, 0, false
	for _, c := range []byte(text) {
		switch {
		case c == '.':
			point = true
		case c >= '0' && c <= '9' && point:
			behind++
		case c >= '0' && c <= '9':
			before++
		case c != '-':
			return false
		}
	}
	return before <= precision-scale && behind <= scale
}

func appendBool(dst []byte, v connectors.Value) ([]byte, error) {
	b, err := columns.Bool(v)
	if b {
		return append(dst, 't'), err
	}
	return append(dst, 'f'), err
}

// errZero is about U+0000, which PostgreSQL has no place for in text.
var (
	errZero = errors.New("the text holds the character U+0000, which PostgreSQL cannot store")
	errUTF8 = errors.New("the text is not UTF-8")
)

// appendText writes text of at most so many characters; of any number for less than 1.
func appendText(most int) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		var err error
		at := len(dst)
		switch v.Kind() {
		case connectors.String:
			dst = append(dst, v.Raw()...)
		case connectors.Timestamp, connectors.Duration:
			dst, err = format.AppendValue(dst, v)
			if err == nil {
				dst = append(dst[:at], dst[at+1:len(dst)-1]...) // without quotes
			}
		default:
			return dst, fmt.Errorf("text is wanted, not %s: string(x) makes text", v.Kind())
		}
		text := dst[at:]
		switch {
		case err != nil:
			return dst, err
		case (most <= 0 || len(text) <= most) && isPlain(text):
			return dst, nil
		case bytes.IndexByte(text, 0) >= 0:
			return dst, errZero
		case !utf8.Valid(text):
			return dst, errUTF8
		case most > 0 && len(text) > most && utf8.RuneCount(text) > most:
			return dst, fmt.Errorf("the text has more than %d characters", most)
		}
		return dst, nil
	}
}

func appendLabel(labels []string) appendFunc {
	return func(dst []byte, v connectors.Value) ([]byte, error) {
		text, err := columns.Text(v)
		if err != nil {
			return dst, err
		}
		if !slices.Contains(labels, text) {
			return dst, errors.New("the text is none of the enum's labels")
		}
		return append(dst, text...), nil
	}
}

func appendBytea(dst []byte, v connectors.Value) ([]byte, error) {
	b, err := columns.Bytes(v)
	if err != nil {
		return dst, err
	}
	return hex.AppendEncode(append(dst, `\x`...), b), nil
}

func appendUUID(dst []byte, v connectors.Value) ([]byte, error) {
	u, err := columns.UUID(v)
	if err != nil {
		return dst, err
	}
	return hex.AppendEncode(dst, u[:]), nil
}

func appendJSON(dst []byte, v connectors.Value) ([]byte, error) {
	if !table.IsUTF8(v) {
		return dst, errUTF8
	}
	return format.AppendValue(dst, v)
}

func appendJSONB(dst []byte, v connectors.Value) ([]byte, error) {
	at := len(dst)
	dst, err := appendJSON(dst, v)
	if err == nil && holdsZero(dst[at:]) {
		err = errZero
	}
	return dst, err
}

// holdsZero reports whether JSON has the escape of U+0000, which jsonb refuses.
func holdsZero(json []byte) bool {
	for {
		at := bytes.Index(json, []byte(`\u0000`))
		if at < 0 {
			return false
		}
		slashes := 0
		for slashes < at && json[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		json = json[at+1:]
	}
}

// appendArray writes a list, and lists of lists as dimensions unless they are JSON.
func appendArray(elem appendFunc, isJSON bool) appendFunc {
	var write appendFunc
	write = func(dst []byte, v connectors.Value) ([]byte, error) {
		if v.Kind() != connectors.List {
			return dst, fmt.Errorf("a list is wanted, not %s", v.Kind())
		}
		var arena connectors.Arena
		var err error
		dst = append(dst, '{')
		first := true
		format.Elements(v.Raw(), &arena, func(e connectors.Value) bool {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			switch {
			case e.IsNull():
				dst = append(dst, "NULL"...)
			case e.Kind() == connectors.List && !isJSON:
				dst, err = write(dst, e)
			default:
				at := len(dst)
				if dst, err = elem(dst, e); err == nil {
					dst = quoteElement(dst, at)
				}
			}
			return err == nil
		})
		return append(dst, '}'), err
	}
	return write
}

// quoteElement puts what stands from at on in quotes.
func quoteElement(dst []byte, at int) []byte {
	text := bytes.Clone(dst[at:])
	dst = append(dst[:at], '"')
	for _, c := range text {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// appendOther writes for a type that only the server knows: text as it is, anything else
// as JSON writes it.
func appendOther(dst []byte, v connectors.Value) ([]byte, error) {
	if v.Kind() == connectors.String {
		return appendText(0)(dst, v)
	}
	return appendJSON(dst, v)
}
