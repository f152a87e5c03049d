package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

func TestHandingOutBatchesAllocatesNothing(t *testing.T) {
	r := &reader{
		src:    newTestSource(t, nil, nil, "t"),
		env:    connectors.ReaderEnv{Batches: connectors.NewBatchPool(4)},
		splits: []splitState{{id: "t/0", until: -1}},
	}
	r.ends.add("t", 0, 0, false)
	records := make([]*kgo.Record, 5000)
	for i := range records {
		records[i] = &kgo.Record{Offset: int64(i), Value: []byte("value"), Headers: []kgo.RecordHeader{{Key: "k", Value: []byte("v")}}}
	}
	total := 0
	n := testing.AllocsPerRun(20, func() {
		r.queue, r.at = append(r.queue[:0], fetched{0, records}), 0
		for b := r.handOut(); b != nil; b = r.handOut() {
			total += len(b.Records)
			b.Recycle()
		}
	})
	if total%len(records) != 0 || n > 0 {
		t.Errorf("%v allocations, %d records", n, total)
	}
}
