package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// Waits between tries of a commit.
const (
	commitRetryFirst = 20 * time.Millisecond
	commitRetryMost  = 5 * time.Second
)

// committers publish what the sinks of a pipeline prepared.
type committers struct {
	log   *slog.Logger
	byID  map[string]connectors.Committer
	tally *commitTally
	mask  func(string) string // keeps secrets out of what is shown
	uids  map[string][]string // of the sinks that share a committer, by its id
	loss  lossRule
	// owner tells whether a newer process has the pipeline; nil before there is a job.
	owner func(context.Context) error
}

// commit publishes the committables of a checkpoint in their order, in which
// those that can expire come first, and returns nil when every one is proven.
func (c *committers) commit(ctx context.Context, m *checkpoint.Metadata, restored bool) error {
	c.tally.prepared(m.Committables, m.Triggered)
	for i := range m.Committables {
		cm := &m.Committables[i]
		if cm.Empty {
			continue
		}
		by, ok := c.byID[cm.Committer]
		if !ok {
			return unknownCommitter(m.Number, cm.Committer)
		}
		if err := c.one(ctx, by, m.ID(), *cm, restored); err != nil {
			return err
		}
	}
	for _, by := range c.byID {
		by.Done(m.ID())
	}
	c.tally.done(m.ID())
	return nil
}

// one tries until the outcome is known. The committable is one of checkpoint in.
func (c *committers) one(ctx context.Context, by connectors.Committer, in checkpoint.ID, cm connectors.Committable, restored bool) error {
	wait := commitRetryFirst
	for try := 1; ; try++ {
		err := by.Commit(ctx, cm, restored)
		if isLoss(err) {
			var settled bool
			if settled, err = c.settleLoss(ctx, &LostCommitError{Committer: by.ID(), In: in, Checkpoint: cm.Checkpoint, Records: cm.Records, Err: err}); settled {
				if err == nil {
					c.tally.settled(&cm, false)
				}
				return err
			}
		}
		switch {
		case err == nil:
			c.tally.settled(&cm, true)
			return nil
		case errors.Is(err, connectors.ErrFenced), connectors.IsPermanent(err):
			return fmt.Errorf("commit of checkpoint %d by %s: %w", cm.Checkpoint.Number, by.ID(), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		c.tally.failed(&cm, c.mask(err.Error()))
		if try&(try-1) == 0 { // at 1, 2, 4, 8 …
			c.log.Warn("commit failed, trying again", "checkpoint", cm.Checkpoint.Number, "sink", by.ID(), "tries", try, "err", err)
		}
		if err := sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		wait = min(2*wait, commitRetryMost)
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
