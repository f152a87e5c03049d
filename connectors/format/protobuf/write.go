package protobuf

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// writer fills messages from JSON.
type writer struct {
	*config
	arena connectors.Arena
	depth int
}

func (w *writer) fill(m protoreflect.Message, v connectors.Value) error {
	if w.depth++; w.depth > maxDepth {
		return fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	defer func() { w.depth-- }()
	if _, ok := wellKnown[m.Descriptor().FullName()]; ok {
		return w.known(m, v)
	}
	if v.Kind() != connectors.Map {
		return fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	var err error
	format.Entries(v.Raw(), &w.arena, func(key string, v connectors.Value) bool {
		f := m.Descriptor().Fields().ByTextName(key)
		if f == nil {
			f = m.Descriptor().Fields().ByJSONName(key)
		}
		switch {
		case f == nil && w.IgnoreUnknown:
		case f == nil:
			err = fmt.Errorf("field %s: the message %s has no such field: drop it, or write ignore_unknown: true", key, m.Descriptor().FullName())
		case v.IsNull() && (f.Message() == nil || f.Message().FullName() != "google.protobuf.Value"):
			if !f.HasPresence() && !f.IsList() && !f.IsMap() {
				err = fmt.Errorf("field %s: it is null, which the message cannot tell from its zero: make the field optional, or set a value", key)
			}
		default:
			if err = w.field(m, f, v); err != nil {
				err = fmt.Errorf("field %s: %w", key, err)
			}
		}
		return err == nil
	})
	return err
}

func (w *writer) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v connectors.Value) (err error) {
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		if other := m.WhichOneof(o); other != nil {
			return fmt.Errorf("there is a value for %s as well, and of the oneof %s only one can be there", other.Name(), o.Name())
		}
	}
	switch {
	case f.IsList():
		if v.Kind() != connectors.List {
			return fmt.Errorf("a list is wanted, not %s", v.Kind())
		}
		list, i := m.Mutable(f).List(), 0
		format.Elements(v.Raw(), &w.arena, func(v connectors.Value) bool {
			var item protoreflect.Value
			if item, err = w.value(f, list.NewElement, v); err == nil {
				list.Append(item)
			} else {
				err = fmt.Errorf("[%d]: %w", i, err)
			}
			i++
			return err == nil
		})
		return err
	case f.IsMap():
		return w.dictionary(m.Mutable(f).Map(), f, v)
	}
	item, err := w.value(f, func() protoreflect.Value { return m.NewField(f) }, v)
	if err == nil {
		m.Set(f, item)
	}
	return err
}

func (w *writer) dictionary(into protoreflect.Map, f protoreflect.FieldDescriptor, v connectors.Value) (err error) {
	if v.Kind() != connectors.Map {
		return fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	format.Entries(v.Raw(), &w.arena, func(key string, v connectors.Value) bool {
		var k, item protoreflect.Value
		if k, err = w.key(f.MapKey(), key); err == nil {
			item, err = w.value(f.MapValue(), into.NewValue, v)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
			return false
		}
		into.Set(k.MapKey(), item)
		return true
	})
	return err
}

// key reads the key of a map, which is text in JSON.
func (w *writer) key(f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	v := connectors.StringValue(string(append([]byte(nil), text...)))
	switch f.Kind() {
	case protoreflect.StringKind:
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return protoreflect.Value{}, errors.New("the key is neither true nor false")
		}
		v = connectors.BoolValue(b)
	default:
		n, ok := format.Number(text)
		if !ok {
			return protoreflect.Value{}, errors.New("the key is no number")
		}
		v = n
	}
	return w.value(f, nil, v)
}

func (w *writer) value(f protoreflect.FieldDescriptor, empty func() protoreflect.Value, v connectors.Value) (out protoreflect.Value, err error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		b, err := columns.Bool(v)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, err := columns.Int(v, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n, err := columns.Int(v, 64)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, err := columns.Uint(v, 32)
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n, err := columns.Uint(v, 64)
		return protoreflect.ValueOfUint64(n), err
	case protoreflect.FloatKind:
		x, err := columns.Float(v, 32)
		return protoreflect.ValueOfFloat32(float32(x)), err
	case protoreflect.DoubleKind:
		x, err := columns.Float(v, 64)
		return protoreflect.ValueOfFloat64(x), err
	case protoreflect.StringKind:
		text, err := columns.Text(v)
		return protoreflect.ValueOfString(text), err
	case protoreflect.BytesKind:
		raw, err := columns.Bytes(v)
		return protoreflect.ValueOfBytes(raw), err
	case protoreflect.EnumKind:
		return enum(f, v)
	default:
		out = empty()
		return out, w.fill(out.Message(), v)
	}
}

func enum(f protoreflect.FieldDescriptor, v connectors.Value) (out protoreflect.Value, err error) {
	if v.Kind() == connectors.Int && v.Int() >= math.MinInt32 && v.Int() <= math.MaxInt32 {
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int())), nil
	}
	text, err := columns.Text(v)
	if err != nil {
		return out, err
	}
	s := f.Enum().Values().ByName(protoreflect.Name(text))
	if s == nil {
		return out, fmt.Errorf("the enum %s has no such name", f.Enum().Name())
	}
	return protoreflect.ValueOfEnum(s.Number()), nil
}

// known fills messages that have a form of their own in JSON.
func (w *writer) known(m protoreflect.Message, v connectors.Value) error {
	d := m.Descriptor()
	moment := func(seconds, nanos int64) {
		m.Set(d.Fields().ByName("seconds"), protoreflect.ValueOfInt64(seconds))
		m.Set(d.Fields().ByName("nanos"), protoreflect.ValueOfInt32(int32(nanos)))
	}
	switch d.FullName() {
	case "google.protobuf.Timestamp":
		t, err := columns.Time(v)
		if err == nil && (t.UTC().Year() < 1 || t.UTC().Year() > 9999) {
			err = errors.New("a time in the years 1 to 9999 is wanted")
		}
		moment(t.Unix(), int64(t.Nanosecond()))
		return err
	case "google.protobuf.Duration":
		span, err := columns.Span(v)
		if err == nil {
			moment(int64(span/1e9), int64(span%1e9))
			return nil
		}
	default:
	}
	if isWrapper(d.FullName()) {
		f := d.Fields().ByName("value")
		item, err := w.value(f, nil, v)
		if err == nil {
			m.Set(f, item)
		}
		return err
	}
	text, err := format.AppendValue(nil, v)
	if err == nil {
		if err = protojson.Unmarshal(text, m.Interface()); err != nil {
			err = fmt.Errorf("a %s is wanted", d.FullName())
		}
	}
	return err
}
