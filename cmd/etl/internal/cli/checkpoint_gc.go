package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
)

// gcFlags are the flags of gc.
type gcFlags struct {
	grace    time.Duration
	keepJobs int
	remove   bool
}

func (a *app) checkpointGCCommand() *cobra.Command {
	f := gcFlags{grace: 24 * time.Hour, keepJobs: 1}
	c := &cobra.Command{
		Use:   "gc FILE|STORAGE/PIPELINE",
		Short: "Shows, and with --delete removes, what a pipeline's folder holds that nothing needs",
		Long: `Shows what a pipeline's folder holds that nothing needs any more, with sizes and reasons; --delete removes it, the oldest first.
It is safe beside a running pipeline.

What goes: the folders of jobs before the current one, but for the newest (--keep-jobs) and for one that the current job began with and
still needs; in the current job, attempts that never became complete and shared files that no checkpoint refers to, once a later checkpoint is proven.
What stays: every complete checkpoint of the current job, which retention looks after, savepoints, what is younger than --grace, and folders with files that
the program has not made. Where some metadata cannot be read, nothing that it may need goes, and it is named.`,
		Example: "  etl checkpoint gc orders.yaml\n  etl checkpoint gc s3://bucket/etl/orders --delete\n  etl checkpoint gc orders.yaml --keep-jobs 0 --grace 1h --delete",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.collectGarbage(c.Context(), args[0], f) },
	}
	fl := c.Flags()
	fl.DurationVar(&f.grace, "grace", f.grace, "leave what is younger, by the storage's own times")
	fl.IntVar(&f.keepJobs, "keep-jobs", f.keepJobs, "how many jobs before the current one stay, the newest first")
	fl.BoolVar(&f.remove, "delete", false, "remove it; without this it is only shown")
	return c
}

// garbageReport is what gc found and did.
type garbageReport struct {
	Deleted bool          `json:"deleted"` // false where it was only shown
	Items   []garbageItem `json:"items"`
	Kept    []keptItem    `json:"kept"`
	Files   int           `json:"files"`
	Bytes   int64         `json:"bytes"`
	Error   string        `json:"error,omitempty"` // why not all of it is removed
}

type garbageItem struct {
	What     string    `json:"what"`
	Path     string    `json:"path"`
	Reason   string    `json:"reason"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	Removed  bool      `json:"removed"`
}

type keptItem struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (a *app) collectGarbage(ctx context.Context, name string, f gcFlags) error {
	if f.grace < 0 || f.keepJobs < 0 {
		return usageError(errors.New("--grace and --keep-jobs cannot be negative"))
	}
	s, _, err := a.storeOf(name)
	if err != nil {
		return err
	}
	g, err := s.Garbage(ctx, checkpoint.GCOptions{Grace: f.grace, KeepJobs: f.keepJobs})
	if err != nil {
		code := exitFailed
		if errors.Is(err, checkpoint.ErrUnclear) {
			code = exitPerson
		}
		return &codeError{code: code, err: err}
	}
	r := garbageReport{Deleted: f.remove, Items: []garbageItem{}, Kept: []keptItem{}}
	for _, it := range g.Items {
		r.Items = append(r.Items, garbageItem{What: it.What, Path: it.Path, Reason: it.Reason, Files: it.Files, Bytes: it.Bytes, Modified: it.Modified})
		r.Files += it.Files
		r.Bytes += it.Bytes
	}
	for _, k := range g.Kept {
		r.Kept = append(r.Kept, keptItem(k))
	}
	if f.remove {
		err = a.removeGarbage(ctx, s, g, &r)
	}
	empty := false
	if len(r.Items) == 0 && len(r.Kept) == 0 && err == nil {
		jobs, listErr := s.List(ctx)
		empty = listErr == nil && len(jobs) == 0
	}
	printErr := a.printAs(r, func(w *tabwriter.Writer) {
		if empty {
			_, _ = fmt.Fprintf(w, "nothing to remove: nothing is kept there for the pipeline that %s names\n", name)
			return
		}
		r.write(w)
	})
	if printErr != nil {
		return printErr
	}
	if err != nil {
		return &codeError{code: exitFailed, err: err, shown: a.json}
	}
	return nil
}

func (a *app) removeGarbage(ctx context.Context, s *checkpoint.Store, g *checkpoint.Garbage, r *garbageReport) error {
	bar := a.progress()
	defer bar.end()
	done := 0
	r.Files, r.Bytes = 0, 0
	err := s.RemoveGarbage(ctx, g, func(it checkpoint.GarbageItem) {
		r.Items[done].Removed = true
		r.Files += it.Files
		r.Bytes += it.Bytes
		done++
		bar.show("removed %d of %d, %s", done, len(g.Items), sizeText(r.Bytes))
	})
	if err != nil {
		r.Error = err.Error()
	}
	return err
}

func (r *garbageReport) write(w *tabwriter.Writer) {
	for _, it := range r.Items {
		if r.Deleted && !it.Removed {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", it.What, many(it.Files, "file"), sizeText(it.Bytes), it.Path, it.Reason)
	}
	for _, k := range r.Kept {
		_, _ = fmt.Fprintf(w, "kept\t\t\t%s\t%s\n", k.Path, k.Reason)
	}
	_ = w.Flush()
	switch {
	case r.Deleted:
		_, _ = fmt.Fprintf(w, "removed %s, %s\n", many(r.Files, "file"), sizeText(r.Bytes))
	case len(r.Items) == 0:
		_, _ = fmt.Fprintln(w, "nothing to remove")
	default:
		_, _ = fmt.Fprintf(w, "%s, %s can go: --delete removes them\n", many(r.Files, "file"), sizeText(r.Bytes))
	}
}
