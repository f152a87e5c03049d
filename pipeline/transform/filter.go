package transform

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// FilterConfig is the block of a filter.
type FilterConfig struct {
	Keep connectors.Expr `key:"." doc:"Condition; records for which it is true stay." required:"true"`
}

func init() {
	Register(Spec{
		Updates:   PassesUpdates,
		Name:      "filter",
		Doc:       "Keeps the records for which a condition is true.",
		NewConfig: func() any { return &FilterConfig{} },
		Build:     buildFilter,
	})
}

type filter struct {
	name       string
	text       string
	cond       *expr.Program
	tombstones bool // the condition asks for them, so they are judged by it
}

func buildFilter(config any, env *Env) Step {
	c := config.(*FilterConfig)
	p := env.Compile(c.Keep, expr.Bool)
	if p == nil {
		return nil
	}
	env.Output(env.In)
	return &filter{name: env.Name, text: c.Keep.Text, cond: p, tombstones: p.ReadsTombstone()}
}

func (f *filter) Start(env RunEnv) Instance {
	return &filterRun{filter: f, env: env, failed: newFailures(f.name, f.text)}
}

type filterRun struct {
	*filter
	env    RunEnv
	failed *failures
}

func (f *filterRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	came := len(sel)
	if !f.tombstones {
		sel = dropTombstones(b, sel)
	}
	sel = f.cond.Filter(f.env.Exprs, b, sel, f.failed.add)
	if n := came - len(sel) - len(f.failed.rows); n > 0 {
		f.env.Dropped(n)
	}
	if err := f.failed.report(ctx, &f.env, b); err != nil || len(sel) == 0 {
		return err
	}
	return f.env.Emit(ctx, 0, b, sel)
}

// dropTombstones leaves out the rows without a value.
func dropTombstones(b *connectors.Batch, sel []uint16) []uint16 {
	n := 0
	for _, row := range sel {
		if !b.Records[row].Tombstone() {
			sel[n] = row
			n++
		}
	}
	return sel[:n]
}
