package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
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
		return AlreadyFinished, nil
	}
	if err != nil {
		return Failed, err
	}
	return r.runTasks(ctx, a, restore, job)
}

// prepareStart does everything up to the tasks. It gives up when the pipeline is
// asked to stop.
func (r *runner) prepareStart(ctx context.Context, a *attempt) (*checkpoint.Restore, *checkpoint.Job, error) {
	ctx, release := r.untilStop(ctx)
	defer release()
	req := r.request()
	survey, err := r.store.Survey(ctx)
	if err != nil {
		return nil, nil, err
	}
	r.job = survey.Job
	likely, err := r.refuse(ctx, survey, req)
	if err != nil {
		return nil, nil, err
	}
	if err := r.persist(ctx, "connect the sinks", func() error { return a.openSinks(ctx) }); err != nil {
		return nil, nil, err
	}
	if err := r.persist(ctx, "connect the lookups", func() error { return a.openSteps(ctx) }); err != nil {
		return nil, nil, err
	}
	if !r.chosen {
		if err := r.persist(ctx, "look what there is to read", func() error { return a.listSplits(ctx, likely) }); err != nil {
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

// untilStop is ctx, ended by errStopped when the pipeline is asked to stop.
func (r *runner) untilStop(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-r.opts.Stop:
			cancel(errStopped)
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		cancel(nil)
	}
}

// request is what is asked for: at a start what the user said, at a restart in
// the process the newest checkpoint of the job.
func (r *runner) request() checkpoint.Request {
	req := checkpoint.Request{AcceptDuplicates: r.opts.AcceptDuplicates}
	if !r.chosen {
		req.From = r.opts.From
	}
	return req
}

// refuse stops before anything is written where that can be known, since taking
// a generation ends the process that runs the pipeline now. It returns what will
// probably be restored.
func (r *runner) refuse(ctx context.Context, survey *checkpoint.Survey, req checkpoint.Request) (*checkpoint.Metadata, error) {
	if r.chosen {
		return nil, nil
	}
	if err := r.store.Check(ctx, survey, req); err != nil {
		return nil, err
	}
	switch req.From {
	case checkpoint.FromNone:
		return nil, nil
	case "":
		for _, f := range survey.Checkpoints {
			if f.Meta != nil && !f.Orphan {
				return f.Meta, r.fits(f.Meta, false)
			}
		}
		return nil, nil
	}
	o, err := checkpoint.Inspect(ctx, req.From)
	if err != nil {
		return nil, err
	}
	return o.Meta, r.fits(o.Meta, true)
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
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EROFS)
}

// choose lists the checkpoints anew, since another process may have been at work
// until the generation was taken, decides what to restore, and records it.
func (r *runner) choose(ctx context.Context, a *attempt, req checkpoint.Request) (*checkpoint.Restore, *checkpoint.Job, error) {
	survey, err := r.store.Survey(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.origin.Store(survey.Origin())
	req.Behind = func(ctx context.Context, id checkpoint.ID) (string, error) {
		st, err := a.commits.standingOf(ctx, survey.Owners, &id, true)
		return st.behind, err
	}
	var restore *checkpoint.Restore
	err = r.persist(ctx, "choose a checkpoint", func() (err error) {
		if restore, err = r.store.Choose(ctx, survey, req); err != nil {
			return err
		}
		return r.checkBehind(ctx, a, survey.Owners, restore)
	})
	if err != nil {
		return nil, nil, err
	}
	if err := r.fits(restore.Meta, restore.ChosenBy == checkpoint.ByUser); err != nil {
		return nil, nil, err
	}
	if err := r.store.WriteOwner(ctx, r.generation, restore.Owner()); err != nil {
		return nil, nil, err
	}
	r.job, r.chosen = restore.Job, true
	a.origin.Store(restore.Origin)
	if restore.Meta != nil {
		r.log.Info("restoring", "checkpoint", restore.Path, "number", restore.Meta.Number, "job", restore.Job, "generation", r.generation)
	} else {
		r.log.Info("starting fresh", "job", restore.Job, "generation", r.generation)
	}
	return restore, r.store.Job(restore.Job, r.generation), nil
}

// checkBehind refuses to go on by itself from less than what a sink has published:
// the storage has lost checkpoints since, or was put back to an older state.
func (r *runner) checkBehind(ctx context.Context, a *attempt, owners checkpoint.Lineage, restore *checkpoint.Restore) error {
	if r.opts.Plan.Spec.Checkpoint.Storage == "" {
		return nil
	}
	byUser := restore.ChosenBy == checkpoint.ByUser
	var id *checkpoint.ID
	what := "nothing to restore"
	if restore.Meta != nil {
		i := restore.Meta.ID()
		id, what = &i, fmt.Sprintf("checkpoint %d of generation %d", i.Number, i.Generation)
	}
	st, err := a.commits.standingOf(ctx, owners, id, false)
	if err != nil {
		return err
	}
	reason := st.behind
	if byUser || r.opts.AcceptDuplicates {
		restore.Acknowledged = st.foreign
	}
	if reason == "" {
		return nil
	}
	if byUser || r.opts.AcceptDuplicates {
		r.log.Warn("going on from less than what was published, as asked: results since then are published again", "from", what, "reason", reason)
		return nil
	}
	return connectors.Permanent(fmt.Errorf("the checkpoint storage has %s to go on from, but %s: later checkpoints are missing there, and going on would publish results twice; "+
		"bring them back, or take the duplicates with --accept-duplicates, or start anew with --from none", what, reason))
}

// fits compares the state of a checkpoint with the definition.
func (r *runner) fits(m *checkpoint.Metadata, byUser bool) error {
	if m == nil {
		return nil
	}
	if byUser && m.Drained && !r.opts.AllowDrained {
		return connectors.Permanent(fmt.Errorf("checkpoint %d was taken at the end of the input, after event time had run out: "+
			"go on from it with --allow-drained, or from an earlier one", m.Number))
	}
	spec := r.opts.Plan.Spec
	if m.MaxParallelism != 0 && m.MaxParallelism != spec.MaxParallelism {
		return connectors.Permanent(fmt.Errorf("max_parallelism is %d in the checkpoint and %d in the file: it can never change; set it back", m.MaxParallelism, spec.MaxParallelism))
	}
	kinds := map[string]string{}
	for i := range spec.Sources {
		kinds[spec.Sources[i].UID] = "source " + spec.Sources[i].Kind
	}
	for i := range spec.Sinks {
		kinds[spec.Sinks[i].UID] = "sink " + spec.Sinks[i].Kind
	}
	keyed := map[string]*keyedNode{}
	for _, c := range r.opts.Plan.keyedSteps() {
		kinds[c.keyed.spec.UID], keyed[c.keyed.spec.UID] = c.keyed.spec.Kind, c.keyed
	}
	var gone []string
	for i := range m.Operators {
		op := &m.Operators[i]
		kind, ok := kinds[op.UID]
		if !ok {
			gone = append(gone, fmt.Sprintf("%s (%s)", op.UID, op.Kind))
		} else if kind != op.Kind {
			return connectors.Permanent(fmt.Errorf("%s is a %s in the checkpoint and a %s in the file: its state does not fit; give the new one another name or uid", op.UID, op.Kind, kind))
		} else if node := keyed[op.UID]; node != nil {
			if err := errors.Join(node.definitionFits(op), backendFits(op, spec.Checkpoint.State.Backend)); err != nil {
				return err
			}
		}
	}
	if len(gone) > 0 && !r.opts.AllowNonRestoredState {
		slices.Sort(gone)
		return connectors.Permanent(fmt.Errorf("the checkpoint holds state that the file has nothing for: %s; "+
			"put it back, or drop the state with --allow-non-restored-state", strings.Join(gone, ", ")))
	}
	return nil
}

// resolve finishes what the restored checkpoint promised, takes away what came
// after it, and writes a new job's first checkpoint.
func (r *runner) resolve(ctx context.Context, a *attempt, restore *checkpoint.Restore, job *checkpoint.Job) error {
	var keep []connectors.Committable
	if m := restore.Meta; m != nil {
		// The marker is proof; what sinks still know of it may be another's by now.
		if !restore.Committed {
			keep = m.Committables
			if err := a.commits.commit(ctx, m, true); err != nil {
				return r.unlessFenced(ctx, r.withRemedy(ctx, err))
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
	if err := a.startSinks(ctx, restore.Meta, restore.Files); err != nil {
		return err
	}
	return r.persist(ctx, "look what there is to read", func() error { return a.listSplits(ctx, restore.Meta) })
}

// Waits between tries of a step of a start.
const (
	persistFirst = 250 * time.Millisecond
	persistMost  = 5 * time.Second
)

// persist repeats a step of a start that needs another system until it works or
// cannot: a broker that is down is waited for, whatever the restart strategy, and
// found soon after it is back.
func (r *runner) persist(ctx context.Context, what string, step func() error) error {
	wait := persistFirst
	for try := 1; ; try++ {
		err := step()
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

// withRemedy adds to a lost commit from where the pipeline can go on.
func (r *runner) withRemedy(ctx context.Context, err error) error {
	var lost *LostCommitError
	if !errors.As(err, &lost) {
		return err
	}
	survey, surveyErr := r.store.Survey(ctx)
	if surveyErr != nil {
		return err
	}
	for _, f := range survey.Checkpoints {
		if f.Committed && f.Meta != nil && !f.Orphan && f.Number < lost.Checkpoint.Number {
			return fmt.Errorf("%w; every commit up to checkpoint %d is proven: -s %s goes on from there and publishes anew what came after", err, f.Number, f.Path)
		}
	}
	return err
}
