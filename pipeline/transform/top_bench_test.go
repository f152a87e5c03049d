package transform_test

import (
	"fmt"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// BenchmarkTopOfChangingRows is an update of a row of a group that has so many.
func BenchmarkTopOfChangingRows(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d rows", n), func(b *testing.B) {
			store, err := state.OpenMemory(b.Context(), state.Options{Last: 127, Groups: 128})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			c := &transform.TopConfig{N: 10, Order: descending("n"), Rank: "rank", Ties: "cut"}
			k := transformtest.NewKeyed(b, "top", c, transformtest.Options{Updating: map[int][]string{0: {"id"}}, Store: store, Discard: true})
			row := func(id, n int) string { return fmt.Sprintf(`{"id":%d,"name":"number %d","n":%d}`, id, id, n) }
			value := func(i int) int { return i * 7919 % 1_000_003 }
			for id := range n {
				k.Feed(0, transformtest.Row{JSON: row(id, value(id))})
			}
			var batches []func()
			for i := range 1000 {
				id := i * 31 % n
				was := value(id)
				up, sel := k.Batch(0, transformtest.Row{JSON: row(id, was), Op: connectors.UpdateBefore}, transformtest.Row{JSON: row(id, was+1), Op: connectors.UpdateAfter})
				down, _ := k.Batch(0, transformtest.Row{JSON: row(id, was+1), Op: connectors.UpdateBefore}, transformtest.Row{JSON: row(id, was), Op: connectors.UpdateAfter})
				for _, batch := range []*connectors.Batch{up, down} {
					batches = append(batches, func() {
						if err := k.Instance().Process(b.Context(), 0, batch, append([]uint16{}, sel...)); err != nil {
							b.Fatal(err)
						}
					})
				}
			}
			for i := 0; b.Loop(); i++ {
				batches[i%len(batches)]()
			}
		})
	}
}
