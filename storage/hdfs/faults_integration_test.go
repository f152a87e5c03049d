//go:build integration

package hdfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

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

// TestNamenodesThatFail: the active one dies during a write and the other one takes
// over; then that one is restarted during a write, and is a standby for a while.
func TestNamenodesThatFail(t *testing.T) {
	f := breakable(t, nil)
	data := random(64 << 20)
	if err := storage.WriteFile(t.Context(), f, "there", data[:2<<20]); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(t.Context(), "there")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, c := range []struct{ name, fail string }{{"failover", "kill nn"}, {"restart", "restart nn2"}} {
		done := begin(t, f, c.name+"/big", data)
		run(t, strings.Fields(c.fail)...)
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := r.ReadAt(make([]byte, 1<<20), 1<<20); err != nil {
				t.Error(err)
			}
		})
		for i := range 8 {
			calls.Go(func() {
				if err := f.Claim(t.Context(), fmt.Sprint(c.name, "/claim", i)); err != nil {
					t.Error(err)
				}
				if _, err := f.Stat(t.Context(), "there"); err != nil {
					t.Error(err)
				}
			})
		}
		run(t, "active", "nn2")
		calls.Wait()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantWhole(t, f, c.name+"/big", data)
		wantWhole(t, f, "there", data[:2<<20])
	}
}

func safeMode(t *testing.T, f *FS, action protoreflect.EnumNumber) {
	t.Helper()
	if err := f.cluster.call(t.Context(), func(c *client) error {
		_, err := c.ask("setSafeMode", "SetSafeMode", map[protoreflect.Name]any{"action": action})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestSafeMode(t *testing.T) {
	f := breakable(t, nil)
	if err := storage.WriteFile(t.Context(), f, "before", []byte("x")); err != nil {
		t.Fatal(err)
	}
	safeMode(t, f, 2)
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
	safeMode(t, f, 1)
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
	run(t, "pause", "nn2")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	_, statErr := f.Stat(ctx, "a")
	claimErr := f.Claim(ctx, "b")
	cancel()
	run(t, "resume", "nn2")
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
