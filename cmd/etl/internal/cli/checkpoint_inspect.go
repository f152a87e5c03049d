package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
)

func (a *app) checkpointInspectCommand() *cobra.Command {
	var stats bool
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Shows what a checkpoint holds",
		Long: `Shows what a checkpoint or savepoint holds: positions, state, and what its sinks prepared.
With --stats also what it took, by operator and subtask: the time until the barrier came, the time for which inputs were held
back until it had come on all of them and how many bytes waited meanwhile, the pause at the barrier, and the time of writing beside the stream.`,
		Example: "  etl checkpoint inspect file:///var/lib/etl/orders/4f1c…/chk-860\n  etl checkpoint inspect --stats /var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.inspectCheckpoint(c.Context(), args[0], stats) },
	}
	c.Flags().BoolVar(&stats, "stats", false, "show what it took, by operator and subtask")
	return c
}

func (a *app) inspectCheckpoint(ctx context.Context, name string, stats bool) error {
	o, err := checkpoint.Inspect(ctx, name)
	if err != nil {
		return failed(err)
	}
	out := struct {
		Path      string `json:"path"`
		Committed bool   `json:"committed"`
		*checkpoint.Metadata
		Statistics *checkpoint.AttemptStats `json:"statistics,omitempty"`
	}{Path: o.Path, Committed: o.Committed, Metadata: o.Meta}
	if stats {
		list, err := o.Statistics(ctx)
		if err != nil {
			return failed(err)
		}
		if len(list) > 0 {
			out.Statistics = &list[0]
		}
	}
	return a.printAs(out, func(w *tabwriter.Writer) {
		writeCheckpoint(w, o)
		if stats {
			writeStats(w, out.Statistics)
		}
	})
}

func writeCheckpoint(w *tabwriter.Writer, o *checkpoint.Opened) {
	m := o.Meta
	_, _ = fmt.Fprintf(w, "checkpoint\t%d of pipeline %s, %s\n", m.Number, m.Pipeline, m.Kind)
	_, _ = fmt.Fprintf(w, "path\t%s\n", o.Path)
	_, _ = fmt.Fprintf(w, "job\t%s, generation %d\n", m.Job, m.Generation)
	_, _ = fmt.Fprintf(w, "completed\t%s, %s after its trigger\n", m.Completed.Local().Format(time.DateTime), m.Completed.Sub(m.Triggered).Round(time.Millisecond))
	if m.Kind == checkpoint.Savepoint && len(m.Committables) == 0 {
		_, _ = fmt.Fprintln(w, "committed\ttrue: a savepoint leaves nothing to publish")
	} else {
		_, _ = fmt.Fprintf(w, "committed\t%v\n", o.Committed)
	}
	if m.Drained {
		_, _ = fmt.Fprintln(w, "drained\ttrue: event time had run out")
	}
	for i := range m.Operators {
		writeOperator(w, &m.Operators[i])
	}
	for _, c := range m.Committables {
		what := "to publish"
		switch {
		case c.Empty:
			what = "nothing to publish"
		case o.Committed:
			what = "published"
		}
		_, _ = fmt.Fprintf(w, "committable\t%s, checkpoint %d: %s\n", c.Committer, c.Checkpoint.Number, what)
	}
}

// writeOperator writes what a checkpoint holds of one operator.
func writeOperator(w io.Writer, op *checkpoint.Operator) {
	_, _ = fmt.Fprintf(w, "%s\t%s, parallelism %d\n", op.UID, op.Kind, op.Parallelism)
	for _, s := range op.Splits {
		until := ""
		if s.Until >= 0 {
			until = fmt.Sprintf(", until %d", s.Until)
		}
		_, _ = fmt.Fprintf(w, "  %s\tnext offset %d%s\n", s.ID, s.Offset, until)
	}
	files, bytes := map[string]bool{}, int64(0)
	for _, k := range op.KeyGroups {
		if !files[k.File.Path] {
			files[k.File.Path] = true
			bytes += k.File.Size
		}
	}
	if len(files) > 0 {
		_, _ = fmt.Fprintf(w, "  keyed state\t%s, %d bytes\n", many(len(files), "file"), bytes)
	}
	for _, s := range op.Subtasks {
		n := int64(0)
		for _, f := range s.Files {
			n += f.Size
		}
		if len(s.Files) > 0 || len(files) == 0 {
			_, _ = fmt.Fprintf(w, "  subtask %d\t%s, %d bytes\n", s.Subtask, many(len(s.Files), "file"), n)
		}
	}
}

// writeStats writes what a checkpoint took.
func writeStats(w *tabwriter.Writer, s *checkpoint.AttemptStats) {
	if s == nil {
		_, _ = fmt.Fprintln(w, "statistics\tnone are kept with it")
		return
	}
	_, _ = fmt.Fprintf(w, "took\t%s: of it %s for the metadata and %s for the commit\n", short(s.Duration), short(s.Metadata), short(s.Commit))
	_, _ = fmt.Fprintf(w, "size\t%s, %s of it new\n", sizeText(s.Size), sizeText(s.NewSize))
	_ = w.Flush()
	_, _ = fmt.Fprintln(w, "\nTASK\tSUBTASK\tACKNOWLEDGED\tSTART DELAY\tALIGNMENT\tBUFFERED\tSYNC\tASYNC\tSIZE")
	for _, t := range s.Tasks {
		acked := "no"
		if t.Acked {
			acked = "after " + short(t.Latency)
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Task.Chain, t.Task.Subtask, acked,
			short(t.StartDelay), short(t.Alignment), sizeText(t.Buffered), short(t.Sync), short(t.Async), sizeText(t.Size))
	}
}
