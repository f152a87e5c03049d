package columns

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// AppendText appends, as JSON, what text says as a value of a type: for formats in which
// all values are texts.
func AppendText(dst []byte, t connectors.Type, text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return dst, errors.New("the text is no UTF-8")
	}
	v := connectors.TextValue(connectors.String, text)
	switch t.Base {
	case connectors.Boolean:
		if s := string(text); s != "true" && s != "false" {
			return dst, errors.New("true or false is wanted")
		}
		return append(dst, text...), nil
	case connectors.Integer, connectors.Real, connectors.Exact:
		return appendNumber(dst, t, v)
	case connectors.Document:
		if !json.Valid(text) {
			return dst, errors.New("a JSON value is wanted")
		}
		return append(dst, text...), nil
	default:
		if err := checkText(t, v); err != nil {
			return dst, err
		}
		return format.AppendString(dst, v.Text()), nil
	}
}

func appendNumber(dst []byte, t connectors.Type, text connectors.Value) ([]byte, error) {
	if t.Base == connectors.Real {
		if _, err := Float(text, t.Bits); err == nil {
			return format.AppendString(dst, text.Text()), nil // NaN or an infinity
		}
	}
	n, ok := format.Number(text.Text())
	if !ok {
		return dst, errors.New("a number is wanted")
	}
	var err error
	switch {
	case t.Base == connectors.Real:
		_, err = Float(n, t.Bits)
	case t.Base == connectors.Exact:
		d, fault := Decimal(connectors.DecimalValue(text.Text()), t.Precision, t.Scale)
		if fault != nil {
			return dst, fault
		}
		return append(dst, d.Text('f')...), nil
	case t.Unsigned:
		var u uint64
		u, err = Uint(n, t.Bits)
		dst = strconv.AppendUint(dst, u, 10)
		return dst, err
	default:
		var i int64
		i, err = Int(n, t.Bits)
		return strconv.AppendInt(dst, i, 10), err
	}
	if err != nil {
		return dst, err
	}
	return append(dst, text.Text()...), nil
}

// checkText reports whether text is a value of a type that JSON has no form for.
func checkText(t connectors.Type, v connectors.Value) (err error) {
	switch t.Base {
	case connectors.Binary:
		_, err = Bytes(v)
	case connectors.Instant:
		_, err = Time(v)
	case connectors.Local:
		_, err = LocalTime(v)
	case connectors.Date:
		_, err = Day(v)
	case connectors.TimeOfDay:
		_, err = TimeOfDay(v)
	case connectors.Span:
		_, err = Span(v)
	case connectors.UUID:
		_, err = UUID(v)
	default:
	}
	return err
}

// TextOf appends a value of a type as text, without quotes: the inverse of AppendText.
func TextOf(dst []byte, t connectors.Type, v connectors.Value) ([]byte, error) {
	switch t.Base {
	case connectors.Integer:
		if t.Unsigned {
			n, err := Uint(v, t.Bits)
			return strconv.AppendUint(dst, n, 10), err
		}
		n, err := Int(v, t.Bits)
		return strconv.AppendInt(dst, n, 10), err
	case connectors.Real:
		if _, err := Float(v, t.Bits); err != nil {
			return dst, err
		}
	case connectors.Exact:
		d, err := Decimal(v, t.Precision, t.Scale)
		if err != nil {
			return dst, err
		}
		return append(dst, d.Text('f')...), nil
	case connectors.Boolean:
		if _, err := Bool(v); err != nil {
			return dst, err
		}
	case connectors.Text:
		text, err := Text(v)
		return append(dst, text...), err
	case connectors.Binary:
		raw, err := Bytes(v)
		if err != nil {
			return dst, err
		}
		return base64.StdEncoding.AppendEncode(dst, raw), nil
	case connectors.Sequence, connectors.Struct, connectors.Dictionary, connectors.Dynamic, connectors.Document:
	case connectors.Instant:
		at, err := Time(v)
		if err != nil {
			return dst, err
		}
		if v.Kind() == connectors.Int {
			return at.AppendFormat(dst, time.RFC3339Nano), nil
		}
	case connectors.Local:
		at, err := LocalTime(v)
		return at.AppendFormat(dst, "2006-01-02T15:04:05.999999999"), err
	case connectors.Date:
		at, err := Day(v)
		return at.AppendFormat(dst, time.DateOnly), err
	default:
		if err := checkText(t, v); err != nil {
			return dst, err
		}
	}
	return anyText(dst, t.Base == connectors.Document, v)
}

// anyText is text as it is, and of everything else the JSON, without quotes.
func anyText(dst []byte, document bool, v connectors.Value) ([]byte, error) {
	if v.Kind() == connectors.String && !document {
		return append(dst, v.Text()...), nil
	}
	at := len(dst)
	out, err := format.AppendValue(dst, v)
	if err != nil {
		return dst, fmt.Errorf("it has no text: %w", err)
	}
	if n := len(out); n > at && out[at] == '"' && !document {
		copy(out[at:], out[at+1:n-1])
		return out[:n-2], nil
	}
	return out, nil
}
