package local_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func open(t *testing.T) storage.FS {
	t.Helper()
	f, err := local.New(t.TempDir() + "/new/root")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLocalKeepsTheContract(t *testing.T) { storagetest.Run(t, open) }

func TestALinkToTheRootCounts(t *testing.T) {
	target, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f, err := local.New(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.WriteFile(t.Context(), f, "d/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	infos, err := f.List(t.Context(), "")
	if err != nil || len(infos) != 1 || infos[0].Name != "d/a" {
		t.Fatalf("list: %v, %v", infos, err)
	}
}

// hiddenFiles are the names in a folder that no listing shows.
func hiddenFiles(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), storage.HiddenPrefix) {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestWhatACrashLeftIsRemovedAndNothingElse(t *testing.T) {
	root := t.TempDir()
	f, err := local.New(root)
	if err != nil {
		t.Fatal(err)
	}
	live, err := f.Create(t.Context(), "d/live")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Write([]byte("live")); err != nil {
		t.Fatal(err)
	}
	staged, err := f.Stage(t.Context(), "d/staged")
	if err != nil {
		t.Fatal(err)
	}
	s, err := staged.Close()
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "d", storage.HiddenPrefix+"new-0123456789abcdef")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := local.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Claim(t.Context(), "d/claim"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the crash left is still there: %v", err)
	}
	if err := live.Close(); err != nil {
		t.Errorf("a file that was being written is gone: %v", err)
	}
	if err := next.Publish(t.Context(), s); err != nil {
		t.Errorf("a staged file is gone: %v", err)
	}
	if got := hiddenFiles(t, filepath.Join(root, "d")); len(got) != 0 {
		t.Errorf("hidden files are left: %q", got)
	}
}

func TestFailedAndAbortedFilesLeaveNothing(t *testing.T) {
	root := t.TempDir()
	f, err := local.New(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a"} {
		_ = storage.WriteFile(t.Context(), f, name, []byte("x"))
	}
	w, err := f.Create(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if got := hiddenFiles(t, root); len(got) != 0 {
		t.Errorf("hidden files are left: %q", got)
	}
}

func TestAFolderThatIsRemovedMeanwhileIsMadeAgain(t *testing.T) {
	root := t.TempDir()
	f, err := local.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Claim(t.Context(), "a/b/one"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	if err := f.Claim(t.Context(), "a/b/two"); err != nil {
		t.Fatal(err)
	}
}

func TestATokenFromElsewhereIsRefused(t *testing.T) {
	f, err := local.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", "../../../etc", "0123456789ABCDEF", "0123456789abcde/"} {
		if err := f.Publish(t.Context(), storage.Staged{Name: "a", Token: token}); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("token %q: got %v, want it refused", token, err)
		}
	}
}

// Every new process cleans the folders that it writes to; it must not take the files
// that others are writing for left ones.
func TestManyProcessesCanWriteToOneFolder(t *testing.T) {
	root := t.TempDir()
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := range 20 {
				f, err := local.New(root)
				if err != nil {
					t.Error(err)
					return
				}
				if err := storage.WriteFile(t.Context(), f, fmt.Sprintf("d/%d-%d", p, i), []byte("data")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := hiddenFiles(t, filepath.Join(root, "d")); len(got) != 0 {
		t.Errorf("hidden files are left: %q", got)
	}
}
