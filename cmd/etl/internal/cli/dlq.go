package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// dlqFlags choose dead letters.
type dlqFlags struct {
	set           []string
	sink          string
	where         string
	steps         []string
	kinds         []string
	since, before string
	all           bool
	toSource      bool
	dryRun        bool
}

func (a *app) dlqCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "dlq",
		Short:   "Dead letters: lists them, and brings them in again",
		Example: "  etl dlq list orders.yaml\n  etl dlq replay orders.yaml",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.dlqListCommand(), a.dlqReplayCommand())
	return c
}

func (f *dlqFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVar(&f.set, "set", nil, "override a key of the file")
	fl.StringVar(&f.sink, "sink", "", "sink that has the dead letters, where there are several")
	fl.StringVar(&f.where, "where", "", `condition for a letter, as in 'meta.headers["dead_letter.step"] == "per-item"'`)
	fl.StringArrayVar(&f.steps, "step", nil, "only those that failed at this source, step or sink; can be repeated")
	fl.StringArrayVar(&f.kinds, "kind", nil, "only those that failed in this way, such as decode; can be repeated")
	fl.StringVar(&f.since, "since", "", "only those that failed at or after this time, such as 2026-01-31T00:00:00Z, or that long ago, such as 2h")
	fl.StringVar(&f.before, "before", "", "only those that failed before this time")
}

func (a *app) dlqListCommand() *cobra.Command {
	var f dlqFlags
	c := &cobra.Command{
		Use:   "list FILE",
		Short: "Lists the dead letters of a pipeline that are not brought in yet",
		Long: "Lists the dead letters of a pipeline that `dlq replay` has not brought in: where they are, where they came from, and why they failed. " +
			"It changes nothing.",
		Example: "  etl dlq list orders.yaml\n  etl dlq list orders.yaml --step per-item --since 2h\n  etl dlq list orders.yaml --all --json",
		Args:    wantOneFile,
		RunE:    func(c *cobra.Command, files []string) error { return a.dlqList(c.Context(), files[0], &f) },
	}
	f.add(c)
	c.Flags().BoolVar(&f.all, "all", false, "those too that are brought in")
	return c
}

func (a *app) dlqReplayCommand() *cobra.Command {
	var f dlqFlags
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Brings the dead letters of a pipeline in again, each once",
		Long: `Brings the dead letters of a pipeline in again: takes the records that they were through the steps of the file as it
is now, into the sinks that lack them, under the same guarantees. The pipeline itself may run meanwhile. Those that fail
again become dead letters again, with a higher dead_letter.attempt.

Each letter is brought in once, however often the command is run and wherever it is killed: what is in is kept with
checkpoints under the name PIPELINE-dlq, in the storage of the pipeline. Letters that were not chosen can be chosen later.

A pipeline whose steps keep state cannot be helped from beside it. --to-source writes the records back to the topics that
they came from instead, where the running pipeline reads them.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 somebody has to act, 4 another replay has taken over.`,
		Example: `  etl dlq replay orders.yaml
  etl dlq replay orders.yaml --dry-run --where 'meta.headers["dead_letter.kind"] == "decode"'
  etl dlq replay orders.yaml --step per-item --since 2h
  etl dlq replay orders.yaml --to-source`,
		Args: wantOneFile,
		RunE: func(c *cobra.Command, files []string) error {
			if f.dryRun {
				return a.dlqList(c.Context(), files[0], &f)
			}
			return a.dlqReplay(c.Context(), files[0], &f)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.toSource, "to-source", false, "write the records back to where they came from, for the running pipeline to read")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "list what would be brought in, and change nothing")
	c.Flags().String("memory", "", "what may be held in buffers, such as 512MiB")
	return c
}

func wantOneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one pipeline file, such as pipeline.yaml")
	}
	return nil
}

// options read the flags.
func (f *dlqFlags) options() (pipeline.ReplayOptions, error) {
	o := pipeline.ReplayOptions{Sink: f.sink, ToSource: f.toSource, Filter: pipeline.LetterFilter{Where: f.where, Steps: f.steps, Kinds: f.kinds}}
	var err error
	if o.Filter.Since, err = timeFlag("since", f.since); err != nil {
		return o, err
	}
	o.Filter.Before, err = timeFlag("before", f.before)
	return o, err
}

// timeFlag reads a time, or how long ago it was.
func timeFlag(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("--%s is no time: write it like 2026-01-31T00:00:00Z, or like 2h for two hours ago", name)
	}
	return t, nil
}

// openDLQ reads the file and the flags.
func (a *app) openDLQ(file string, f *dlqFlags) (*spec.Pipeline, pipeline.ReplayOptions, error) {
	o, err := f.options()
	if err != nil {
		return nil, o, usageError(err)
	}
	plan, err := a.load(file, f.set)
	if err != nil {
		return nil, o, err
	}
	if err := o.Check(plan.Spec); err != nil {
		return nil, o, usageError(err)
	}
	return plan.Spec, o, nil
}

func (a *app) dlqReplay(ctx context.Context, file string, f *dlqFlags) error {
	p, o, err := a.openDLQ(file, f)
	if err != nil {
		return err
	}
	plan, err := pipeline.Replay(p, o)
	if err != nil {
		return usageError(err)
	}
	from, _, err := pipeline.ReadOn(ctx, p)
	if err != nil {
		return &codeError{code: exitOf(err), err: err}
	}
	stop, release := stopSignals(a.log)
	defer release()
	// What it restores is its own, taken at the end of what was there then, perhaps by the
	// other way of bringing letters in.
	flags := runFlags{from: from, allowDrained: true, allowNonRestored: true}
	return a.report([]result{a.runOne(ctx, flags, stop, pipeline.Options{Plan: plan, Control: &pipeline.Control{}})})
}

func (a *app) dlqList(ctx context.Context, file string, f *dlqFlags) error {
	p, o, err := a.openDLQ(file, f)
	if err != nil {
		return err
	}
	letters := []*pipeline.Letter{}
	if err := pipeline.Letters(ctx, p, o, f.all, func(l *pipeline.Letter) { letters = append(letters, l) }); err != nil {
		return &codeError{code: exitOf(err), err: err}
	}
	return a.printAs(letters, func(w *tabwriter.Writer) {
		if len(letters) == 0 {
			_, _ = fmt.Fprintln(w, "no dead letters")
			return
		}
		_, _ = fmt.Fprintln(w, "LETTER\tRECORD\tSTEP\tKIND\tATTEMPT\tTIME\tREASON")
		for _, l := range letters {
			_, _ = fmt.Fprintf(w, "%s@%d\t%s\t%s\t%s\t%d\t%s\t%s\n", l.Place, l.At, recordOf(l), l.Step, l.Kind, l.Attempt, l.Time.UTC().Format(time.DateTime), l.Reason)
		}
	})
}

// recordOf is where the record of a letter came from.
func recordOf(l *pipeline.Letter) string {
	switch {
	case l.Topic == nil:
		return "made by a step"
	case l.Partition == nil || l.Offset == nil:
		return *l.Topic
	}
	return fmt.Sprintf("%s/%d@%d", *l.Topic, *l.Partition, *l.Offset)
}
