package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) tapCommand() *cobra.Command {
	var o pipeline.TapOptions
	c := &cobra.Command{
		Use:   "tap PIPELINE STEP",
		Short: "Shows live records at a source, step or sink of a running pipeline",
		Long: `Shows live records at a source, step or sink of a running pipeline: when each passed, where it is from, its key and its value. What comes
faster than --per-second is left out and counted; the pipeline is never held up. It shows what goes out of a step, with --input what comes in, of a
sink always that. It goes on until it is ended, or until --limit records were shown.`,
		Example: `  etl tap orders per-bidder
  etl tap orders per-bidder --input --limit 5
  etl tap orders sink --per-second 100 --json | jq .value`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if o.Limit < 0 || o.PerSecond < 1 {
				return usageError(errors.New("--limit is 0 or more, and --per-second 1 or more"))
			}
			return a.reach(c.Context(), args[0], 0, func(ctx context.Context, p *target) error {
				return a.tap(ctx, p, args[1], o)
			})
		},
	}
	f := c.Flags()
	f.IntVarP(&o.Limit, "limit", "n", 0, "end after so many records (default: go on)")
	f.IntVar(&o.PerSecond, "per-second", 10, "show at most so many in a second")
	f.BoolVar(&o.Input, "input", false, "show what comes in")
	a.steers(c)
	c.ValidArgsFunction = a.completeStep
	return c
}

func (a *app) tap(ctx context.Context, p *target, step string, o pipeline.TapOptions) error {
	ctx, release := untilSignal(ctx)
	defer release()
	paint := a.paint()
	return show(ctx, p.client.Tap(ctx, p.name, step, o), func(t *pipeline.Tapped) error {
		if a.json {
			return a.encode(t)
		}
		return printTapped(a.out, t, paint)
	})
}

// show prints what comes until it ends, or ctx does.
func show[T any](ctx context.Context, coming iter.Seq2[T, error], shown func(*T) error) error {
	for one, err := range coming {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return answerError(err)
		}
		if err := shown(&one); err != nil {
			return failed(err)
		}
	}
	return nil
}

// printTapped prints a record in one line: where it is from, key, value, headers.
func printTapped(out io.Writer, t *pipeline.Tapped, paint painter) error {
	var b strings.Builder
	if t.Left > 0 {
		b.WriteString(paint(faint, fmt.Sprintf("… %s left out", many(int(t.Left), "record"))) + "\n")
	}
	b.WriteString(paint(faint, t.Time.Local().Format("15:04:05.000")))
	if t.Topic != "" && t.Partition >= 0 {
		b.WriteString(" " + paint(faint, position{t.Topic, t.Partition, t.Offset}.String()))
	}
	if t.Key != "" {
		b.WriteString(" " + paint(bold, oneLine(t.Key)))
	}
	b.WriteString(" " + oneLine(t.Value))
	if t.Cut {
		b.WriteString(paint(faint, "…"))
	}
	for _, name := range headerNames(t.Headers) {
		b.WriteString(" " + paint(faint, oneLine(name)+"="+oneLine(t.Headers[name])))
	}
	if t.EventTime != nil {
		b.WriteString(" " + paint(faint, "@"+time.UnixMilli(*t.EventTime).UTC().Format(time.RFC3339)))
	}
	_, err := fmt.Fprintln(out, b.String())
	return err
}

// oneLine takes out of what others wrote all that moves a terminal's cursor or colours.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, text)
}

func headerNames(headers map[string]string) []string {
	out := make([]string, 0, len(headers))
	for name := range headers {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
