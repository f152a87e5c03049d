package accumulate

import (
	"bytes"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

var origins = []*connectors.Origin{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b"}}

// numbers draws ints, floats and decimals, few enough to be equal now and then.
func numbers(t *rapid.T) connectors.Value {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return integer(rapid.Int64().Draw(t, "int"))
	case 1, 2, 3:
		return integer(rapid.Int64Range(-9, 9).Draw(t, "small int"))
	case 4:
		x := rapid.Float64Range(-1e28, 1e28).Draw(t, "float")
		if math.Abs(x) < 1e-13 {
			x = 0 // the window of stddev ends there
		}
		return float(x)
	case 5:
		return float(float64(rapid.IntRange(-99, 99).Draw(t, "tenths")) / 10)
	case 6:
		return null()
	case 7:
		return dec(decimalText(t, 30, 20))
	default:
		return dec(decimalText(t, 2, 2))
	}
}

func decimalText(t *rapid.T, whole, fraction int) string {
	digits := func(name string, from, to int) string {
		return rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), from, to, -1).Draw(t, name)
	}
	s := strings.TrimLeft(digits("whole", 1, whole), "0")
	if s == "" {
		s = "0"
	}
	if f := digits("fraction", 0, min(fraction, maxDigits-len(s))); f != "" {
		s += "." + f
	}
	if rapid.Bool().Draw(t, "minus") {
		s = "-" + s
	}
	return s
}

func ints(t *rapid.T) connectors.Value {
	if rapid.IntRange(0, 3).Draw(t, "large") == 0 {
		return integer(rapid.Int64().Draw(t, "int"))
	}
	return integer(rapid.Int64Range(-9, 9).Draw(t, "small int"))
}

func texts(t *rapid.T) connectors.Value {
	if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
		return null()
	}
	return text(rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 3, -1).Draw(t, "text"))
}

func someRows(t *rapid.T, draw func(*rapid.T) connectors.Value, most int) []row {
	list := make([]row, rapid.IntRange(0, most).Draw(t, "rows"))
	for i := range list {
		x := draw(t)
		list[i] = row{
			values: [2]connectors.Value{x, draw(t)},
			record: connectors.Record{Time: rapid.Int64Range(-3, 3).Draw(t, "time"), Origin: origins[rapid.IntRange(0, 2).Draw(t, "origin")], Offset: int64(i)},
		}
	}
	return list
}

// subject is a function with what it is given.
type subject struct {
	call string
	in   connectors.Kind // the only kind, or Absent for any number
	o    Options
}

func (s subject) make(t testing.TB) Function {
	if s.in == connectors.Absent {
		return must(t, s.call, s.o)
	}
	return must(t, s.call, s.o, 1<<s.in, 1<<s.in)
}

func (s subject) draw() func(*rapid.T) connectors.Value {
	switch s.in {
	case connectors.Int:
		return ints
	case connectors.String:
		return texts
	default:
	}
	return numbers
}

func (s subject) name() string {
	n := s.call + " of " + s.in.String()
	if s.o.Updating {
		n += " updating"
	}
	return n
}

func subjects() []subject {
	var list []subject
	for _, call := range []string{
		"count()", "sum(x)", "avg(x)", "min(x)", "max(x)", "first(x)", "last(x)", "arg_min(x, y)", "arg_max(x, y)", "collect(x)",
		"count_distinct(x)", "approx_distinct(x)", "quantile(x, 0.3)", "stddev(x)",
	} {
		name, _, _ := strings.Cut(call, "(")
		for _, in := range []connectors.Kind{connectors.Absent, connectors.Int, connectors.String} {
			if in == connectors.String && slices.Contains([]string{"sum", "avg", "quantile", "stddev"}, name) {
				continue
			}
			list = append(list, subject{call, in, Options{}})
			if slices.Contains(updatable, name) {
				list = append(list, subject{call, in, Options{Updating: true}})
			}
		}
	}
	return list
}

// canonical says of functions that their state depends on nothing but the records.
func canonical(name string) bool {
	for _, n := range []string{"count()", "sum", "avg", "min", "max", "first", "last", "arg", "approx", "quantile", "stddev"} {
		if strings.HasPrefix(name, n) {
			return !strings.Contains(name, "updating")
		}
	}
	return false
}

func TestResultsDoNotHangOnOrderNorOnHowRecordsAreDivided(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name(), func(t *testing.T) {
			f := s.make(t)
			rapid.Check(t, func(r *rapid.T) {
				list := someRows(r, s.draw(), 25)
				whole := add(t, f, empty(f), list)
				shuffled := rapid.Permutation(list).Draw(r, "order")
				parts := make([][]byte, rapid.IntRange(1, 4).Draw(r, "parts"))
				for i := range parts {
					parts[i] = empty(f)
				}
				for i := range shuffled {
					p := rapid.IntRange(0, len(parts)-1).Draw(r, "part")
					parts[p] = add(t, f, parts[p], shuffled[i:i+1])
				}
				merged := empty(f)
				for _, p := range parts {
					other := bytes.Clone(p)
					var err error
					if merged, err = f.Merge(merged, p); err != nil {
						r.Fatal(err)
					}
					if !bytes.Equal(p, other) {
						r.Fatal("Merge changes what it merges")
					}
				}
				if got, want := result(f, merged), result(f, whole); got != want {
					r.Fatalf("merged parts give %s, and all at once %s", got, want)
				}
				if canonical(s.name()) && !bytes.Equal(merged, whole) && len(bytes.Trim(append(merged, whole...), "\x00")) > 0 {
					r.Fatalf("the states differ:\n%x\n%x", merged, whole)
				}
			})
		})
	}
}

func TestTakingBackGivesWhatWasThereWithout(t *testing.T) {
	for _, s := range subjects() {
		if !s.o.Updating {
			continue
		}
		t.Run(s.name(), func(t *testing.T) {
			f := s.make(t)
			rapid.Check(t, func(r *rapid.T) {
				stay, go1, go2 := someRows(r, s.draw(), 20), someRows(r, s.draw(), 25), someRows(r, s.draw(), 5)
				want := result(f, add(t, f, empty(f), stay))
				b := add(t, f, empty(f), go1)
				b = add(t, f, b, stay)
				b = retract(t, f, b, rapid.Permutation(go1).Draw(r, "order"))
				b = add(t, f, b, go2)
				b = retract(t, f, b, go2)
				if got := result(f, b); got != want {
					r.Fatalf("got %s, want %s", got, want)
				}
			})
		})
	}
}

// ratOfValue is a number as the language sees it in exact arithmetic.
func ratOfValue(v connectors.Value) *big.Rat {
	switch v.Kind() {
	case connectors.Int:
		return new(big.Rat).SetInt64(v.Int())
	case connectors.Float:
		return new(big.Rat).SetFloat64(v.Float())
	default:
	}
	r, _ := new(big.Rat).SetString(v.Text())
	return r
}

func TestSumsEqualThoseOfRationalNumbers(t *testing.T) {
	f, mean := must(t, "sum(x)", Options{}), must(t, "avg(x)", Options{})
	rapid.Check(t, func(r *rapid.T) {
		list := someRows(r, numbers, 30)
		want, n, kind := new(big.Rat), int64(0), connectors.Null
		scale := 0
		for _, row := range list {
			v := row.values[0]
			if v.IsNull() {
				continue
			}
			n++
			want.Add(want, ratOfValue(v))
			if kind != connectors.Float && (v.Kind() != connectors.Int || kind == connectors.Null) {
				kind = v.Kind()
			}
			if _, fraction, _ := strings.Cut(decimalOf(v), "."); v.Kind() == connectors.Decimal {
				scale = max(scale, len(fraction))
			}
		}
		got := result(f, add(t, f, empty(f), list))
		expected := "null null"
		switch kind {
		case connectors.Int:
			expected = "int " + want.RatString()
			if !want.Num().IsInt64() {
				expected = got
			}
		case connectors.Decimal:
			expected = "decimal " + want.FloatString(scale)
			if len(strings.Trim(want.FloatString(scale), "-"))-truth(scale > 0) > maxDigits {
				expected = got
			}
		case connectors.Float:
			x, _ := want.Float64()
			expected = result(f, add(t, f, empty(f), rows(float(x))))
		}
		if got != expected {
			r.Fatalf("got %s, want %s", got, expected)
		}
		if kind == connectors.Float || kind == connectors.Int {
			x, _ := want.Quo(want, new(big.Rat).SetInt64(n)).Float64()
			expected = result(mean, add(t, mean, empty(mean), rows(float(x))))
			if got := result(mean, add(t, mean, empty(mean), list)); got != expected {
				r.Fatalf("the mean is %s, want %s", got, expected)
			}
		}
	})
}

func TestMeansOfDecimalsAreWhatTheLanguageDivides(t *testing.T) {
	f, mean := must(t, "sum(x)", Options{}), must(t, "avg(x)", Options{})
	p, err := expr.Compile("x / y", columns{}, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	env := expr.NewEnv()
	rapid.Check(t, func(r *rapid.T) {
		list := someRows(r, func(r *rapid.T) connectors.Value { return dec(decimalText(r, 20, 15)) }, 30)
		if len(list) == 0 {
			return
		}
		b := &connectors.Batch{}
		b.Size(1, 2)
		b.Slots[1] = integer(int64(len(list)))
		if b.Slots[0], err = f.Result(add(t, f, empty(f), list), &b.Arena); err != nil {
			r.Fatal(err)
		}
		want, fault := p.Eval(env, b, 0)
		if fault != nil {
			r.Fatal(fault)
		}
		if got := result(mean, add(t, mean, empty(mean), list)); got != "decimal "+want.Text() {
			r.Fatalf("got %s, want %s", got, want.Text())
		}
	})
}

func TestFloatsOfAllSizesAreSummedUpExactlyWithinTheWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var b [wideSize]byte
		want := new(big.Rat)
		for range rapid.IntRange(1, 20).Draw(r, "n") {
			x := math.Ldexp(rapid.Float64Range(-2, 2).Draw(r, "fraction"), rapid.IntRange(-80, 130).Draw(r, "exponent"))
			minus := rapid.Bool().Draw(r, "minus")
			before := b
			if !addFloat(b[:], x, minus) {
				if b != before {
					r.Fatal("a float that does not fit changes the sum")
				}
				if a := math.Abs(x); a > 1.4e-23 && a < 1.7e38 {
					r.Fatalf("%g does not fit the window", x)
				}
				continue
			}
			if minus {
				x = -x
			}
			want.Add(want, new(big.Rat).SetFloat64(x))
		}
		f, _ := want.Float64()
		if got := ratio(loadWide(b[:]), wide{}, 1); got != f {
			r.Fatalf("got %v, want %v", got, f)
		}
	})
}

func TestDecimalsAreReadAsTheLanguageReadsThem(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := decimalText(r, 40, 40)
		if rapid.Bool().Draw(r, "exponent") {
			s += rapid.SampledFrom([]string{"e0", "E+5", "e-3", "e20", "e-30", "e38"}).Draw(r, "e")
		}
		want, _ := new(big.Rat).SetString(s)
		d, ok := parseDecimal([]byte(s))
		if !ok {
			whole := new(big.Int).Quo(want.Num(), want.Denom())
			if digits := len(strings.Trim(whole.String(), "-")); digits < 20 && !strings.ContainsAny(s, "eE") && len(s) < 30 {
				r.Fatalf("%s is not read", s)
			}
			return
		}
		w := d.wide(d.scale)
		got := ratOf(w)
		got.Quo(got, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.scale)), nil)))
		if got.Cmp(want) != 0 {
			r.Fatalf("%s is read as %s", s, got.RatString())
		}
	})
}

func TestDistinctCountsEqualThoseOfAMap(t *testing.T) {
	for _, o := range []Options{{}, {Updating: true}} {
		f := must(t, "count_distinct(x)", o)
		rapid.Check(t, func(r *rapid.T) {
			seen := map[string]int{}
			var b []byte
			most := rapid.SampledFrom([]int64{5, 30, 1000}).Draw(r, "different")
			for range rapid.IntRange(0, 300).Draw(r, "n") {
				one := rows(integer(rapid.Int64Range(0, most).Draw(r, "x")))
				key := string(state.AppendKey(nil, one[0].values[0]))
				if o.Updating && seen[key] > 0 && rapid.IntRange(0, 2).Draw(r, "back") > 0 {
					b = retract(t, f, b, one)
					seen[key]--
				} else {
					b = add(t, f, b, one)
					seen[key]++
				}
			}
			want := 0
			for _, n := range seen {
				want += truth(n > 0)
			}
			if n, err := f.(*distinct).set.size(b); err != nil || int(n) != want {
				r.Fatalf("got %d, %v, want %d", n, err, want)
			}
		})
	}
}

func TestExtremesOfUpdatingStreamsEqualThoseOfAList(t *testing.T) {
	f := must(t, "max(x)", Options{Updating: true})
	rapid.Check(t, func(r *rapid.T) {
		var there []int64
		var b []byte
		for range rapid.IntRange(0, 400).Draw(r, "n") {
			if len(there) > 0 && rapid.IntRange(0, 2).Draw(r, "back") == 0 {
				i := rapid.IntRange(0, len(there)-1).Draw(r, "which")
				if rapid.Bool().Draw(r, "the largest") {
					i = slices.Index(there, slices.Max(there))
				}
				b = retract(t, f, b, rows(integer(there[i])))
				there = slices.Delete(there, i, i+1)
			} else {
				x := rapid.Int64Range(0, 200).Draw(r, "x")
				b = add(t, f, b, rows(integer(x)))
				there = append(there, x)
			}
			var a connectors.Arena
			got, err := f.Result(b, &a)
			if err != nil || len(there) > 0 && got.Int() != slices.Max(there) || len(there) == 0 && !got.IsNull() {
				r.Fatalf("got %v, %v of %v", got.Int(), err, there)
			}
		}
	})
}

func TestQuantilesAreWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := Options{Updating: rapid.Bool().Draw(r, "updating")}
		q := rapid.SampledFrom([]string{"0", "0.01", "0.5", "0.9", "0.99", "1"}).Draw(r, "q")
		f := must(t, "quantile(x, "+q+")", o)
		values := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) float64 {
			x := math.Ldexp(rapid.Float64Range(-1, 1).Draw(r, "fraction"), rapid.IntRange(-60, 60).Draw(r, "exponent"))
			if math.Abs(x) < 0x1p-1022 {
				return 0 // subnormals have fewer digits than buckets
			}
			return x
		}), 1, 300).Draw(r, "values")
		var b []byte
		for _, v := range values {
			b = add(t, f, b, rows(float(v)))
		}
		slices.Sort(values)
		want := values[f.(*quantile).rank(int64(len(values)))-1]
		var a connectors.Arena
		got, err := f.Result(b, &a)
		bound := math.Abs(want) / 129 * (1 + 1e-9)
		if len(values) <= fewMost && !o.Updating {
			bound = 0
		}
		if err != nil || math.Abs(got.Float()-want) > bound {
			r.Fatalf("got %v, %v, want %v", got.Float(), err, want)
		}
	})
}

func TestDeviationsEqualThoseOfRationalNumbers(t *testing.T) {
	f := must(t, "stddev(x)", Options{})
	rapid.Check(t, func(r *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) float64 {
			return math.Ldexp(rapid.Float64Range(-1, 1).Draw(r, "fraction"), rapid.SampledFrom([]int{0, 1, 40, -40, 90, 200, -200}).Draw(r, "exponent"))
		}), 2, 30).Draw(r, "values")
		sum, squares := new(big.Rat), new(big.Rat)
		b := empty(f)
		for _, v := range values {
			b = add(t, f, b, rows(float(v)))
			x := new(big.Rat).SetFloat64(v)
			sum.Add(sum, x)
			squares.Add(squares, new(big.Rat).Mul(x, x))
		}
		n := new(big.Rat).SetInt64(int64(len(values)))
		squares.Sub(squares, sum.Quo(sum.Mul(sum, sum), n))
		squares.Quo(squares, n.Sub(n, big.NewRat(1, 1)))
		exact := new(big.Float).SetPrec(300).SetRat(squares)
		want, _ := exact.Sqrt(exact).Float64()
		var a connectors.Arena
		got, err := f.Result(b, &a)
		if err != nil || math.Abs(got.Float()-want) > want*1e-9 {
			r.Fatalf("got %v, %v, want %v", got.Float(), err, want)
		}
	})
}

func TestDurationsAndTimestampsKeepTheirKinds(t *testing.T) {
	stamp := connectors.TimestampValue(time.Unix(5, 7).In(time.FixedZone("", 7200)))
	for _, call := range []string{"min(x)", "first(x)", "last(x)", "arg_max(x, x)"} {
		f := must(t, call, Options{}, 1<<connectors.Timestamp)
		list := rows(stamp)
		list[0].values[1] = stamp
		if got := result(f, add(t, f, empty(f), list)); got != `timestamp "1970-01-01T02:00:05.000000007+02:00"` {
			t.Errorf("%s gives %s", call, got)
		}
	}
}

func decimalOf(v connectors.Value) string {
	if v.Kind() == connectors.Decimal {
		return v.Text()
	}
	return ""
}
