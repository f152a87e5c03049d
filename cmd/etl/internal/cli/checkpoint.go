package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/storage"
)

func (a *app) checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Lists, shows and verifies checkpoints on storage, without a daemon",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	list := &cobra.Command{
		Use:     "list FILE|STORAGE/PIPELINE",
		Short:   "Lists the checkpoints of a pipeline, named by its file or its folder on storage",
		Example: "  etl checkpoint list orders.yaml\n  etl checkpoint list file:///var/lib/etl/orders",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.listCheckpoints(c.Context(), args[0]) },
	}
	inspect := &cobra.Command{
		Use:     "inspect PATH",
		Short:   "Shows what a checkpoint holds",
		Example: "  etl checkpoint inspect file:///var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.inspectCheckpoint(c.Context(), args[0]) },
	}
	verify := &cobra.Command{
		Use:     "verify PATH",
		Short:   "Reads every byte of a checkpoint and compares it with its checksums",
		Example: "  etl checkpoint verify file:///var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.verifyCheckpoint(c.Context(), args[0]) },
	}
	c.AddCommand(list, inspect, verify)
	return c
}

// storeOf opens the store that a pipeline file or a pipeline's folder names.
func (a *app) storeOf(name string) (*checkpoint.Store, error) {
	address, pipe := path.Dir(strings.TrimRight(name, "/")), path.Base(strings.TrimRight(name, "/"))
	if i := strings.Index(name, "://"); i >= 0 {
		address = strings.TrimSuffix(strings.TrimRight(name, "/"), "/"+pipe)
	}
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		plan, err := a.load(name, nil)
		if err != nil {
			return nil, err
		}
		address, pipe = plan.Spec.Checkpoint.Storage, plan.Spec.Name
		if address == "" {
			return nil, usageError(fmt.Errorf("%s keeps its checkpoints in memory: it has no checkpoint.storage", name))
		}
	}
	fs, err := storage.Open(address)
	if err != nil {
		return nil, usageError(err)
	}
	s, err := checkpoint.NewStore(fs, pipe, checkpoint.StoreOptions{Log: a.log})
	if err != nil {
		return nil, usageError(err)
	}
	return s, nil
}

func (a *app) listCheckpoints(ctx context.Context, name string) error {
	s, err := a.storeOf(name)
	if err != nil {
		return err
	}
	jobs, err := s.List(ctx)
	if err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	type row struct {
		Job       string    `json:"job"`
		Current   bool      `json:"current"`
		Number    uint64    `json:"number"`
		State     string    `json:"state"`
		Kind      string    `json:"kind,omitempty"`
		Completed time.Time `json:"completed,omitzero"`
		Path      string    `json:"path"`
	}
	rows := []row{}
	for _, j := range jobs {
		for _, f := range j.Checkpoints {
			if f.Committed && !f.Complete {
				continue // what is left of one that was removed
			}
			r := row{Job: j.ID, Current: j.Current, Number: f.Number, State: stateOf(&f), Path: f.Path}
			if f.Meta != nil {
				r.Kind, r.Completed = string(f.Meta.Kind), f.Meta.Completed
			}
			rows = append(rows, r)
		}
	}
	if a.json {
		return json.NewEncoder(a.out).Encode(rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintf(a.out, "no checkpoints: nothing is kept there for the pipeline that %s names\n", name)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NUMBER\tSTATE\tKIND\tCOMPLETED\tPATH")
	for _, r := range rows {
		done := "-"
		if !r.Completed.IsZero() {
			done = r.Completed.Local().Format(time.DateTime)
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.Number, r.State, r.Kind, done, r.Path)
	}
	return w.Flush()
}

func stateOf(f *checkpoint.Found) string {
	switch {
	case f.Err != nil:
		return "damaged"
	case f.Orphan:
		return "orphan"
	case f.Committed:
		return "committed"
	case f.Complete:
		return "complete"
	}
	return "incomplete"
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
		_, _ = fmt.Fprintf(w, "  keyed state\t%d files, %d bytes\n", len(files), bytes)
	}
	for _, s := range op.Subtasks {
		n := int64(0)
		for _, f := range s.Files {
			n += f.Size
		}
		if len(s.Files) > 0 || len(files) == 0 {
			_, _ = fmt.Fprintf(w, "  subtask %d\t%d files, %d bytes\n", s.Subtask, len(s.Files), n)
		}
	}
}

func (a *app) inspectCheckpoint(ctx context.Context, name string) error {
	o, err := checkpoint.Inspect(ctx, name)
	if err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	m := o.Meta
	if a.json {
		return json.NewEncoder(a.out).Encode(struct {
			Path      string `json:"path"`
			Committed bool   `json:"committed"`
			*checkpoint.Metadata
		}{o.Path, o.Committed, m})
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "checkpoint\t%d of pipeline %s, %s\n", m.Number, m.Pipeline, m.Kind)
	_, _ = fmt.Fprintf(w, "path\t%s\n", o.Path)
	_, _ = fmt.Fprintf(w, "job\t%s, generation %d\n", m.Job, m.Generation)
	_, _ = fmt.Fprintf(w, "completed\t%s, %s after its trigger\n", m.Completed.Local().Format(time.DateTime), m.Completed.Sub(m.Triggered).Round(time.Millisecond))
	_, _ = fmt.Fprintf(w, "committed\t%v\n", o.Committed)
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
	return w.Flush()
}

func (a *app) verifyCheckpoint(ctx context.Context, name string) error {
	r, err := checkpoint.Verify(ctx, name)
	if err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	faults := []string{}
	for _, f := range r.Faults {
		faults = append(faults, f.Error())
	}
	if a.json {
		if err := json.NewEncoder(a.out).Encode(map[string]any{
			"path": r.Path, "ok": len(faults) == 0, "files": r.Files, "bytes": r.Bytes, "faults": faults,
		}); err != nil {
			return err
		}
	} else if len(faults) == 0 {
		_, _ = fmt.Fprintf(a.out, "%s is whole: its metadata and %d files, %d bytes\n", r.Path, r.Files, r.Bytes)
	}
	if len(faults) > 0 {
		return &codeError{code: exitFailed, err: errors.New(strings.Join(faults, "\n")), shown: a.json}
	}
	return nil
}
