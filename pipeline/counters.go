package pipeline

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-etl/sluice/connectors"
)

// counters are what a task counts. They are written once a batch by the task
// and may be read by others.
type counters struct {
	records  atomic.Int64 // read from sources
	bytes    atomic.Int64 // of their values
	written  atomic.Int64 // taken by sinks, dead letters not counted
	filtered atomic.Int64 // left out by steps, as they should
	skipped  atomic.Int64 // left out by on_error: skip, or on purpose
	dead     atomic.Int64 // sent to a sink of dead letters
	late     atomic.Int64 // too late for their window, with no branch reading them
}

func (c *counters) read(b *connectors.Batch) {
	n := 0
	for i := range b.Records {
		n += len(b.Records[i].Value)
	}
	c.records.Add(int64(len(b.Records)))
	c.bytes.Add(int64(n))
}

// Counts is what a running pipeline has done since its process started.
type Counts struct {
	Read     int64 // records that sources gave
	Bytes    int64 // of their values
	Written  int64 // records that sinks took
	Filtered int64 // records left out by steps, as they should
	Skipped  int64 // records left out by on_error: skip, or by Options.Skip
	Dead     int64 // records sent to a sink of dead letters
	Late     int64 // records too late for what they belong to, with no branch reading them
	// LostCommits are commits that were lost and given up by on_lost_commit: accept_loss,
	// and LostRecords the records in those of which that is known.
	LostCommits, LostRecords int64
}

func (c *Counts) add(t *counters) {
	c.Read += t.records.Load()
	c.Bytes += t.bytes.Load()
	c.Written += t.written.Load()
	c.Filtered += t.filtered.Load()
	c.Skipped += t.skipped.Load()
	c.Dead += t.dead.Load()
	c.Late += t.late.Load()
}

func (c *Counts) addLost(t *tally) {
	c.LostCommits += t.lostCommits.Load()
	c.LostRecords += t.lostRecords.Load()
}

// failureCounts counts records that failed, by step and kind.
type failureCounts struct {
	mu sync.Mutex
	n  map[failureKind]int64
}

type failureKind struct{ step, kind string }

func (f *failureCounts) add(step, kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = map[failureKind]int64{}
	}
	f.n[failureKind{step, kind}]++
}

// snapshot is what was counted, by step and kind as a person reads them.
func (f *failureCounts) snapshot() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]int64, len(f.n))
	for k, n := range f.n {
		out[k.step+": "+k.kind] = n
	}
	return out
}

// byOperator is what was counted, by operator and kind.
func (f *failureCounts) byOperator() map[string]map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]map[string]int64{}
	for k, n := range f.n {
		name := operatorOf(k.step)
		if out[name] == nil {
			out[name] = map[string]int64{}
		}
		out[name][k.kind] += n
	}
	return out
}
