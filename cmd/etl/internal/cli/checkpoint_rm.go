package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
)

func (a *app) checkpointRmCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Removes checkpoints and savepoints by their paths",
		Long: `Removes checkpoints and savepoints: the metadata first, then the folder, then those shared files that no checkpoint beside it needs.
What a pipeline needs is refused with its reason and exit code 3: the newest proven checkpoint of a job that goes on, one that is not proven yet,
one that a new job has restored and not copied. --force removes what is damaged, and what only a job that has ended would go on from.`,
		Example: "  etl checkpoint rm s3://bucket/savepoints/savepoint-4f1c09-0a1b2c3d4e5f\n  etl checkpoint rm /var/lib/etl/orders/4f1c…/chk-857 /var/lib/etl/orders/4f1c…/chk-858",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.removeCheckpoints(c.Context(), args, force) },
	}
	c.Flags().BoolVar(&force, "force", false, "also remove what is refused where that can be")
	return c
}

// removeCheckpoints removes one after the other; one that is refused does not keep
// the others.
func (a *app) removeCheckpoints(ctx context.Context, names []string, force bool) error {
	var worst *codeError
	for _, name := range names {
		r, err := checkpoint.Remove(ctx, name, force)
		if err == nil {
			if err := a.printAs(r, func(w *tabwriter.Writer) { writeRemoved(w, r) }); err != nil {
				return err
			}
			continue
		}
		var refused *checkpoint.RefusedError
		code := exitFailed
		if errors.As(err, &refused) {
			code = exitPerson
		}
		if worst != nil {
			code = max(code, worst.code)
			err = errors.Join(worst.err, err)
		}
		worst = &codeError{code: code, err: err}
	}
	if worst != nil {
		return worst
	}
	return nil
}

func writeRemoved(w *tabwriter.Writer, r *checkpoint.Removed) {
	_, _ = fmt.Fprintf(w, "%s is removed: %s, %s\n", r.Path, many(r.Files, "file"), sizeText(r.Bytes))
	for _, left := range r.Left {
		_, _ = fmt.Fprintf(w, "  left: %s\n", left)
	}
}
