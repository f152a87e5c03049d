package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// deploy is the folder that is tested.
const deploy = ".."

// tool runs one of the tools that tools.sh installs, and returns what it printed.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = filepath.Join(toolDir(t), name)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("run %s: %v; deploy/check/tools.sh installs what is missing", name, err)
	}
	return string(out), err
}

// mustRun is tool, for what has to succeed.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// toolDir is where tools.sh puts what it does not install.
func toolDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("DEPLOY_TOOLS"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "etl-deploy-tools")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// program puts something that can be run where a program is looked for.
func program(t *testing.T, path string) {
	t.Helper()
	write(t, path, "#!/bin/sh\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// generated compares a file with what it should hold, and writes it with UPDATE=1.
func generated(t *testing.T, path, want string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		write(t, path, want)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): run the tests of deploy/check with UPDATE=1", path, err)
	}
}
