package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// kept is a checkpoint of some version of the program in testdata/checkpoints, with
// what it takes to go on from it:
//
//	pipeline.yaml   the definition, with FEED-, TARGET-, STORAGE, OUT, STATE and BROKERS to be replaced
//	input.jsonl     all records of the feeds, in the order of each partition
//	after.json      what is published after the newest checkpoint, by target, sorted
//	storage/        the checkpoint storage
//	savepoints/     a savepoint in place of the storage
type kept struct {
	dir   string
	yaml  string
	input []fed
	after map[string][]string
}

// fed is one record of one partition of a feed.
type fed struct {
	Feed      string          `json:"feed"`
	Partition int             `json:"partition"`
	Value     json.RawMessage `json:"value"`
}

func readKept(t *testing.T, dir string) *kept {
	t.Helper()
	k := &kept{dir: dir, after: map[string][]string{}}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	k.yaml = string(read("pipeline.yaml"))
	for line := range bytes.Lines(read("input.jsonl")) {
		var f fed
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatal(err)
		}
		k.input = append(k.input, f)
	}
	if err := json.Unmarshal(read("after.json"), &k.after); err != nil {
		t.Fatal(err)
	}
	return k
}

// world makes a world of a definition, with settings for where state is kept.
func world(t *testing.T, definition, out, state string) *pipelinetest.World {
	t.Helper()
	return pipelinetest.New(t, strings.NewReplacer("OUT", out, "STATE", state).Replace(definition))
}

// feedOn appends a part of the input.
func feedOn(w *pipelinetest.World, input []fed) {
	for _, f := range input {
		w.Feed(f.Feed, 3).Append(f.Partition, string(f.Value))
	}
}

// copyIn copies a folder of the test data into a storage.
func copyIn(t *testing.T, dir string, to storage.FS) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return storage.WriteFile(t.Context(), to, name, data)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyOut writes what a storage holds below a folder into the test data.
func copyOut(t *testing.T, from storage.FS, below, dir string) {
	t.Helper()
	infos, err := from.List(t.Context(), below)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		data, err := storage.ReadFile(t.Context(), from, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(info.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// published is what the targets of a world and the files below out hold, sorted.
func published(t *testing.T, w *pipelinetest.World, targets []string, out string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for _, name := range targets {
		if name == "files" {
			got[name] = linesBelow(t, out)
			continue
		}
		got[name] = append([]string{}, w.Target(name).Values()...)
		slices.Sort(got[name])
	}
	return got
}

func linesBelow(t *testing.T, address string) []string {
	t.Helper()
	f, err := storage.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := f.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, info := range infos {
		data, err := storage.ReadFile(t.Context(), f, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(lines)
	return lines
}

// without takes the values of part out of sorted all, each as often as it is there.
func without(all, part []string) ([]string, error) {
	out := slices.Clone(all)
	for _, v := range part {
		i, ok := slices.BinarySearch(out, v)
		if !ok {
			return nil, fmt.Errorf("%s was published, and is no result of the whole", v)
		}
		out = slices.Delete(out, i, i+1)
	}
	return out, nil
}
