package cli

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
)

// serveMetrics shows what pipelines are at on an address, where there is one, until
// end is called.
func (a *app) serveMetrics(ctx context.Context, address string, plans []*pipeline.Plan, controls []*pipeline.Control) (end func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	watched := make([]web.Watched, len(plans))
	for i, p := range plans {
		watched[i] = web.Watched{Name: p.Spec.Name, Control: controls[i]}
	}
	metrics := web.NewMetrics(
		func() web.Program { return web.Program{Version: a.version} }, func() []web.Watched { return watched })
	ctx, cancel := context.WithCancel(ctx)
	bound, wait, err := metrics.Serve(ctx, address)
	if err != nil {
		cancel()
		return nil, usageError(err)
	}
	a.log.Info("showing metrics", "address", "http://"+bound+"/metrics")
	return func() {
		cancel()
		if err := wait(); err != nil {
			a.log.Warn("showing metrics ended", "err", err)
		}
	}, nil
}

// serveControl lets other programs of the user steer the pipelines, until end is
// called. Without it they run all the same, unless a folder was set for it.
func (a *app) serveControl(ctx context.Context, plans []*pipeline.Plan, controls []*pipeline.Control) (end func(), err error) {
	ln, err := web.Listen(ctx, web.RuntimeDirs(a.settings.RuntimeDir))
	if err != nil {
		if a.settings.RuntimeDir != "" {
			return nil, usageError(err)
		}
		a.log.Warn("the pipelines cannot be reached by etl savepoint, stop and cancel; set runtime_dir", "err", err)
		return func() {}, nil
	}
	service := web.NewControls(a.version)
	for i, p := range plans {
		service.Add(p, controls[i])
	}
	a.log.Debug("answering", "socket", ln.Addr().String())
	server, err := web.Serve(ctx, web.Options{
		Settings: web.Settings{MaxConnections: a.settings.HTTP.MaxConnections}, Service: service, API: web.NewHandler(service, web.HandlerOptions{Version: a.version}), Socket: ln, Log: a.log,
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return func() {
		if err := server.Close(ctx); err != nil {
			a.log.Warn("answering ended", "err", err)
		}
	}, nil
}
