package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// prepared stages one file and returns its committable.
func prepared(b *bench, value string) connectors.Committable {
	b.t.Helper()
	b.write(value)
	p, err := b.prepare(true)
	if err != nil {
		b.t.Fatal(err)
	}
	return p.Committables[len(p.Committables)-1]
}

func TestAFileThatAReaderTookIsLoggedAndDone(t *testing.T) {
	b := newBench(t, mem.New(), nil)
	c := prepared(b, "1")
	commit := b.sink.Committer().Commit
	if err := commit(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	if err := commit(t.Context(), c, true); err != nil || b.logged.Len() != 0 {
		t.Errorf("again: %v, logged %s", err, b.logged.String())
	}
	if err := b.sink.fs.Remove(t.Context(), b.visible()...); err != nil {
		t.Fatal(err)
	}
	if err := commit(t.Context(), c, true); err != nil || !strings.Contains(b.logged.String(), "p-s-g5-1-0-1-0a1b2c.jsonl") {
		t.Errorf("when it was taken: %v, logged %s", err, b.logged.String())
	}
}

// vanishing is a storage whose rules remove staged files.
type vanishing struct{ storage.FS }

func (v vanishing) Publish(ctx context.Context, s storage.Staged) error {
	err := v.FS.Publish(ctx, s)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := v.Stat(ctx, s.Name); statErr != nil {
			return fmt.Errorf("%w: %w", storage.ErrVanished, err)
		}
	}
	return err
}

// Where something else removes staged files, one that is missing with its file proves
// nothing: what it held may never have been published.
func TestAFileOfWhichNothingIsLeftIsNotTakenForPublished(t *testing.T) {
	b := newBench(t, vanishing{mem.New()}, nil)
	c := prepared(b, "1")
	commit := b.sink.Committer().Commit
	if err := errors.Join(commit(t.Context(), c, false), commit(t.Context(), c, true)); err != nil {
		t.Errorf("while the file is there: %v", err)
	}
	if err := b.sink.fs.Remove(t.Context(), b.visible()...); err != nil {
		t.Fatal(err)
	}
	if err := commit(t.Context(), c, true); !errors.Is(err, connectors.ErrAmbiguous) || errors.Is(err, connectors.ErrLost) {
		t.Errorf("got %v", err)
	}
}

func TestAForeignFileOfThatNameStopsThePipeline(t *testing.T) {
	for _, text := range []string{"somebody's", "2"} {
		b := newBench(t, mem.New(), nil)
		com := prepared(b, "1")
		if err := storage.WriteFile(t.Context(), b.sink.fs, "p-s-g5-1-0-1-0a1b2c.jsonl", []byte(text+"\n")); err != nil {
			t.Fatal(err)
		}
		err := b.sink.Committer().Commit(t.Context(), com, false)
		if !connectors.IsPermanent(err) || !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v", err)
		}
		if got := b.lines(); !slices.Equal(got, []string{text}) {
			t.Errorf("the file is now %q", got)
		}
		staged, err := b.sink.fs.Staged(t.Context(), "")
		if err != nil || len(staged) != 1 {
			t.Errorf("staged %+v, %v", staged, err)
		}
	}
}

func TestRunsWhoseGenerationsBeginAnewShareAFolder(t *testing.T) {
	store := mem.New()
	for i, v := range []string{"1", "2"} {
		b := newBench(t, store, nil)
		b.sink.run = newRun()
		if err := b.sink.Committer().Commit(t.Context(), prepared(b, v), false); err != nil {
			t.Fatal(err)
		}
		if got := b.lines(); len(got) != i+1 {
			t.Errorf("the folder holds %q", got)
		}
	}
}

func stage(t *testing.T, f storage.FS, name string) storage.Staged {
	t.Helper()
	w, err := f.Stage(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRevokeTakesOnlyOlderFilesOfThisSinkThatNothingHolds(t *testing.T) {
	b := newBench(t, mem.New(), nil) // pipeline p, sink s, generation 5
	store := b.sink.fs
	for _, name := range []string{
		"p-s-g5-1-0-1-0a1b2c.jsonl", "p-s-g6-1-0-1-0a1b2c.jsonl", // this and a newer owner's
		"p-s2-g1-1-0-1-0a1b2c.jsonl", "p2-s-g1-1-0-1-0a1b2c.jsonl", "q-p-s-g1-1-0-1-0a1b2c.jsonl", // other sinks and pipelines
		"p-s-g1.jsonl", "p-s-gx-1-0-1-0a1b2c.jsonl", "p-s-g1-1-0-1-0a1b2c", "other", // not of this form
	} {
		stage(t, store, name)
	}
	held := stage(t, store, "p-s-g3-9-0-1-0a1b2c.jsonl")
	stage(t, store, "p-s-g4-10-0-1-0a1b2c.jsonl")
	stage(t, store, "p-s-g4-10-1-2-0a1b2c.jsonl.gz")
	stage(t, store, "dt=1/p-s-g4-10-1-3-0a1b2c.jsonl")
	before, err := store.Staged(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(committableData{Files: []publishedFile{{Staged: held}}})
	if err != nil {
		t.Fatal(err)
	}
	keep := []connectors.Committable{
		{Committer: "file/s", Data: data},
		{Committer: "file/s", Empty: true},
		{Committer: "kafka", Data: json.RawMessage(`"not ours"`)},
	}
	if err := b.sink.Committer().Revoke(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	after, err := store.Staged(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, s := range before {
		if !slices.Contains(after, s) {
			gone = append(gone, s.Name)
		}
	}
	if !slices.Equal(gone, []string{"dt=1/p-s-g4-10-1-3-0a1b2c.jsonl", "p-s-g4-10-0-1-0a1b2c.jsonl", "p-s-g4-10-1-2-0a1b2c.jsonl.gz"}) {
		t.Errorf("revoked %q", gone)
	}
}

func TestRevokeStopsWhereACommittableCannotBeRead(t *testing.T) {
	b := newBench(t, mem.New(), nil)
	stage(t, b.sink.fs, "p-s-g3-9-0-1-0a1b2c.jsonl")
	keep := []connectors.Committable{{Committer: "file/s", Data: json.RawMessage(`[]`)}}
	if err := b.sink.Committer().Revoke(t.Context(), keep); !connectors.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
	if staged, err := b.sink.fs.Staged(t.Context(), ""); err != nil || len(staged) != 1 {
		t.Errorf("staged %+v, %v", staged, err)
	}
}

func TestNoTwoSinksShareAName(t *testing.T) {
	label := rapid.StringMatching(`[a-c]([a-c-]{0,4}[a-c])?`) // a DNS label
	sink := rapid.StringMatching(`[a-c0-9_-]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		p, q := label.Draw(t, "pipeline"), label.Draw(t, "other pipeline")
		s, r := sink.Draw(t, "sink"), sink.Draw(t, "other sink")
		name := fileName(namePrefix(p, s), 12, 3, 4, 5, newRun(), extPlain)
		if g, ok := nameGeneration(namePrefix(p, s), name); !ok || g != 12 {
			t.Fatalf("%s is not recognised by its own sink", name)
		}
		if _, ok := nameGeneration(namePrefix(q, r), name); ok && (p != q || s != r) {
			t.Fatalf("%s of pipeline %s, sink %s is taken for one of pipeline %s, sink %s", name, p, s, q, r)
		}
	})
}

func TestRestoreRefusesStateThatItCannotRead(t *testing.T) {
	for _, raw := range []string{`[]`, `{"open":{"segments":[],"ext":"parquet"}}`} {
		s, err := NewSink(sinkConfig("mem://x", nil))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Start(context.Background(), connectors.Restored{Subtasks: []connectors.Prepared{{State: json.RawMessage(raw)}}})
		if !connectors.IsPermanent(err) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestFileSinkRefusesWrongKeys(t *testing.T) {
	c := sinkConfig("hdfs://h/x", func(c *SinkConfig) {
		c.Compression, c.MaxOpenFiles, c.SuccessFile = "brotli", -1, "SUCCESS"
		c.PartitionBy.Text = "fixed"
		c.Roll = Roll{Size: 1, Age: -1, Records: -1, Inactivity: -1}
	})
	err := c.Validate()
	for _, want := range []string{"path:", "hdfs:", "compression:", "max_open_files:", "success_file:", "partition_by:", "roll.size:", "roll.age:", "roll.records:", "roll.inactivity:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := (&SinkConfig{}).Validate(); err == nil || !strings.Contains(err.Error(), "path: is missing") {
		t.Errorf("without a path: %v", err)
	}
}

func TestAFolderThatCannotBeWrittenIsAPersonsTask(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	local := func(path string) storage.FS {
		f, err := storage.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name  string
		store storage.FS
		want  string
	}{
		{"a file in its place", local(filepath.Join(dir, "file")), "a file is where a folder must be"},
		{"below a file", local(filepath.Join(dir, "file", "sub")), "a file is where a folder must be"},
		{"not permitted", storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpStage, Err: fs.ErrPermission}), "let this user write there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSink(sinkConfig("mem://x", nil))
			if err != nil {
				t.Fatal(err)
			}
			s.fs = c.store
			err = s.Open(t.Context(), connectors.SinkEnv{Pipeline: "p", Name: "s"})
			if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.store.URL()) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestACommittableTellsWhetherItIsPublishedAndOfHowManyRecords(t *testing.T) {
	b := newBench(t, mem.New(), nil)
	c := prepared(b, "1")
	if c.Records != 1 {
		t.Errorf("it tells of %d records", c.Records)
	}
	checker := b.sink.Committer().(connectors.PublishedChecker)
	if is, err := checker.Published(t.Context(), c); is || err != nil {
		t.Errorf("before its commit: %v, %v", is, err)
	}
	if err := b.sink.Committer().Commit(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	if is, err := checker.Published(t.Context(), c); !is || err != nil {
		t.Errorf("after its commit: %v, %v", is, err)
	}
	if is, err := checker.Published(t.Context(), connectors.Committable{Empty: true}); is || err != nil {
		t.Errorf("an empty one: %v, %v", is, err)
	}
}
