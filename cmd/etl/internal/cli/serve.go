package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/daemon"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) serveCommand() *cobra.Command {
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
  etl --config /etc/etl/etl.yaml serve`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.settings.Pipelines = args[0]
			}
			return a.serve(c.Context())
		},
	}
	fl := c.Flags()
	fl.String("state-dir", "", "folder for what has to outlive the service (default: that of the settings)")
	fl.String("memory", "", "what the pipelines may hold in buffers, such as 512MiB")
	return c
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
	reload, end := reloadSignals()
	defer end()
	if err := d.Run(ctx, stop, reload); err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	return nil
}

// reloadSignals asks for a reload at each SIGHUP.
func reloadSignals() (reload <-chan struct{}, end func()) {
	signals := make(chan os.Signal, 1)
	asks := make(chan struct{})
	done := make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
			case <-done:
				return
			}
			select {
			case asks <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return asks, func() {
		signal.Stop(signals)
		close(done)
	}
}
