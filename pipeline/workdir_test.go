package pipeline

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWorkingDirectoriesBelongToOneProcessAndAreEmptied(t *testing.T) {
	base := t.TempDir()
	open := func() *workdir {
		t.Helper()
		w, err := openWorkdir(base)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	leave := func(w *workdir) string {
		t.Helper()
		name := filepath.Join(w.path, "step", "state")
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	first, second := open(), open()
	if first.path == second.path {
		t.Fatal("two processes work in one directory")
	}
	a, b := leave(first), leave(second)
	// Both are killed: the system takes their locks, and nobody cleans up.
	for _, w := range []*workdir{first, second} {
		if err := w.lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	third := open()
	for _, name := range []string{a, b} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	leave(third)
	if err := third.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(third.path); err == nil {
		t.Error("a directory that was given back is still there")
	}
}
