package transform

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
)

// Diagnose has the lookup look further, where it can. It implements connectors.Diagnoser.
func (s *lookup) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	if more, ok := s.live.(connectors.Diagnoser); ok {
		more.Diagnose(ctx, d)
	}
}

// OpenAdvice is that of the lookup. It implements connectors.OpenAdviser.
func (s *lookup) OpenAdvice(err error) (key, help string) {
	if a, ok := s.live.(connectors.OpenAdviser); ok {
		return a.OpenAdvice(err)
	}
	return "", ""
}
