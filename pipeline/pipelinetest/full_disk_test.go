//go:build integration && linux

package pipelinetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/sluice-etl/sluice/storage/local"
)

// tinyDisk is a file system of its own, of some MiB, which mounting takes root for.
func tinyDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatalf("mount a small disk, for which this test needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp takes the room that is left on a disk, and frees it again.
func fillUp(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			t.Error(err)
		}
	}
}

// readOnly makes a disk one that cannot be written to, once nobody has a file open for that.
func readOnly(t *testing.T, dir string) (writable func()) {
	t.Helper()
	remount := func(flags uintptr) {
		for {
			err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, "")
			if err == nil {
				return
			}
			if !errors.Is(err, syscall.EBUSY) || t.Context().Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	remount(syscall.MS_RDONLY)
	return func() { remount(0) }
}

// logged is what a pipeline has to say.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for {
		l.mu.Lock()
		said := l.text.String()
		l.mu.Unlock()
		if strings.Contains(said, text) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the log does not say %q:\n%s", text, said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

const onSmallDisk = `
pipeline: small-disk
parallelism: 2
source: {feed: {name: FEED-in}}
transforms:
  - {name: counts, from: source, aggregate: {by: [k], select: {n: count(), longest: max(pad)}, emit: on_close}}
sinks:
  seen: {from: source, collect: {name: TARGET-seen, exactly_once: false}}
  once: {from: source, collect: {name: TARGET-once}}
  counted: {from: counts, collect: {name: TARGET-counted}}
checkpoint: {storage: "file://CHECKPOINTS", interval: 50ms, tolerable_failures: unlimited, compression: none, STATE}
`

func TestFullAndReadOnlyDisksFailCheckpointsAndNothingElse(t *testing.T) {
	fill := func(t *testing.T, dir string) func() { return fillUp(t, dir) }
	tests := []struct {
		name, state string
		full        func(t *testing.T, dir string) func()
		says        string
		stateDir    bool // it is the disk of state.dir that is full
	}{
		{"full", "state: {backend: memory}", fill, "is full; free space", false},
		{"read-only", "state: {backend: memory}", readOnly, "is mounted read-only", false},
		{"full-state-on-disk", "state: {backend: disk, dir: STATEDIR}", fill, "is full; free space", false},
		{"full-state-dir", "state: {backend: disk, dir: STATEDIR}", fill, "is full: free space there, or set state.dir", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkpoints, work := t.TempDir(), t.TempDir()
			small := &checkpoints
			if tt.stateDir {
				small = &work
			}
			*small = tinyDisk(t, 8)
			state := strings.Replace(tt.state, "STATEDIR", work, 1)
			w := New(t, strings.NewReplacer("CHECKPOINTS", checkpoints, "STATE", state).Replace(onSmallDisk))
			log := &logged{}
			w.Options.Log = slog.New(slog.NewTextHandler(log, nil))
			feed, n := w.Feed("in", 2), 0
			more := func() {
				for range 500 {
					feed.Append(n%2, fmt.Sprintf(`{"k":%d,"pad":"%0200d"}`, n%300, n))
					n++
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			published := func(target string) {
				t.Helper()
				if err := w.Target(target).Await(ctx, n); err != nil {
					t.Fatalf("target %s: %v", target, err)
				}
			}
			p := w.Start()
			more()
			published("once")

			free := tt.full(t, *small)
			more()
			published("seen") // records go on
			log.await(ctx, t, tt.says)
			if len(w.Target("once").Values()) == n {
				t.Error("a checkpoint completed on a disk that takes nothing")
			}
			free()
			published("once") // by a checkpoint of the same process

			// What was there before is still good for a start.
			free = tt.full(t, *small)
			more()
			published("seen")
			p.Crash()
			free()
			p = w.Start()
			published("once")
			feed.End()
			s, err := p.Wait()
			if err != nil || s.Restarts > 0 {
				t.Fatalf("%d restarts, error %v", s.Restarts, err)
			}
			counted := 0
			for _, v := range w.Target("counted").Values() {
				var row struct{ N int }
				if err := json.Unmarshal([]byte(v), &row); err != nil {
					t.Fatal(err)
				}
				counted += row.N
			}
			if rows := len(w.Target("once").Values()); rows != n || counted != n {
				t.Errorf("%d rows are published and %d counted of %d", rows, counted, n)
			}
		})
	}
}
