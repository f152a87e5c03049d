package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// checkPositions refuses positions that a source cannot go on from, before anything is
// written, where the source can tell. All of them are named at once.
func (a *attempt) checkPositions(ctx context.Context, m *checkpoint.Metadata) error {
	var faults []error
	for _, s := range a.sources {
		known, found, err := s.positions(ctx, m)
		if err != nil {
			return err
		}
		for i, f := range found {
			if f.Err != nil {
				faults = append(faults, sourceFault(s, f.Err))
			}
			if f.Gone {
				a.log.Warn("a split of the checkpoint is not there now: its position is kept, and nothing is read from it",
					"source", s.node.spec.Name, "split", known[i].ID, "offset", known[i].Offset)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return connectors.Permanent(errors.Join(faults...))
}

// positions asks a source about the splits that it goes on with.
func (s *sourceRun) positions(ctx context.Context, m *checkpoint.Metadata) ([]connectors.Split, []connectors.Availability, error) {
	checker, ok := s.source.(connectors.PositionChecker)
	op := findOperator(m, s.node.spec.UID)
	if !ok || op == nil {
		return nil, nil, nil
	}
	restored := map[string]bool{}
	for _, sp := range op.Splits {
		restored[sp.ID] = true
	}
	var known []connectors.Split
	for _, sp := range s.splits {
		if restored[sp.ID] {
			known = append(known, sp)
		}
	}
	if len(known) == 0 {
		return nil, nil, nil
	}
	found, err := checker.CheckPositions(ctx, known)
	if err == nil && len(found) != len(known) {
		err = fmt.Errorf("it told of %d splits, not %d", len(found), len(known))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("source %s: look up positions: %w", s.node.spec.Name, err)
	}
	return known, found, nil
}
