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

// LostCommitError says that what a completed checkpoint promised cannot be
// published. It matches connectors.ErrLost or connectors.ErrAmbiguous.
type LostCommitError struct {
	Committer  string
	Checkpoint checkpoint.ID
	Err        error
}

func (e *LostCommitError) Error() string {
	return fmt.Sprintf("commit of checkpoint %d (generation %d) by %s: %v", e.Checkpoint.Number, e.Checkpoint.Generation, e.Committer, e.Err)
}

func (e *LostCommitError) Unwrap() error { return e.Err }

// committers publish what the sinks of a pipeline prepared.
type committers struct {
	log  *slog.Logger
	byID map[string]connectors.Committer
}

// commit publishes the committables of a checkpoint in their order, in which
// those that can expire come first, and returns nil when every one is proven.
func (c *committers) commit(ctx context.Context, m *checkpoint.Metadata, restored bool) error {
	for i := range m.Committables {
		cm := &m.Committables[i]
		if cm.Empty {
			continue
		}
		by, ok := c.byID[cm.Committer]
		if !ok {
			return connectors.Permanent(fmt.Errorf("checkpoint %d holds output that only %s can publish, which the pipeline has no more: "+
				"run the definition that took it once to its next checkpoint", m.Number, cm.Committer))
		}
		if err := c.one(ctx, by, *cm, restored); err != nil {
			return err
		}
	}
	for _, by := range c.byID {
		by.Done(m.ID())
	}
	return nil
}

// one tries until the outcome is known.
func (c *committers) one(ctx context.Context, by connectors.Committer, cm connectors.Committable, restored bool) error {
	wait := commitRetryFirst
	for try := 1; ; try++ {
		err := by.Commit(ctx, cm, restored)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, connectors.ErrLost), errors.Is(err, connectors.ErrAmbiguous):
			return connectors.Permanent(&LostCommitError{Committer: by.ID(), Checkpoint: cm.Checkpoint, Err: err})
		case errors.Is(err, connectors.ErrFenced), connectors.IsPermanent(err):
			return fmt.Errorf("commit of checkpoint %d by %s: %w", cm.Checkpoint.Number, by.ID(), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if try&(try-1) == 0 { // at 1, 2, 4, 8 …
			c.log.Warn("commit failed, trying again", "checkpoint", cm.Checkpoint.Number, "sink", by.ID(), "tries", try, "err", err)
		}
		if err := sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		wait = min(2*wait, commitRetryMost)
	}
}

// standing is how what sinks have published stands to a checkpoint.
type standing struct {
	behind  string   // why going on from it would publish twice; empty where it would not
	foreign []string // marks of other pipelines or storages that sinks hold
}

// standingOf looks whether some sink has published more than r, nil for nothing.
// replacing says that r takes the place of a newer checkpoint that cannot be read.
func (c *committers) standingOf(ctx context.Context, owners checkpoint.Lineage, r *checkpoint.ID, replacing bool) (standing, error) {
	var st standing
	for id, by := range c.byID {
		w, ok, err := by.Witness(ctx)
		var foreign *connectors.ForeignWitnessError
		switch {
		case errors.Is(err, connectors.ErrNoWitness):
			if replacing { // what cannot be read counts as published
				st.behind = id + " may have published the later one"
			}
		case errors.As(err, &foreign):
			mark := id + " " + foreign.Mark
			st.foreign = append(st.foreign, mark)
			if !owners.Acknowledged(mark) {
				st.behind = id + ": " + foreign.Error()
			}
		case err != nil:
			return st, fmt.Errorf("read the witness of %s: %w", id, err)
		case !ok || owners.LeftBehind(w):
		case r == nil || owners.Behind(*r, w):
			st.behind = fmt.Sprintf("%s has published checkpoint %d of generation %d", id, w.Number, w.Generation)
		}
	}
	return st, nil
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
