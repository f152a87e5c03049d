package pipeline

import (
	"context"

	"github.com/sluice-etl/sluice/pipeline/transform"
)

// openers lists the steps that are connected to something outside of the pipeline.
func (a *attempt) openers() []transform.Opener {
	var out []transform.Opener
	for _, c := range a.plan.chains {
		for _, n := range c.nodes {
			if o, ok := n.step.(transform.Opener); ok {
				out = append(out, o)
			}
		}
	}
	return out
}

// openSteps connects them. It can be repeated.
func (a *attempt) openSteps(ctx context.Context) error {
	for _, o := range a.openers() {
		if err := o.Open(ctx, a.log); err != nil {
			return advised(o, err)
		}
	}
	return nil
}

// closeSteps is called once no task works any more.
func (a *attempt) closeSteps() {
	for _, o := range a.openers() {
		a.note("step", o.Close())
	}
}
