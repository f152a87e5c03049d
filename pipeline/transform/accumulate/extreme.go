package accumulate

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// extreme is min and max. Its state is the value so far: a byte that is its kind,
// behind it the value in 8 bytes for ints, floats and durations, in 14 for
// timestamps (seconds, nanoseconds, minutes east of UTC), otherwise as
// state.AppendValue writes it without the kind. Of no value the byte is 0, of values
// that have no order it is unorderedKinds.
type extreme struct {
	name string
	want int // what Compare says of a value that takes the place of another
	typ  expr.Type
	size int
}

// unorderedKinds stands for values that have no order, such as a string and a number.
const unorderedKinds = 0xFF

const (
	shortSize = 1 + 8
	stampSize = 1 + 8 + 4 + 2
)

const orderedTypes = expr.Number | expr.Text | 1<<connectors.Bytes | 1<<connectors.Timestamp | 1<<connectors.Duration

// newExtreme makes min and max.
func newExtreme(call *expr.AggregateCall, o Options) (Function, error) {
	t := argument(call, 0, orderedTypes)
	want := -1
	if call.Name == "max" {
		want = 1
	}
	typ := resulting(call, t.NonNull())
	if o.Updating {
		return &extremeSet{name: call.Name, set: set{counted: true, want: want}, typ: typ}, nil
	}
	f := &extreme{name: call.Name, want: want, typ: typ, size: -1}
	switch {
	case t.NonNull().Within(1<<connectors.Int | 1<<connectors.Float | 1<<connectors.Duration):
		f.size = shortSize
	case t.NonNull() == 1<<connectors.Timestamp:
		f.size = stampSize
	}
	return f, nil
}

func (f *extreme) Size() int       { return f.size }
func (f *extreme) Retracts() bool  { return false }
func (f *extreme) Type() expr.Type { return f.typ }

func (f *extreme) Retract(b []byte, _ *Input) ([]byte, error) { return irrevocable{}.Retract(b, nil) }

func (f *extreme) Add(b []byte, in *Input) ([]byte, error) {
	v := in.Args[0]
	if v.Kind() == connectors.Int && len(b) == shortSize && b[0] == byte(connectors.Int) {
		// The commonest by far.
		x, at := v.Int(), binary.LittleEndian.Uint64(b[1:])
		if f.want > 0 && x > int64(at) || f.want < 0 && x < int64(at) {
			binary.LittleEndian.PutUint64(b[1:], uint64(x))
		}
		return b, nil
	}
	if v.Kind() == connectors.Float && len(b) == shortSize && b[0] == byte(connectors.Float) {
		x, at := v.Float(), floatAt(b, 1)
		if f.want > 0 && x > at || f.want < 0 && x < at {
			putFloat(b, 1, x)
			return b, nil
		}
		if x < at || x > at {
			return b, nil
		}
	}
	if v.IsNull() {
		return b, nil
	}
	if err := orderable(f.name, v); err != nil {
		return b, err
	}
	return f.add(b, v)
}

// orderable is the error for a value that has no order, also among its kind.
func orderable(name string, v connectors.Value) error {
	if !orderedTypes.Has(v.Kind()) {
		return foreign(name, v)
	}
	if v.Kind() == connectors.Decimal {
		if _, ok := expr.Compare(v, v); !ok {
			return fail(expr.KindOverflow, "%s() was given a number too long or too large to compare", name)
		}
	}
	return nil
}

func (f *extreme) add(b []byte, v connectors.Value) ([]byte, error) {
	if f.size >= 0 && !f.fits(v.Kind()) {
		return b, foreign(f.name, v)
	}
	if none(b) {
		return f.put(b, v)
	}
	if b[0] == unorderedKinds {
		return b, nil
	}
	old, err := readShort(b)
	if err != nil {
		return b, err
	}
	c, ok := f.order(v, old)
	switch {
	case !ok:
		b[0] = unorderedKinds
		if f.size < 0 {
			b = b[:1]
		}
		return b, nil
	case c == f.want:
		return f.put(b, v)
	}
	return b, nil
}

func (f *extreme) fits(k connectors.Kind) bool {
	return f.size == shortSize && (k == connectors.Int || k == connectors.Float || k == connectors.Duration) || f.size == stampSize && k == connectors.Timestamp
}

// order compares for min and max: of equal values one comes before the other in both,
// so that it is the same one whatever their order.
func (f *extreme) order(a, b connectors.Value) (int, bool) {
	c, ok := expr.Compare(a, b)
	if c != 0 || !ok {
		return c, ok
	}
	return f.want * preference(a, b), true
}

func (f *extreme) put(b []byte, v connectors.Value) ([]byte, error) {
	if f.size >= 0 {
		if _, err := sized(b, f.size); err != nil {
			return b, err
		}
	}
	return appendShort(b[:0], v), nil
}

func (f *extreme) Merge(b, other []byte) ([]byte, error) {
	if none(other) {
		return b, nil
	}
	if other[0] == unorderedKinds {
		if len(b) == 0 {
			b = append(b, make([]byte, max(f.size, 1))...)
		}
		b[0] = unorderedKinds
		if f.size < 0 {
			b = b[:1]
		}
		return b, nil
	}
	v, err := readShort(other)
	if err != nil {
		return b, err
	}
	if !orderedTypes.Has(v.Kind()) {
		return b, state.ErrCorrupt
	}
	return f.add(b, v)
}

func (f *extreme) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	if none(b) {
		return connectors.NullValue(), nil
	}
	if b[0] == unorderedKinds {
		return connectors.Value{}, unordered(f.name)
	}
	return readShort(b)
}

// preference orders values that are equal: positive says that a stands for both. An
// int comes before a decimal, that before a float; of decimals the shortest; 0
// before -0; of timestamps the one furthest west.
func preference(a, b connectors.Value) int {
	if ka, kb := prefers(a.Kind()), prefers(b.Kind()); ka != kb {
		return sign(kb - ka)
	}
	switch a.Kind() {
	case connectors.Decimal:
		if d := len(b.Raw()) - len(a.Raw()); d != 0 {
			return sign(d)
		}
		switch {
		case a.Text() < b.Text():
			return 1
		case a.Text() > b.Text():
			return -1
		}
	case connectors.Float:
		na, nb := math.Signbit(a.Float()), math.Signbit(b.Float())
		if na != nb {
			if nb {
				return 1
			}
			return -1
		}
	case connectors.Timestamp:
		_, za := a.Time().Zone()
		_, zb := b.Time().Zone()
		return sign(zb - za)
	default:
	}
	return 0
}

func prefers(k connectors.Kind) int {
	switch k {
	case connectors.Int:
		return 0
	case connectors.Decimal:
		return 1
	default:
	}
	return 2
}

func sign(d int) int { return min(max(d, -1), 1) }

// appendShort writes a value whose commonest kinds are of fixed length.
func appendShort(b []byte, v connectors.Value) []byte {
	b = append(b, byte(v.Kind()))
	switch v.Kind() {
	case connectors.Int, connectors.Duration:
		return binary.LittleEndian.AppendUint64(b, uint64(v.Int()))
	case connectors.Float:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case connectors.Timestamp:
		t := v.Time()
		_, zone := t.Zone()
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Unix()))
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Nanosecond()))
		return binary.LittleEndian.AppendUint16(b, uint16(zone/60))
	default:
	}
	return state.AppendValue(b[:len(b)-1], v)
}

// readShort reads what appendShort wrote.
func readShort(b []byte) (connectors.Value, error) {
	if len(b) == 0 {
		return connectors.Value{}, state.ErrCorrupt
	}
	switch k := connectors.Kind(b[0]); k {
	case connectors.Int, connectors.Duration, connectors.Float:
		if len(b) != shortSize {
			return connectors.Value{}, state.ErrCorrupt
		}
		x := binary.LittleEndian.Uint64(b[1:])
		switch k {
		case connectors.Int:
			return connectors.IntValue(int64(x)), nil
		case connectors.Duration:
			return connectors.DurationValue(time.Duration(x)), nil
		default:
		}
		return connectors.FloatValue(math.Float64frombits(x)), nil
	case connectors.Timestamp:
		if len(b) != stampSize {
			return connectors.Value{}, state.ErrCorrupt
		}
		sec, nanos, zone := int64(binary.LittleEndian.Uint64(b[1:])), binary.LittleEndian.Uint32(b[9:]), int16(binary.LittleEndian.Uint16(b[13:]))
		if nanos >= 1e9 {
			return connectors.Value{}, state.ErrCorrupt
		}
		t := time.Unix(sec, int64(nanos)).UTC()
		if zone != 0 {
			t = t.In(time.FixedZone("", int(zone)*60))
		}
		return connectors.TimestampValue(t), nil
	default:
	}
	v, rest, err := state.ReadValue(b)
	if err == nil && len(rest) > 0 {
		err = state.ErrCorrupt
	}
	return v, err
}
