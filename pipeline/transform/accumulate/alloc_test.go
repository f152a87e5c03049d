package accumulate

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// mix gives i another value that looks random.
func mix(i uint64) uint64 {
	i ^= i >> 33
	i *= 0xff51afd7ed558ccd
	i ^= i >> 33
	i *= 0xc4ceb9fe1a85ec53
	return i ^ i>>33
}

func TestAddingAllocatesNothing(t *testing.T) {
	stamp := connectors.TimestampValue(time.Unix(5, 7))
	for _, c := range []struct {
		call   string
		o      Options
		kind   connectors.Kind
		values []connectors.Value
	}{
		{"count()", Options{}, 0, []connectors.Value{integer(1)}},
		{"sum(x)", Options{}, connectors.Int, []connectors.Value{integer(1), integer(-5)}},
		{"sum(x)", Options{}, 0, []connectors.Value{integer(1), float(0.5), dec("1.10"), dec("-12345678901234567890.5")}},
		{"sum(x)", Options{Updating: true}, 0, []connectors.Value{integer(1), float(0.5), dec("1.10")}},
		{"avg(x)", Options{}, 0, []connectors.Value{float(1e-30), float(2)}},
		{"min(x)", Options{}, connectors.Int, []connectors.Value{integer(1), integer(-1)}},
		{"max(x)", Options{}, 0, []connectors.Value{integer(1), dec("1.5"), float(2.5)}},
		{"max(x)", Options{}, 0, []connectors.Value{text("a"), text("bc")}},
		{"min(x)", Options{}, 0, []connectors.Value{stamp}},
		{"min(x)", Options{Updating: true}, 0, []connectors.Value{integer(1), text("x")}},
		{"first(x)", Options{}, 0, []connectors.Value{text("a"), integer(2)}},
		{"last(x)", Options{}, 0, []connectors.Value{text("a"), integer(2)}},
		{"arg_max(x, y)", Options{}, 0, []connectors.Value{integer(1), integer(2)}},
		{"count_distinct(x)", Options{}, 0, []connectors.Value{integer(1), text("a"), float(0.5), dec("0.1")}},
		{"approx_distinct(x)", Options{}, 0, []connectors.Value{integer(1), text("a")}},
		{"quantile(x, 0.5)", Options{Updating: true}, 0, []connectors.Value{integer(1), float(2)}},
		{"stddev(x)", Options{}, 0, []connectors.Value{integer(1), float(2), dec("1.5")}},
	} {
		t.Run(c.call, func(t *testing.T) {
			f := must(t, c.call, c.o)
			if c.kind != 0 {
				f = must(t, c.call, c.o, 1<<c.kind)
			}
			list := rows(c.values...)
			for i := range list {
				list[i].values[1] = c.values[i]
			}
			b := add(t, f, append(make([]byte, 0, 4096), empty(f)...), list)
			inputs := make([]*Input, len(list))
			for i := range list {
				inputs[i] = list[i].input()
			}
			if n := testing.AllocsPerRun(100, func() {
				for _, in := range inputs {
					var err error
					if b, err = f.Add(b, in); err != nil {
						t.Fatal(err)
					}
				}
			}); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		call string
		kind connectors.Kind
		v    func(i uint64) connectors.Value
	}{
		{"count()", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"sum(x)", connectors.Int, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"sum(x)", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"sum(x)", 0, func(i uint64) connectors.Value { return float(float64(i>>40) / 100) }},
		{"sum(x)", 0, func(i uint64) connectors.Value { return dec(fmt.Sprintf("%d.%02d", i>>40, i%100)) }},
		{"avg(x)", connectors.Int, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"min(x)", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"max(x)", 0, func(i uint64) connectors.Value { return float(float64(i>>40) / 100) }},
		{"last(x)", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"arg_max(x, y)", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"approx_distinct(x)", 0, func(i uint64) connectors.Value { return integer(int64(i)) }},
		{"quantile(x, 0.5)", 0, func(i uint64) connectors.Value { return integer(int64(i >> 40)) }},
		{"stddev(x)", 0, func(i uint64) connectors.Value { return float(float64(i>>40) / 100) }},
	} {
		f := must(b, c.call, Options{})
		if c.kind != 0 {
			f = must(b, c.call, Options{}, 1<<c.kind)
		}
		values := make([]connectors.Value, 1024)
		for i := range values {
			values[i] = c.v(mix(uint64(i)))
		}
		b.Run(fmt.Sprint(c.call, " ", values[0].Kind(), " known=", c.kind != 0), func(b *testing.B) {
			b.ReportAllocs()
			s := append(make([]byte, 0, 1<<15), empty(f)...)
			r := connectors.Record{Origin: origins[0]}
			in := &Input{Args: make([]connectors.Value, 2), Record: &r}
			for i := range b.N {
				v := values[i&1023]
				in.Args[0], in.Args[1] = v, v
				r.Time, r.Offset = int64(i), int64(i)
				var err error
				if s, err = f.Add(s, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDistinct adds different values to one group.
func BenchmarkDistinct(b *testing.B) {
	for _, o := range []Options{{}, {Updating: true}} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprint(n, " updating=", o.Updating), func(b *testing.B) {
				b.ReportAllocs()
				f := must(b, "count_distinct(x)", o)
				list := rows(null())
				in := list[0].input()
				var s []byte
				for i := range b.N {
					if i%n == 0 {
						s = s[:0]
					}
					in.Args[0] = integer(int64(mix(uint64(i))))
					var err error
					if s, err = f.Add(s, in); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(s))/float64((b.N-1)%n+1), "bytes/value")
			})
		}
	}
	b.Run("largest of 100000, taken back", func(b *testing.B) {
		f := must(b, "max(x)", Options{Updating: true})
		in := rows(null())[0].input()
		var s []byte
		for i := range 100_000 {
			in.Args[0] = integer(int64(i))
			s, _ = f.Add(s, in)
		}
		b.ResetTimer()
		for i := range b.N {
			in.Args[0] = integer(int64(99_999 + i))
			s, _ = f.Retract(s, in)
			in.Args[0] = integer(int64(100_000 + i))
			s, _ = f.Add(s, in)
		}
	})
}

func TestApproximateCountsAreWithinTheirError(t *testing.T) {
	f := must(t, "approx_distinct(x)", Options{})
	in := rows(null())[0].input()
	var s []byte
	for n := 1; n <= 300_000; n++ {
		in.Args[0] = integer(int64(n))
		var err error
		if s, err = f.Add(s, in); err != nil {
			t.Fatal(err)
		}
		if n != 1 && n != 100 && n != 3000 && n != 5000 && n != 20_000 && n != 100_000 && n != 300_000 {
			continue
		}
		v, err := f.Result(s, nil)
		bound := 3 * 1.04 / math.Sqrt(registers) // three standard errors
		if n <= sparseMost {
			bound = 0.001
		}
		if off := math.Abs(float64(v.Int())/float64(n) - 1); err != nil || off > bound {
			t.Errorf("%d values are counted as %d, %v", n, v.Int(), err)
		}
	}
	if len(s) > 12<<10+1 {
		t.Errorf("the state takes up %d bytes", len(s))
	}
}

func TestSetsStaySmallWhereValuesComeAndGo(t *testing.T) {
	for _, call := range []string{"count_distinct(x)", "max(x)"} {
		f := must(t, call, Options{Updating: true})
		in := rows(null())[0].input()
		var s []byte
		for i := range 8_000 {
			in.Args[0] = integer(int64(i))
			s, _ = f.Add(s, in)
			if i >= 100 {
				in.Args[0] = integer(int64(i - 100))
				s, _ = f.Retract(s, in)
			}
		}
		if len(s) > 100*200 {
			t.Errorf("%s: the state of 100 values takes up %d bytes", call, len(s))
		}
		for i := 8_000 - 100; i < 8_000; i++ {
			in.Args[0] = integer(int64(i))
			s, _ = f.Retract(s, in)
		}
		if len(s) > 0 {
			t.Errorf("%s: the state of no values takes up %d bytes", call, len(s))
		}
	}
}
