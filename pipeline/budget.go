package pipeline

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// Budget is the memory of a process that the pipelines in it share. Half of it is for what
// is fetched, queues and sinks, of which each pipeline has an equal part, as it is when its
// tasks start, so Expect tells how many there will be. The other half is for keyed state of the backend memory, pages that a
// snapshot under way holds included: a pipeline may use what others leave, and where there
// is not enough for all, those fail that use more than an equal part. It is safe for
// concurrent use.
type Budget struct {
	total int64

	mu       sync.Mutex
	expected int // pipelines that there will be
	shares   map[*share]struct{}
}

// share is what one pipeline has of a budget; nil where there is none.
type share struct {
	budget *Budget
	state  atomic.Int64 // bytes that its keyed state takes
}

// NewBudget makes a budget of a number of bytes; 0 for DefaultMemory.
func NewBudget(total int64) *Budget {
	if total <= 0 {
		total = DefaultMemory()
	}
	return &Budget{total: total, shares: map[*share]struct{}{}}
}

// DefaultMemory is the memory that pipelines of this process can share, in bytes: half of
// the limit of its control group, whose rest is for the runtime and what clients hold, or
// 512 MiB where there is no limit.
func DefaultMemory() int64 {
	limit, from := memoryLimit(os.DirFS("/"))
	if from != groupLimit {
		return defaultMemory
	}
	return limit / 2
}

// Expect tells how many pipelines there will be. Without it the first ones would have
// parts for few, and all of them together more than there is.
func (b *Budget) Expect(pipelines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = pipelines
}

// Total is the budget in bytes.
func (b *Budget) Total() int64 { return b.total }

// Used is what is taken of it, in bytes: what state in memory holds, and the half that
// the buffers of all pipelines are given together.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.shares) == 0 {
		return 0
	}
	used := b.total / 2
	for s := range b.shares {
		used += s.state.Load()
	}
	return used
}

// join gives a pipeline its share, until it leaves.
func (b *Budget) join() *share {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &share{budget: b}
	b.shares[s] = struct{}{}
	return s
}

func (s *share) leave() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	delete(s.budget.shares, s)
}

// buffers is what the pipeline may hold in fetch buffers, queues and sinks now.
func (s *share) buffers() int64 {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.budget.total / 2 / int64(max(s.budget.expected, len(s.budget.shares)))
}

// holds notes how much the pipeline's state takes, and says why that is too much.
func (s *share) holds(state int64) error {
	s.state.Store(state)
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	var all int64
	for other := range b.shares {
		all += other.state.Load()
	}
	equal := b.total / 2 / int64(len(b.shares))
	if all <= b.total/2 || state <= equal {
		return nil
	}
	return connectors.Permanent(fmt.Errorf("its state takes %s of memory, beyond its share of %s (half of memory: %s, over %d pipelines), and there is no more: "+
		"set checkpoint.state.backend: disk, or give the process more by memory", sizeOf(state), sizeOf(equal), sizeOf(b.total), len(b.shares)))
}

// watchStateEvery is how often the memory of state is looked at.
const watchStateEvery = 100 * time.Millisecond

// watchState ends the tasks where their state takes more memory than there is.
func (a *attempt) watchState(ctx context.Context) error {
	if a.share == nil || a.plan.Spec.Checkpoint.State.Backend != spec.MemoryState || len(a.plan.keyedSteps()) == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	defer a.share.state.Store(0)
	for {
		var held int64
		for _, t := range a.tasks {
			if t.keyed != nil {
				held += t.keyed.store.Usage().Memory
			}
		}
		if err := a.share.holds(held); err != nil {
			return err
		}
		if err := sleep(ctx, watchStateEvery); err != nil {
			return err
		}
	}
}
