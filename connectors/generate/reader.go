package generate

import (
	"context"
	"io"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// minWait makes a paced reader collect records for a moment rather than emit
	// batches of one.
	minWait = 5 * time.Millisecond
	// maxDebt is how much of the rate a reader catches up with after it was not
	// polled for a while.
	maxDebt = time.Second
)

type cursor struct {
	split     connectors.Split
	partition int64
	next      int64
	paused    bool
}

func (c *cursor) done() bool { return c.split.Until >= 0 && c.next >= c.split.Until }

type reader struct {
	source  *Source
	batches *connectors.BatchPool
	splits  []cursor
	turn    int
	live    int // splits that give records

	paced time.Time // records up to here have been emitted at the rate
	timer *time.Timer
}

func (r *reader) Add(splits []connectors.Split) error {
	for _, s := range splits {
		p, err := r.source.partition(s.ID)
		if err != nil {
			return err
		}
		r.splits = append(r.splits, cursor{split: s, partition: p, next: s.Offset})
	}
	r.count()
	return nil
}

func (r *reader) Position(split int, next int64) connectors.Split {
	s := r.splits[split].split
	s.Offset = next
	return s
}

func (r *reader) Close() error { return nil }

// CaughtUp implements connectors.Progress: at a rate, nothing is due now.
func (r *reader) CaughtUp(split int) bool {
	if r.splits[split].done() {
		return true
	}
	gap := r.spacing()
	return gap > 0 && !r.paced.IsZero() && time.Since(r.paced) < gap
}

// Pause implements connectors.Pauser.
func (r *reader) Pause(paused []int) {
	for i := range r.splits {
		r.splits[i].paused = false
	}
	for _, i := range paused {
		r.splits[i].paused = true
	}
	r.count()
}

func (r *reader) count() {
	r.live = 0
	for i := range r.splits {
		if !r.splits[i].done() && !r.splits[i].paused {
			r.live++
		}
	}
}

// Poll makes the next batch, each time of the next split in turn.
func (r *reader) Poll(ctx context.Context) (*connectors.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at, left := r.nextSplit()
	if !left {
		return nil, io.EOF
	}
	if at < 0 { // all are paused
		<-ctx.Done()
		return nil, ctx.Err()
	}
	gap := r.spacing()
	n, err := r.due(ctx, gap)
	if err != nil {
		return nil, err
	}
	r.turn = at + 1
	c := &r.splits[at]
	if c.split.Until >= 0 {
		n = min(n, c.split.Until-c.next)
	}
	b := r.batches.Get()
	b.Size(int(n), 0)
	for i := range b.Records {
		r.source.fill(&b.Records[i], &b.Arena, c.partition, c.next+int64(i))
	}
	c.next += n
	if c.done() {
		r.count()
	}
	r.paced = r.paced.Add(time.Duration(n) * gap)
	b.Split, b.Next = at, c.next
	return b, nil
}

// nextSplit is the split in turn that gives records, -1 where none does; left tells
// whether any is not at its end.
func (r *reader) nextSplit() (at int, left bool) {
	for i := range r.splits {
		at := (r.turn + i) % len(r.splits)
		c := &r.splits[at]
		if !c.done() && !c.paused {
			return at, true
		}
		left = left || !c.done()
	}
	return -1, left
}

// spacing is the time between two records of this reader, which has the share of
// the rate that belongs to the splits that give records; 0 where the rate is unlimited.
func (r *reader) spacing() time.Duration {
	if r.source.config.Rate == 0 {
		return 0
	}
	share := r.source.config.Rate * float64(r.live) / float64(r.source.config.Partitions)
	return max(1, time.Duration(float64(time.Second)/max(share, 1e-9)))
}

// due waits until the rate, one record each gap, allows a record and tells how
// many it allows, at most a batch.
func (r *reader) due(ctx context.Context, gap time.Duration) (int64, error) {
	if gap == 0 {
		return connectors.MaxBatch, nil
	}
	now := time.Now()
	if r.paced.IsZero() {
		r.paced = now
	}
	if debt := now.Add(-max(maxDebt, gap)); r.paced.Before(debt) {
		r.paced = debt
	}
	for {
		if n := int64(now.Sub(r.paced) / gap); n > 0 {
			return min(n, connectors.MaxBatch), nil
		}
		if err := r.wait(ctx, max(minWait, r.paced.Add(gap).Sub(now))); err != nil {
			return 0, err
		}
		now = time.Now()
	}
}

func (r *reader) wait(ctx context.Context, d time.Duration) error {
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
	select {
	case <-r.timer.C:
		return nil
	case <-ctx.Done():
		r.timer.Stop()
		return ctx.Err()
	}
}
