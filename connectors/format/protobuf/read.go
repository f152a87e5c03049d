package protobuf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-etl/sluice/connectors/format"
)

// maxDepth is how deep messages are nested.
const maxDepth = 200

// reader writes messages as JSON.
type reader struct {
	*config
	depth int
	limit int
}

func (r *reader) message(dst []byte, m protoreflect.Message) (_ []byte, err error) {
	if r.depth++; r.depth > maxDepth {
		return dst, fmt.Errorf("the value is nested deeper than %d", maxDepth)
	}
	defer func() { r.depth-- }()
	if _, ok := wellKnown[m.Descriptor().FullName()]; ok {
		return r.known(dst, m)
	}
	dst = append(dst, '{')
	open := len(dst)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, r.nameOf(f)), ':')
		if dst, err = r.field(dst, f, m.Get(f)); err != nil {
			return dst, fmt.Errorf("field %s: %w", f.Name(), err)
		}
	}
	return append(dst, '}'), nil
}

func (r *reader) field(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) (_ []byte, err error) {
	if len(dst) > r.limit {
		return dst, errors.New("the value is larger than max_size as JSON")
	}
	switch {
	case f.IsList():
		dst = append(dst, '[')
		list := v.List()
		for i := range list.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = r.value(dst, f, list.Get(i)); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case f.IsMap():
		return r.dictionary(dst, f, v.Map())
	}
	return r.value(dst, f, v)
}

// dictionary appends a map in the order of its keys: a value reads the same each time.
func (r *reader) dictionary(dst []byte, f protoreflect.FieldDescriptor, m protoreflect.Map) ([]byte, error) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		if !utf8.ValidString(k.String()) {
			return dst, errNoUTF8
		}
		dst = append(format.AppendString(dst, k.String()), ':')
		var err error
		if dst, err = r.value(dst, f.MapValue(), m.Get(k)); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// errNoUTF8 is of schemas of proto2, which the library does not check.
var errNoUTF8 = errors.New("the text is not UTF-8: declare bytes")

func (r *reader) value(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool()), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	case protoreflect.FloatKind:
		return appendFloat(dst, v.Float(), 32), nil
	case protoreflect.DoubleKind:
		return appendFloat(dst, v.Float(), 64), nil
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) {
			return dst, errNoUTF8
		}
		return format.AppendString(dst, v.String()), nil
	case protoreflect.BytesKind:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.Bytes())
		return append(dst, '"'), nil
	case protoreflect.EnumKind:
		if s := f.Enum().Values().ByNumber(v.Enum()); s != nil {
			return format.AppendString(dst, string(s.Name())), nil
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10), nil
	default:
		return r.message(dst, v.Message())
	}
}

// known appends messages that have a form of their own in JSON.
func (r *reader) known(dst []byte, m protoreflect.Message) ([]byte, error) {
	d := m.Descriptor()
	number := func(name protoreflect.Name) int64 { return m.Get(d.Fields().ByName(name)).Int() }
	switch d.FullName() {
	case "google.protobuf.Timestamp":
		nanos := number("nanos")
		t := time.Unix(number("seconds"), nanos).UTC()
		if t.Year() < 1 || t.Year() > 9999 || nanos < 0 || nanos > 999_999_999 {
			return dst, errors.New("the timestamp is outside of the years 1 to 9999, and has no text then")
		}
		return t.AppendFormat(dst, `"`+time.RFC3339Nano+`"`), nil
	default:
	}
	if isWrapper(d.FullName()) {
		f := d.Fields().ByName("value")
		return r.value(dst, f, m.Get(f))
	}
	text, err := protojson.Marshal(m.Interface())
	if err != nil {
		return dst, fmt.Errorf("it has no form in JSON: %w", err)
	}
	var plain bytes.Buffer // the library puts spaces in by chance
	if err := json.Compact(&plain, text); err != nil {
		return dst, err
	}
	return append(dst, plain.Bytes()...), nil
}

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
