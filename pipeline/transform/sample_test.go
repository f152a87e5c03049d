package transform_test

import (
	"context"
	"math"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// sampled gives the offsets that stay of n records of a partition, in batches of size.
func sampled(t *testing.T, c *transform.SampleConfig, topic string, n, size int) []int64 {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	spec, _ := transform.Lookup("sample")
	step := spec.Build(c, &transform.Env{Name: "s", In: transform.NewView(transform.NewBase())})
	var out []int64
	dropped := 0
	run := step.Start(transform.RunEnv{
		Emit: func(_ context.Context, _ int, b *connectors.Batch, sel []uint16) error {
			for _, row := range sel {
				out = append(out, b.Records[row].Offset)
			}
			return nil
		},
		Dropped: func(n int) { dropped += n }, Exprs: expr.NewEnv(),
	})
	origin := &connectors.Origin{Topic: topic}
	for at := 0; at < n; at += size {
		b := &connectors.Batch{}
		b.Size(min(size, n-at), 0)
		var sel []uint16
		for i := range b.Records {
			b.Records[i] = connectors.Record{Value: []byte("{}"), Origin: origin, Offset: int64(at + i)}
			sel = append(sel, uint16(i))
		}
		if err := run.Process(t.Context(), b, sel); err != nil {
			t.Fatal(err)
		}
	}
	if dropped+len(out) != n {
		t.Errorf("%d records stay and %d are counted as left out, of %d", len(out), dropped, n)
	}
	return out
}

func TestASampleIsTheSameWhateverTheBatches(t *testing.T) {
	for _, c := range []transform.SampleConfig{{Fraction: 0.1}, {Every: 10}} {
		one, other := sampled(t, &c, "a", 10_000, 1000), sampled(t, &c, "a", 10_000, 7)
		if len(one) != len(other) {
			t.Fatalf("%+v: %d records stay, or %d", c, len(one), len(other))
		}
		for i := range one {
			if one[i] != other[i] {
				t.Fatalf("%+v: offset %d stays, or %d", c, one[i], other[i])
			}
		}
	}
}

func TestAFractionStays(t *testing.T) {
	const n = 100_000
	for _, share := range []float64{0.001, 0.1, 0.5, 1} {
		got := float64(len(sampled(t, &transform.SampleConfig{Fraction: share}, "a", n, 1000)))
		// Five standard deviations.
		if off := math.Abs(got - share*n); off > 5*math.Sqrt(n*share*(1-share)) {
			t.Errorf("fraction %g: %g of %d stay", share, got, n)
		}
	}
	a, b := sampled(t, &transform.SampleConfig{Fraction: 0.5}, "a", 64, 64), sampled(t, &transform.SampleConfig{Fraction: 0.5}, "b", 64, 64)
	if len(a) == len(b) {
		same := true
		for i := range a {
			same = same && a[i] == b[i]
		}
		if same {
			t.Error("two topics lose the same offsets")
		}
	}
}

func TestASampleNeedsAShare(t *testing.T) {
	for _, c := range []transform.SampleConfig{{}, {Fraction: 2}, {Fraction: -1}, {Fraction: math.NaN()}, {Every: -1}, {Every: 2, Fraction: 0.5}} {
		if c.Validate() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
