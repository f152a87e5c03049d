package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

func (a *app) checkpointListCommand() *cobra.Command {
	var savepoints string
	c := &cobra.Command{
		Use:   "list FILE|STORAGE/PIPELINE",
		Short: "Lists the checkpoints and savepoints of a pipeline, named by its file or its folder on storage",
		Long: `Lists the checkpoints of a pipeline, those of its current job first, with what they took: the time from the trigger to the
proof, the size of all state, and how much of it is new since the one before. Failed ones are told with their reason as long as a
later one remembers them. Savepoints are those in checkpoint.savepoints of the file, or in the folder that --savepoints names.`,
		Example: "  etl checkpoint list orders.yaml\n  etl checkpoint list file:///var/lib/etl/orders\n  etl checkpoint list s3://bucket/etl/orders --savepoints s3://bucket/savepoints",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.listCheckpoints(c.Context(), args[0], savepoints)
		},
	}
	c.Flags().StringVar(&savepoints, "savepoints", "", "folder of savepoints to list too")
	return c
}

// listed is one line of the list.
type listed struct {
	Job       string          `json:"job,omitempty"`
	Current   bool            `json:"current"`
	Number    uint64          `json:"number"`
	State     string          `json:"state"`
	Kind      string          `json:"kind,omitempty"`
	Completed time.Time       `json:"completed,omitzero"`
	Duration  time.Duration   `json:"duration"` // nanoseconds
	Size      int64           `json:"size"`
	NewSize   *int64          `json:"new_size,omitempty"`
	Path      string          `json:"path,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Measured  *checkpointTime `json:"measured,omitempty"`
}

// checkpointTime is where the time of a checkpoint went, in nanoseconds.
type checkpointTime struct {
	Metadata time.Duration `json:"metadata"`
	Commit   time.Duration `json:"commit"`
}

func (a *app) listCheckpoints(ctx context.Context, name, savepoints string) error {
	s, file, err := a.storeOf(name)
	if err != nil {
		return err
	}
	if savepoints == "" && file != nil {
		savepoints = file.Checkpoint.Savepoints.Dir
	}
	jobs, err := s.List(ctx)
	if err != nil {
		return failed(err)
	}
	rows := []listed{}
	for _, j := range jobs {
		list, err := a.listJob(ctx, s, &j)
		if err != nil {
			return failed(err)
		}
		rows = append(rows, list...)
	}
	if savepoints != "" {
		for _, dir := range []string{savepoints, spec.PeriodicDir(savepoints, s.Pipeline())} {
			list, err := listSavepoints(ctx, dir, s.Pipeline())
			if err != nil {
				return failed(err)
			}
			rows = append(rows, list...)
		}
	}
	return a.printAs(rows, func(w *tabwriter.Writer) {
		if len(rows) == 0 {
			_, _ = fmt.Fprintf(w, "no checkpoints: nothing is kept there for the pipeline that %s names\n", name)
			return
		}
		_, _ = fmt.Fprintln(w, "NUMBER\tSTATE\tKIND\tCOMPLETED\tTOOK\tSIZE\tNEW\tPATH")
		for i := range rows {
			rows[i].write(w)
		}
	})
}

// listJob lists a job's checkpoints, and those that failed between them.
func (a *app) listJob(ctx context.Context, s *checkpoint.Store, j *checkpoint.JobFound) ([]listed, error) {
	var out []listed
	told := map[checkpoint.ID]bool{}
	for _, f := range j.Checkpoints {
		if f.Committed && !f.Complete {
			continue // what is left of one that was removed
		}
		stats, err := s.Statistics(ctx, f)
		if err != nil {
			a.log.Warn("what a checkpoint took cannot be read", "checkpoint", f.Path, "err", err)
		}
		if !f.Complete && told[checkpoint.ID{Number: f.Number}] {
			continue // its failure is told
		}
		r := listed{Job: j.ID, Current: j.Current, Number: f.Number, State: stateOf(&f), Path: f.Path}
		r.describe(f.Meta, stats)
		if f.Err != nil {
			r.Reason = f.Err.Error()
		}
		out = append(out, r)
		for _, st := range stats {
			by := checkpoint.ID{Number: st.ID.Number}
			if st.Status != checkpoint.Failed || told[by] {
				continue
			}
			told[by] = true
			out = append(out, listed{Job: j.ID, Current: j.Current, Number: st.ID.Number, State: "failed", Kind: string(st.Kind),
				Duration: st.Duration, Size: st.Size, Reason: st.Failure})
		}
	}
	return out, nil
}

// describe fills in what the metadata and what was measured tell. What was measured
// ends with the proof and knows what is new; the metadata is there without it.
func (r *listed) describe(m *checkpoint.Metadata, stats []checkpoint.AttemptStats) {
	if m == nil {
		return
	}
	r.Kind, r.Completed, r.Duration = string(m.Kind), m.Completed, m.Completed.Sub(m.Triggered)
	for _, f := range m.Files() {
		r.Size += f.Size
	}
	if len(stats) > 0 {
		own := &stats[0]
		r.Duration, r.Size, r.NewSize = own.Duration, own.Size, &own.NewSize
		r.Measured = &checkpointTime{Metadata: own.Metadata, Commit: own.Commit}
	}
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

// listSavepoints lists the savepoints of one pipeline in a folder; one whose metadata
// cannot be read may be its too.
func listSavepoints(ctx context.Context, dir, pipeline string) ([]listed, error) {
	all, err := checkpoint.Savepoints(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []listed
	for _, s := range all {
		if s.Meta != nil && s.Meta.Pipeline != pipeline {
			continue
		}
		r := listed{State: "whole", Kind: string(checkpoint.Savepoint), Path: s.Path}
		if s.Meta == nil {
			r.State, r.Reason = "damaged", s.Err.Error()
		} else {
			r.Job, r.Number = s.Meta.Job, s.Meta.Number
		}
		r.describe(s.Meta, nil)
		out = append(out, r)
	}
	return out, nil
}

func (r *listed) write(w *tabwriter.Writer) {
	done, took, size, fresh, where := "-", "-", "-", "-", r.Path
	if !r.Completed.IsZero() {
		done = r.Completed.Local().Format(time.DateTime)
	}
	if r.Duration > 0 {
		took = short(r.Duration)
	}
	if r.Kind != "" {
		size = sizeText(r.Size)
	}
	if r.NewSize != nil {
		fresh = sizeText(*r.NewSize)
	}
	if where == "" {
		where, _, _ = strings.Cut(r.Reason, "\n")
	}
	_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Number, r.State, r.Kind, done, took, size, fresh, where)
}

// short is a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
