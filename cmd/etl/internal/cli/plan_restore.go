package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/pipeline"
)

// restoreFlags are the flags of plan that ask for what a start would restore. They mean
// what those of run mean.
type restoreFlags struct {
	from             string
	claim            bool
	acceptDuplicates bool
	allowNonRestored bool
	allowDrained     bool
}

func (f *restoreFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.from, "from", "s", "", "show what a start would restore from this checkpoint: a path, none, or an empty text for what a start does by itself")
	fl.BoolVar(&f.claim, "claim", false, "with --from: as run --claim")
	fl.BoolVar(&f.acceptDuplicates, "accept-duplicates", false, "with --from: as run --accept-duplicates")
	fl.BoolVar(&f.allowNonRestored, "allow-non-restored-state", false, "with --from: as run --allow-non-restored-state")
	fl.BoolVar(&f.allowDrained, "allow-drained", false, "with --from: as run --allow-drained")
}

// planRestore shows what a start of each file would restore.
func (a *app) planRestore(ctx context.Context, files, set []string, f restoreFlags, asJSON bool) error {
	if f.from != "" && f.from != "none" && len(files) > 1 {
		return usageError(errors.New("a checkpoint belongs to one pipeline: plan the others without --from"))
	}
	refused := false
	for _, file := range files {
		plan, err := a.load(file, set)
		if err != nil {
			return err
		}
		got, err := pipeline.PlanRestore(ctx, pipeline.Options{
			Plan: plan, Log: a.log, From: f.from, Claim: f.claim, AcceptDuplicates: f.acceptDuplicates,
			AllowNonRestoredState: f.allowNonRestored, AllowDrained: f.allowDrained, Memory: a.settings.Memory,
		})
		if err != nil {
			return fmt.Errorf("plan what %s would restore: %w", file, err)
		}
		if asJSON {
			enc := json.NewEncoder(a.out)
			enc.SetEscapeHTML(false)
			err = enc.Encode(got)
		} else {
			err = writeRestorePlan(a.out, got)
		}
		if err != nil {
			return err
		}
		refused = refused || got.Refused != "" && !got.Finished
	}
	if refused {
		return &codeError{code: exitPerson, err: errors.New("a start would be refused"), shown: true}
	}
	return nil
}

// writeRestorePlan writes what a start would restore as text.
func writeRestorePlan(out io.Writer, p *pipeline.RestorePlan) error {
	var b strings.Builder
	writeRestored(&b, p)
	table(&b, "operators", len(p.Operators), func(w io.Writer) {
		for _, x := range p.Operators {
			name := x.Name
			if name == "" || name == x.UID {
				name = x.UID
			} else {
				name += " (uid " + x.UID + ")"
			}
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", name, x.Kind, actionText(x.Action))
			for _, d := range x.Differs {
				_, _ = fmt.Fprintf(w, "    %s\n", d)
			}
		}
	})
	table(&b, "positions", len(p.Splits), func(w io.Writer) {
		for i := range p.Splits {
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", p.Splits[i].Source, p.Splits[i].Split, positionText(&p.Splits[i]))
		}
	})
	table(&b, "commits that are finished first", len(p.Pending), func(w io.Writer) {
		for _, x := range p.Pending {
			_, _ = fmt.Fprintf(w, "  %s\tcheckpoint %d\t%s\n", x.Sink, x.Checkpoint, pendingText(x))
		}
	})
	table(&b, "published again", len(p.Republished), func(w io.Writer) {
		for _, x := range p.Republished {
			_, _ = fmt.Fprintf(w, "  %s\tcheckpoints %d to %d, of generation %d\n", x.Sink, x.First, x.Last, x.Generation)
			for _, s := range x.Splits {
				_, _ = fmt.Fprintf(w, "    %s\t%s\n", s.Source, s)
			}
			if x.Held {
				_, _ = fmt.Fprintln(w, "    and rows from before the checkpoint that it holds")
			}
			if x.Splits == nil {
				_, _ = fmt.Fprintln(w, "    offsets unknown: that checkpoint is not kept any more")
			}
		}
	})
	switch {
	case p.Finished:
		fmt.Fprintf(&b, "\na start says so and ends: %s\n", p.Refused)
	case p.Refused != "":
		fmt.Fprintf(&b, "\na start is refused: %s\n", p.Refused)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeRestored writes the head: which checkpoint, and under which job.
func writeRestored(b *strings.Builder, p *pipeline.RestorePlan) {
	fmt.Fprintf(b, "pipeline %s\n", p.Pipeline)
	c := p.Checkpoint
	switch {
	case c == nil && p.Refused != "":
		b.WriteString("  restores  nothing\n")
	case c == nil:
		b.WriteString("  restores  nothing: it starts fresh\n")
	default:
		fmt.Fprintf(b, "  restores  checkpoint %d (%s), completed %s\n", c.Number, c.Kind, c.Completed.Format(time.RFC3339))
		fmt.Fprintf(b, "  from      %s\n", c.Path)
		var notes []string
		if c.Committed {
			notes = append(notes, "every commit of it is proven")
		}
		if c.Drained {
			notes = append(notes, "taken after the end of the input")
		}
		if c.Foreign {
			notes = append(notes, "of another pipeline or storage")
		}
		if c.Claimed {
			notes = append(notes, "claimed: the new job removes it when it is not needed any more")
		}
		if len(notes) > 0 {
			fmt.Fprintf(b, "  state     %s\n", strings.Join(notes, "; "))
		}
	}
	if p.Next > 0 {
		job := p.Job
		if job == "" {
			job = "a new one"
		}
		fmt.Fprintf(b, "  job       %s, next checkpoint %d\n", job, p.Next)
	}
	if o := p.Owner; o != nil {
		fmt.Fprintf(b, "  owner     generation %d, host %s, process %d, since %s: a start takes it over\n", o.Generation, o.Host, o.PID, o.Time.Format(time.RFC3339))
	}
	if p.Behind != "" {
		fmt.Fprintf(b, "  behind    %s\n", p.Behind)
	}
	for _, s := range p.Skipped {
		fmt.Fprintf(b, "  skips     checkpoint %d: %s\n", s.Number, s.Reason)
	}
}

// table writes a titled table, unless it is empty.
func table(b *strings.Builder, title string, rows int, fill func(w io.Writer)) {
	if rows == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // into a strings.Builder
}

func actionText(a pipeline.Action) string {
	switch a {
	case pipeline.Empty:
		return "starts empty: the checkpoint has nothing of it"
	case pipeline.Dropped:
		return "dropped: the file has nothing for it"
	case pipeline.Refused:
		return "refused: its state does not fit"
	default:
		return "kept"
	}
}

func positionText(s *pipeline.PlannedSplit) string {
	text := fmt.Sprintf("from %d", s.Offset)
	if s.New {
		text += ", new since the checkpoint"
	}
	if s.First != nil && s.End != nil {
		text += fmt.Sprintf(", has %d to %d", *s.First, *s.End)
	}
	switch {
	case s.Refused != "":
		text += ", refused: it cannot be read from there"
	case s.Gone:
		text += ", not there now: its position is kept"
	case s.Next != nil && *s.Next != s.Offset:
		text += fmt.Sprintf(", goes on at %d instead", *s.Next)
	}
	if s.Records != nil {
		text += fmt.Sprintf(", %d to read", *s.Records)
	}
	return text
}

func pendingText(p pipeline.PendingCommit) string {
	text := "records unknown"
	if p.Records > 0 {
		text = fmt.Sprintf("%d records", p.Records)
	}
	if p.Expires == nil {
		return text
	}
	return text + ", until " + p.Expires.Format(time.RFC3339)
}
