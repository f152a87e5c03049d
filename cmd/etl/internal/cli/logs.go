package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

// mostLines is how many lines or events a daemon gives at once.
const mostLines = 1000

func (a *app) logsCommand() *cobra.Command {
	q := api.LogQuery{Limit: 50}
	var follow bool
	c := &cobra.Command{
		Use:   "logs [PIPELINE]",
		Short: "Shows the log of a daemon, of all pipelines or of one",
		Long: `Shows the newest lines of a daemon's log, of all pipelines or of one. With -f it goes on with those that come, until it is ended.
The daemon keeps only the newest lines in memory; all of them are in its standard error, such as in the journal of systemd.`,
		Example: `  etl logs orders -f
  etl logs --level warn -n 200
  etl logs orders --json | jq .text`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if q.Limit < 1 || q.Limit > mostLines {
				return usageError(errors.New("-n is a number from 1 to 1000"))
			}
			if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, q.Level) {
				return usageError(fmt.Errorf("--level is %q: write debug, info, warn or error", q.Level))
			}
			client, name, err := a.daemonOf(c.Context(), args)
			if err != nil {
				return err
			}
			q.Pipeline = name
			return a.logs(c.Context(), client, q, follow)
		},
	}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on with the lines that come")
	f.StringVar(&q.Level, "level", "", "only lines of this level and above: debug, info, warn or error")
	f.IntVarP(&q.Limit, "lines", "n", q.Limit, "how many of the newest lines")
	return a.steers(c)
}

// daemonOf is the process that a command without or with a pipeline's name is about.
func (a *app) daemonOf(ctx context.Context, args []string) (client *web.Client, name string, err error) {
	if len(args) > 0 {
		t, err := a.find(ctx, args[0])
		if err != nil {
			return nil, "", err
		}
		return t.client, t.name, nil
	}
	processes, err := a.processes(ctx)
	switch {
	case len(processes) == 1:
		return processes[0].client, "", nil
	case err != nil:
		return nil, "", err
	case len(processes) == 0:
		return nil, "", a.nobody()
	}
	client, err = a.daemon(ctx)
	return client, "", err
}

func (a *app) logs(ctx context.Context, client *web.Client, q api.LogQuery, follow bool) error {
	paint := a.paint()
	line := func(l *api.Line) error {
		if a.json {
			return a.encode(l)
		}
		return printLine(a.out, l, q.Pipeline == "", paint)
	}
	if follow {
		ctx, release := untilSignal(ctx)
		defer release()
		return show(ctx, client.FollowLogs(ctx, q), line)
	}
	lines, err := client.Logs(ctx, q)
	if err != nil {
		return answerError(err)
	}
	for i := range lines {
		if err := line(&lines[i]); err != nil {
			return failed(err)
		}
	}
	return nil
}

// printLine prints a line of the log, with the pipeline's name where there are several.
func printLine(out io.Writer, l *api.Line, named bool, paint painter) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", paint(faint, l.Time.Local().Format("2006-01-02 15:04:05.000")), paint(levelColor(l.Level), fmt.Sprintf("%-5s", strings.ToUpper(l.Level))))
	if named && l.Pipeline != "" {
		b.WriteString(" " + paint(bold, l.Pipeline))
	}
	b.WriteString(" " + oneLine(l.Text))
	for _, key := range slices.Sorted(maps.Keys(l.Attrs)) {
		b.WriteString(" " + paint(faint, key+"=") + oneLine(fmt.Sprint(l.Attrs[key])))
	}
	_, err := fmt.Fprintln(out, b.String())
	return err
}

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	limit := 50
	c := &cobra.Command{
		Use:   "events [PIPELINE]",
		Short: "Shows what happened to the pipelines of a daemon, and who asked for it",
		Long: `Shows what happened to the pipelines of a daemon, or to one: starts, failures, checkpoints, reloads, and what people did, with who
it was. With -f it goes on with what happens, until it is ended.`,
		Example: `  etl events
  etl events orders -f
  etl events --json | jq -r 'select(.actor) | .text'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 || limit > mostLines {
				return usageError(errors.New("-n is a number from 1 to 1000"))
			}
			client, name, err := a.daemonOf(c.Context(), args)
			if err != nil {
				return err
			}
			return a.events(c.Context(), client, name, limit, follow)
		},
	}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on with what happens")
	f.IntVarP(&limit, "lines", "n", limit, "how many of the newest")
	return a.steers(c)
}

func (a *app) events(ctx context.Context, client *web.Client, name string, limit int, follow bool) error {
	paint := a.paint()
	event := func(e *api.Event) error {
		if a.json {
			return a.encode(e)
		}
		return printEvent(a.out, e, name == "", paint)
	}
	if follow {
		ctx, release := untilSignal(ctx)
		defer release()
		return show(ctx, client.FollowEvents(ctx, name, 0, limit), event)
	}
	events, err := client.Events(ctx, name, 0, limit)
	if err != nil {
		return answerError(err)
	}
	for i := range events {
		if err := event(&events[i]); err != nil {
			return failed(err)
		}
	}
	return nil
}

func printEvent(out io.Writer, e *api.Event, named bool, paint painter) error {
	text := paint(faint, clockText(e.Time)) + " " + paint(levelColor(e.Level), fmt.Sprintf("%-17s", e.Kind))
	if named && e.Pipeline != "" {
		text += " " + paint(bold, e.Pipeline)
	}
	text += " " + oneLine(e.Text)
	if e.Actor != "" {
		text += paint(faint, " (by "+oneLine(e.Actor)+")")
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
