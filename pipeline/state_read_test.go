package pipeline_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

var writeState = flag.Bool("write-state", false, "write what is shown of the kept checkpoints' state beside them, where it is not there yet")

// TestTheStateOfCheckpointsOfEveryVersionIsShown takes apart what every version of the
// program has written, of all steps and functions and in both forms, by what the
// checkpoints say of it themselves, and compares with what was shown at first.
func TestTheStateOfCheckpointsOfEveryVersionIsShown(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "checkpoints", "v*", "*", "pipeline.yaml"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no checkpoints are kept: %v", err)
	}
	for _, name := range dirs {
		dir := filepath.Dir(name)
		if filepath.Base(dir) == "kafka" {
			continue // it has no keyed state
		}
		t.Run(filepath.ToSlash(dir[len("testdata/checkpoints/"):]), func(t *testing.T) {
			got := shownState(t, readKept(t, dir).newest(t))
			if filepath.Base(dir) == "savepoint" {
				return // its form is that of memory
			}
			file := filepath.Join(dir, "state.txt")
			if _, err := os.Stat(file); *writeState && os.IsNotExist(err) {
				if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("line %d of %d, where %d are wanted:\ngot  %v\nwant %v", i+1, len(got), len(want), got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
				}
			}
		})
	}
}

// shownState is all that is shown of a checkpoint's keyed state, in order.
func shownState(t *testing.T, path string) (lines []string) {
	t.Helper()
	o, err := checkpoint.Inspect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Meta.Operators {
		op := &o.Meta.Operators[i]
		r := pipeline.OpenState(o.Meta, o.Files, op)
		err := r.Each(t.Context(), func(e *pipeline.StateEntry) error {
			s := r.Show(e)
			if s.Reason != "" || !json.Valid(s.Key) || !json.Valid(s.Value) {
				t.Errorf("%s %s: key %s, value %s: %s", op.UID, e.Table, s.Key, s.Value, s.Reason)
			}
			at := fmt.Sprint(e.Namespace)
			if s.Span != nil {
				at = fmt.Sprintf("%s %d..%d", s.Span.What, s.Span.Start, s.Span.End)
			}
			lines = append(lines, fmt.Sprintf("%s %s %s of group %d: %s %s", op.UID, e.Table, at, e.KeyGroup, s.Key, s.Value))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	slices.Sort(lines)
	return lines
}
