package transform_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// joinForms are the forms that hold rows without an end by time.
var joinForms = map[string]func(*transform.JoinConfig){"interval": within(time.Minute, time.Minute), "plain": forever}

// joinBatches makes batches of left and right records, with one key each, from a key on.
func joinBatches(k *transformtest.Keyed, first int) (batches [2]*connectors.Batch, sel []uint16) {
	for side := range batches {
		var rows []transformtest.Row
		for i := range connectors.MaxBatch {
			rows = append(rows, row(fmt.Sprintf(`{"k":%d,"v":"value %d"}`, first+i, i), int64(i)))
		}
		batches[side], sel = k.Batch(side, rows...)
	}
	return batches, sel
}

// BenchmarkJoin joins records each of which has one partner, in a state of up to 64
// thousand. The time is that of a record.
func BenchmarkJoin(b *testing.B) {
	for name, form := range joinForms {
		b.Run(name, func(b *testing.B) {
			options := func() transformtest.Options {
				return transformtest.Options{Store: memory(b), Timestamped: true, Discard: true}
			}
			k := transformtest.NewKeyed(b, "join", joining("inner", form), options())
			var batches [32][2]*connectors.Batch
			var sel []uint16
			for i := range batches {
				batches[i], sel = joinBatches(k, i*connectors.MaxBatch)
			}
			scratch := make([]uint16, len(sel))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				at := i % (2 * len(batches))
				if at == 0 {
					b.StopTimer()
					k = transformtest.NewKeyed(b, "join", joining("inner", form), options())
					b.StartTimer()
				}
				copy(scratch, sel)
				if err := k.Instance().Process(context.Background(), at%2, batches[at/2][at%2], scratch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/connectors.MaxBatch, "ns/record")
		})
	}
}

func TestAJoinDoesNotAllocateForARecord(t *testing.T) {
	for name, form := range joinForms {
		for _, kind := range []string{"inner", "left", "full"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				k := transformtest.NewKeyed(t, "join", joining(kind, form), transformtest.Options{Store: memory(t), Timestamped: true, Discard: true})
				batches, sel := joinBatches(k, 0)
				scratch := make([]uint16, len(sel))
				side := 0
				per := testing.AllocsPerRun(10, func() {
					copy(scratch, sel)
					if err := k.Instance().Process(context.Background(), side, batches[side], scratch); err != nil {
						t.Fatal(err)
					}
					side = 1 - side
				})
				if per > connectors.MaxBatch/20 {
					t.Errorf("%.0f allocations for a batch of %d", per, connectors.MaxBatch)
				}
			})
		}
	}
}

// writes counts the bytes that a step hands to its store.
type writes struct {
	state.Store
	bytes int
}

func (w *writes) Table(name string) state.Table { return &writesTable{w.Store.Table(name), w} }

type writesTable struct {
	state.Table
	w *writes
}

func (t *writesTable) Put(ns int64, k state.Key, value []byte) {
	t.w.bytes += len(value)
	t.Table.Put(ns, k, value)
}

func (t *writesTable) Append(ns int64, k state.Key, tail []byte) {
	t.w.bytes += len(tail)
	t.Table.Append(ns, k, tail)
}

func (t *writesTable) Upsert(ns int64, k state.Key, size int) ([]byte, bool) {
	t.w.bytes += size
	return t.Table.Upsert(ns, k, size)
}

func TestARowOfAHotKeyCostsNoMoreThanAnother(t *testing.T) {
	const rows = 20_000
	for name, form := range joinForms {
		for _, kind := range []string{"inner", "left", "semi"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := &writes{Store: memory(t)}
				k := transformtest.NewKeyed(t, "join", joining(kind, form), transformtest.Options{Store: w, Timestamped: true})
				var batch []transformtest.Row
				for i := range 1000 {
					batch = append(batch, row(fmt.Sprintf(`{"k":1,"v":%d}`, i), 1))
				}
				for range rows / len(batch) {
					k.Feed(right, batch...)
				}
				if w.bytes > 40*rows {
					t.Errorf("%d bytes are written for %d rows", w.bytes, rows)
				}
				k.Feed(left, row(`{"k":1,"v":0}`, 1))
				want := rows
				if kind == "semi" {
					want = 1
				}
				if n := len(k.Take()); n != want {
					t.Errorf("%d results, want %d", n, want)
				}
			})
		}
	}
}
