package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// periodicRetry is the time until a periodic savepoint that failed is tried again, at most.
const periodicRetry = 5 * time.Minute

// takeSavepoints takes a savepoint each time that the file says, counted from the newest
// one there is, and removes those beyond as many as it keeps. What fails is tried
// again and fails nothing else.
func (a *attempt) takeSavepoints(ctx context.Context) error {
	s := a.plan.Spec.Checkpoint.Savepoints
	if s.Every == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	dir := spec.PeriodicDir(s.Dir, a.plan.Spec.Name)
	wait := min(s.Every, periodicRetry)
	due, err := a.nextSavepoint(ctx, dir, s.Every)
	for {
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			a.log.Warn("a periodic savepoint failed, and is tried again", "dir", dir, "in", wait, "err", err)
			due = time.Now().Add(wait)
		}
		if err := sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		began := time.Now()
		_, err = a.savepoint(ctx, dir, func() (*checkpoint.Metadata, error) {
			return a.coord.Trigger(ctx, checkpoint.Order{Kind: checkpoint.Savepoint})
		})
		if err != nil {
			continue
		}
		due = began.Add(s.Every)
		// Taken again at once, savepoints would fill a store that removes none.
		if err := a.pruneSavepoints(ctx, dir, s.Keep); err != nil && ctx.Err() == nil {
			a.log.Warn("old periodic savepoints could not be removed, and go after the next one", "dir", dir, "err", err)
		}
	}
}

// nextSavepoint is when the next periodic savepoint is due.
func (a *attempt) nextSavepoint(ctx context.Context, dir string, every time.Duration) (time.Time, error) {
	found, err := a.periodicSavepoints(ctx, dir)
	if err != nil || len(found) == 0 {
		return time.Now().Add(every), err
	}
	due, latest := found[0].Meta.Completed.Add(every), time.Now().Add(every)
	if due.After(latest) { // the clock that it was taken by was ahead
		due = latest
	}
	return due, nil
}

// periodicSavepoints lists those of the pipeline that can be read, the newest first.
func (a *attempt) periodicSavepoints(ctx context.Context, dir string) ([]checkpoint.FoundSavepoint, error) {
	found, err := checkpoint.Savepoints(ctx, dir)
	if err != nil {
		return nil, err
	}
	own := found[:0]
	for _, s := range found {
		if s.Meta != nil && s.Meta.Pipeline == a.plan.Spec.Name {
			own = append(own, s)
		}
	}
	return own, nil
}

// pruneSavepoints removes the oldest periodic savepoints beyond keep. A process that
// is not the owner any more removes nothing.
func (a *attempt) pruneSavepoints(ctx context.Context, dir string, keep int) error {
	found, err := a.periodicSavepoints(ctx, dir)
	if err != nil || len(found) <= keep {
		return err
	}
	if err := a.job.CheckOwner(ctx); err != nil {
		return err
	}
	for _, s := range found[keep:] {
		if _, err := checkpoint.Remove(ctx, s.Path, false); err != nil {
			return fmt.Errorf("remove the savepoint %s, which keep leaves out: %w", s.Path, err)
		}
		a.log.Info("an old periodic savepoint is removed", "path", s.Path)
	}
	return nil
}
