package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// RestorePlan is what a start would go on from, and what follows of it.
type RestorePlan struct {
	Pipeline string `json:"pipeline"`
	// Refused is why the start would be refused, in its words; empty where it would go on.
	Refused string `json:"refused,omitempty"`
	// Finished says that the input was read to its end: a start says so and does nothing.
	Finished bool `json:"finished,omitempty"`
	// Checkpoint is what would be restored; nil for nothing.
	Checkpoint *PlannedCheckpoint `json:"checkpoint"`
	// Job is the one that would go on; empty for a new one.
	Job string `json:"job,omitempty"`
	// Next is the number of the next checkpoint.
	Next uint64 `json:"next"`
	// Owner is who has the pipeline now, or had it last; a start takes it over.
	Owner       *checkpoint.Owner `json:"owner,omitempty"`
	Skipped     []SkippedPlan     `json:"skipped,omitempty"`
	Operators   []Match           `json:"operators,omitempty"`
	Splits      []PlannedSplit    `json:"splits,omitempty"`
	Pending     []PendingCommit   `json:"pending,omitempty"`
	Republished []Republished     `json:"republished,omitempty"`
	// Behind is what sinks have published beyond the checkpoint.
	Behind string `json:"behind,omitempty"`
}

// PlannedCheckpoint is what would be restored.
type PlannedCheckpoint struct {
	Path      string          `json:"path"`
	Number    uint64          `json:"number"`
	Job       string          `json:"job"`
	Kind      checkpoint.Kind `json:"kind"`
	Completed time.Time       `json:"completed"`
	Committed bool            `json:"committed"`
	Drained   bool            `json:"drained,omitempty"`
	// Foreign says that it is of another pipeline or another storage.
	Foreign bool `json:"foreign,omitempty"`
	// Claimed says that it becomes the new job's own, which removes it later.
	Claimed bool `json:"claimed,omitempty"`
}

// SkippedPlan is a newer checkpoint that would not be restored.
type SkippedPlan struct {
	Number uint64 `json:"number"`
	Reason string `json:"reason"`
}

// PlannedSplit is a split that would be read.
type PlannedSplit struct {
	Source string `json:"source"`
	Split  string `json:"split"`
	// Offset is where the checkpoint left it, or where a new one begins.
	Offset int64 `json:"offset"`
	New    bool  `json:"new,omitempty"`
	// First, End and Next are what the source has and where reading would go on; nil
	// where the source does not tell.
	First *int64 `json:"first,omitempty"`
	End   *int64 `json:"end,omitempty"`
	Next  *int64 `json:"next,omitempty"`
	// Records is how many positions there are from Next on.
	Records *int64 `json:"records,omitempty"`
	Gone    bool   `json:"gone,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// PendingCommit is output that the start would publish first.
type PendingCommit struct {
	Sink       string     `json:"sink"`
	Checkpoint uint64     `json:"checkpoint"`
	Records    int64      `json:"records,omitempty"` // 0 where nobody knows
	Expires    *time.Time `json:"expires,omitempty"` // when its sink drops it
}

// PlanRestore tells what a start with these options would restore, by the same
// decisions. It takes no ownership and writes nothing. Its error says that it cannot be
// told, such as for a system that is down.
func PlanRestore(ctx context.Context, opts Options) (*RestorePlan, error) {
	out := &RestorePlan{Pipeline: opts.Plan.Spec.Name}
	r, err := newRunner(opts)
	if err != nil {
		return out, out.refuse(err)
	}
	a := r.newAttempt()
	defer a.close()
	if err := a.construct(); err != nil {
		return out, out.refuse(connectors.Permanent(err))
	}
	survey, err := r.store.Survey(ctx)
	if err != nil {
		return out, err
	}
	if o, ok := survey.Owners[survey.Highest]; ok {
		out.Owner = &o
	}
	req := r.request()
	if err := r.store.Check(ctx, survey, req); err != nil {
		out.Finished = errors.Is(err, checkpoint.ErrFinished)
		return out, out.refuse(err)
	}
	m, err := likely(ctx, survey, req)
	if err != nil {
		return out, out.refuse(err)
	}
	out.Operators = opts.Plan.match(m)
	if err := a.openSinks(ctx, true); err != nil {
		return out, out.refuse(err)
	}
	d, err := r.decide(ctx, a, survey, req)
	if err == nil && d.behind != "" {
		// A pipeline that runs has published more since the survey. What is missing in the
		// storage is not there in a later one either.
		var later *checkpoint.Survey
		if later, err = r.store.Survey(ctx); err == nil && newest(later) > newest(survey) {
			d.behind = ""
		}
	}
	if err != nil {
		return out, out.refuse(err)
	}
	out.decided(d, req.Claim && d.restore.ChosenBy == checkpoint.ByUser)
	return out, errors.Join(out.refuse(d.refusal(&r.opts)), out.positions(ctx, a, d.restore.Meta))
}

// newest is the number of the newest checkpoint, 0 where there is none.
func newest(s *checkpoint.Survey) (n uint64) {
	for i := range s.Checkpoints {
		n = max(n, s.Checkpoints[i].Number)
	}
	return n
}

// refuse notes why the start would be refused. Other errors it returns.
func (p *RestorePlan) refuse(err error) error {
	if err == nil || !connectors.IsPermanent(err) {
		return err
	}
	if text := err.Error(); !strings.Contains(p.Refused, text) {
		p.Refused = strings.TrimPrefix(p.Refused+"\n"+text, "\n")
	}
	return nil
}

// decided takes over what a decision says.
func (p *RestorePlan) decided(d *decision, claim bool) {
	restore := d.restore
	p.Operators, p.Republished, p.Behind, p.Next = d.matches, d.again, d.behind, restore.NextNumber
	if !restore.NewJob {
		p.Job = restore.Job
	}
	for _, s := range restore.Skipped {
		p.Skipped = append(p.Skipped, SkippedPlan{s.Number, s.Err.Error()})
	}
	m := restore.Meta
	if m == nil {
		return
	}
	p.Checkpoint = &PlannedCheckpoint{
		Path: restore.Path, Number: m.Number, Job: m.Job, Kind: m.Kind, Completed: m.Completed,
		Committed: restore.Committed, Drained: m.Drained, Foreign: restore.Foreign, Claimed: claim,
	}
	if restore.Committed {
		return
	}
	for i := range m.Committables {
		c := &m.Committables[i]
		if c.Empty {
			continue
		}
		x := PendingCommit{Sink: c.Committer, Checkpoint: c.Checkpoint.Number, Records: c.Records}
		if !c.Expires.IsZero() {
			x.Expires = &c.Expires
		}
		p.Pending = append(p.Pending, x)
	}
}

// positions looks up what would be read.
func (p *RestorePlan) positions(ctx context.Context, a *attempt, m *checkpoint.Metadata) error {
	if err := p.refuse(a.listSplits(ctx, m)); err != nil {
		return err
	}
	for _, s := range a.sources {
		var restored []connectors.Split
		if op := findOperator(m, s.node.spec.UID); op != nil {
			restored = op.Splits
		}
		splits := s.splits
		if splits == nil { // the source refuses to list them
			splits = restored
		}
		var found []connectors.Availability
		if checker, ok := s.source.(connectors.PositionChecker); ok && len(splits) > 0 {
			var err error
			if found, err = checker.CheckPositions(ctx, splits); err != nil {
				return err
			}
		}
		for i, sp := range splits {
			x := PlannedSplit{Source: s.node.spec.Name, Split: sp.ID, Offset: sp.Offset}
			x.New = m != nil && !slices.ContainsFunc(restored, func(r connectors.Split) bool { return r.ID == sp.ID })
			if i < len(found) {
				x.found(&found[i], sp.Until)
				if err := found[i].Err; err != nil {
					_ = p.refuse(sourceFault(s, err)) // it is permanent
				}
			}
			p.Splits = append(p.Splits, x)
		}
	}
	return nil
}

// found takes over what the source says of the split.
func (x *PlannedSplit) found(f *connectors.Availability, until int64) {
	switch {
	case f.Err != nil:
		x.Refused = f.Err.Error()
		if f.First == 0 && f.End == 0 {
			return
		}
	case f.Gone:
		x.Gone = true
		return
	default:
		end := f.End
		if until >= 0 {
			end = min(end, until)
		}
		records := max(0, end-f.Next)
		x.Next, x.Records = &f.Next, &records
	}
	x.First, x.End = &f.First, &f.End
}
