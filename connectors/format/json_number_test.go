package format

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// sameNumber compares two JSON numbers exactly. Texts with huge exponents have
// to be the same.
func sameNumber(a, b string) bool {
	if a == b || zeroText(a) && zeroText(b) {
		return true
	}
	if hugeExponent(a) || hugeExponent(b) {
		return false
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok1 && ok2 && x.Cmp(y) == 0
}

func hugeExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > 4
}

func TestNumberTakesTheKindThatHoldsItExactly(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0", "int 0"}, {"-0", "int 0"}, {"-1", "int -1"}, {"9007199254740993", "int 9007199254740993"},
		{"9223372036854775807", "int 9223372036854775807"}, {"-9223372036854775808", "int -9223372036854775808"},
		{"9223372036854775809", "decimal 9223372036854775809"}, {"10000000000000000000", "float 1e+19"},
		{"12345678901234567890", "decimal 12345678901234567890"},
		{"1.0", "float 1"}, {"0.1", "float 0.1"}, {"1.10", "float 1.1"}, {"-0.0", "float -0"}, {"0e9", "float 0"}, {"0.000e-5", "float 0"},
		{"1e2", "float 100"}, {"1E+2", "float 100"}, {"1e22", "float 1e+22"}, {"1e23", "float 1e+23"}, {"123456789012345e-30", "float 1.23456789012345e-16"},
		{"0.30000000000000004", "float 0.30000000000000004"}, {"0.30000000000000001", "decimal 0.30000000000000001"},
		{"0.1234567890123456789", "decimal 0.1234567890123456789"}, {"1.00000000000000000000", "float 1"},
		{"1e308", "float 1e+308"}, {"1.7976931348623157e308", "float 1.7976931348623157e+308"}, {"1e309", "decimal 1e309"}, {"1e400", "decimal 1e400"},
		{"5e-324", "float 5e-324"}, {"4e-324", "decimal 4e-324"}, {"1e-400", "decimal 1e-400"}, {"2.2250738585072014e-308", "float 2.2250738585072014e-308"},
		{"1e99999999999999999999", "decimal 1e99999999999999999999"}, {"0e99999999999999999999", "float 0"},
	} {
		v, ok := Number(c.text)
		if got := show(v); !ok || got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1x", "0x1", " 1", "1 ", "NaN", "Infinity", "1_000"} {
		if v, ok := Number(text); ok {
			t.Errorf("%q is taken for %s", text, show(v))
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.10", "1e400", "123456789012345678", "0.30000000000000004", "5e-324", "1e-7", "01", "17976931348623157e292"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := Number(text)
		trimmed := strings.TrimSpace(text) == text && text != "" && strings.ContainsAny(text[:1], "-0123456789")
		if want := trimmed && json.Valid([]byte(text)); ok != want {
			t.Fatalf("%q: taken %v", text, ok)
		}
		if !ok {
			return
		}
		if v.Kind() == connectors.Float && (math.IsInf(v.Float(), 0) || math.IsNaN(v.Float())) {
			t.Fatalf("%q became %s", text, show(v))
		}
		out, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if !sameNumber(string(out), text) {
			t.Fatalf("%q became %s", text, out)
		}
		if v.Kind() == connectors.Decimal && !hugeExponent(text) {
			var float float64
			if json.Unmarshal([]byte(text), &float) == nil && sameNumber(string(appendFloat(nil, float)), text) {
				t.Fatalf("%q is a decimal, but a double prints back as it", text)
			}
		}
	})
}

func zeroText(s string) bool {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		s = s[:i]
	}
	return strings.Trim(s, "-0.") == ""
}

func checkFloat(t *testing.T, f float64) {
	t.Helper()
	want, err := json.Marshal(f)
	if err != nil {
		return
	}
	if got := appendFloat(nil, f); string(got) != string(want) {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestFloatsAreWrittenInTheirShortestForm(t *testing.T) {
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 100, 1e20, 1e21, 1e-6, 1e-7, 1e-9, 0.001, 0.0015, 999999999.999999, 123456789.125, 1e9, 0.5e-3, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53, 0.3, 0.1 + 0.2, 2.5e-10, 1e100} {
		checkFloat(t, f)
		checkFloat(t, -f)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		checkFloat(t, math.Float64frombits(r.Uint64()))
		n := float64(r.IntN(1_000_000))
		checkFloat(t, n*0.908)
		checkFloat(t, n/1000)
		checkFloat(t, n*1e-6)
		near := n / 1e3
		checkFloat(t, math.Nextafter(near, 0))
		checkFloat(t, math.Nextafter(near, math.MaxFloat64))
		checkFloat(t, math.Nextafter(n, 0))
	}
}

func FuzzFloat(f *testing.F) {
	f.Add(uint64(0x3FB999999999999A))
	f.Fuzz(func(t *testing.T, bits uint64) { checkFloat(t, math.Float64frombits(bits)) })
}
