package files

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// Diagnose looks at the place that files are written to. It implements connectors.Diagnoser.
func (s *Sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	storage.Examine(ctx, s.fs, storage.ExamineOptions{Write: d.Write, Staging: true}, func(r storage.Remark) {
		d.Remark("path", r.Check, r.Detail, r.Advice, r.Err)
	})
}
