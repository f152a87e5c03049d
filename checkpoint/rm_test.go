package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// onDisk is a store that checkpoints can be named in by their paths.
func onDisk(t *testing.T) (string, storage.FS, *checkpoint.Store) {
	t.Helper()
	dir := t.TempDir()
	f, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, f, newStore(t, f, checkpoint.StoreOptions{})
}

// sharing lets the next checkpoint refer to what the newest one does.
func (p *process) sharing() *process {
	p.t.Helper()
	sv, err := p.store.Survey(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.files = sv.Checkpoints[0].Meta.Files()
	return p
}

func TestRemovingACheckpoint(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, f storage.FS, p *process)
		n     uint64
		force bool
		left  string // of p's job
		says  string // why it is refused; empty where it is not
	}{
		{"of the current job: its files are for retention", nil, 1, false, "1-1 1-2 1-3 chk-2 chk-3", ""},
		{"the newest proven one", nil, 3, true, "1-1 1-2 1-3 chk-1 chk-2 chk-3", "newest proven"},
		{"one that is not proven", func(t *testing.T, _ storage.FS, p *process) {
			if _, err := p.complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 4, true, "1-1 1-2 1-3 1-4 chk-1 chk-2 chk-3 chk-4", "not proven yet"},
		{"of an old job, with its own files only", func(t *testing.T, _ storage.FS, p *process) {
			p.sharing().take(1)
			start(t, p.store, p.path(4)).take(1)
		}, 4, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3", ""},
		{"of an old job, files that others need stay", func(t *testing.T, _ storage.FS, p *process) {
			p.sharing().take(1)
			start(t, p.store, p.path(4)).take(1)
		}, 3, false, "1-1 1-2 1-3 1-4 chk-1 chk-2 chk-4", ""},
		{"of an old job beside a damaged one", func(t *testing.T, f storage.FS, p *process) {
			start(t, p.store, p.path(3)).take(1)
			if err := checkpointtest.Zero().Do(t.Context(), f, p.chk(2, "_metadata")); err != nil {
				t.Fatal(err)
			}
		}, 3, false, "1-1 1-2 1-3 chk-1 chk-2", ""},
		{"one that a new job has restored and not copied", func(t *testing.T, _ storage.FS, p *process) {
			start(t, p.store, p.path(2))
		}, 2, true, "1-1 1-2 1-3 chk-1 chk-2 chk-3", "no checkpoint of its own"},
		{"one that running sinks may read", restoredAndBegun(1), 2, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3", "running sinks may read it"},
		{"one that running sinks may read, by force", restoredAndBegun(1), 2, true, "1-1 1-3 chk-1 chk-3", ""},
		{"one that a new job has restored and left behind", restoredAndBegun(2), 2, false, "1-1 1-3 chk-1 chk-3", ""},
		{"by force, while it is not known which job is the current one: files that it may need stay", func(t *testing.T, f storage.FS, p *process) {
			if err := checkpointtest.Zero().Do(t.Context(), f, "orders/owner-1.json"); err != nil {
				t.Fatal(err)
			}
		}, 1, true, "1-1 1-2 1-3 chk-2 chk-3", ""},
		{"while a process starts", func(t *testing.T, _ storage.FS, p *process) {
			if err := p.store.TakeGeneration(t.Context(), p.g+1); err != nil {
				t.Fatal(err)
			}
		}, 1, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3", "is starting"},
		{"a damaged one", damageMetadata(2), 2, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3", "cannot be used"},
		{"a damaged one by force", damageMetadata(2), 2, true, "1-1 1-2 1-3 chk-1 chk-3", ""},
		{"the damaged newest one by force: its number stays taken", damageMetadata(3), 3, true, "1-1 1-2 1-3 chk-1 chk-2 chk-3", ""},
		{"the last one of a job that has ended", endedWith(0), 3, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3 ended.json", "newest proven"},
		{"the last one of a job that has ended, by force", endedWith(0), 3, true, "1-1 1-2 chk-1 chk-2 ended.json", ""},
		{"what the next start goes on from", endedWith(2), 2, false, "1-1 1-2 1-3 chk-1 chk-2 chk-3 ended.json", "goes on from it"},
		{"of a job that has ended", endedWith(0), 1, false, "1-2 1-3 chk-2 chk-3 ended.json", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, f, s := onDisk(t)
			p := start(t, s, "").take(3)
			if c.do != nil {
				c.do(t, f, p)
			}
			r, err := checkpoint.Remove(t.Context(), p.path(c.n), c.force)
			var refused *checkpoint.RefusedError
			switch {
			case c.says == "" && err != nil:
				t.Fatal(err)
			case c.says != "" && !errors.As(err, &refused):
				t.Fatalf("it was not refused: %+v, %v", r, err)
			case c.says != "":
				wantSays(t, err, c.says)
			}
			if got := what(t, f, p); got != c.left {
				t.Errorf("left are %s, want %s", got, c.left)
			}
		})
	}
}

// restoredAndBegun starts a new job from checkpoint 2, whose first checkpoint is a copy of it.
func restoredAndBegun(checkpoints int) func(*testing.T, storage.FS, *process) {
	return func(t *testing.T, _ storage.FS, p *process) {
		start(t, p.store, p.path(2)).initial().take(checkpoints - 1)
	}
}

func damageMetadata(n uint64) func(*testing.T, storage.FS, *process) {
	return func(t *testing.T, f storage.FS, p *process) {
		if err := checkpointtest.Zero().Do(t.Context(), f, p.chk(n, "_metadata")); err != nil {
			t.Fatal(err)
		}
	}
}

func endedWith(n uint64) func(*testing.T, storage.FS, *process) {
	return func(t *testing.T, _ storage.FS, p *process) {
		e := checkpoint.Ended{How: checkpoint.Cancelled}
		if n > 0 {
			e.How, e.Path = checkpoint.Stopped, p.path(n)
		}
		if err := p.job.End(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that starts between the checks and the removal may restore what goes.
func TestNothingIsRemovedOnceAProcessHasStarted(t *testing.T) {
	faulty, address := faultyDir(t)
	f, err := storage.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "").take(3)
	before := what(t, f, p)
	faulty.SetClock(func(ctx context.Context, _ time.Duration) error { return p.store.TakeGeneration(ctx, p.g+1) })
	faulty.Set(storagetest.Rule{Op: storagetest.OpList, Glob: "chk-1", Nth: 1, Effect: storagetest.Slow})
	if _, err := checkpoint.Remove(t.Context(), p.path(1), true); !errors.Is(err, checkpoint.ErrStarted) {
		t.Errorf("got %v", err)
	}
	if got := what(t, f, p); got != before {
		t.Errorf("left are %s, want %s", got, before)
	}
}

func TestANumberIsNotUsedAgainAfterItsCheckpointWasRemoved(t *testing.T) {
	_, f, s := onDisk(t)
	p := start(t, s, "").take(3)
	damageMetadata(3)(t, f, p)
	if _, err := checkpoint.Remove(t.Context(), p.path(3), true); err != nil {
		t.Fatal(err)
	}
	q := start(t, s, "").wantRestored(1, 2).take(1)
	if q.last() != 4 {
		t.Errorf("it took number %d", q.last())
	}
}

func TestACopiedCheckpointGoesWithWhatItAloneNeeds(t *testing.T) {
	dir, _, s := onDisk(t)
	p := start(t, s, "").take(1)
	p.sharing().take(1)
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "orders", p.job.ID()))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"chk-2/notes.txt": "mine", "shared/other": "mine", "letter.txt": "mine"} {
		if err := os.WriteFile(filepath.Join(copied, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := checkpoint.Remove(t.Context(), filepath.Join(copied, "chk-2", "_metadata"), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Files != 4 || len(r.Left) != 1 || !strings.Contains(r.Left[0], "notes.txt") {
		t.Errorf("got %+v", r)
	}
	var left []string
	if err := fs.WalkDir(os.DirFS(copied), ".", func(name string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(slices.DeleteFunc(left, func(s string) bool { return strings.HasPrefix(s, "shared/1-1-") })); got != "[chk-1/_committed chk-1/_metadata chk-1/claim chk-2/notes.txt letter.txt shared/other]" {
		t.Errorf("left are %s", got)
	}
	if _, err := checkpoint.Remove(t.Context(), copied, false); err == nil {
		t.Error("a folder without a checkpoint was removed")
	}
	if r, err := checkpoint.Verify(t.Context(), filepath.Join(copied, "chk-1")); err != nil || len(r.Faults) > 0 {
		t.Errorf("the other one: %+v, %v", r, err)
	}
	noHoles(t, mustLocal(t, dir), s)
}

func TestRemovingASavepoint(t *testing.T) {
	_, _, s := onDisk(t)
	p := start(t, s, "").take(1)
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		dir := t.TempDir()
		at, err := p.job.Savepoint(t.Context(), sv.Checkpoints[0].Meta, dir)
		if err != nil {
			t.Fatal(err)
		}
		if force { // what belongs to a damaged one is told by its names
			if err := checkpointtest.Zero().Do(t.Context(), mustLocal(t, dir), filepath.Join(filepath.Base(at), "_metadata")); err != nil {
				t.Fatal(err)
			}
			if _, err := checkpoint.Remove(t.Context(), at, false); err == nil {
				t.Fatal("a damaged savepoint was removed without force")
			}
		}
		r, err := checkpoint.Remove(t.Context(), at, force)
		if err != nil || r.Files != 2 {
			t.Fatalf("got %+v, %v", r, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
		if _, err := checkpoint.Remove(t.Context(), at, force); err == nil {
			t.Error("it was removed twice")
		}
	}
	start(t, s, "").wantRestored(1, 1)
}

func mustLocal(t *testing.T, dir string) storage.FS {
	t.Helper()
	f, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
