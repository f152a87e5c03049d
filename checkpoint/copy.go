package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

// Copy writes the files of the restored operators anew, as files of checkpoint n, and
// returns the operators with the new references: what the first checkpoint of a new
// job is made of, so that it needs nothing of the one it went on from. A state that
// names a file by its path names the new one afterwards.
func (j *Job) Copy(ctx context.Context, n uint64, r *Restore) ([]Operator, error) {
	if r.Meta == nil {
		return nil, nil
	}
	return copyOperators(ctx, r.Files, j.Files(n), r.Meta)
}

// copyOperators copies the files of m and returns its operators with what they are called now.
func copyOperators(ctx context.Context, from, to connectors.CheckpointFiles, m *Metadata) ([]Operator, error) {
	// What committables refer to is published by now.
	files := (&Metadata{Operators: m.Operators}).Files()
	made := make([]connectors.StateFile, len(files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copiesAtOnce)
	for i, f := range files {
		g.Go(func() (err error) {
			defer connectors.Recovered(&err)
			made[i], err = copyFile(gctx, from, to, f)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	copied := map[string]connectors.StateFile{}
	for i, f := range files {
		copied[f.Path] = made[i]
	}
	ops := slices.Clone(m.Operators)
	for i := range ops {
		ops[i].redirect(copied)
	}
	return ops, nil
}

// copiesAtOnce is how many state files are copied side by side: a start waits for them.
const copiesAtOnce = 4

// redirect replaces the operator's file references, in slices of its own.
func (o *Operator) redirect(to map[string]connectors.StateFile) {
	o.KeyGroups = slices.Clone(o.KeyGroups)
	for i := range o.KeyGroups {
		o.KeyGroups[i].File = to[o.KeyGroups[i].File.Path]
	}
	o.Subtasks = slices.Clone(o.Subtasks)
	for i := range o.Subtasks {
		t := &o.Subtasks[i]
		t.Files = slices.Clone(t.Files)
		for k, f := range t.Files {
			t.Files[k] = to[f.Path]
			t.State = bytes.ReplaceAll(t.State, quoted(f.Path), quoted(to[f.Path].Path))
		}
	}
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string can always be encoded
	return b
}

func copyFile(ctx context.Context, from, to connectors.CheckpointFiles, f connectors.StateFile) (connectors.StateFile, error) {
	r, err := from.Open(ctx, f)
	if err != nil {
		return connectors.StateFile{}, err
	}
	defer func() { _ = r.Close() }()
	w, err := to.Create(ctx)
	if err != nil {
		return connectors.StateFile{}, err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return connectors.StateFile{}, fmt.Errorf("copy state file %s: %w", f.Path, err)
	}
	return w.Close()
}
