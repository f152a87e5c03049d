package pipeline_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// BenchmarkPipeline measures what the engine, the decoder, the expressions and the
// encoder cost a record of about 212 bytes, without a client: one subtask, to blackhole.
func BenchmarkPipeline(b *testing.B) {
	const records = 100_000
	steps := []struct{ name, yaml string }{
		{"passthrough", ""},
		{"filter", "transforms: [{filter: price > 500000}]\n"},
		{"filter and set", "transforms: [{filter: 'price > 5000 && channel != \"Apple\"'}, {set: {eur: price * 0.908, tag: 'lower(channel) + \"_x\"'}}]\n"},
		{"map", "transforms: [{map: {id: auction, bidder: bidder, price: price}}]\n"},
		{"filter that keeps all", "transforms: [{filter: auction > 0}]\n"},
		{"key and exchange", "transforms: [{zz-sum: {by: [auction]}}]\n"},
		{"keyed count", "transforms: [{zz-tally: {by: [auction], size: 10s}}]\n"},
		{"union of branches", "transforms: [{name: r, route: {a: price > 500000, else: b}}, {name: x, from: r.a, set: {dear: true}}, {name: u, from: [x, r.b], filter: price > 0}]\n"},
	}
	for _, s := range steps {
		b.Run(s.name, func(b *testing.B) {
			w := pipelinetest.New(b, "pipeline: bench\nparallelism: 1\nsource: {feed: {name: FEED-in, batch: 1024}}\n"+s.yaml+"sink: {blackhole: {}}\n")
			feed := w.Feed("in", 1)
			for i := range records {
				feed.Append(0, fmt.Sprintf(`{"auction":%d,"bidder":%d,"price":%d,"channel":"channel-%d","url":"https://www.nexmark.com/item.htm?query=1&id=%d","date_time":"2026-11-29T12:00:00.000Z","extra":"%060d"}`,
					1000+i%997, 2000+i%1009, i*7919%1_000_000, i%10_000, i, i))
			}
			feed.End()
			b.ResetTimer()
			before := processorTime(b)
			for b.Loop() {
				if _, err := w.Run(); err != nil {
					b.Fatal(err)
				}
				w.Options.From = "none"
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/records, "cpu-ns/record")
		})
	}
}

// processorTime is what the process has used of its processors, in all threads.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
