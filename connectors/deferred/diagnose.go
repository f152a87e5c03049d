package deferred

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
)

// Diagnose has the target look further, where it can. It implements connectors.Diagnoser.
func (s *Sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	if more, ok := s.target.(connectors.Diagnoser); ok {
		more.Diagnose(ctx, d)
	}
}

// OpenAdvice is that of the target. It implements connectors.OpenAdviser.
func (s *Sink) OpenAdvice(err error) (key, help string) {
	if a, ok := s.target.(connectors.OpenAdviser); ok {
		return a.OpenAdvice(err)
	}
	return "", ""
}
