package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/mem" // what they are damaged in
)

// specimen is the storage of a real pipeline that has taken some checkpoints: metadata, state
// of both backends, segments of a file sink, statistics, owners' records, claims and
// markers, and the record of the job's end where ended says so.
type specimen struct {
	t       *testing.T
	fs      storage.FS
	url     string
	store   *checkpoint.Store
	whole   map[string][]byte // content by name
	names   []string
	metas   map[string]*checkpoint.Metadata // by the folder
	readers map[string]func() error         // of the files whose content counts: reads one and says what is wrong
	ended   bool
}

func specimens(t *testing.T) map[string]string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("..", "pipeline", "testdata", "checkpoints", "v*", "*", "storage"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no checkpoints to damage: %v", err)
	}
	out := map[string]string{}
	for _, d := range dirs {
		out[filepath.Base(filepath.Dir(d))] = d
	}
	return out
}

func newSpecimen(t *testing.T, dir string, ended bool) *specimen {
	t.Helper()
	url := "mem://damage-" + strings.NewReplacer("/", "-", " ", "-", "_", "-").Replace(strings.ToLower(t.Name()))
	f, err := storage.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	s := &specimen{t: t, fs: f, url: url, whole: map[string][]byte{}, metas: map[string]*checkpoint.Metadata{}, readers: map[string]func() error{}, ended: ended}
	if s.store, err = checkpoint.NewStore(f, "kept", checkpoint.StoreOptions{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return storage.WriteFile(t.Context(), f, name, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	sv, err := s.store.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ended {
		if err := s.store.Job(sv.Job, sv.Highest).End(t.Context(), checkpoint.Ended{How: checkpoint.Stopped, Path: sv.Checkpoints[0].Path}); err != nil {
			t.Fatal(err)
		}
	}
	s.learn(sv)
	return s
}

// learn notes what is there and how each file is read.
func (s *specimen) learn(sv *checkpoint.Survey) {
	s.t.Helper()
	infos, err := s.fs.List(s.t.Context(), "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range infos {
		data, err := storage.ReadFile(s.t.Context(), s.fs, info.Name, 1<<30)
		if err != nil {
			s.t.Fatal(err)
		}
		s.whole[info.Name] = data
		s.names = append(s.names, info.Name)
		if isRecord(info.Name) {
			s.readers[info.Name] = func() error { return s.damagedRecord(info.Name) }
		}
	}
	for _, c := range sv.Checkpoints {
		dir := path.Join("kept", c.Job, path.Base(c.Path))
		s.metas[dir] = c.Meta
		o, err := checkpoint.Inspect(s.t.Context(), c.Path)
		if err != nil {
			s.t.Fatal(err)
		}
		s.readers[dir+"/_metadata"] = func() error { _, err := checkpoint.Inspect(s.t.Context(), c.Path); return err }
		if _, ok := s.whole[dir+"/_statistics"]; ok {
			s.readers[dir+"/_statistics"] = func() error { _, err := o.Statistics(s.t.Context()); return err }
		}
		for _, file := range c.Meta.Files() {
			s.readers[path.Join(dir, file.Path)] = func() error { _, err := readAll(s.t.Context(), o.Files, file); return err }
		}
	}
}

// damagedRecord is what a survey says is wrong with a record.
func (s *specimen) damagedRecord(name string) error {
	sv, err := s.store.Survey(s.t.Context())
	if err != nil {
		return err
	}
	return errors.Join(slices.Collect(maps.Values(sv.Damaged))...)
}

func readAll(ctx context.Context, files connectors.CheckpointFiles, f connectors.StateFile) ([]byte, error) {
	r, err := files.Open(ctx, f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}

// put gives a file another content; nil removes it.
func (s *specimen) put(name string, data []byte) {
	err := s.fs.Remove(s.t.Context(), name)
	if err == nil && data != nil {
		err = storage.WriteFile(s.t.Context(), s.fs, name, data)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *specimen) heal(names ...string) {
	for _, name := range names {
		s.put(name, s.whole[name])
	}
}

// finds checks that who reads a file is told that it is damaged, by its name.
func (s *specimen) finds(what, name string) {
	s.t.Helper()
	err := s.readers[name]()
	var damage *checkpoint.DamageError
	if !errors.As(err, &damage) || !strings.Contains(err.Error(), path.Base(name)) {
		s.t.Fatalf("%s, %s: got %v", name, what, err)
	}
}

// restores lets a start choose, and checks that it goes on from exactly what a
// checkpoint held, or is refused, and that the damage is named where it mattered.
func (s *specimen) restores(what string, damaged ...string) {
	s.t.Helper()
	sv, err := s.store.Survey(s.t.Context())
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	r, err := s.store.Choose(s.t.Context(), sv, checkpoint.Request{})
	if err != nil {
		if !connectors.IsPermanent(err) || !namesOne(err.Error(), damaged) {
			s.t.Fatalf("%s: it is refused with %v", what, err)
		}
		return
	}
	if r.Meta == nil {
		s.t.Fatalf("%s: it begins anew", what)
	}
	dir := path.Join("kept", r.Meta.Job, fmt.Sprintf("chk-%d", r.Meta.Number))
	if !reflect.DeepEqual(r.Meta, s.metas[dir]) {
		s.t.Fatalf("%s: the metadata of %s is another", what, dir)
	}
	for _, f := range r.Meta.Files() {
		if data, err := readAll(s.t.Context(), r.Files, f); err != nil || !bytes.Equal(data, s.whole[path.Join(dir, f.Path)]) {
			s.t.Fatalf("%s: file %s of %s is another: %v", what, f.Path, dir, err)
		}
	}
	for _, skipped := range r.Skipped {
		if !namesOne(skipped.Err.Error(), damaged) {
			s.t.Fatalf("%s: a checkpoint was passed over for %v", what, skipped.Err)
		}
	}
}

// namesOne reports whether a text names one of the files, or tells that they are not
// there: metadata by its folder, the records of owners as such.
func namesOne(text string, files []string) bool {
	return slices.ContainsFunc(files, func(f string) bool {
		dir, base := path.Split(f)
		return strings.Contains(text, base) || base == "_metadata" && strings.Contains(text, path.Base(dir)+": there is no checkpoint") ||
			strings.HasPrefix(base, "owner-") && strings.Contains(text, "the records of owners that tell which job is the current one are gone")
	})
}

func isRecord(name string) bool { return strings.HasSuffix(name, ".json") }

func TestEveryByteThatIsFlippedOrMissingIsFoundAndNamed(t *testing.T) {
	for name, dir := range specimens(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpecimen(t, dir, true)
			for file := range s.readers {
				if isRecord(file) && name != "kafka" {
					continue // they are alike, and each look reads all metadata
				}
				data := s.whole[file]
				damaged := bytes.Clone(data)
				for i := range data {
					damaged[i] ^= byte(1 << (i % 8))
					s.put(file, damaged)
					s.finds(fmt.Sprintf("byte %d flipped", i), file)
					damaged[i] = data[i]
				}
				for n := range data {
					s.put(file, data[:n])
					s.finds(fmt.Sprintf("cut off after %d bytes", n), file)
				}
				s.put(file, append(bytes.Clone(data), '\n'))
				s.finds("a byte added", file)
				s.heal(file)
			}
		})
	}
}

func TestADamagedFileNeverBecomesState(t *testing.T) {
	for name, dir := range specimens(t) {
		for _, ended := range []bool{false, true} {
			if ended && name != "kafka" {
				continue // what a start reads of them is the same
			}
			t.Run(fmt.Sprintf("%s ended %v", name, ended), func(t *testing.T) {
				t.Parallel()
				s := newSpecimen(t, dir, ended)
				s.restores("whole")
				for _, file := range s.names {
					data := s.whole[file]
					kinds := map[string][]byte{"missing": nil}
					if len(data) > 0 {
						kinds["flipped"] = bytes.Clone(data)
						kinds["flipped"][len(data)/2] ^= 1
					}
					if len(data) > 0 && name == "kafka" {
						kinds["halved"], kinds["emptied"], kinds["zeroed"] = data[:len(data)/2], []byte{}, make([]byte, len(data))
					}
					for what, damaged := range kinds {
						s.put(file, damaged)
						s.restores(file+" "+what, file)
						s.heal(file)
					}
				}
			})
		}
	}
}

func TestFilesThatChangedPlacesAreFoundAndNamed(t *testing.T) {
	for name, dir := range specimens(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpecimen(t, dir, true)
			for i, a := range s.names {
				for _, b := range s.names[:i] {
					if bytes.Equal(s.whole[a], s.whole[b]) {
						continue
					}
					s.put(a, s.whole[b])
					s.put(b, s.whole[a])
					for _, file := range []string{a, b} {
						if s.readers[file] != nil && !(isRecord(a) && isRecord(b) && path.Base(file) == "ended.json") { // an owner's hides it
							s.finds("swapped for another", file)
						}
					}
					if name == "kafka" {
						s.restores(a+" and "+b+" swapped", a, b)
					}
					s.heal(a, b)
				}
			}
		})
	}
}
