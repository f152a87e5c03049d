package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/storage/local"
)

// inFolder is the store of a pipeline in a folder.
func inFolder(t *testing.T, dir string) *checkpoint.Store {
	t.Helper()
	f, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return newStore(t, f, checkpoint.StoreOptions{})
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

func TestACheckpointCopiedWithItsSharedFolderIsRestored(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	p := start(t, inFolder(t, from), "").take(3)
	job := filepath.Join(from, "orders", p.job.ID())
	copyTree(t, filepath.Join(job, "chk-2"), filepath.Join(to, "backup", "chk-2"))
	copyTree(t, filepath.Join(job, "shared"), filepath.Join(to, "backup", "shared"))
	if _, err := p.complete(t.Context()); err != nil { // not proven
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(job, "chk-4"), filepath.Join(to, "backup", "chk-4"))
	gone(t, from)
	s := inFolder(t, t.TempDir())
	again := start(t, s, filepath.Join(to, "backup", "chk-2")).wantRestored(1, 2)
	if again.next != 3 || !again.r.Foreign || len(again.r.Meta.Committables) > 0 {
		t.Errorf("the next number is %d, foreign %v, with %d committables", again.next, again.r.Foreign, len(again.r.Meta.Committables))
	}
	again.take(1)
	start(t, s, "").wantRestored(1, 3)
	wantSays(t, refused(t, s, checkpoint.Request{From: filepath.Join(to, "backup", "chk-4")}), "_committed", "savepoint")
}

func TestACopiedPipelineFolderGoesOnWhereItLies(t *testing.T) {
	for name, end := range map[string]*checkpoint.Ended{
		"killed":  nil,
		"stopped": {How: checkpoint.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := t.TempDir(), t.TempDir()
			p := start(t, inFolder(t, from), "").take(2)
			if end != nil {
				e := *end
				e.Path = p.path(2)
				if err := p.job.End(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			copyTree(t, from, to)
			gone(t, from)
			s := inFolder(t, to)
			again := start(t, s, "").wantRestored(1, 2)
			if again.next != 3 || again.r.Foreign || !strings.Contains(again.r.Path, to) {
				t.Errorf("it restored %s, the next number is %d", again.r.Path, again.next)
			}
			again.take(1)
			start(t, s, "").wantRestored(2, 3)
		})
	}
}

// A start from a path that died before its first checkpoint, in a folder that was moved since.
func TestWhatAMovedFolderRestoresIsFoundInIt(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	old := start(t, inFolder(t, from), "").take(2)
	start(t, inFolder(t, from), old.path(1))
	copyTree(t, from, to)
	gone(t, from)
	again := start(t, inFolder(t, to), "").wantRestored(1, 1)
	if !again.r.NewJob || again.next != 2 {
		t.Errorf("the next number is %d", again.next)
	}
}

func TestACopiedSavepointIsRestoredOnAnotherStorage(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	p := start(t, inFolder(t, t.TempDir()), "").take(3)
	saved := p.saved(t, 3, dir)
	copyTree(t, dir, to)
	gone(t, dir)
	moved := filepath.Join(to, filepath.Base(saved))
	s := inFolder(t, t.TempDir())
	again := start(t, s, moved+"/_metadata").wantRestored(1, 3)
	if again.next != 4 {
		t.Errorf("the next number is %d", again.next)
	}
	again.take(1)
	gone(t, to)
	start(t, s, "").wantRestored(1, 4)
}
