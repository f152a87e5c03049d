package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) checkpointDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compares two checkpoints or savepoints",
		Long: `Compares two checkpoints or savepoints, of one pipeline or of two: positions with the number of records between them, operators that only
one of them has, definitions that have changed, parallelism, the size of state, and what sinks have prepared.`,
		Example: "  etl checkpoint diff /var/lib/etl/orders/4f1c…/chk-859 /var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.ExactArgs(2),
		RunE:    func(c *cobra.Command, args []string) error { return a.diffCheckpoints(c.Context(), args[0], args[1]) },
	}
}

func (a *app) diffCheckpoints(ctx context.Context, from, to string) error {
	var opened [2]*checkpoint.Opened
	for i, name := range []string{from, to} {
		o, err := checkpoint.Inspect(ctx, name)
		if err != nil {
			return failed(err)
		}
		opened[i] = o
	}
	d := checkpoint.Compare(opened[0].Meta, opened[1].Meta, pipeline.StateDefinition)
	out := struct {
		Paths [2]string `json:"paths"`
		*checkpoint.Difference
	}{[2]string{opened[0].Path, opened[1].Path}, d}
	return a.printAs(out, func(w *tabwriter.Writer) {
		writeFacts(w, out.Paths, d)
		for i := range d.Operators {
			writeOperatorDifference(w, &d.Operators[i])
		}
		for _, c := range d.Committables {
			writeChange(w, "  committables of "+c.Committer, committed(c.From, c.RecordsFrom), committed(c.To, c.RecordsTo))
		}
	})
}

func committed(n int, records int64) string {
	if records == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d, %s", n, many(int(records), "record"))
}

// writeChange writes one fact of both, and marks it where it differs.
func writeChange(w *tabwriter.Writer, what, from, to string) {
	if from == to {
		_, _ = fmt.Fprintf(w, " \t%s\t%s\t\n", what, from)
		return
	}
	_, _ = fmt.Fprintf(w, "~\t%s\t%s\t→ %s\n", what, from, to)
}

func writeFacts(w *tabwriter.Writer, paths [2]string, d *checkpoint.Difference) {
	a, b := &d.From, &d.To
	at := func(t time.Time) string { return t.Local().Format(time.DateTime) }
	number := func(f *checkpoint.Facts) string {
		return fmt.Sprintf("%d of generation %d", f.Number, f.Generation)
	}
	_, _ = fmt.Fprintf(w, "A %s\nB %s\n", paths[0], paths[1])
	writeChange(w, "pipeline", a.Pipeline, b.Pipeline)
	writeChange(w, "job", a.Job, b.Job)
	writeChange(w, "number", number(a), number(b))
	writeChange(w, "kind", string(a.Kind), string(b.Kind))
	writeChange(w, "mode", a.Mode, b.Mode)
	writeChange(w, "completed", at(a.Completed), at(b.Completed))
	writeChange(w, "definition", digest(a.Definition), digest(b.Definition))
	writeChange(w, "max_parallelism", strconv.Itoa(a.MaxParallelism), strconv.Itoa(b.MaxParallelism))
	if a.Drained || b.Drained {
		writeChange(w, "drained", strconv.FormatBool(a.Drained), strconv.FormatBool(b.Drained))
	}
	writeChange(w, "state", stateText(a.Files, a.Bytes), stateText(b.Files, b.Bytes))
}

// digest is enough of a digest to tell it from others.
func digest(s string) string {
	s = strings.TrimPrefix(s, "sha256:")
	return s[:min(len(s), 12)]
}

func stateText(files int, bytes int64) string {
	return fmt.Sprintf("%s in %s", sizeText(bytes), many(files, "file"))
}

func writeOperatorDifference(w *tabwriter.Writer, d *checkpoint.OperatorDifference) {
	a, b := d.From, d.To
	switch {
	case a == nil:
		_, _ = fmt.Fprintf(w, "+\t%s\t%s\tonly in B\n", d.UID, b.Kind)
		a = b
	case b == nil:
		_, _ = fmt.Fprintf(w, "-\t%s\t%s\tonly in A\n", d.UID, a.Kind)
		b = a
	default:
		writeChange(w, d.UID, a.Kind, b.Kind)
	}
	writeChange(w, "  parallelism", strconv.Itoa(a.Parallelism), strconv.Itoa(b.Parallelism))
	if a.Files > 0 || b.Files > 0 {
		writeChange(w, "  state", stateText(a.Files, a.Bytes), stateText(b.Files, b.Bytes))
	}
	if a.Definition != b.Definition {
		_, _ = fmt.Fprintf(w, "~\t  definition in A\t%s\n~\t  definition in B\t%s\n", a.Definition, b.Definition)
	}
	for i := range d.Splits {
		writeSplitDifference(w, &d.Splits[i])
	}
}

func writeSplitDifference(w *tabwriter.Writer, s *checkpoint.SplitDifference) {
	switch {
	case s.From == nil:
		_, _ = fmt.Fprintf(w, "+\t  %s\t%s\tonly in B\n", s.ID, splitText(s.To))
	case s.To == nil:
		_, _ = fmt.Fprintf(w, "-\t  %s\t%s\tonly in A\n", s.ID, splitText(s.From))
	case s.Records != 0:
		_, _ = fmt.Fprintf(w, "~\t  %s\t%s\t→ %s, %+d records\n", s.ID, splitText(s.From), splitText(s.To), s.Records)
	case s.Changed() && splitText(s.From) == splitText(s.To):
		_, _ = fmt.Fprintf(w, "~\t  %s\t%s %s\t→ %s\n", s.ID, splitText(s.From), s.From.Detail, s.To.Detail)
	default:
		writeChange(w, "  "+s.ID, splitText(s.From), splitText(s.To))
	}
}

func splitText(s *connectors.Split) string {
	if s.Until >= 0 {
		return fmt.Sprintf("next offset %d of %d", s.Offset, s.Until)
	}
	return fmt.Sprintf("next offset %d", s.Offset)
}
