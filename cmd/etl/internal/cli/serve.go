package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/daemon"
	"github.com/sluice-etl/sluice/cmd/etl/internal/dashboard"
	"github.com/sluice-etl/sluice/cmd/etl/internal/systemd"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) serveCommand() *cobra.Command {
	check := false
	c := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Runs a folder of pipelines as a service",
		Long: `Runs the pipelines of a folder as a service: DIR, or the one that pipelines in the settings names. Its files are those
that end in .yaml or .yml, but for those that begin with a dot or end in _test. Each pipeline is supervised by itself: the failure of one touches no
other. A file that changes is taken over: it is planned, the running pipeline takes a last checkpoint, and the new one goes on from it; where it does
not come to run, the one before is started again. SIGHUP has the folder read at once. SIGTERM or SIGINT takes a last checkpoint of all and ends; a
second one ends at once.

What somebody has paused, stopped or cancelled stays so when the service is started again.

Exit codes: 0 ended as asked, 1 failed, 2 wrong use or settings.`,
		Example: `  etl serve pipelines
  etl --config /etc/etl/etl.yaml serve
  etl --config /etc/etl/etl.yaml serve --check`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.settings.Pipelines = args[0]
			}
			if check {
				return a.showSettings(c, args)
			}
			return a.serve(c.Context())
		},
	}
	fl := c.Flags()
	fl.BoolVar(&check, "check", false, "show the settings in effect and where each is from, and run nothing")
	fl.String("state-dir", "", "folder for what has to outlive the service (default: that of the settings)")
	fl.String("memory", "", "what the pipelines may hold in buffers, such as 512MiB")
	return c
}

// showSettings shows the settings in effect.
func (a *app) showSettings(c *cobra.Command, args []string) error {
	flags := settingFlags(c)
	if len(args) == 1 {
		flags["pipelines"] = args[0]
	}
	list, err := daemon.Effective(a.configFile, settingsOnly(os.Environ()), flags)
	if err != nil {
		return usageError(err)
	}
	return a.printAs(list, func(w *tabwriter.Writer) {
		_, _ = fmt.Fprintln(w, "KEY\tVALUE\tFROM")
		for _, s := range list {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.Origin)
		}
	})
}

func (a *app) serve(ctx context.Context) error {
	stop, release := stopSignals(a.log)
	defer release()
	d, err := daemon.New(daemon.Options{
		Settings: a.settings, Version: a.version, Log: a.log, Failpoint: failpoint(),
		PlanText: func(p *pipeline.Description) string {
			var b strings.Builder
			_ = writePlan(&b, p) // into a strings.Builder
			return b.String()
		},
	})
	if err != nil {
		return usageError(err)
	}
	a.log = d.Log()
	debug.SetMemoryLimit(a.settings.Memory + runtimeReserve)
	server, err := a.serveHTTP(ctx, d)
	if err != nil {
		return usageError(err)
	}
	manager, err := systemd.New(os.Getenv)
	if err != nil {
		return usageError(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() { a.reloadOnSignal(ctx, d, server, manager) })
	beside.Go(func() { a.tellManager(ctx, d, manager, stop) })
	err = d.Run(ctx, stop)
	cancel()
	beside.Wait()
	if err := server.Close(context.WithoutCancel(ctx)); err != nil {
		a.log.Warn("ending the API", "err", err)
	}
	if err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	return nil
}

// endWithin is how long the end may take beyond the last checkpoints. A process that hangs
// for longer asks for no more time, so that the service manager can end it.
const endWithin = 30 * time.Second

// tellManager tells the service manager what the daemon is at, until ctx ends.
func (a *app) tellManager(ctx context.Context, d *daemon.Daemon, m *systemd.Notifier, stop <-chan struct{}) {
	note := func(err error) {
		if err != nil && ctx.Err() == nil {
			a.log.Warn("telling the service manager", "err", err)
		}
	}
	status := func() string { return systemd.Summary(d.Pipelines(ctx), time.Now()) }
	select {
	case <-d.Started():
	case <-ctx.Done():
		return
	}
	note(m.Ready(status()))
	running, end := context.WithCancel(ctx)
	defer end()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { note(m.Watch(ctx, d.Alive)) })
	beside.Go(func() {
		if err := m.Show(running, status); running.Err() == nil {
			note(err)
		}
	})
	select {
	case <-stop:
		end()
		note(m.Stopping("last checkpoints are being taken"))
		ends, cancel := context.WithTimeout(ctx, a.settings.ShutdownTimeout+endWithin)
		defer cancel()
		note(m.ExtendWhile(ends))
	case <-ctx.Done():
	}
}

// serveHTTP answers for the daemon, over its addresses and the socket of the process.
func (a *app) serveHTTP(ctx context.Context, d *daemon.Daemon) (*web.Server, error) {
	socket, err := web.Listen(ctx, web.RuntimeDirs(a.settings.RuntimeDir))
	if err != nil {
		if a.settings.RuntimeDir != "" {
			return nil, err
		}
		a.log.Warn("the daemon cannot be reached over a socket; set runtime_dir", "err", err)
	}
	metrics, err := a.daemonMetrics(d)
	if err != nil {
		return nil, err
	}
	server, err := web.Serve(ctx, web.Options{
		Settings: a.settings.HTTP, Service: d, API: web.NewHandler(d, web.HandlerOptions{Version: a.version}), Metrics: metrics, Dashboard: dashboard.Handler(), Socket: socket, Roots: d.Roots, Event: d.Tell, Log: a.log,
	})
	if err != nil {
		if socket != nil {
			err = errors.Join(err, socket.Close())
		}
		return nil, err
	}
	for _, address := range server.Addresses() {
		d.Listens(address)
		a.log.Info("the API and the dashboard are served", "address", address)
	}
	return server, nil
}

// daemonMetrics shows what all pipelines of the daemon are at.
func (a *app) daemonMetrics(d *daemon.Daemon) (http.Handler, error) {
	program := func() web.Program {
		n := d.Reloads()
		return web.Program{
			Version: a.version, Reloaded: d.LastReloadOK(), MemoryBudget: a.settings.Memory, MemoryUsed: d.MemoryUsed(),
			Reloads: map[string]uint64{"switched": n.Switched, "refused": n.Refused, "rolled_back": n.RolledBack, "invalid": n.Invalid},
		}
	}
	return web.NewMetrics(program, func() []web.Watched {
		var out []web.Watched
		for _, w := range d.Watched() {
			out = append(out, web.Watched{Name: w.Name, Control: w.Control, Ready: &w.Ready})
		}
		return out
	}).Handler()
}

// reloadOnSignal reads everything again at each SIGHUP until ctx ends.
func (a *app) reloadOnSignal(ctx context.Context, d *daemon.Daemon, server *web.Server, m *systemd.Notifier) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		if err := m.Reloading(); err != nil {
			a.log.Warn("telling the service manager", "err", err)
		}
		if err := server.Reload(); err != nil {
			a.log.Error("tokens and certificates could not be read again: those from before count on", "err", err)
		}
		if _, err := d.Reload(ctx, "SIGHUP"); err != nil && ctx.Err() == nil {
			a.log.Error("reload", "err", err)
		}
		if err := m.Ready(systemd.Summary(d.Pipelines(ctx), time.Now())); err != nil {
			a.log.Warn("telling the service manager", "err", err)
		}
	}
}
