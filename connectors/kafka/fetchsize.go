package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	minFetch = 64 << 10
	maxFetch = 32 << 20
	// recordWeight is what the client holds for a record beside its bytes.
	recordWeight = 192
	// firstWeight is how much larger in memory than on the wire an answer is taken
	// to be before one was seen.
	firstWeight = 8
)

// fetchSize derives how much a fetch may ask for from the memory budget and from
// what the answers so far weigh in memory. Of each broker one answer can be handed
// out while another waits; the third part is for buffers that lie idle and for
// answers that weigh more than those before. It hears of each record batch from
// the client.
type fetchSize struct {
	budget  int64
	cap     int64 // of a whole answer
	partCap int64 // of one partition in it
	weight  float64
	whole   int32 // as it stands
	part    int32

	wire   atomic.Int64 // bytes of answers since the last adapt
	memory atomic.Int64 // what they weigh
}

// limit sets the bounds.
func (f *fetchSize) limit(budget int64, c *ClientConfig) {
	f.budget, f.weight = budget, firstWeight
	f.cap, f.partCap = int64(c.FetchMaxBytes), int64(c.FetchMaxPartitionBytes)
	if f.cap <= 0 {
		f.cap = maxFetch
	}
	if f.partCap <= 0 {
		f.partCap = defaultPartitionBytes
	}
	f.set(1)
}

func (f *fetchSize) get() (whole, part int32) { return f.whole, f.part }

func (f *fetchSize) set(brokers int) {
	size := int64(float64(f.budget) / (3 * f.weight * float64(max(brokers, 1))))
	size = min(max(size, minFetch), f.cap, 1<<30)
	f.whole, f.part = int32(size), int32(min(f.partCap, size))
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (f *fetchSize) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	f.wire.Add(int64(m.CompressedBytes))
	f.memory.Add(int64(m.UncompressedBytes) + int64(m.NumRecords)*recordWeight)
}

// adapt takes in what has come since the last call and reports whether fetches
// should ask for another size.
func (f *fetchSize) adapt(brokers int) (whole, part int32, changed bool) {
	wire, memory := f.wire.Load(), f.memory.Load()
	if wire < minFetch {
		return f.whole, f.part, false // too little to tell
	}
	f.wire.Add(-wire)
	f.memory.Add(-memory)
	seen := max(float64(memory)/float64(wire), 1)
	if seen > f.weight {
		f.weight = seen // at once, since the next answer may be as heavy
	} else {
		f.weight += (seen - f.weight) / 4
	}
	was := f.whole
	f.set(brokers)
	if d := f.whole - was; d > -was/8 && d < was/8 {
		f.whole, f.part = was, int32(min(f.partCap, int64(was)))
		return f.whole, f.part, false
	}
	return f.whole, f.part, true
}
