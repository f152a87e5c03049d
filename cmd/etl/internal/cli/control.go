package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) savepointCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "savepoint PIPELINE|FILE [DIR]",
		Short: "Takes a savepoint of a running pipeline, which runs on",
		Long: `Takes a savepoint of a running pipeline: a checkpoint of its own, in a folder that needs nothing beside it and that
is removed only where a run claims it. It goes into a new folder below DIR, by default the one of checkpoint.savepoints in the pipeline's file.
Prints the path that etl run -s takes.`,
		Example: `  etl savepoint orders
  etl savepoint orders.yaml s3://backups/orders`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := folderOf(args[1:])
			if err != nil {
				return err
			}
			return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				t, err := p.client.Savepoint(ctx, p.name, web.SavepointRequest{Dir: dir})
				return a.printTaken(p, "savepoint taken", t, err)
			})
		},
	}
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

func (a *app) stopCommand() *cobra.Command {
	var timeout time.Duration
	var dir string
	var drain bool
	c := &cobra.Command{
		Use:   "stop PIPELINE|FILE",
		Short: "Ends the job of a running pipeline with a checkpoint or savepoint",
		Long: `Ends the job of a running pipeline: its sources wait, a last checkpoint is taken and published, and the next etl run goes
on from it as a new job. With --savepoint it is a savepoint. With --drain event time is driven to its end before, so that every window and
timer gives out what it has; going on from that needs --allow-drained. Where it does not work within checkpoint.timeout the pipeline runs on,
and the exit code is 1. To end a process so that the next run goes on with the same job, send it SIGTERM.`,
		Example: `  etl stop orders --savepoint
  etl stop orders.yaml --savepoint=file:///var/lib/etl/savepoints
  etl stop orders --drain`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 && c.Flags().Changed("savepoint") {
				return fmt.Errorf("the folder of the savepoint comes after an equals sign: --savepoint=%s", args[1])
			}
			return cobra.ExactArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			req := web.StopRequest{Savepoint: c.Flags().Changed("savepoint"), Drain: drain}
			if req.Savepoint && dir != defaultFolder {
				var err error
				if req.Dir, err = folderOf([]string{dir}); err != nil {
					return err
				}
			}
			done := "stopped; the next start goes on from it"
			if drain {
				done = "stopped and drained; the next start goes on from it only with --allow-drained"
			}
			return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				t, err := p.client.Stop(ctx, p.name, req)
				return a.printTaken(p, done, t, err)
			})
		},
	}
	c.Flags().StringVar(&dir, "savepoint", "", "end with a savepoint, in a new folder below DIR or below that of the pipeline's file")
	c.Flags().Lookup("savepoint").NoOptDefVal = defaultFolder
	c.Flags().BoolVar(&drain, "drain", false, "drive event time to its end before")
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

// defaultFolder is what --savepoint without a value stands for.
const defaultFolder = "(that of the file)"

func (a *app) cancelCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "cancel PIPELINE|FILE",
		Short: "Ends the job of a running pipeline at once, without a checkpoint",
		Long: `Ends the job of a running pipeline at once. What came since its last checkpoint is not published. The next etl run is
refused until it is told from where to go on: -s PATH, which is printed, or --from none. With checkpoint.on_cancel: delete its checkpoints go.`,
		Example: `  etl cancel orders`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				t, err := p.client.Cancel(ctx, p.name)
				return a.printTaken(p, "cancelled", t, err)
			})
		},
	}
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

func (a *app) triggerCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:     "trigger PIPELINE|FILE",
		Short:   "Takes a checkpoint of a running pipeline now",
		Example: `  etl checkpoint trigger orders`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.steer(c.Context(), args[0], timeout, func(ctx context.Context, p *target) error {
				t, err := p.client.Checkpoint(ctx, p.name)
				return a.printTaken(p, "checkpoint taken", t, err)
			})
		},
	}
	timeoutFlag(c, &timeout)
	return a.steers(c)
}

func timeoutFlag(c *cobra.Command, d *time.Duration) {
	c.Flags().DurationVar(d, "timeout", 0, "give up after this time, such as 5m (default: as long as the pipeline tries)")
}

// folderOf is the folder that is named, in a form that means the same to another
// process; empty for none.
func folderOf(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if args[0] == "" {
		return "", usageError(errors.New("the folder for the savepoint is empty: name one, or leave it out"))
	}
	if strings.Contains(args[0], "://") {
		return args[0], nil
	}
	return filepath.Abs(args[0])
}

// steers gives a command that acts on a pipeline what all of them have.
func (a *app) steers(c *cobra.Command) *cobra.Command {
	c.ValidArgsFunction = a.completePipeline
	return a.reaches(c)
}

// steer finds the process that runs a pipeline and does something there, telling
// meanwhile how far its checkpoint is.
func (a *app) steer(ctx context.Context, named string, timeout time.Duration, do func(context.Context, *target) error) error {
	return a.reach(ctx, named, timeout, func(ctx context.Context, p *target) error {
		if a.json {
			return do(ctx, p)
		}
		watching, end := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			a.watch(watching, p)
		}()
		defer func() {
			end()
			<-watched
		}()
		return do(ctx, p)
	})
}

// reach finds the process that runs a pipeline and does something there.
func (a *app) reach(ctx context.Context, named string, timeout time.Duration, do func(context.Context, *target) error) error {
	if timeout < 0 {
		return usageError(errors.New("--timeout is negative: write a time such as 5m"))
	}
	p, err := a.find(ctx, named)
	if err != nil {
		return err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("given up after %s, as --timeout says", timeout))
		defer cancel()
	}
	return do(ctx, p)
}

// watchEvery is how often it is told how far a checkpoint is.
const watchEvery = time.Second

// watch tells how far the checkpoint under way is, where that takes a while.
func (a *app) watch(ctx context.Context, p *target) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stats, err := p.client.Checkpoints(ctx, p.name)
		if err != nil {
			continue
		}
		if now := underWay(&stats.Stats); now != last {
			last = now
			_, _ = fmt.Fprintln(a.err, now)
		}
	}
}

// underWay is what the newest checkpoint is at.
func underWay(s *checkpoint.Stats) string {
	if len(s.History) == 0 {
		return "waiting"
	}
	switch h := &s.History[0]; h.Status {
	case checkpoint.InProgress:
		return fmt.Sprintf("checkpoint %d: %d of %d tasks have acknowledged", h.ID.Number, h.Acked, len(h.Tasks))
	case checkpoint.Committing:
		return fmt.Sprintf("checkpoint %d: publishing", h.ID.Number)
	case checkpoint.Failed:
		return fmt.Sprintf("checkpoint %d failed: %s", h.ID.Number, h.Failure)
	default:
		return fmt.Sprintf("checkpoint %d is published", h.ID.Number)
	}
}

// nextRun is the command that begins the next job.
func (p *target) nextRun() string {
	if p.served {
		return "etl start " + p.name
	}
	return "etl run " + p.file
}

// printTaken prints what was taken: its path to standard output, and the rest beside.
func (a *app) printTaken(p *target, what string, t *pipeline.Taken, err error) error {
	if err != nil {
		return answerError(err)
	}
	if a.json {
		return json.NewEncoder(a.out).Encode(t)
	}
	_, _ = fmt.Fprintf(a.err, "pipeline %s: %s\n", t.Pipeline, what)
	if t.Warning != "" {
		_, _ = fmt.Fprintln(a.err, "warning:", t.Warning)
	}
	if t.Path == "" {
		_, _ = fmt.Fprintf(a.err, "nothing is left to go on from: %s --from none starts anew\n", p.nextRun())
		return nil
	}
	flags := ""
	if t.Drained {
		flags = " --allow-drained"
	}
	_, _ = fmt.Fprintf(a.err, "to go on from it: %s -s %s%s\n", p.nextRun(), t.Path, flags)
	_, err = fmt.Fprintln(a.out, t.Path)
	return err
}
