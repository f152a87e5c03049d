package pipeline

import (
	"context"

	"github.com/sluice-etl/sluice/checkpoint"
)

// runTasks runs the tasks and ends the job when its input has ended.
func (r *runner) runTasks(ctx context.Context, a *attempt, restore *checkpoint.Restore, job *checkpoint.Job) (Outcome, error) {
	if err := a.buildTasks(); err != nil {
		return Failed, err
	}
	a.files = job.Files
	a.coord = checkpoint.NewCoordinator(r.coordinatorConfig(a, restore), job, a, r.log)
	from := restoredState{meta: restore.Meta, files: restore.Files, reuse: !restore.NewJob}
	if restore.NewJob || a.readsNew(restore.Meta) {
		m, err := r.firstCheckpoint(ctx, a, restore, job)
		if err != nil {
			return Failed, err
		}
		// What a new job goes on from is its own copy by now.
		from = restoredState{meta: m, files: job.Files(m.Number), reuse: true}
	}
	if err := r.loadState(ctx, a, from); err != nil {
		return Failed, err
	}
	if err := a.openReaders(); err != nil {
		return Failed, err
	}
	a.resumeClocks()
	r.opts.Monitor.at.Store(a)
	defer r.opts.Monitor.at.Store(nil)
	defer func() {
		for _, t := range a.tasks {
			r.tally.total.add(&t.counts)
		}
	}()
	r.opts.Running()
	finished, err := a.run(ctx)
	if err != nil {
		return Failed, r.unlessFenced(ctx, err)
	}
	if finished {
		return Finished, job.End(ctx, checkpoint.Ended{How: checkpoint.Finished})
	}
	return Stopped, nil
}

// loadState lets keyed steps begin on what was restored. It gives up when the pipeline
// is asked to stop.
func (r *runner) loadState(ctx context.Context, a *attempt, from restoredState) error {
	ctx, release := r.untilStop(ctx)
	defer release()
	err := a.loadState(ctx, from)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// firstCheckpoint writes down where a new job begins, or where a job begins with
// splits that it has not read yet, before it reads a record: what start says is
// settled once.
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
