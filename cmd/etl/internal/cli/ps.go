package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

func (a *app) psCommand() *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "ps",
		Short: "Lists the pipelines that run, with rates, lag, checkpoints and what is wrong",
		Long: `Lists the pipelines of the daemons and runs of this user on this machine, or of the daemon at --server: what each is at, how many
records it reads and writes in a second, how many wait to be read and how old the next one is, how long ago its last checkpoint was, how often it
has started again, and what is wrong with it in a word. etl status NAME says that in full. With --watch it goes on until it is ended.`,
		Example: `  etl ps
  etl ps --watch
  etl ps --server https://etl.example.com:8080 --token-file ~/.etl-token --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("watch") {
				return a.ps(c.Context())
			}
			if every <= 0 {
				return usageError(errors.New("--watch must be above 0s"))
			}
			return a.again(c.Context(), every, a.ps)
		},
	}
	c.Flags().DurationVarP(&every, "watch", "w", 0, "list them again and again, at this interval")
	c.Flags().Lookup("watch").NoOptDefVal = "2s"
	return a.reaches(c)
}

// ps lists the pipelines once.
func (a *app) ps(ctx context.Context) error {
	all, err := a.allPipelines(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.encode(all)
	}
	t := pipelineTable(all, time.Now())
	return a.printLines(t.lines("", a.paint()))
}

// allPipelines are those of every daemon that answers. Where none does, that is an error.
func (a *app) allPipelines(ctx context.Context) ([]api.Pipeline, error) {
	processes, err := a.processes(ctx)
	switch {
	case len(processes) == 0 && err != nil:
		return nil, err
	case len(processes) == 0:
		return nil, a.nobody()
	case err != nil:
		_, _ = fmt.Fprintln(a.err, "warning:", err)
	}
	all, _ := everyPipeline(processes)
	return all, nil
}

// pipelineTable is the pipelines at a glance.
func pipelineTable(all []api.Pipeline, now time.Time) *grid {
	t := &grid{heading: []string{"NAME", "STATE", "READ/S ", "WRITTEN/S ", "LAG ", "BEHIND ", "CHECKPOINT ", "RESTARTS ", "PROBLEM"}}
	for i := range all {
		p := &all[i]
		read, written := rateText(p.ReadRate), rateText(p.WriteRate)
		if p.State == api.Invalid {
			read, written = unknown, unknown
		}
		t.add(plain(p.Name), stateCell(p.State), plain(read), plain(written), plain(countText(lagOf(p))), plain(secondsText(behindOf(p))),
			plain(checkpointAge(p, now)), plain(countText(int64(p.Restarts))), problemCell(p))
	}
	return t
}

// lagOf is how many records wait to be read, -1 where nothing tells.
func lagOf(p *api.Pipeline) int64 {
	if !works(p.State) {
		return -1
	}
	return p.LagRecords
}

// behindOf is how old the next record is, in seconds, -1 where nothing tells.
func behindOf(p *api.Pipeline) float64 {
	if !works(p.State) {
		return -1
	}
	return p.LagSeconds
}

// works tells whether records can flow in a state.
func works(s api.State) bool {
	return s == api.Running || s == api.Restarting || s == api.Stopping
}

func checkpointAge(p *api.Pipeline, now time.Time) string {
	if p.Checkpoint == nil {
		return unknown
	}
	return agoText(p.Checkpoint.Time, now)
}

// stateCell is a state in the colour of how well that is.
func stateCell(s api.State) cell {
	color := map[api.State]string{
		api.Running: green, api.Finished: green, api.Invalid: red, api.Failed: red, api.Restarting: yellow, api.Starting: yellow, api.Stopping: yellow,
	}[s]
	return cell{string(s), color}
}

// problemCell is what is wrong in a word: the kinds of the problems, errors first.
func problemCell(p *api.Pipeline) cell {
	var kinds, color string
	for _, level := range []string{"error", "warning"} {
		for _, one := range p.Health.Problems {
			if one.Level != level {
				continue
			}
			if kinds != "" {
				kinds += ", "
			}
			kinds += one.Kind
			if color == "" {
				color = levelColor(level)
			}
		}
	}
	if kinds == "" && p.Pending != "" {
		return cell{"change pending", yellow}
	}
	return cell{kinds, color}
}

func levelColor(level string) string {
	switch level {
	case "error", "ERROR":
		return red
	case "warning", "warn", "WARN":
		return yellow
	}
	return ""
}

// encode prints a result as one line of JSON.
func (a *app) encode(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (a *app) printLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

// again shows something until a signal ends it, on a terminal in the same place. A
// daemon that does not answer for a while is told of and waited for.
func (a *app) again(ctx context.Context, every time.Duration, show func(context.Context) error) error {
	ctx, release := untilSignal(ctx)
	defer release()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if !a.json && terminal(a.out) {
			_, _ = fmt.Fprint(a.out, "\x1b[H\x1b[2J\x1b[3J")
		}
		var coded *codeError
		switch err := show(ctx); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &coded) && coded.code == exitFailed:
			_, _ = fmt.Fprintln(a.err, "error:", err)
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
