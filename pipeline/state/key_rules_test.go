package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// two is a scope of the fields a and b.
type two struct{}

func (two) Field(path []string) (expr.Ref, error) {
	return expr.Ref{Slot: int(path[0][0] - 'a'), Covered: 1}, nil
}
func (two) This() (int, error) { return 0, errors.New("no whole value") }

// equality answers by the language's ==; known is false where it fails.
func equality(t testing.TB) func(a, b connectors.Value) (same, known bool) {
	t.Helper()
	p, err := expr.Compile("a == b", two{}, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	env := expr.NewEnv()
	return func(a, b connectors.Value) (bool, bool) {
		batch := &connectors.Batch{}
		batch.Size(1, 2)
		copy(batch.Row(0), []connectors.Value{a, b})
		v, fault := p.Eval(env, batch, 0)
		return fault == nil && v.Bool(), fault == nil
	}
}

// numberText draws numbers near each other, so that many are equal.
func numberText() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		base := rapid.SampledFrom([]string{
			"0", "1", "10", "0.1", "0.5", "1.5", "123456789", "9007199254740992", "9007199254740993", "9223372036854775807",
			"9223372036854775808", "18446744073709551616", "18446744073709552000", "1e22", "1e23", "1e300", "5e-324", "2.5e-324",
			"1.7976931348623157e308", "0.30000000000000004", "0.3", "99999999999999999999999999999999999999", "0.10000000000000000000001",
			strconv.FormatFloat(1e300, 'f', 0, 64), strconv.FormatFloat(1e23, 'f', 0, 64), "1" + strings.Repeat("0", 60),
		}).Draw(t, "base")
		switch {
		case base == "0" || strings.ContainsAny(base, "e"):
		case strings.Contains(base, "."):
			base += rapid.SampledFrom([]string{"", "0", "000", "e0"}).Draw(t, "zeros")
		default:
			base += rapid.SampledFrom([]string{"", ".0", ".000", "e0", "E+1", "0e-1", "00.00e-2", ".5"}).Draw(t, "zeros")
		}
		return rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "sign") + base
	})
}

func anyNumber() *rapid.Generator[connectors.Value] {
	return rapid.Custom(func(t *rapid.T) connectors.Value {
		switch rapid.IntRange(0, 5).Draw(t, "number") {
		case 0:
			return connectors.IntValue(rapid.SampledFrom([]int64{0, 1, -1, 10, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MinInt64}).Draw(t, "int"))
		case 1:
			return connectors.FloatValue(rapid.Float64().Draw(t, "float"))
		case 2:
			f := rapid.Float64().Draw(t, "float")
			return connectors.DecimalValue(strconv.FormatFloat(f, rapid.SampledFrom([]byte("ef")).Draw(t, "form"), rapid.SampledFrom([]int{-1, 0, 20}).Draw(t, "digits"), 64))
		case 3:
			f, _ := strconv.ParseFloat(numberText().Draw(t, "text"), 64)
			return connectors.FloatValue(f)
		case 4:
			v, _ := format.Number(numberText().Draw(t, "text"))
			return v
		}
		return connectors.DecimalValue(numberText().Draw(t, "text"))
	})
}

// element draws the JSON text of a value.
func element(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := rapid.SampledFrom([]string{"", "", " ", "\n"})
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0, 1:
			return numberText().Draw(t, "number")
		case 2:
			return rapid.SampledFrom([]string{`""`, `"a"`, `"\u0061"`, `"1"`, `"\n"`, `"\u000a"`, `"\""`, `"é"`, `"\u00e9"`, `"\/"`, `"/"`}).Draw(t, "text")
		case 3:
			return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
		case 4:
			parts := rapid.SliceOfN(element(depth-1), 0, 3).Draw(t, "list")
			return "[" + space.Draw(t, "s") + strings.Join(parts, space.Draw(t, "s")+","+space.Draw(t, "s")) + "]"
		}
		var parts []string
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `""`}).Draw(t, "name")
			parts = append(parts, name+space.Draw(t, "s")+":"+space.Draw(t, "s")+element(depth-1).Draw(t, "value"))
		}
		return "{" + strings.Join(parts, ",") + space.Draw(t, "s") + "}"
	})
}

func anyValue() *rapid.Generator[connectors.Value] {
	return rapid.Custom(func(t *rapid.T) connectors.Value {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return connectors.NullValue()
		case 1:
			return connectors.BoolValue(rapid.Bool().Draw(t, "bool"))
		case 2:
			return connectors.StringValue(rapid.SampledFrom([]string{"", "1", "a", "1.0", "\xff"}).Draw(t, "text"))
		case 3:
			return connectors.BytesValue([]byte(rapid.SampledFrom([]string{"", "1", "a"}).Draw(t, "bytes")))
		case 4:
			at := time.Unix(rapid.Int64Range(-2, 2).Draw(t, "sec"), rapid.SampledFrom([]int64{0, 1, 999999999}).Draw(t, "nanos"))
			return connectors.TimestampValue(at.In(time.FixedZone("", rapid.SampledFrom([]int{0, 3600, -5400}).Draw(t, "zone"))))
		case 5:
			return connectors.DurationValue(time.Duration(rapid.Int64Range(-2, 2).Draw(t, "duration")))
		case 6, 7:
			return anyNumber().Draw(t, "number")
		}
		json := element(3).Draw(t, "json")
		v, err := format.ParseValue([]byte(json), &connectors.Arena{})
		if err != nil {
			t.Fatalf("%s: %v", json, err)
		}
		return v
	})
}

func isNaN(v connectors.Value) bool {
	return v.Kind() == connectors.Float && math.IsNaN(v.Float())
}

func checkPair(t *rapid.T, same func(a, b connectors.Value) (bool, bool), a, b connectors.Value) {
	x, y := state.AppendKey(nil, a), state.AppendKey(nil, b)
	want, known := same(a, b)
	if isNaN(a) && isNaN(b) {
		want = true
	}
	if known && want != bytes.Equal(x, y) {
		t.Fatalf("%s == %s is %v, and the keys are %q and %q", show(a), show(b), want, x, y)
	}
}

func show(v connectors.Value) string {
	text, err := format.AppendValue(nil, v)
	return fmt.Sprintf("%s %s %v", v.Kind(), text, err)
}

func TestValuesThatAreEqualAreOneKey(t *testing.T) {
	same := equality(t)
	t.Run("numbers", rapid.MakeCheck(func(t *rapid.T) {
		checkPair(t, same, anyNumber().Draw(t, "a"), anyNumber().Draw(t, "b"))
	}))
	t.Run("values", rapid.MakeCheck(func(t *rapid.T) {
		checkPair(t, same, anyValue().Draw(t, "a"), anyValue().Draw(t, "b"))
	}))
}

func TestTheValueReadFromAKeyIsEqualAndItsKeyTheSame(t *testing.T) {
	same := equality(t)
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue().Draw(t, "value")
		key := state.AppendKey([]byte("before"), v)[len("before"):]
		got, rest, err := state.ReadKey(append(bytes.Clone(key), "behind"...))
		if err != nil || string(rest) != "behind" {
			t.Fatalf("%s: rest %q, %v", show(v), rest, err)
		}
		if again := state.AppendKey(nil, got); !bytes.Equal(again, key) {
			t.Fatalf("the key of %s is %q, and that of the value read, %s, %q", show(v), key, show(got), again)
		}
		if equal, known := same(v, got); known && !equal && !isNaN(v) {
			t.Fatalf("%s comes back as %s", show(v), show(got))
		}
	})
}

func TestNoKeyIsTheBeginningOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := state.AppendKey(nil, anyValue().Draw(t, "a")), state.AppendKey(nil, anyValue().Draw(t, "b"))
		if len(a) < len(b) && bytes.HasPrefix(b, a) {
			t.Fatalf("%q begins %q", a, b)
		}
	})
}

func TestNumbersThatNoExpressionReadsAreKeysOfTheirText(t *testing.T) {
	for _, text := range []string{"1e99999999999999999999", "-1e-99999999999999999999", "x", "", "-", "1e", "1.2.3", "1" + strings.Repeat("0", 5000) + "1"} {
		v, rest, err := state.ReadKey(state.AppendKey(nil, connectors.DecimalValue(text)))
		if err != nil || len(rest) != 0 || v.Kind() != connectors.Decimal || len(text) < 30 && v.Text() != text {
			t.Errorf("%q: %q, %v", text, v.Text(), err)
		}
	}
}

func TestAKeyMayBeLarge(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	v, rest, err := state.ReadKey(state.AppendKey(nil, connectors.StringValue(long)))
	if err != nil || len(rest) != 0 || v.Text() != long {
		t.Errorf("%d bytes, rest %d, %v", len(v.Text()), len(rest), err)
	}
}

func TestKeysOfScalarsDoNotAllocate(t *testing.T) {
	values := []connectors.Value{
		connectors.IntValue(7), connectors.FloatValue(0.5), connectors.StringValue("channel"), connectors.NullValue(), connectors.BoolValue(true),
		connectors.DecimalValue("12.50"), connectors.DurationValue(1), connectors.TimestampValue(time.Unix(1, 0).UTC()),
	}
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		for _, v := range values {
			key := state.AppendKey(buf[:0], v)
			if _, _, err := state.ReadKey(key); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReadKey(f *testing.F) {
	f.Add(state.AppendKey(nil, connectors.StringValue("a")))
	f.Add(state.AppendKey(nil, connectors.TimestampValue(time.Unix(1, 1))))
	f.Add(state.AppendKey(nil, connectors.MapValue([]byte(`{"a":[1,2.5]}`))))
	f.Fuzz(func(t *testing.T, src []byte) {
		for len(src) > 0 {
			v, rest, err := state.ReadKey(src)
			if err != nil {
				if !errors.Is(err, state.ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
			state.AppendKey(nil, v)
			src = rest
		}
	})
}

func BenchmarkAppendKey(b *testing.B) {
	values := map[string]connectors.Value{
		"int": connectors.IntValue(123456), "float": connectors.FloatValue(0.25), "text": connectors.StringValue("channel-17"),
		"decimal": connectors.DecimalValue("12.50"),
	}
	for name, v := range values {
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 64)
			for b.Loop() {
				buf = state.AppendKey(buf[:0], v)
			}
		})
	}
}
