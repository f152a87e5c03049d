package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// decision is what a start goes on from, and what follows of it. It is made without
// writing anything.
type decision struct {
	restore *checkpoint.Restore
	matches []Match
	// anew says that the job that left it has ended.
	anew bool
	// behind is why sinks would be given something twice; empty where they would not.
	behind string
	// asked says that the user has taken that.
	asked bool
	again []Republished // what is published again, where asked
	// unknown are the committers that the checkpoint's output needs and the file has no more.
	unknown []string
}

// decide chooses what to restore. The sinks must be open. What refuses the choice is
// left to refusal, unless there is none at all.
func (r *runner) decide(ctx context.Context, a *attempt, survey *checkpoint.Survey, req checkpoint.Request) (*decision, error) {
	a.origin.Store(survey.Origin())
	req.Behind = func(ctx context.Context, id checkpoint.ID) (string, error) {
		return r.against(ctx, a.commits, survey, id)
	}
	restore, err := r.store.Choose(ctx, survey, req)
	if err != nil {
		return nil, noWayBack(err)
	}
	d := &decision{restore: restore, matches: r.opts.Plan.match(restore.Meta), anew: survey.Ended != nil}
	if m := restore.Meta; m != nil && !restore.Committed {
		d.unknown = a.commits.unknown(m)
	}
	if r.opts.Plan.Spec.Checkpoint.Storage == "" {
		return d, nil
	}
	st, err := a.commits.standingOf(ctx, survey.Owners, ownID(restore), nil)
	if err != nil {
		return nil, err
	}
	d.behind = st.reason()
	if d.asked = restore.ChosenBy == checkpoint.ByUser || r.opts.AcceptDuplicates; d.asked {
		restore.Acknowledged = st.foreign
		d.again, err = r.republished(ctx, a.commits, survey.Owners, restore)
	}
	return d, err
}

// against says what is against going on from checkpoint id in the place of a newer one:
// it is behind what a sink has published, or, for the way back from a loss, has output
// itself that is not proven.
func (r *runner) against(ctx context.Context, c *committers, survey *checkpoint.Survey, id checkpoint.ID) (string, error) {
	var above []checkpoint.Found
	var itself *checkpoint.Found
	for i := range survey.Checkpoints {
		f := &survey.Checkpoints[i]
		switch {
		case f.Meta != nil && f.Meta.ID() == id:
			itself = f
		case f.Number > id.Number && !f.Orphan && (f.Complete || f.Committed):
			above = append(above, *f)
		}
	}
	st, err := c.standingOf(ctx, survey.Owners, &id, above)
	if err != nil || len(st.behind) > 0 || len(r.lost) == 0 || itself == nil {
		return st.reason(), err
	}
	by, err := c.unproven(ctx, survey.Owners, itself)
	if by != "" {
		return fmt.Sprintf("its own commit by %s is not proven", by), err
	}
	return "", err
}

// unknown are the committers of a checkpoint's output that the pipeline does not have.
func (c *committers) unknown(m *checkpoint.Metadata) []string {
	var out []string
	for i := range m.Committables {
		if cm := &m.Committables[i]; !cm.Empty && c.byID[cm.Committer] == nil {
			out = append(out, cm.Committer)
		}
	}
	return out
}

// refusal is why a start does not go on with the decision; nil where it does.
func (d *decision) refusal(o *Options) error {
	m := d.restore.Meta
	if err := o.misfits(m, d.matches, d.restore.ChosenBy == checkpoint.ByUser || d.anew); err != nil {
		return err
	}
	if len(d.unknown) > 0 {
		return unknownCommitter(m.Number, d.unknown[0])
	}
	if d.behind == "" || d.asked {
		return nil
	}
	return connectors.Permanent(fmt.Errorf("the checkpoint storage has %s to go on from, but %s: later checkpoints are missing there, and going on would publish results twice; "+
		"bring them back, or take the duplicates with --accept-duplicates, or start anew with --from none", d.what(), d.behind))
}

func unknownCommitter(n uint64, id string) error {
	return connectors.Permanent(fmt.Errorf("checkpoint %d holds output that only %s can publish, which the pipeline has no more: "+
		"run the definition that took it once to its next checkpoint", n, id))
}

func (d *decision) what() string {
	if d.restore.Meta == nil {
		return "nothing to restore"
	}
	return fmt.Sprintf("checkpoint %d of generation %d", d.restore.Meta.Number, d.restore.Meta.Generation)
}

// tell logs what of the decision a user may not expect.
func (d *decision) tell(log *slog.Logger) {
	var dropped []string
	for i := range d.matches {
		switch x := &d.matches[i]; x.Action {
		case Empty:
			log.Info("the checkpoint has no state of an operator: it begins without", "operator", x.Name, "uid", x.UID, "kind", x.Kind)
		case Dropped:
			dropped = append(dropped, fmt.Sprintf("%s (%s)", x.UID, x.Kind))
		default:
		}
	}
	if len(dropped) > 0 {
		log.Warn("state is dropped, as asked", "operators", strings.Join(dropped, ", "))
	}
	if d.behind != "" && len(d.again) == 0 {
		log.Warn("going on from less than what was published, as asked: results since then are published again", "from", d.what(), "reason", d.behind)
	}
	for i := range d.again {
		d.again[i].log(log)
	}
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
	m, err := likely(ctx, survey, req)
	if err != nil {
		return nil, err
	}
	return m, r.opts.misfits(m, r.opts.Plan.match(m), req.From != "" || survey.Ended != nil)
}

// likely is what a start will probably restore.
func likely(ctx context.Context, survey *checkpoint.Survey, req checkpoint.Request) (*checkpoint.Metadata, error) {
	switch req.From {
	case checkpoint.FromNone:
		return nil, nil
	case "":
		for _, f := range survey.Checkpoints {
			if f.Meta != nil && !f.Orphan {
				return f.Meta, nil
			}
		}
		return nil, nil
	}
	o, err := checkpoint.Inspect(ctx, req.From)
	if err != nil {
		return nil, err
	}
	return o.Meta, nil
}
