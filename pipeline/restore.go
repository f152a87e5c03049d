package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// attempt takes a generation, restores and runs once. The order of its steps is
// that of the protocol: what can be refused is refused before anything is
// written; the generation is taken before checkpoints are listed; what they hold is
// committed, then what came after is revoked, before a record flows.
func (r *runner) attempt(ctx context.Context) (Outcome, error) {
	a := r.newAttempt()
	defer a.close()
	if err := a.construct(); err != nil {
		return Failed, connectors.Permanent(err)
	}
	restore, job, err := r.prepareStart(ctx, a)
	if errors.Is(err, checkpoint.ErrFinished) {
		if r.moves.pending() {
			return Failed, connectors.Permanent(errors.New("the job has read its input to the end, so that there is no position to move: name a checkpoint of it to go on from with -s"))
		}
		return AlreadyFinished, nil
	}
	if err != nil {
		return Failed, err
	}
	a.job = job
	if outcome, over, err := r.endAtStart(ctx, a, restore); over {
		return outcome, err
	}
	return r.runTasks(ctx, a, restore, job)
}

// prepareStart does everything up to the tasks. It gives up when the pipeline is
// asked to stop.
func (r *runner) prepareStart(ctx context.Context, a *attempt) (*checkpoint.Restore, *checkpoint.Job, error) {
	ctx, release := r.untilAsked(ctx)
	defer release()
	if err := r.probeStorage(ctx); err != nil {
		return nil, nil, err
	}
	req := r.request()
	survey, err := r.store.Survey(ctx)
	if err != nil {
		return nil, nil, err
	}
	r.warnOfHosts(survey)
	r.job = survey.Job
	likely, err := r.refuse(ctx, survey, req)
	if err != nil {
		return nil, nil, err
	}
	if err := r.persist(ctx, "connect the sinks", func() error { return a.openSinks(ctx, false) }); err != nil {
		return nil, nil, err
	}
	if err := r.persist(ctx, "connect the lookups", func() error { return a.openSteps(ctx) }); err != nil {
		return nil, nil, err
	}
	if !r.chosen {
		err := r.persist(ctx, "look what there is to read", func() error {
			if err := a.listSplits(ctx, likely); err != nil {
				return err
			}
			if err := r.moves.apply(ctx, a.sources); err != nil {
				return err
			}
			return a.checkPositions(ctx, likely)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if err := a.takeWorkdir(r.generation == 0); err != nil {
		return nil, nil, err
	}
	if err := r.takeGeneration(ctx, survey); err != nil {
		return nil, nil, err
	}
	a.generation.Store(r.generation)
	restore, job, err := r.choose(ctx, a, req)
	if err != nil {
		return nil, nil, err
	}
	return restore, job, r.resolve(ctx, a, restore, job)
}

// request is what is asked for: at a start what the user said, at a restart in
// the process the newest checkpoint of the job.
func (r *runner) request() checkpoint.Request {
	req := checkpoint.Request{AcceptDuplicates: r.opts.AcceptDuplicates, Lost: r.lost}
	if !r.chosen {
		req.From, req.Claim = r.opts.From, r.opts.Claim || r.opts.Plan.Spec.Checkpoint.Claim
	}
	return req
}

// takeGeneration makes this process the owner. A try that failed leaves the
// generation that it has: with it the next try knows whom to give way to.
func (r *runner) takeGeneration(ctx context.Context, survey *checkpoint.Survey) (err error) {
	var g uint64
	if r.generation == 0 || r.unsure { // the one after its own may be its own too
		g, err = r.store.TakeNext(ctx, survey)
	} else {
		g, err = r.store.TakeAfter(ctx, r.generation)
	}
	r.unsure = err != nil && !errors.Is(err, connectors.ErrFenced)
	switch {
	case err == nil:
		r.generation = g
	case r.generation == 0 && unusable(err):
		return connectors.Permanent(fmt.Errorf("checkpoint.storage %s cannot be written to: %w", r.opts.Plan.Spec.Checkpoint.Storage, err))
	}
	return err
}

// unusable reports whether a folder cannot be written to until somebody changes it or
// names another one.
func unusable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EROFS)
}

// choose lists the checkpoints anew, since another process may have been at work
// until the generation was taken, decides what to restore, and records it.
func (r *runner) choose(ctx context.Context, a *attempt, req checkpoint.Request) (*checkpoint.Restore, *checkpoint.Job, error) {
	var d *decision
	err := r.persist(ctx, "choose a checkpoint", func() error {
		survey, err := r.store.Survey(ctx)
		if err == nil {
			d, err = r.decide(ctx, a, survey, req)
		}
		return err
	})
	if err == nil {
		err = d.refusal(&r.opts)
	}
	if err != nil {
		return nil, nil, err
	}
	d.tell(r.log)
	restore := d.restore
	if err := r.store.WriteOwner(ctx, r.generation, restore.Owner()); err != nil {
		return nil, nil, err
	}
	r.job, r.chosen, r.lost = restore.Job, true, nil
	r.opts.Control.owns(r.job, r.generation)
	a.origin.Store(restore.Origin)
	job := r.store.Job(restore.Job, r.generation)
	a.commits.owner = job.CheckOwner
	if restore.Meta != nil {
		r.log.Info("restoring", "checkpoint", restore.Path, "number", restore.Meta.Number, "job", restore.Job, "generation", r.generation)
	} else {
		r.log.Info("starting fresh", "job", restore.Job, "generation", r.generation)
	}
	return restore, job, nil
}

// resolve finishes what the restored checkpoint promised, takes away what came
// after it, and writes a new job's first checkpoint.
func (r *runner) resolve(ctx context.Context, a *attempt, restore *checkpoint.Restore, job *checkpoint.Job) error {
	var keep []connectors.Committable
	if m := restore.Meta; m != nil {
		a.restored.Store(restore.Files)
		// The marker is proof; what sinks still know of it may be another's by now.
		if !restore.Committed {
			keep = m.Committables
			if err := a.commits.commit(ctx, m, true); err != nil {
				return r.unlessFenced(ctx, err)
			}
		}
		if !restore.NewJob {
			if err := job.Proven(ctx, m.Number); err != nil {
				return err
			}
		}
	}
	// An older process must not take away what a newer one has prepared.
	if err := job.CheckOwner(ctx); err != nil {
		return err
	}
	for _, c := range a.commits.byID {
		err := r.persist(ctx, "revoke what no checkpoint holds", func() error { return c.Revoke(ctx, keep) })
		if err != nil {
			return r.unlessFenced(ctx, fmt.Errorf("revoke what %s prepared and no checkpoint holds: %w", c.ID(), err))
		}
	}
	if err := a.startSinks(ctx, restore.Meta, restore.Files, !restore.NewJob); err != nil {
		return err
	}
	return r.persist(ctx, "look what there is to read", func() error {
		if err := a.listSplits(ctx, restore.Meta); err != nil {
			return err
		}
		return r.moves.apply(ctx, a.sources)
	})
}

// Waits between tries of a step of a start.
const (
	persistFirst = 250 * time.Millisecond
	persistMost  = 5 * time.Second
)

// persistSlow is after which time a single try is told of, as some stores and clients
// try for a minute before they say why.
const persistSlow = 5 * time.Second

// persist repeats a step of a start that needs another system until it works or
// cannot: a broker that is down is waited for, whatever the restart strategy, and
// found soon after it is back.
func (r *runner) persist(ctx context.Context, what string, step func() error) error {
	wait := persistFirst
	for try := 1; ; try++ {
		slow := time.AfterFunc(persistSlow, func() {
			r.log.Warn("a step of the start takes long: what it needs does not answer", "step", what)
		})
		err := step()
		slow.Stop()
		r.opts.Control.waits(what, err)
		if err == nil || connectors.IsPermanent(err) || errors.Is(err, connectors.ErrFenced) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if try&(try-1) == 0 { // at 1, 2, 4, 8 …
			r.log.Warn("cannot start yet, trying again", "step", what, "tries", try, "err", err)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, persistMost)
	}
}

// unlessFenced lets the owners decide whether a sink's fencing error means that a
// newer process is at work; otherwise it is a fault like others.
func (r *runner) unlessFenced(ctx context.Context, err error) error {
	if !errors.Is(err, connectors.ErrFenced) {
		return err
	}
	if owner := r.store.CheckOwner(ctx, r.generation); owner != nil {
		return owner
	}
	return fmt.Errorf("the sink says that it is fenced, but no newer process has taken the pipeline over here: "+
		"is a pipeline of the same name or prefix at work elsewhere? %s", err.Error())
}

// ownerPatience bounds the look for a newer owner at the end of a run.
const ownerPatience = 10 * time.Second

// unlessSuperseded is a failure that a person would have to mend, or the fencing error
// where a newer process has the pipeline: what failed then is no concern of it.
func (r *runner) unlessSuperseded(ctx context.Context, err error) error {
	if r.generation == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	owner := r.store.CheckOwner(ctx, r.generation)
	if !errors.Is(owner, connectors.ErrFenced) {
		return err
	}
	r.log.Warn("the pipeline failed, and a newer process has it", "err", err)
	return owner
}
