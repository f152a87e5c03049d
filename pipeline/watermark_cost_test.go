package pipeline

import (
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

func TestObservingAllocatesNothing(t *testing.T) {
	group := newClockGroup()
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second, IdleAfter: time.Second, MaxDrift: time.Second, AdvanceWhenIdle: true}), group, open(8)...)
	b := &connectors.Batch{}
	b.Size(connectors.MaxBatch, 0)
	rows := make([]uint16, connectors.MaxBatch)
	for i := range rows {
		b.Records[i] = connectors.Record{Value: []byte("{}")}
		rows[i] = uint16(i)
	}
	refuse := func(uint16, string) { t.Error("refused") }
	ms, split := int64(0), 0
	n := testing.AllocsPerRun(100, func() {
		for i := range rows {
			ms++
			b.Records[i].Time = ms
		}
		c.observe(split%8, b, rows, c.now, refuse)
		c.advance(split%8, ms)
		c.pass(time.Second)
		c.current()
		split++
	})
	if n > 2 { // what is paused is told to the reader, which this one copies
		t.Errorf("%v allocations for a batch", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	c := newClockTest(nil, bounded(spec.Watermark{Delay: time.Second, IdleAfter: time.Second}), nil, open(8)...)
	batch := &connectors.Batch{}
	batch.Size(connectors.MaxBatch, 0)
	rows := make([]uint16, connectors.MaxBatch)
	for i := range rows {
		batch.Records[i] = connectors.Record{Value: []byte("{}"), Time: int64(i)}
		rows[i] = uint16(i)
	}
	refuse := func(uint16, string) {}
	for i := 0; i < b.N; i += len(rows) {
		for k := range rows {
			batch.Records[k].Time++
		}
		c.observe(i/len(rows)%8, batch, rows, c.now, refuse)
	}
}
