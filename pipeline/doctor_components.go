package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/storage"
)

// source lists what is there to read, and has the source look further.
func (d *doctor) source(s *sourceRun) func(context.Context, *connectors.Diagnosis) {
	return func(ctx context.Context, dg *connectors.Diagnosis) {
		defer func() { d.attempt.note("source", s.source.Close()) }()
		splits, err := s.source.Splits(ctx, nil)
		if err != nil {
			failOpen(dg, "read", s.source, err)
			return
		}
		dg.OK("read", splitsText(splits))
		if more, ok := s.source.(connectors.Diagnoser); ok {
			more.Diagnose(ctx, dg)
		}
	}
}

// failOpen reports why something cannot be opened, with what it knows of that.
func failOpen(dg *connectors.Diagnosis, check string, of any, err error) {
	var key, help string
	if a, ok := of.(connectors.OpenAdviser); ok {
		key, help = a.OpenAdvice(err)
	}
	dg.Fail(check, key, err, help)
}

func splitsText(splits []connectors.Split) string {
	switch len(splits) {
	case 0:
		return "there is nothing to read yet"
	case 1:
		return "1 split to read, " + splits[0].ID
	}
	return fmt.Sprintf("%d splits to read, such as %s", len(splits), splits[0].ID)
}

// lookups are the steps that ask something outside of the pipeline.
func (d *doctor) lookups() []*exam {
	a := d.attempt
	var out []*exam
	for _, c := range a.plan.chains {
		for _, n := range c.nodes {
			o, ok := n.step.(transform.Opener)
			if !ok {
				continue
			}
			e := &exam{component: Component{Role: "lookup", Name: n.name}, check: d.lookup(o)}
			for i := range a.plan.Spec.Transforms {
				t := &a.plan.Spec.Transforms[i]
				if t.Name != n.name {
					continue
				}
				e.path, e.component.Kind = t.ConfigPath(), t.Kind
				if h, ok := t.Config.(connectors.HoldsLookup); ok {
					e.component.Kind = h.LookupBlock().Kind
					e.path = append(e.path, e.component.Kind)
				}
			}
			out = append(out, e)
		}
	}
	return out
}

func (d *doctor) lookup(o transform.Opener) func(context.Context, *connectors.Diagnosis) {
	return func(ctx context.Context, dg *connectors.Diagnosis) {
		defer func() { d.attempt.note("step", o.Close()) }()
		if err := o.Open(ctx, d.attempt.log); err != nil {
			failOpen(dg, "open", o, err)
			return
		}
		dg.OK("open", "it is there, with the columns that the step asks by")
		if more, ok := o.(connectors.Diagnoser); ok {
			more.Diagnose(ctx, dg)
		}
	}
}

// sink opens a sink to look at it, has it look further, and reads its witness.
func (d *doctor) sink(run *sinkRun) func(context.Context, *connectors.Diagnosis) {
	return func(ctx context.Context, dg *connectors.Diagnosis) {
		defer func() { d.attempt.note("sink", run.sink.Close()) }()
		if err := run.sink.Open(ctx, d.attempt.sinkEnv(run.node, true)); err != nil {
			failOpen(dg, "open", run.sink, err)
			return
		}
		dg.OK("open", "it opens, and takes rows of this pipeline; result "+strings.ReplaceAll(string(d.attempt.plan.Guarantee(run.node.guarantee)), "_", " "))
		failed := false // then the mark of the last commit says nothing more
		if more, ok := run.sink.(connectors.Diagnoser); ok {
			report := dg.Report
			dg.Report = func(f connectors.Finding) {
				failed = failed || f.Level == connectors.LevelFailed
				report(f)
			}
			more.Diagnose(ctx, dg)
			dg.Report = report
		}
		if two, ok := run.sink.(connectors.TwoPhaseSink); ok && !failed {
			d.witness(ctx, dg, two.Committer())
		}
	}
}

// witness reads the mark of the last commit, as a start does. It waits for the look at
// the checkpoints' storage, which tells whose marks are this pipeline's.
func (d *doctor) witness(ctx context.Context, dg *connectors.Diagnosis, c connectors.Committer) {
	select {
	case <-d.surveyed:
	case <-ctx.Done():
		return
	}
	if !d.known {
		return
	}
	id, ok, err := c.Witness(ctx)
	var foreign *connectors.ForeignWitnessError
	switch {
	case errors.Is(err, connectors.ErrNoWitness):
	case errors.As(err, &foreign):
		dg.Warn("last commit", "", err.Error(), "give this pipeline a target of its own; or where its checkpoints have moved on purpose, a start asks for --accept-duplicates")
	case err != nil:
		dg.Fail("last commit", "", err, "")
	case ok:
		dg.OK("last commit", fmt.Sprintf("checkpoint %d, by generation %d", id.Number, id.Generation))
	default:
		dg.OK("last commit", "none yet")
	}
}

// storage looks at where checkpoints are kept, and what is there.
func (d *doctor) storage(ctx context.Context, dg *connectors.Diagnosis) {
	defer close(d.surveyed)
	p := d.attempt.plan.Spec
	if p.Checkpoint.Storage == "" {
		d.known = true
		dg.Warn("storage", "", "checkpoints are kept in memory only: they go with the process, and what sinks have published with it is not known to the next one",
			"set checkpoint.storage, such as file:///var/lib/etl or s3://bucket/etl")
		return
	}
	if !examine(ctx, dg, d.runner.fs) {
		return
	}
	survey, err := d.runner.store.Survey(ctx)
	if err != nil {
		dg.Fail("checkpoints", "", err, "")
		return
	}
	d.attempt.origin.Store(survey.Origin())
	d.known = true
	for name, err := range survey.Damaged {
		dg.Warn("checkpoints", "", fmt.Sprintf("%s cannot be read: %v", name, err), "look at it with etl checkpoint verify")
	}
	for _, c := range survey.Checkpoints {
		if c.Complete && c.Meta != nil {
			dg.OK("checkpoints", fmt.Sprintf("the newest is %d of %s, %s ago", c.Number, survey.Pipeline, short(time.Since(c.Meta.Completed))))
			return
		}
	}
	dg.OK("checkpoints", "none yet of "+survey.Pipeline)
}

// savepoints looks at where savepoints are kept.
func (d *doctor) savepoints(ctx context.Context, dg *connectors.Diagnosis) {
	fs, err := storage.Open(d.attempt.plan.Spec.Checkpoint.Savepoints.Dir)
	if err != nil {
		dg.Fail("list", "", err, "")
		return
	}
	examine(ctx, dg, fs)
}

// examine looks at a file system, and reports whether it can be read and there is time
// left to do so.
func examine(ctx context.Context, dg *connectors.Diagnosis, fs storage.FS) bool {
	fine := true
	storage.Examine(ctx, fs, storage.ExamineOptions{Write: dg.Write}, func(r storage.Remark) {
		fine = fine && (r.Check != "list" || r.Err == nil)
		dg.Remark("", r.Check, r.Detail, r.Advice, r.Err)
	})
	return fine && ctx.Err() == nil
}
