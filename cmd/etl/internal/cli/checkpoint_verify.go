package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
)

func (a *app) checkpointVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify PATH...",
		Short: "Reads every byte of checkpoints and compares them with their checksums",
		Long: `Reads every byte of checkpoints and savepoints and compares them with their checksums. Each file that is missing, cut off, changed
or another one's is named, and the exit code is 1 then.`,
		Example: "  etl checkpoint verify file:///var/lib/etl/orders/4f1c…/chk-860\n  etl checkpoint verify /var/lib/etl/orders/*/chk-*",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.verifyCheckpoints(c.Context(), args) },
	}
}

// verified is what verify found of one checkpoint.
type verified struct {
	Path   string   `json:"path"`
	OK     bool     `json:"ok"`
	Files  int      `json:"files"`
	Bytes  int64    `json:"bytes"`
	Faults []string `json:"faults"`
	// Warnings are damage that no restore meets.
	Warnings []string `json:"warnings,omitempty"`
}

func (a *app) verifyCheckpoints(ctx context.Context, names []string) error {
	bar := a.progress()
	defer bar.end()
	var faults []string
	for _, name := range names {
		v := a.verifyCheckpoint(ctx, name, bar)
		bar.end()
		faults = append(faults, v.Faults...)
		err := a.printAs(v, func(w *tabwriter.Writer) {
			if v.OK {
				_, _ = fmt.Fprintf(w, "%s is whole: its metadata and %s, %d bytes\n", v.Path, many(v.Files, "file"), v.Bytes)
			}
			for _, text := range v.Warnings {
				_, _ = fmt.Fprintf(w, "warning: %s\n", text)
			}
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(faults) > 0 {
		return &codeError{code: exitFailed, err: errors.New(strings.Join(faults, "\n")), shown: a.json}
	}
	return nil
}

func (a *app) verifyCheckpoint(ctx context.Context, name string, bar *progressLine) verified {
	o, err := checkpoint.Inspect(ctx, name)
	if err != nil {
		return verified{Path: name, Faults: []string{err.Error()}}
	}
	r := o.Verify(ctx, func(done, all checkpoint.Amount) {
		bar.show("%s: %d of %s, %s of %s", name, done.Files, many(all.Files, "file"), sizeText(done.Bytes), sizeText(all.Bytes))
	})
	v := verified{Path: r.Path, OK: len(r.Faults) == 0, Files: r.Files, Bytes: r.Bytes, Faults: []string{}}
	for _, f := range r.Faults {
		v.Faults = append(v.Faults, fmt.Sprintf("%s: %v", r.Path, f))
	}
	for _, warning := range r.Warnings {
		v.Warnings = append(v.Warnings, fmt.Sprintf("%s: %v", r.Path, warning))
	}
	return v
}
