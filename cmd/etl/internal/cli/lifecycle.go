package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) pauseCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "pause PIPELINE",
		Short: "Pauses a pipeline of a daemon after a last checkpoint",
		Long: `Pauses a pipeline of a daemon: a last checkpoint is taken and published, and nothing runs until etl resume goes on from it with the
same job, also across restarts of the daemon. Prints the path of the checkpoint.`,
		Example: `  etl pause orders`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				t, err := p.client.Pause(ctx, p.name)
				return a.printPaused(p, t, err)
			})
		},
	}
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.lifeCommand(&cobra.Command{
		Use:     "resume PIPELINE",
		Short:   "Goes on with a paused pipeline of a daemon",
		Example: `  etl resume orders`,
	}, "resumed", func(ctx context.Context, p *target) error { return p.client.Resume(ctx, p.name) })
}

func (a *app) restartCommand() *cobra.Command {
	return a.lifeCommand(&cobra.Command{
		Use:   "restart PIPELINE",
		Short: "Pauses a pipeline of a daemon and goes on with it",
		Long: `Takes a last checkpoint of a pipeline of a daemon, ends its tasks and starts them again from it, with the same job: what its
connections and caches hold is made anew. One that waits to start again after a failure starts now, and one that failed tries again.`,
		Example: `  etl restart orders`,
	}, "restarted", func(ctx context.Context, p *target) error { return p.client.Restart(ctx, p.name) })
}

// lifeCommand makes a command that does something to a pipeline and prints only that it
// is done.
func (a *app) lifeCommand(c *cobra.Command, done string, do func(context.Context, *target) error) *cobra.Command {
	var timeout time.Duration
	c.Args = cobra.ExactArgs(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
			if err := do(ctx, p); err != nil {
				return answerError(err)
			}
			return a.printDone(p.name, done, nil)
		})
	}
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

func (a *app) startCommand() *cobra.Command {
	var o api.StartOptions
	var offsets []string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "start PIPELINE",
		Short: "Starts a pipeline of a daemon that was stopped, cancelled, or has failed or finished",
		Long: `Starts a pipeline of a daemon that was stopped, cancelled, or has failed or finished. It goes on from what it has ended with, as
etl run does, or from what --from names. With --set-offsets positions of partitions are moved on purpose while the state is kept; what they were
and what they are is printed, and written to the audit log.`,
		Example: `  etl start orders
  etl start orders --from file:///var/lib/etl/savepoints/savepoint-4f1c-860
  etl start orders --set-offsets orders/3=1200`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("from") && o.From == "" {
				return usageError(errors.New("-s is empty: name a checkpoint or none, or leave it out"))
			}
			var err error
			if o.SetOffsets, err = parseOffsets(offsets); err != nil {
				return usageError(err)
			}
			return a.reach(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				moved, err := p.client.Start(ctx, p.name, o)
				if err != nil {
					return answerError(err)
				}
				return a.printDone(p.name, "started", moved)
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&o.From, "from", "s", "", "checkpoint to restore: a path, or none for a fresh start")
	f.BoolVar(&o.AcceptDuplicates, "accept-duplicates", false, "go on from a checkpoint older than what a sink has published")
	f.BoolVar(&o.Claim, "claim", false, "make what -s names the new job's own, which removes it when it is not needed any more")
	f.BoolVar(&o.AllowNonRestoredState, "allow-non-restored-state", false, "drop state that the file has nothing for")
	f.BoolVar(&o.AllowDrained, "allow-drained", false, "go on from a checkpoint taken at the end of the input")
	f.StringArrayVar(&offsets, "set-offsets", nil, "move a position on purpose, as in topic/partition=offset; may be given several times")
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

// cutLast is what stands before and after the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// printPaused prints the checkpoint that a pipeline was paused with.
func (a *app) printPaused(p *target, t *pipeline.Taken, err error) error {
	switch {
	case err != nil:
		return answerError(err)
	case a.json:
		return a.encode(t)
	}
	_, _ = fmt.Fprintf(a.err, "pipeline %s: paused; to go on with it: etl resume %s\n", p.name, p.name)
	if t.Warning != "" {
		_, _ = fmt.Fprintln(a.err, "warning:", t.Warning)
	}
	_, err = fmt.Fprintln(a.out, t.Path)
	return err
}

// printDone says that a pipeline was acted on, and which positions were moved.
func (a *app) printDone(name, done string, moved []api.Moved) error {
	if a.json {
		return a.encode(struct {
			Pipeline string      `json:"pipeline"`
			Done     string      `json:"done"`
			Moved    []api.Moved `json:"moved,omitempty"`
		}{name, done, moved})
	}
	if _, err := fmt.Fprintf(a.out, "pipeline %s: %s\n", name, done); err != nil {
		return err
	}
	for _, m := range moved {
		if _, err := fmt.Fprintf(a.out, "  %s: read on at offset %d; it was %d\n", m.Split, m.After, m.Before); err != nil {
			return err
		}
	}
	return nil
}
