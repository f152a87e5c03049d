package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// find is the unit of a name.
func (d *Daemon) find(name string) (*unit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.units[name]
	if u == nil {
		return nil, fmt.Errorf("pipeline %s: %w", name, api.ErrUnknown)
	}
	return u, nil
}

// withTurn does something to a pipeline while nobody else starts or stops it.
func (d *Daemon) withTurn(ctx context.Context, name string, do func(*unit) error) error {
	u, err := d.find(name)
	if err != nil {
		return err
	}
	if err := u.take(ctx); err != nil {
		return err
	}
	defer u.giveBack()
	switch {
	case d.isEnding():
		return conflict("the daemon is ending")
	case u.isGone():
		return fmt.Errorf("pipeline %s: %w", name, api.ErrUnknown)
	}
	return do(u)
}

func (u *unit) isGone() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.gone
}

// startPatience is how long a start waits for records to flow before it says that it goes on.
const startPatience = 10 * time.Second

// Start implements api.Service.
func (d *Daemon) Start(ctx context.Context, actor, name string, o api.StartOptions) (moved []api.Moved, err error) {
	err = d.withTurn(ctx, name, func(u *unit) error {
		if err := u.canStart(&o); err != nil {
			return err
		}
		opts := pipeline.Options{
			From: o.From, Claim: o.Claim, AcceptDuplicates: o.AcceptDuplicates,
			AllowNonRestoredState: o.AllowNonRestoredState, AllowDrained: o.AllowDrained, SetOffsets: o.SetOffsets,
		}
		u.tell("started", levelInfo, "started"+startText(&o), actor)
		moved, err = u.beginMoved(ctx, opts, actor)
		return err
	})
	return moved, err
}

// begin starts the newest definition and waits a while until records flow.
func (u *unit) begin(ctx context.Context, o pipeline.Options) error {
	return u.launchNewest(o).awaitFlow(ctx, startPatience)
}

// launchNewest starts what the file says now, so that no change of it waits any more.
func (u *unit) launchNewest(o pipeline.Options) *run {
	u.mu.Lock()
	def := u.file
	u.pending, u.next = "", time.Time{}
	u.mu.Unlock()
	return u.launchForGood(def, o)
}

// awaitFlow waits until records flow, at most for a while. Its error is what the run has
// ended with.
func (r *run) awaitFlow(ctx context.Context, most time.Duration) error {
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-r.flows:
	case <-r.over:
		return r.err
	case <-late.C:
	case <-ctx.Done():
	}
	return nil
}

// canStart refuses a start that cannot be.
func (u *unit) canStart(o *api.StartOptions) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.run != nil {
		state, _ := u.state()
		return conflict("pipeline %s is %s already: stop or pause it first", u.name, state)
	}
	if !u.file.valid() {
		return conflict("the file of pipeline %s has faults: %s", u.name, u.file.failure())
	}
	switch {
	case u.cancelled && o.From == "":
		return conflict("pipeline %s was cancelled: say from where to go on, from %s or none for a fresh start", u.name, orNothing(u.left))
	case u.rest == api.Finished && o.From == "":
		return conflict("the input of pipeline %s was read to its end: start it from none to read it again, or from a checkpoint", u.name)
	}
	return nil
}

func startText(o *api.StartOptions) string {
	var parts []string
	if o.From != "" {
		parts = append(parts, "from "+o.From)
	}
	for _, flag := range []struct {
		set  bool
		text string
	}{
		{o.Claim, "which it claims"}, {o.AcceptDuplicates, "accepting duplicates"},
		{o.AllowNonRestoredState, "dropping state that has no operator"}, {o.AllowDrained, "from what may be drained"},
	} {
		if flag.set {
			parts = append(parts, flag.text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, ", ")
}

// Pause implements api.Service.
func (d *Daemon) Pause(ctx context.Context, actor, name string) (taken *pipeline.Taken, err error) {
	err = d.withTurn(ctx, name, func(u *unit) error {
		if taken, err = u.leaveFor(ctx, api.Paused, "be paused"); err != nil {
			return err
		}
		text := "paused with checkpoint " + taken.Path
		if taken.Warning != "" {
			text = "paused; " + taken.Warning
		}
		u.tell("paused", levelInfo, text, actor)
		return nil
	})
	return taken, err
}

// leaveFor ends what runs so that its job can go on, and leaves the pipeline in a state.
func (u *unit) leaveFor(ctx context.Context, rest api.State, do string) (*pipeline.Taken, error) {
	r, err := u.needRun(do)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	r.rest = rest
	u.mu.Unlock()
	taken := r.leave(ctx)
	if !r.hasEnded() {
		return nil, fmt.Errorf("pipeline %s is still taking its last checkpoint, and is %s after that: %w", u.name, rest, context.Cause(ctx))
	}
	if r.err != nil {
		return nil, fmt.Errorf("pipeline %s failed while its last checkpoint was taken: %w", u.name, r.err)
	}
	u.mu.Lock()
	got := u.rest
	u.mu.Unlock()
	if got != rest {
		return nil, conflict("pipeline %s has ended meanwhile: it is %s", u.name, got)
	}
	return taken, nil
}

// needRun is what runs, or an error that says what the pipeline is at.
func (u *unit) needRun(do string) (*run, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.run == nil {
		state, _ := u.state()
		return nil, conflict("pipeline %s cannot %s: it is %s", u.name, do, state)
	}
	return u.run, nil
}

// Resume implements api.Service.
func (d *Daemon) Resume(ctx context.Context, actor, name string) error {
	return d.withTurn(ctx, name, func(u *unit) error {
		u.mu.Lock()
		state, _ := u.state()
		u.mu.Unlock()
		if state != api.Paused {
			return conflict("pipeline %s is not paused: it is %s", u.name, state)
		}
		u.tell("resumed", levelInfo, "resumed", actor)
		return u.begin(ctx, pipeline.Options{})
	})
}

// Restart implements api.Service. Once begun it goes on although who asked has left: what
// was half of it would be a pipeline that stands still.
func (d *Daemon) Restart(ctx context.Context, actor, name string) error {
	return d.withTurn(ctx, name, func(u *unit) error {
		if err := u.canRestart(); err != nil {
			return err
		}
		u.tell("action", levelInfo, "restart asked for", actor)
		if u.running() != nil {
			if _, err := u.leaveFor(context.WithoutCancel(ctx), api.Starting, "be restarted"); err != nil {
				return err
			}
		}
		return u.begin(ctx, pipeline.Options{})
	})
}

func (u *unit) canRestart() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state, _ := u.state(); state {
	case api.Invalid, api.Stopped, api.Finished:
		return conflict("pipeline %s cannot be restarted: it is %s", u.name, state)
	default:
		return nil
	}
}

// control is what steers a pipeline that runs.
func (d *Daemon) control(name, do string) (*unit, *run, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, nil, err
	}
	r, err := u.needRun(do)
	return u, r, err
}

// settled waits until the end of a run is known, after its job has ended.
func settled(ctx context.Context, r *run, t *pipeline.Taken, err error) (*pipeline.Taken, error) {
	if t, err = answered(t, err); err != nil {
		return nil, err
	}
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	return t, nil
}

// revive is the run by which a job can be ended. Of one that is paused or has failed it
// begins a run, which is asked to end before it comes to much.
func (d *Daemon) revive(ctx context.Context, name, do string) (*unit, *run, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, nil, err
	}
	if r := u.running(); r != nil {
		return u, r, r.awaitBegin(ctx)
	}
	var r *run
	err = d.withTurn(ctx, name, func(u *unit) error {
		if r = u.running(); r == nil {
			def, err := u.unended(do)
			if err != nil {
				return err
			}
			r = u.launch(def, pipeline.Options{})
		}
		return r.awaitBegin(ctx)
	})
	return u, r, err
}

// unended is the definition of a job that does not run and has not ended.
func (u *unit) unended(do string) (*definition, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	state, _ := u.state()
	switch {
	case state != api.Paused && state != api.Failed:
		return nil, conflict("pipeline %s cannot %s: it is %s", u.name, do, state)
	case state == api.Failed && u.last != nil && errors.Is(u.last.err, connectors.ErrFenced):
		return nil, conflict("pipeline %s cannot %s here: a newer process has it", u.name, do)
	}
	return u.def, nil
}

// awaitBegin waits until the control of a run can be asked.
func (r *run) awaitBegin(ctx context.Context) error {
	for r.control.Status().Phase == "" && !r.hasEnded() {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements api.Service.
func (d *Daemon) Stop(ctx context.Context, actor, name string, o pipeline.StopOptions) (*pipeline.Taken, error) {
	u, r, err := d.revive(ctx, name, "be stopped")
	if err != nil {
		return nil, err
	}
	u.tell("action", levelInfo, "stop asked for"+stopText(o), actor)
	t, err := r.control.Stop(ctx, o)
	return settled(ctx, r, t, err)
}

func stopText(o pipeline.StopOptions) string {
	text := ""
	if o.Savepoint {
		text += ", with a savepoint"
	}
	if o.Drain {
		text += ", drained"
	}
	return text
}

// Cancel implements api.Service.
func (d *Daemon) Cancel(ctx context.Context, actor, name string) (*pipeline.Taken, error) {
	u, r, err := d.revive(ctx, name, "be cancelled")
	if err != nil {
		return nil, err
	}
	u.tell("action", levelInfo, "cancel asked for", actor)
	t, err := r.control.Cancel(ctx)
	return settled(ctx, r, t, err)
}

// Skip implements api.Service.
func (d *Daemon) Skip(ctx context.Context, actor, name, topic string, partition int32, offset int64) (moved []api.Moved, err error) {
	err = d.withTurn(ctx, name, func(u *unit) error {
		if err := u.canSkip(); err != nil {
			return err
		}
		at := pipeline.Coordinates{Split: fmt.Sprintf("%s/%d", topic, partition), Offset: offset}
		u.tell("action", levelWarning, "asked to leave out the record "+at.String(), actor)
		moved, err = u.beginMoved(ctx, pipeline.Options{Skip: []pipeline.Coordinates{at}}, actor)
		return err
	})
	return moved, err
}

// canSkip refuses to leave a record out of a pipeline that does not stand still before one.
func (u *unit) canSkip() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state, _ := u.state(); {
	case state != api.Failed && state != api.Paused:
		return conflict("pipeline %s is %s: a record can be left out where it has failed or is paused", u.name, state)
	case !u.file.valid():
		return conflict("the file of pipeline %s has faults: %s", u.name, u.file.failure())
	case !u.file.moves():
		return conflict("no source of pipeline %s can leave out a single record: set on_error: skip or dead_letter for the step, then etl start %s", u.name, u.name)
	}
	return nil
}

// beginMoved is begin, and tells which positions it has moved.
func (u *unit) beginMoved(ctx context.Context, o pipeline.Options, actor string) ([]api.Moved, error) {
	if len(o.SetOffsets)+len(o.Skip) == 0 {
		return nil, u.begin(ctx, o)
	}
	r := u.launchNewest(o)
	got, err := r.control.Moved(ctx)
	if err != nil {
		if r.hasEnded() && r.err != nil {
			err = r.err
		}
		return nil, err
	}
	moved := make([]api.Moved, 0, len(got))
	for _, m := range got {
		moved = append(moved, api.Moved{Split: m.Split, Before: m.Before, After: m.After})
		u.tell("action", levelWarning, fmt.Sprintf("the position of %s is moved from %d to %d", m.Split, m.Before, m.After), actor)
	}
	return moved, nil
}

// Checkpoint implements api.Service.
func (d *Daemon) Checkpoint(ctx context.Context, actor, name string) (*pipeline.Taken, error) {
	u, r, err := d.control(name, "take a checkpoint")
	if err != nil {
		return nil, err
	}
	u.tell("action", levelInfo, "checkpoint asked for", actor)
	t, err := r.control.Checkpoint(ctx)
	return answered(t, err)
}

// Savepoint implements api.Service.
func (d *Daemon) Savepoint(ctx context.Context, actor, name, dir string) (*pipeline.Taken, error) {
	u, r, err := d.control(name, "take a savepoint")
	if err != nil {
		return nil, err
	}
	u.tell("action", levelInfo, "savepoint asked for", actor)
	t, err := answered(r.control.Savepoint(ctx, dir))
	if err == nil {
		u.tell("savepoint", levelInfo, "savepoint "+t.Path, actor)
	}
	return t, err
}

// answered gives the errors of a control the kinds of the API.
func answered(t *pipeline.Taken, err error) (*pipeline.Taken, error) {
	var phase *pipeline.PhaseError
	switch {
	case errors.As(err, &phase):
		return nil, conflict("%s", err.Error())
	case errors.Is(err, pipeline.ErrNoSavepointDir):
		return nil, invalid("%s", err.Error())
	case err != nil:
		return nil, err
	}
	return t, nil
}
