package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFetchesAreAsLargeAsTheBudgetAllows(t *testing.T) {
	for _, c := range []struct {
		name                  string
		budget                int64
		brokers               int
		wire, memory, records int // of the batches that come
		config                ClientConfig
		atLeast, atMost       int64
	}{
		{"incompressible", 64 << 20, 1, 1 << 20, 1 << 20, 1000, ClientConfig{}, 12 << 20, 22 << 20},
		{"highly compressed", 64 << 20, 1, 1 << 20, 100 << 20, 1000, ClientConfig{}, 150 << 10, 250 << 10},
		{"tiny records", 64 << 20, 1, 1 << 20, 1 << 20, 100_000, ClientConfig{}, 800 << 10, 1200 << 10},
		{"several brokers", 64 << 20, 4, 1 << 20, 4 << 20, 1000, ClientConfig{}, 1 << 20, 1400 << 10},
		{"capped", 64 << 20, 1, 1 << 20, 1 << 20, 1000, ClientConfig{FetchMaxBytes: 1 << 20}, 1 << 20, 1 << 20},
		{"hardly any budget", 1, 1, 1 << 20, 1 << 20, 1000, ClientConfig{}, minFetch, minFetch},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f fetchSize
			f.limit(c.budget, &c.config)
			for range 50 {
				f.OnFetchBatchRead(kgo.BrokerMetadata{}, "t", 0, kgo.FetchBatchMetrics{
					CompressedBytes: c.wire, UncompressedBytes: c.memory, NumRecords: c.records,
				})
				f.adapt(c.brokers)
			}
			whole, part := f.get()
			if int64(whole) < c.atLeast || int64(whole) > c.atMost || part > whole {
				t.Errorf("fetches of %d bytes, %d a partition; want %d to %d", whole, part, c.atLeast, c.atMost)
			}
		})
	}
}
