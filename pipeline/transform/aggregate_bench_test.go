package transform_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// memory is the store that pipelines have by default.
func memory(tb testing.TB) state.Store {
	tb.Helper()
	s, err := state.OpenMemory(context.Background(), state.Options{First: 0, Last: 127, Groups: 128})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkAggregate counts and sums by an int key, one row a millisecond of event time,
// and closes windows as time goes on. The time is that of a row.
func BenchmarkAggregate(b *testing.B) {
	for _, bench := range []struct {
		name   string
		window map[string]any
	}{
		{"tumbling_10s", map[string]any{"tumbling": "10s"}},
		{"tumbling_1m", map[string]any{"tumbling": "1m"}},
		{"tumbling_1h", map[string]any{"tumbling": "1h"}},
		{"sliding_1h_1m", map[string]any{"sliding": map[string]any{"size": "1h", "every": "1m"}}},
		{"session_1m", map[string]any{"session": map[string]any{"gap": "1m"}}},
		{"count_100", map[string]any{"count": int64(100)}},
		{"none", nil},
	} {
		for _, keys := range []int{1000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d_keys", bench.name, keys), func(b *testing.B) {
				c := &transform.AggregateConfig{By: by("k"), Select: assign("n", "count()", "s", "sum(v)")}
				if bench.window != nil {
					setWindow(b, c, bench.window)
				}
				run(b, c, keys)
			})
		}
	}
}

func run(b *testing.B, c *transform.AggregateConfig, keys int) {
	k := transformtest.NewKeyed(b, "aggregate", c, transformtest.Options{Store: memory(b), Discard: true})
	var batches []*connectors.Batch
	var sels [][]uint16
	for i := range 256 {
		var rows []transformtest.Row
		for j := range 1000 {
			rows = append(rows, transformtest.Row{JSON: fmt.Sprintf(`{"k":%d,"v":%d}`, (i*1000+j)*2654435761%keys, j)})
		}
		batch, sel := k.Batch(0, rows...)
		batches, sels = append(batches, batch), append(sels, sel)
	}
	ctx, instance, now := context.Background(), k.Instance(), int64(0)
	sel := make([]uint16, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	before := used(b)
	for n := 0; n < b.N; n += 1000 {
		batch := batches[n/1000%len(batches)]
		for i := range batch.Records {
			batch.Records[i].Time = now + int64(i)
		}
		copy(sel, sels[n/1000%len(batches)])
		if err := instance.Process(ctx, 0, batch, sel); err != nil {
			b.Fatal(err)
		}
		now += 1000
		k.Watermark(now)
	}
	b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
}

// used is the CPU time of the process: other processes do not show in it.
func used(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
