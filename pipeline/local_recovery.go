package pipeline

import (
	"log/slog"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
)

// copiesOf makes the local copies of a pipeline's state files; nil where it has none:
// without storage nothing outlives the process, and within it nothing is read again.
func (c *Control) copiesOf(p *spec.Pipeline, fs storage.FS, log *slog.Logger) *checkpoint.Local {
	cp := &p.Checkpoint
	if cp.LocalRecovery == "" || cp.Storage == "" {
		return nil
	}
	local := checkpoint.NewLocal(cp.LocalRecovery, p.Name, fs.URL(), log)
	c.local.Store(local)
	return local
}

// LocalRecovery counts what became of the local copies of state files; false where
// there are none to be.
func (c *Control) LocalRecovery() (checkpoint.LocalStats, bool) {
	local := c.local.Load()
	return local.Stats(), local != nil
}
