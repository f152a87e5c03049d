//go:build integration

package hdfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

func random(size int) []byte {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	return data
}

// begin writes a file in the background, up to the moment when HDFS has a part of it.
func begin(t *testing.T, f *FS, name string, data []byte) (done chan error) {
	t.Helper()
	w, err := f.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	done = make(chan error, 1)
	go func() { done <- w.Close() }()
	for len(hiddenIn(t, f, path.Dir(name))) == 0 {
		select {
		case err := <-done:
			t.Fatalf("the file was written before the test could disturb it (%v)", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return done
}

// hiddenIn names the files in a folder that no list shows.
func hiddenIn(t *testing.T, f *FS, dir string) (out []string) {
	t.Helper()
	p, err := f.folder(t.Context(), strings.TrimPrefix(dir, "."))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.entries(t.Context(), p, func(e entry) {
		if e.hidden() {
			out = append(out, e.name)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func wantWhole(t *testing.T, f *FS, name string, want []byte) {
	t.Helper()
	got, err := storage.ReadFile(t.Context(), f, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s has other bytes than were written", name)
	}
	if left := hiddenIn(t, f, path.Dir(name)); len(left) > 0 {
		t.Fatalf("hidden files are left: %q", left)
	}
}

func TestADatanodeThatDiesDuringAWrite(t *testing.T) {
	f := breakable(t, nil)
	data := random(64 << 20)
	done := begin(t, f, "d/big", data)
	run(t, "kill", "dn2")
	defer run(t, "restart", "dn2")
	if _, err := f.Stat(t.Context(), "d/big"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("while it is written the file is there (%v)", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantWhole(t, f, "d/big", data)
	// Small files meet the dead datanode too: it is handed out until it has been
	// missed for ten minutes.
	for range 5 {
		name := "d/" + token()
		if err := storage.WriteFile(t.Context(), f, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, f, name, []byte("x"))
	}
}

func TestANamenodeThatRestartsDuringAWrite(t *testing.T) {
	f := breakable(t, nil)
	data := random(64 << 20)
	done := begin(t, f, "d/big", data)
	run(t, "restart", "nn")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantWhole(t, f, "d/big", data)
}

func TestSafeMode(t *testing.T) {
	f := breakable(t, nil)
	if err := storage.WriteFile(t.Context(), f, "before", []byte("x")); err != nil {
		t.Fatal(err)
	}
	run(t, "admin", "-safemode", "enter")
	done := make(chan error, 2)
	go func() { done <- f.Claim(t.Context(), "claim") }()
	go func() { done <- storage.WriteFile(t.Context(), f, "file", []byte("x")) }()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := f.Remove(short, "before"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "safe mode") {
		t.Fatalf("a removal in safe mode reports %v", err)
	}
	wantWhole(t, f, "before", []byte("x"))
	select {
	case err := <-done:
		t.Fatalf("a write in safe mode ended with %v", err)
	default:
	}
	run(t, "admin", "-safemode", "leave")
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	wantWhole(t, f, "file", []byte("x"))
}

func TestANamenodeThatHangs(t *testing.T) {
	f := breakable(t, map[string]any{"namenode_timeout": "1s"})
	if err := f.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	run(t, "pause", "nn")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	_, statErr := f.Stat(ctx, "a")
	claimErr := f.Claim(ctx, "b")
	cancel()
	run(t, "resume", "nn")
	if !errors.Is(statErr, context.DeadlineExceeded) || !errors.Is(claimErr, context.DeadlineExceeded) {
		t.Fatalf("a namenode that hangs gives %v and %v", statErr, claimErr)
	}
	if _, err := f.Stat(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	// The claim's outcome is unknown, but there is one.
	if err := f.Claim(t.Context(), "b"); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

func TestADatanodeThatDiesDuringARead(t *testing.T) {
	f := breakable(t, nil)
	data := random(8 << 20)
	if err := storage.WriteFile(t.Context(), f, "big", data); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	head := make([]byte, 1<<20)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	run(t, "kill", "dn1")
	defer run(t, "restart", "dn1")
	run(t, "kill", "dn3")
	defer run(t, "restart", "dn3")
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(head, rest...), data) {
		t.Fatalf("after two of three datanodes died the file reads otherwise (%v)", err)
	}
}
