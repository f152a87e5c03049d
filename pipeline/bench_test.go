package pipeline_test

import (
	"fmt"
	"testing"

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
			for b.Loop() {
				if _, err := w.Run(); err != nil {
					b.Fatal(err)
				}
				w.Options.From = "none"
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}
