package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/checkpoint"
)

// endAtStart ends the job without running it, where that is what is left to do: it was
// cancelled, it was stopped while it had failed, or what it restored is where event time
// had been driven to its end. What it restored is committed by now.
func (r *runner) endAtStart(ctx context.Context, a *attempt, restore *checkpoint.Restore) (Outcome, bool, error) {
	stop, cancel := r.opts.Control.pending()
	m := restore.Meta
	own := m != nil && !restore.NewJob
	switch {
	case cancel != nil:
		outcome, err := r.cancelJob(ctx, a.job, cancel, restore.Path)
		return outcome, true, err
	case own && m.Drained:
		if m.Kind == checkpoint.Final {
			return Finished, true, a.recordEnd(ctx, checkpoint.Ended{How: checkpoint.Finished})
		}
		if stop != nil && !stop.begun() {
			stop = nil
		}
		return r.stopAtStart(ctx, a, stop, restore)
	case stop != nil && stop.begun():
		r.opts.Control.refuse(stop, errors.New("the pipeline failed while it was drained, before the checkpoint was complete: it goes on from the one before, as if nothing had fired"))
	case own && stop != nil && !stop.Savepoint && !stop.Drain:
		if stop = r.opts.Control.take(); stop != nil {
			return r.stopAtStart(ctx, a, stop, restore)
		}
	}
	return Failed, false, nil
}

// stopAtStart records that the job is stopped with what was restored.
func (r *runner) stopAtStart(ctx context.Context, a *attempt, e *ending, restore *checkpoint.Restore) (Outcome, bool, error) {
	end := a.taken(restore.Meta)
	if err := a.recordEnd(ctx, checkpoint.Ended{How: checkpoint.Stopped, Path: end.Path}); err != nil {
		return Failed, true, fmt.Errorf("record that the job is stopped: %w", err)
	}
	var beside error
	if e != nil && e.Savepoint {
		beside = unsaved(end, errors.New("the tasks failed before"))
	}
	r.log.Info("stopped for good, and nothing was read: the next run goes on as a new job", "from", end.Path, "drained", end.Drained)
	r.opts.Control.settle(e, end, beside)
	return Stopped, true, nil
}

// cancelJob records that the job is cancelled, and drops its checkpoints if the file
// says so. path is what it leaves.
func (r *runner) cancelJob(ctx context.Context, job *checkpoint.Job, e *ending, path string) (Outcome, error) {
	spec := r.opts.Plan.Spec
	end := &Taken{Pipeline: spec.Name, Job: job.ID(), Path: path}
	drop := spec.Checkpoint.OnCancel == "delete"
	if drop {
		end.Path = ""
	}
	if err := job.End(ctx, checkpoint.Ended{How: checkpoint.Cancelled, Path: end.Path}); err != nil {
		return Failed, fmt.Errorf("record that the job is cancelled: %w", err)
	}
	if drop {
		if err := job.Discard(ctx); err != nil {
			end.Warning = "its checkpoints could not be removed, as on_cancel: delete asks for: " + err.Error()
			r.log.Warn("removing the checkpoints of the cancelled job failed", "err", err)
		}
	}
	r.log.Info("cancelled", "left", end.Path)
	r.opts.Control.settle(e, end, nil)
	return Cancelled, nil
}

// cancelAnyway ends a job that was cancelled and could not be brought to order, such as
// because a sink does not answer. done is false where no cancel is asked for, or nothing
// could be recorded.
func (r *runner) cancelAnyway(ctx context.Context, failed error) (outcome Outcome, done bool) {
	_, e := r.opts.Control.pending()
	if e == nil {
		return Failed, false
	}
	if r.generation == 0 || !r.chosen {
		r.refuseCancel(e, fmt.Errorf("pipeline %s has not come to its first start, so that there is no job to cancel: %w", r.opts.Plan.Spec.Name, failed))
		return Failed, false
	}
	r.log.Warn("cancelled without finishing commits: what is prepared and not published stays until the next run", "err", failed)
	ctx, cancel := context.WithTimeout(ctx, r.opts.grace())
	defer cancel()
	outcome, err := r.cancelJob(ctx, r.store.Job(r.job, r.generation), e, r.newest(ctx))
	if err != nil {
		r.refuseCancel(e, errors.Join(err, failed))
		return Failed, false
	}
	return outcome, true
}

// refuseCancel tells who asked that it did not work. The next cancel is tried as the
// first one was, with the commits of the newest checkpoint.
func (r *runner) refuseCancel(e *ending, err error) {
	r.settling = false
	r.opts.Control.refuse(e, err)
}

// newest is the path of what the job goes on from: its newest complete checkpoint, or
// what it began with; empty where there is neither, or it cannot be looked up.
func (r *runner) newest(ctx context.Context) string {
	survey, err := r.store.Survey(ctx)
	if err != nil {
		r.log.Warn("cannot look what the job leaves", "err", err)
		return ""
	}
	if path := survey.Last(); path != "" {
		return path
	}
	return survey.Began()
}

// untilAsked is ctx for what comes before the tasks: it ends with errStopped when the
// program is to end, and some time after the job was cancelled, in which its commits
// can be finished.
func (r *runner) untilAsked(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	_, cancelled := r.opts.Control.wanted()
	done := make(chan struct{})
	go func() {
		select {
		case <-r.opts.Stop:
			end(errStopped)
		case <-cancelled:
			if sleep(ctx, r.opts.grace()) == nil {
				end(errNoGrace)
			}
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		end(nil)
	}
}

var errNoGrace = fmt.Errorf("it was cancelled, and shutdown_timeout is over: %w", context.DeadlineExceeded)
