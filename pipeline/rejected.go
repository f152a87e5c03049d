package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// tickSink tells a writer the time, and hands what its target has refused at a commit
// to on_error.
func (t *task) tickSink(ctx context.Context, s *sinkWriter, now time.Time) error {
	err := s.writer.Tick(ctx, now)
	var refused *connectors.RejectedError
	if !errors.As(err, &refused) {
		if err != nil {
			return fmt.Errorf("sink %s: %w", s.name, err)
		}
		return nil
	}
	for i := range refused.Rows {
		if err := t.rejected(ctx, s, &refused.Rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// rejected hands one row to on_error of its sink.
func (t *task) rejected(ctx context.Context, s *sinkWriter, r *connectors.Rejected) error {
	e := &connectors.RecordError{Origin: r.Record.Origin, Offset: r.Record.Offset, Step: s.name, Kind: r.Kind, Reason: r.Reason}
	rule := s.node.spec.OnError
	if s.node.view == nil || rule.Action == spec.DeadLetter && rule.Sink == s.name {
		// What it refuses once it refuses again.
		t.attempt.remember(e, spec.Fail)
		return connectors.Permanent(fmt.Errorf("sink %s refuses a dead letter: %w", s.name, e))
	}
	t.attempt.late.Add(1)
	if err := t.bear(rule, t.attempt.limits.of(s.name, rule), e); err != nil || rule.Action != spec.DeadLetter {
		return err
	}
	return t.deadLetter(ctx, rule.Sink, r.Record, e)
}

// settleLate takes checkpoints at the end of the input until none of them leaves rows
// behind that a target refused at its commit: nothing comes after the final one to hand
// those over.
func (a *attempt) settleLate(ctx context.Context) error {
	if !a.refusesLate() {
		return nil
	}
	a.ending.Store(true)
	for {
		before := a.late.Load()
		_, err := a.coord.Trigger(ctx, checkpoint.Order{Kind: checkpoint.Periodic})
		switch {
		case err == nil:
			err = a.awaitTicks(ctx)
		case errors.Is(err, checkpoint.ErrStopped) || ctx.Err() != nil:
		default:
			if err = sleep(ctx, tickEvery); err == nil {
				continue // failures are counted, and borne so far
			}
		}
		if err != nil || a.late.Load() == before {
			return err
		}
	}
}

func (a *attempt) refusesLate() bool {
	for _, s := range a.sinks {
		if late, ok := s.sink.(connectors.LateRefuser); ok && late.RefusesAtCommit() {
			return true
		}
	}
	return false
}

// awaitTicks waits until each task has told all of its writers the time once more.
func (a *attempt) awaitTicks(ctx context.Context) error {
	for _, t := range a.tasks {
		for begun := t.ticks.Load(); t.ticks.Load() < begun+2; { // one may have been on its way
			if err := sleep(ctx, tickEvery/2); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRefusers adds the sinks of dead letters of those sinks that are used: any writer of
// a sink can be the one that hands over what a commit has refused.
func (p *Plan) addRefusers(used map[string]bool) {
	for range p.sinks { // a sink of dead letters can have one of its own
		for _, s := range p.sinks {
			if used[s.spec.Name] && len(s.spec.From) > 0 {
				used[s.spec.OnError.Sink] = true
			}
		}
	}
}
