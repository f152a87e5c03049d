package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// How long a changed definition may take.
const (
	planPatience = 30 * time.Second // to be planned, with its systems asked
	planAgain    = 30 * time.Second // until it is planned anew, where that could not be
)

// change takes over a changed definition that has no faults.
func (u *unit) change(ctx context.Context, def *definition, actor string) string {
	u.mu.Lock()
	old, r := u.def, u.run
	state, _ := u.state()
	same := def.fingerprint == old.fingerprint
	u.file = def
	if same || r == nil {
		u.def, u.pending, u.next = def, "", time.Time{}
	}
	rest, cancelled := u.rest, u.cancelled
	u.mu.Unlock()
	switch {
	case same && (r != nil || state != api.Invalid):
		return unchanged
	case r != nil:
		return u.replace(ctx, r, def, actor)
	case rest == api.Paused || cancelled:
		u.tell("definition", levelInfo, "its file has changed; that counts once it is started", actor)
		return waits
	default: // invalid, failed, stopped or finished before: a changed file begins anew
		u.tell("started", levelInfo, "its file has changed, started", actor)
		u.launchForGood(def, pipeline.Options{})
		return switched
	}
}

// replace switches a running pipeline to another definition: a plan of what it would
// restore, a checkpoint and the end of the old one, the start of the new one from it, and
// the way back where that does not come to run.
func (u *unit) replace(ctx context.Context, r *run, def *definition, actor string) string {
	if why, again := u.refusal(ctx, def); why != "" {
		return u.refuse(why, again, actor)
	}
	u.setSwitching(true)
	defer u.setSwitching(false)
	left := r.leave(ctx)
	u.mu.Lock()
	ended := u.rest
	u.mu.Unlock()
	if ended != api.Starting && ended != api.Failed {
		return refusedAs + "the pipeline has ended meanwhile: it is " + string(ended)
	}
	next := u.launch(def, pipeline.Options{})
	why := u.prove(ctx, next)
	if why == nil {
		u.setPending("", false)
		u.d.count(func(c *ReloadCounts) { c.Switched++ })
		u.tell("reloaded", levelInfo, "its changed file runs, from checkpoint "+left.Path, actor)
		return switched
	}
	next.kill(errReplaced)
	<-next.over
	u.rollBack(ctx, r.def, left)
	text := "the changed file did not come to run, and the one before runs again: " + why.Error()
	u.setPending(text+"; mend the file", false)
	u.d.count(func(c *ReloadCounts) { c.RolledBack++ })
	u.tell("reload_failed", levelError, text, actor)
	return rolledBack + why.Error()
}

// refusal plans what the definition would restore, and tells why it is not taken over.
// again says that this could not be told now.
func (u *unit) refusal(ctx context.Context, def *definition) (why string, again bool) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	plan, err := u.d.planRestore(ctx, def)
	switch {
	case connectors.IsPermanent(err):
		return err.Error(), false
	case err != nil:
		return "it cannot be told now what it would restore: " + err.Error(), true
	case plan.Refused != "":
		return plan.Refused + fmt.Sprintf("; to take it over all the same, etl stop %s and etl start %s with what it asks for", u.name, u.name), false
	}
	return "", false
}

// planRestore tells what a start of the definition would go on from. A panic in it is an error.
func (d *Daemon) planRestore(ctx context.Context, def *definition) (plan *pipeline.RestorePlan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = connectors.Permanent(fmt.Errorf("planning it panics: %v", p))
		}
	}()
	return pipeline.PlanRestore(ctx, pipeline.Options{Plan: def.plan, Log: d.log, Memory: d.opts.Settings.Memory})
}

// refuse notes a definition that is not taken over; what runs is not touched.
func (u *unit) refuse(why string, again bool, actor string) string {
	u.setPending("the changed file is not taken over: "+why, again)
	u.d.count(func(c *ReloadCounts) { c.Refused++ })
	u.tell("reload_refused", levelError, "the changed file is not taken over: "+why, actor)
	return refusedAs + why
}

func (u *unit) setPending(text string, again bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending == "" || text == "" {
		u.pendingSince = time.Now()
	}
	u.pending, u.next = text, time.Time{}
	if again {
		u.next = time.Now().Add(planAgain)
	}
}

func (u *unit) setSwitching(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.switching = on
}

// prove waits until a new definition runs and has published a checkpoint. Its error is
// why it does not.
func (u *unit) prove(ctx context.Context, r *run) error {
	most := u.d.opts.Settings.ReloadTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it does not run after %s", most))
	defer cancel()
	look := time.NewTicker(proveEvery)
	defer look.Stop()
	flows := r.flows
	for {
		select {
		case <-flows:
			flows = nil
		case <-r.over:
			return r.ending()
		case <-u.d.ending:
			return nil // the next daemon goes on with it
		case <-ctx.Done():
		case <-look.C:
		}
		if flows == nil && !r.leaving() {
			_, _ = r.control.Checkpoint(ctx) // the next look says what came of it
		}
		s := r.control.Status()
		switch {
		case r.control.Checkpoints().Completed > 0 || r.leaving():
			return nil
		case s.Restarts > 0:
			return r.setback()
		case ctx.Err() != nil && flows == nil:
			u.d.log.Warn("a changed pipeline runs, and has no checkpoint yet", pipelineKey, u.name)
			return nil // what hinders its checkpoints is shown, and need not be the change
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// setback is why a run had to start again.
func (r *run) setback() error {
	if s := r.control.Status(); s.Failure != "" {
		return errors.New(firstLine(s.Failure))
	}
	if stats := r.control.Checkpoints(); stats.Failed > 0 {
		return fmt.Errorf("its checkpoint failed: %s", firstLine(lastFailure(&stats)))
	}
	return errors.New("it failed and started again, see its log")
}

// proveEvery is how often it is looked how far a new definition is.
const proveEvery = 200 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ending is why a run that is over did not go on; nil where it has done its work.
func (r *run) ending() error {
	switch {
	case r.err != nil:
		return r.err
	case r.summary.Outcome == pipeline.Failed:
		return errors.New("it failed")
	}
	return nil
}

// rollBack starts the definition from before, from the checkpoint that it left.
func (u *unit) rollBack(ctx context.Context, old *definition, left *pipeline.Taken) {
	o := pipeline.Options{}
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	plan, err := u.d.planRestore(ctx, old)
	if err == nil && plan.Refused != "" && left.Path != "" {
		o.From = left.Path // the new one has written a checkpoint of its own as it began
	}
	u.launch(old, o)
}
