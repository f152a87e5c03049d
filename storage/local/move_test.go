package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Both ways to move a file must end the same, also after a crash between the steps.
func TestMovesReplaceNothingAndCanBeRepeated(t *testing.T) {
	for name, move := range map[string]func(from, to string) error{"rename": moveNew, "link": link} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			if err := move(from, to); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("a missing file: %v", err)
			}
			if err := os.WriteFile(from, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := move(from, to); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("a taken name: %v", err)
			}
			if err := os.Remove(to); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(from, to); err != nil { // as a crash between the steps leaves it
				t.Fatal(err)
			}
			if err := move(from, to); err != nil {
				t.Fatalf("a move that was cut short: %v", err)
			}
			if _, err := os.Stat(from); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("the first name is still there: %v", err)
			}
			if data, err := os.ReadFile(to); err != nil || string(data) != "new" {
				t.Fatalf("it holds %q, %v", data, err)
			}
		})
	}
}
