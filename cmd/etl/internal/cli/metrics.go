package cli

import (
	"context"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
)

// serveMetrics shows what pipelines are at on an address, where there is one, until
// end is called. monitors belong to the plans.
func (a *app) serveMetrics(ctx context.Context, address string, plans []*pipeline.Plan) (monitors []*pipeline.Monitor, end func(), err error) {
	metrics := web.NewMetrics()
	for _, p := range plans {
		m := &pipeline.Monitor{}
		monitors = append(monitors, m)
		metrics.Watch(p.Spec.Name, m)
	}
	if address == "" {
		return monitors, func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	bound, wait, err := metrics.Serve(ctx, address)
	if err != nil {
		cancel()
		return nil, nil, usageError(err)
	}
	a.log.Info("showing metrics", "address", "http://"+bound+"/metrics")
	return monitors, func() {
		cancel()
		if err := wait(); err != nil {
			a.log.Warn("showing metrics ended", "err", err)
		}
	}, nil
}
