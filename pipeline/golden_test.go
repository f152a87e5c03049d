package pipeline_test

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/local" // the folder of the test data
)

// TestCheckpointsOfEveryVersionGoOn restores what every version of the program has
// written, and reads on: by itself in the job's folder, and by its path at another
// parallelism, in both backends where the form is neutral.
func TestCheckpointsOfEveryVersionGoOn(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "checkpoints", "v*", "*", "pipeline.yaml"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no checkpoints are kept: %v", err)
	}
	for _, name := range dirs {
		dir := filepath.Dir(name)
		onDisk, savepoint := filepath.Base(dir) == "disk", filepath.Base(dir) == "savepoint"
		if filepath.Base(dir) == "kafka" {
			t.Run(filepath.ToSlash(dir[len("testdata/checkpoints/"):]), func(t *testing.T) { goOnWithKafka(t, readKept(t, dir)) })
			continue
		}
		t.Run(filepath.ToSlash(dir[len("testdata/checkpoints/"):]), func(t *testing.T) {
			k := readKept(t, dir)
			for backend, state := range backends(t) {
				if onDisk && backend == "in memory" {
					continue // it does not read the form of the other
				}
				for _, way := range []string{"by itself", "by its path"} {
					if savepoint && way == "by itself" {
						continue
					}
					t.Run(way+" "+backend, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { k.goOn(t, way, state) })
					})
				}
			}
		})
	}
}

// goOn restores the newest checkpoint and reads the input to its end.
func (k *kept) goOn(t *testing.T, way, state string) {
	out := "mem://" + t.Name() + "-out"
	definition := k.yaml
	if way != "by itself" {
		definition = strings.NewReplacer("\nparallelism: 1\n", "\nparallelism: 3\n", "\nparallelism: 2\n", "\nparallelism: 3\n").Replace(definition)
	}
	w := world(t, definition, out, state)
	if way == "by itself" {
		copyIn(t, filepath.Join(k.dir, "storage"), w.Storage())
	} else {
		w.Options.From = k.newest(t)
	}
	k.runToTheEnd(t, w, out)
}

func (k *kept) runToTheEnd(t *testing.T, w *pipelinetest.World, out string) {
	t.Helper()
	feedOn(w, k.input)
	w.Feed("left", 3).End()
	w.Feed("right", 3).End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	targets := slices.Sorted(maps.Keys(k.after))
	got := published(t, w, targets, out)
	for _, name := range targets {
		if len(k.after[name]) == 0 {
			t.Errorf("%s: nothing was left to come, which tests nothing", name)
		}
		if !slices.Equal(got[name], k.after[name]) {
			t.Errorf("%s: %d results, want %d; %v", name, len(got[name]), len(k.after[name]), difference(got[name], k.after[name]))
		}
	}
}

// newest is the path of the newest proven checkpoint that is kept.
func (k *kept) newest(t *testing.T) string {
	t.Helper()
	if all, err := filepath.Glob(filepath.Join(k.dir, "savepoints", "*")); err == nil && len(all) == 1 {
		return all[0]
	}
	markers, err := filepath.Glob(filepath.Join(k.dir, "storage", "*", "*", "chk-*", "_committed"))
	if err != nil || len(markers) == 0 {
		t.Fatalf("no proven checkpoint: %v", err)
	}
	best, at := uint64(0), ""
	for _, m := range markers {
		o, err := checkpoint.Inspect(t.Context(), filepath.Dir(m))
		if err != nil {
			t.Fatal(err)
		}
		if o.Meta.Number > best {
			best, at = o.Meta.Number, filepath.Dir(m)
		}
	}
	return at
}

// TestACheckpointOfALaterVersionIsRefusedByItsVersion changes the number of the format
// in metadata that is right otherwise.
func TestACheckpointOfALaterVersionIsRefusedByItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := readKept(t, filepath.Join("testdata", "checkpoints", "v1", "memory"))
		w := world(t, k.yaml, "mem://later-out", "")
		copyIn(t, filepath.Join(k.dir, "storage"), w.Storage())
		feedOn(w, k.input)
		infos, err := w.Storage().List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		folder := ""
		for _, info := range infos {
			if path.Base(info.Name) != "_metadata" {
				continue
			}
			data, err := storage.ReadFile(t.Context(), w.Storage(), info.Name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			later := checkpointtest.Reseal(bytes.Replace(data, []byte(`{"format":1,`), []byte(`{"format":2,"more":{},`), 1))
			if err := w.Storage().Remove(t.Context(), info.Name); err != nil {
				t.Fatal(err)
			}
			if err := storage.WriteFile(t.Context(), w.Storage(), info.Name, later); err != nil {
				t.Fatal(err)
			}
			folder = path.Dir(info.Name)
		}
		for _, from := range []string{"", w.Address() + "/" + folder} {
			w.Options.From = from
			_, err := w.Run()
			var version *checkpoint.VersionError
			if !errors.As(err, &version) || version.Format != 2 || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "newer program: its format is 2") {
				t.Errorf("from %q: %v", from, err)
			}
		}
		if rows := w.Target("totals").Values(); len(rows) > 0 {
			t.Errorf("it has published %q", rows)
		}
	})
}
