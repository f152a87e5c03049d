package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
)

// runTasks runs the tasks and ends the job when its input has ended.
func (r *runner) runTasks(ctx context.Context, a *attempt, restore *checkpoint.Restore, job *checkpoint.Job) (Outcome, error) {
	if err := a.buildTasks(); err != nil {
		return Failed, err
	}
	cfg := r.coordinatorConfig(a, restore)
	cfg.Past = r.past(ctx, restore, job)
	a.coord = checkpoint.NewCoordinator(cfg, job, a, r.log)
	from, newest := restoredState{meta: restore.Meta, files: restore.Files, reuse: !restore.NewJob}, restore.Path
	if restore.NewJob || a.readsNew(restore.Meta) || r.moves.pending() {
		m, err := r.firstCheckpoint(ctx, a, restore, job)
		if err != nil {
			return Failed, err
		}
		// What a new job goes on from is its own copy by now.
		from, newest = restoredState{meta: m, files: job.Files(m.Number), reuse: true}, job.Path(m.Number)
	}
	r.settleMoves(from.meta)
	r.opts.Control.proven(newest)
	if err := r.loadState(ctx, a, from); err != nil {
		return Failed, err
	}
	if err := a.openReaders(); err != nil {
		return Failed, err
	}
	a.resumeClocks()
	run := r.opts.Control.runs(a, r.restored(restore))
	defer func() {
		for _, t := range a.tasks {
			r.tally.total.add(&t.counts)
		}
	}()
	r.opts.Running()
	err := a.run(ctx)
	r.history = a.coord.Stats().History
	r.opts.Control.left(run, err, r.opts.Stop)
	switch {
	case err == nil:
		return Finished, job.End(ctx, checkpoint.Ended{How: checkpoint.Finished})
	case errors.Is(err, errOver):
		return Stopped, nil
	}
	return Failed, r.unlessFenced(ctx, err)
}

// restored tells what the start has gone on from, nil for nothing.
func (r *runner) restored(restore *checkpoint.Restore) *Restored {
	if restore.Meta == nil {
		return nil
	}
	now := time.Now()
	return &Restored{Path: restore.Path, Number: restore.Meta.Number, Time: now, Took: now.Sub(r.began)}
}

// loadState lets keyed steps begin on what was restored. It gives up when the pipeline
// is asked to stop.
func (r *runner) loadState(ctx context.Context, a *attempt, from restoredState) error {
	ctx, release := r.untilAsked(ctx)
	defer release()
	err := a.loadState(ctx, from)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// firstCheckpoint writes down where a new job begins, or where a job begins with
// splits that it has not read yet or at positions that were moved, before it reads a
// record: what start and the user say is settled once.
func (r *runner) firstCheckpoint(ctx context.Context, a *attempt, restore *checkpoint.Restore, job *checkpoint.Job) (*checkpoint.Metadata, error) {
	m := restore.Meta
	if restore.NewJob && m != nil {
		copied, err := job.Copy(ctx, restore.NextNumber, restore)
		if err != nil {
			return nil, err
		}
		c := *m
		c.Operators, m = copied, &c
	}
	return a.coord.WriteInitial(ctx, a.operators(m))
}

// past is what is shown of the job's checkpoints before this start: what the process
// knows of them, or what lies with them.
func (r *runner) past(ctx context.Context, restore *checkpoint.Restore, job *checkpoint.Job) []checkpoint.AttemptStats {
	switch {
	case restore.NewJob:
		return nil
	case r.history != nil:
		return r.history
	}
	return job.Past(ctx)
}

func (r *runner) coordinatorConfig(a *attempt, restore *checkpoint.Restore) checkpoint.Config {
	spec := r.opts.Plan.Spec
	cfg := checkpoint.Config{
		Pipeline: spec.Name, Job: restore.Job, Generation: r.generation, Definition: spec.Digest(),
		Mode: spec.Checkpoint.Mode, MaxParallelism: spec.MaxParallelism, First: restore.NextNumber,
		Interval: spec.Checkpoint.Interval, Timeout: spec.Checkpoint.Timeout, MinPause: spec.Checkpoint.MinPause,
		MaxConcurrent: spec.Checkpoint.MaxConcurrent, TolerableFailures: int(spec.Checkpoint.TolerableFailures),
		Failpoint: r.opts.Failpoint,
	}
	if restore.Meta != nil {
		id := restore.Meta.ID()
		cfg.Restored = &id
	}
	for _, t := range a.tasks {
		cfg.Tasks = append(cfg.Tasks, t.id)
	}
	return cfg
}
