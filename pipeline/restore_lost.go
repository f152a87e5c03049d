package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// What on_lost_commit can say.
const (
	lossRewind = "rewind"
	lossFail   = "fail"
	lossAccept = "accept_loss"
)

// rewindPause is the time before the attempt that goes back.
const rewindPause = 250 * time.Millisecond

// lossRule is what is done when output that a complete checkpoint promised is lost.
type lossRule struct {
	policy string
	// written says that the file has the policy: without it, it is not known whether
	// the user would rather have something twice or not at all.
	written bool
	counts  *tally
}

func newLossRule(c *spec.Checkpoint, counts *tally) lossRule {
	return lossRule{policy: c.OnLostCommit, written: c.LostCommitWritten, counts: counts}
}

// LostCommitError says that what a completed checkpoint promised cannot be
// published. It matches connectors.ErrLost or connectors.ErrAmbiguous.
type LostCommitError struct {
	Committer string
	// In is the checkpoint that promised it, and Checkpoint the one that prepared it,
	// which is another where that failed.
	In, Checkpoint checkpoint.ID
	Records        int64 // that are lost; 0 where nobody knows
	Err            error
}

func (e *LostCommitError) Error() string {
	what := "commit"
	if e.Records > 0 {
		what = fmt.Sprintf("commit of %d records", e.Records)
	}
	return fmt.Sprintf("%s of checkpoint %d (generation %d) by %s: %v", what, e.Checkpoint.Number, e.Checkpoint.Generation, e.Committer, e.Err)
}

func (e *LostCommitError) Unwrap() error { return e.Err }

func isLoss(err error) bool {
	return errors.Is(err, connectors.ErrLost) || errors.Is(err, connectors.ErrAmbiguous)
}

// unsettled reports whether nobody knows if the output was published, and the file does
// not say what to do then.
func (l *lossRule) unsettled(lost *LostCommitError) bool {
	return errors.Is(lost.Err, connectors.ErrAmbiguous) && !l.written
}

// settleLoss decides about a committable that is lost. settled says that trying again
// is no use: with nil the commit counts as done.
func (c *committers) settleLoss(ctx context.Context, lost *LostCommitError) (settled bool, err error) {
	// What a newer owner has taken away is not lost.
	if c.owner != nil {
		if err := c.owner(ctx); errors.Is(err, connectors.ErrFenced) {
			return true, err
		} else if err != nil {
			return false, err
		}
	}
	if c.loss.policy != lossAccept || c.loss.unsettled(lost) {
		return true, lost
	}
	records := "unknown"
	if lost.Records > 0 {
		records = strconv.FormatInt(lost.Records, 10)
		c.loss.counts.lostRecords.Add(lost.Records)
	}
	c.loss.counts.lostCommits.Add(1)
	c.log.Warn("output is lost and the pipeline goes on without it, as on_lost_commit: accept_loss says",
		"sink", lost.Committer, "checkpoint", lost.Checkpoint.Number, "generation", lost.Checkpoint.Generation, "records", records, "err", lost.Err)
	return true, nil
}

// settleLoss decides what follows where an attempt ended with a lost commit: an error
// that is not permanent says that the next one goes on from an older checkpoint.
func (r *runner) settleLoss(ctx context.Context, err error) error {
	var lost *LostCommitError
	if ctx.Err() != nil || !errors.As(err, &lost) {
		return err
	}
	loss := newLossRule(&r.opts.Plan.Spec.Checkpoint, nil)
	if loss.policy != lossRewind || loss.unsettled(lost) {
		return connectors.Permanent(r.withRemedy(ctx, lost, &loss))
	}
	if r.lost == nil {
		r.lost = map[checkpoint.ID]error{}
	}
	r.lost[lost.In] = lost
	r.log.Warn("output that a checkpoint promised is lost: going back to the newest checkpoint whose results are all there",
		"checkpoint", lost.In.Number, "sink", lost.Committer, "err", lost.Err)
	return err
}

// withRemedy adds to a lost commit from where the pipeline can go on.
func (r *runner) withRemedy(ctx context.Context, lost *LostCommitError, loss *lossRule) error {
	var ways []string
	if survey, err := r.store.Survey(ctx); err == nil {
		for _, f := range survey.Checkpoints {
			if f.Committed && f.Meta != nil && !f.Orphan && f.Number < lost.In.Number {
				ways = append(ways, fmt.Sprintf("every commit up to checkpoint %d is proven: -s %s goes on from there and publishes anew what came after", f.Number, f.Path))
				break
			}
		}
	}
	if loss.unsettled(lost) {
		ways = append(ways, "checkpoint.on_lost_commit in the file decides it from now on: rewind goes back, and may publish again what was published, accept_loss goes on, and may leave it out")
	} else {
		ways = append(ways, "with checkpoint.on_lost_commit: accept_loss it goes on without what is lost")
	}
	return fmt.Errorf("%w; %s", lost, strings.Join(ways, "; "))
}

// noWayBack adds to a loss that nothing can be gone back from what a user can decide.
func noWayBack(err error) error {
	var none *checkpoint.NoRewindError
	if !errors.As(err, &none) {
		return err
	}
	ways := "--from none starts anew and publishes all results again"
	if len(none.Skipped) > 1 {
		ways = fmt.Sprintf("--accept-duplicates goes back to checkpoint %d all the same, and publishes again what came after", none.Skipped[1].Number)
	}
	return connectors.Permanent(fmt.Errorf("%w; %s; with checkpoint.on_lost_commit: accept_loss in the file it goes on without what is lost", none, ways))
}
