package pipeline_test

import (
	"log/slog"
	"runtime"
	"testing"

	_ "github.com/sluice-etl/sluice/connectors/blackhole"
	_ "github.com/sluice-etl/sluice/connectors/generate"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// allocations of a run over count bids, start and end included.
func allocations(t *testing.T, steps string, count string) uint64 {
	t.Helper()
	yaml := "pipeline: alloc\nparallelism: 1\nsource: {generate: {kind: bid, count: " + count + "}}\n" + steps + "sink: {blackhole: {}}\n"
	p, _ := spec.Parse("alloc.yaml", []byte(yaml), spec.Options{})
	plan := pipeline.NewPlan(p)
	if p.Diagnostics().HasErrors() {
		t.Fatal(p.Diagnostics()[0].Error())
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := pipeline.Run(t.Context(), pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

func TestNoAllocationPerRecord(t *testing.T) {
	tests := []struct{ name, steps string }{
		{"passthrough", ""},
		{"filter and set", "transforms: [{filter: 'price > 5000 && channel != \"Apple\"'}, {set: {eur: price * 0.908, tag: 'lower(channel) + \"_x\"'}}]\n"},
		{"key and exchange", "transforms: [{zz-sum: {by: {k: auction % 1000, c: channel}}}]\n"},
		{"map, route, rename, drop", `
transforms:
  - {name: r, route: {dear: price > 100000, else: cheap}}
  - {name: a, from: r.dear, map: {id: auction, p: price}}
  - {name: b, from: a, rename: {id: auction_id}}
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			allocations(t, tt.steps, "2000")
			few, many := allocations(t, tt.steps, "10000"), allocations(t, tt.steps, "60000")
			// 50,000 records more. Batches, ticks and the garbage collector allocate too, the
			// latter two the more the slower the machine is.
			if many > few+5000 {
				t.Errorf("50000 more records cost %d more allocations", many-few)
			}
		})
	}
}
