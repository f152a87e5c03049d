package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

const groups = 16

func options(dir string, r *state.Restore) state.Options {
	return state.Options{Last: groups - 1, Groups: groups, Dir: dir, Memory: 1, Restore: r}
}

func mustOpen(t *testing.T, fs vfs.FS, r *state.Restore) *store {
	t.Helper()
	s, err := open(t.Context(), options("work", r), fs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func keyOf(n int) state.Key {
	return state.MakeKey(binary.BigEndian.AppendUint64([]byte("key-"), uint64(n)), groups)
}

// countKeys counts keys once more.
func countKeys(s *store, from, to int) {
	t := s.Table("count")
	for i := from; i < to; i++ {
		v, _ := t.Upsert(7, keyOf(i), 8)
		binary.LittleEndian.PutUint64(v, binary.LittleEndian.Uint64(v)+1)
	}
}

// wantCounts demands that keys from..to have a count.
func wantCounts(t *testing.T, s *store, from, to int, want uint64) {
	t.Helper()
	for i := from; i < to; i++ {
		v, ok := s.Table("count").Get(7, keyOf(i))
		if !ok || binary.LittleEndian.Uint64(v) != want {
			t.Fatalf("key %d = %v %v, want %d", i, v, ok, want)
		}
	}
}

func checkpointOf(t *testing.T, s *store, files connectors.CheckpointFiles, n uint64) []state.Piece {
	t.Helper()
	f, err := s.Fork(n)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Write(t.Context(), files, state.Form{})
	if err != nil {
		t.Fatal(err)
	}
	s.Complete(n)
	return p
}

func TestHitsDoNotAllocate(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	tab := s.Table("count")
	k, v := keyOf(1), make([]byte, 16)
	tab.Put(1, k, v)
	for name, op := range map[string]func(){
		"get":    func() { tab.Get(1, k) },
		"upsert": func() { tab.Upsert(1, k, 16) },
		"put":    func() { tab.Put(1, k, v) },
		"insert and delete": func() {
			tab.Upsert(1, keyStatic, 16)
			tab.Delete(1, keyStatic)
		},
	} {
		if n := testing.AllocsPerRun(100, op); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

var keyStatic = state.MakeKey([]byte("another"), groups)

func TestStateLargerThanTheCacheIsKept(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	s.limit = 4 * pageSize
	const n = 4000 // more than the cache holds
	countKeys(s, 0, n)
	countKeys(s, 0, n)
	wantCounts(t, s, 0, n, 2)
	if got := s.Usage().Keys; got < n/2 || got > 2*n {
		t.Errorf("the store says it has %d keys, of %d", got, n)
	}
	if limit := s.limit * 2; s.pages.bytes+s.index.bytes() > limit {
		t.Errorf("the cache takes %d bytes of %d", s.pages.bytes+s.index.bytes(), s.limit)
	}
	seen := 0
	s.Table("count").Scan(7, func(k state.Key, _ []byte) bool {
		seen++
		s.Table("other").Put(int64(seen), k, bytes.Repeat([]byte{1}, 50))
		return true
	})
	if seen != n {
		t.Errorf("a scan that writes elsewhere saw %d entries of %d", seen, n)
	}
	if got := s.Table("other").Namespaces(nil, 0, state.MaxTime); len(got) != n {
		t.Errorf("%d namespaces were written, %d are there", n, len(got))
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

func TestIncrementalCheckpointUploadsLittle(t *testing.T) {
	o := options("work", nil)
	o.Memory = 64 << 20
	s, err := open(t.Context(), o, vfs.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	files := &connectortest.Files{}
	const n = 100000
	countKeys(s, 0, n)
	last := checkpointOf(t, s, files, 1)
	var full, sent int64
	for i := range 10 {
		for j := range n / 100 {
			at := (j*7919 + i*104729) % n
			countKeys(s, at, at+1)
		}
		p := checkpointOf(t, s, files, uint64(i+2))
		if i >= 2 { // what filling left to do is done
			up, _ := newBytes(p, last)
			full, sent = full+pieceBytes(p), sent+up
		}
		last = p
	}
	if sent*10 > full {
		t.Errorf("checkpoints after 1%% of the keys upload %d bytes of %d", sent, full)
	}
}

func pieceBytes(pieces []state.Piece) (n int64) {
	for _, p := range pieces {
		n += p.Length
	}
	return n
}

// newBytes is the size and number of the files in a that are not in b.
func newBytes(a, b []state.Piece) (n int64, files int) {
	old := map[string]bool{}
	for _, p := range b {
		old[p.File.Path] = true
	}
	for _, p := range a {
		if !old[p.File.Path] {
			old[p.File.Path] = true
			n, files = n+p.File.Size, files+1
		}
	}
	return n, files
}

// brokenFiles fails from some number of files on.
type brokenFiles struct {
	*connectortest.Files
	left atomic.Int64
}

var errBroken = errors.New("no such bucket")

func (b *brokenFiles) Create(ctx context.Context) (connectors.StateWriter, error) {
	if b.left.Add(-1) < 0 {
		return nil, errBroken
	}
	return b.Files.Create(ctx)
}

func TestFailedCheckpointLosesNothing(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, s *store, files *connectortest.Files){
		"upload": func(t *testing.T, s *store, files *connectortest.Files) {
			f, _ := s.Fork(2)
			if _, err := f.Write(t.Context(), &brokenFiles{Files: files}, state.Form{}); !errors.Is(err, errBroken) {
				t.Fatalf("got %v", err)
			}
		},
		"context": func(t *testing.T, s *store, files *connectortest.Files) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			f, _ := s.Fork(2)
			if _, err := f.Write(ctx, files, state.Form{}); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		},
		"released": func(_ *testing.T, s *store, _ *connectortest.Files) {
			f, _ := s.Fork(2)
			f.Release()
		},
		"written but never complete": func(t *testing.T, s *store, files *connectortest.Files) {
			f, _ := s.Fork(2)
			p, err := f.Write(t.Context(), files, state.Form{})
			if err != nil {
				t.Fatal(err)
			}
			_ = p // its files are removed below
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs, files := vfs.NewMem(), &connectortest.Files{}
			s := mustOpen(t, fs, nil)
			countKeys(s, 0, 1000)
			first := checkpointOf(t, s, files, 1)
			countKeys(s, 0, 500)
			fail(t, s, files)
			retain(files, first)
			countKeys(s, 0, 250)
			p := checkpointOf(t, s, files, 3)
			retain(files, p)
			names, _ := fs.List("work")
			for _, n := range names {
				if strings.HasPrefix(n, "checkpoint") {
					t.Errorf("%s is left", n)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, fs, &state.Restore{Pieces: p, Files: files})
			wantCounts(t, s, 0, 250, 3)
			wantCounts(t, s, 250, 500, 2)
			wantCounts(t, s, 500, 1000, 1)
		})
	}
}

func retain(files *connectortest.Files, pieces []state.Piece) {
	var refs []connectors.StateFile
	for _, p := range pieces {
		refs = append(refs, p.File)
	}
	files.Retain(refs)
}

// fullFS is a disk that can be full.
type fullFS struct {
	vfs.FS
	full atomic.Bool
}

type fullFile struct {
	vfs.File
	fs *fullFS
}

func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return &fullFile{file, f}, err
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.fs.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

func TestFullDiskFailsTheCheckpointAndNotTheStore(t *testing.T) {
	fs, files := &fullFS{FS: vfs.NewMem()}, &connectortest.Files{}
	s := mustOpen(t, fs, nil)
	countKeys(s, 0, 1000)
	fs.full.Store(true)
	f, err := s.Fork(1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(t.Context(), files, state.Form{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	countKeys(s, 0, 10)
	if err := s.Err(); err != nil {
		t.Fatalf("the store failed: %v", err)
	}
	fs.full.Store(false)
	p := checkpointOf(t, s, files, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fs, &state.Restore{Pieces: p, Files: files})
	wantCounts(t, s, 0, 10, 2)
	wantCounts(t, s, 10, 1000, 1)
}

func TestFullDiskAndFullCacheFailTheStore(t *testing.T) {
	fs := &fullFS{FS: vfs.NewMem()}
	s := mustOpen(t, fs, nil)
	fs.full.Store(true)
	for i := 0; s.Err() == nil && i < 100; i++ {
		countKeys(s, i*1000, i*1000+1000)
	}
	err := s.Err()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "is full") {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Fork(1); err == nil {
		t.Error("a checkpoint of a failed store")
	}
}

func TestUnwritableManifestFailsTheStore(t *testing.T) {
	fs := &fullFS{FS: vfs.NewMem()}
	s := mustOpen(t, fs, nil)
	countKeys(s, 0, 10)
	w := s.fs.(*workFS)
	f, err := w.OpenReadWrite("work/MANIFEST-1", "")
	if err != nil {
		t.Fatal(err)
	}
	f = workFile{File: &fullFile{f.(workFile).File, fs}, fs: w, manifest: true}
	fs.full.Store(true)
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatalf("pebble would have ended the process: %v", err)
	}
	fs.full.Store(false)
	if err := s.Err(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	_ = f.Close()
}

func TestWorkingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(filepath.Join(dir, "db"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db", "CURRENT"), []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), options(dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), options(dir, nil)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second store in the directory: %v", err)
	}
	if s.Table("t").Put(0, keyOf(1), nil); s.Err() != nil {
		t.Error(s.Err())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if _, err := Open(t.Context(), state.Options{Last: 1, Groups: 2}); err == nil {
		t.Error("a store without a directory")
	}
}

func TestDamagedCheckpointsAreRefused(t *testing.T) {
	fs, files := vfs.NewMem(), &connectortest.Files{}
	s := mustOpen(t, fs, nil)
	countKeys(s, 0, 1000)
	good := checkpointOf(t, s, files, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(p *state.Piece){
		"name outside":  func(p *state.Piece) { p.Name = "../../etc/passwd" },
		"no name":       func(p *state.Piece) { p.Name = "" },
		"checksum":      func(p *state.Piece) { p.File.Checksum = "sha256:00" },
		"beyond":        func(p *state.Piece) { p.Length += 1 << 20 },
		"negative":      func(p *state.Piece) { p.Length = -1 },
		"format":        func(p *state.Piece) { p.Format = "rocksdb" },
		"missing":       func(p *state.Piece) { p.File.Path = "nowhere" },
		"another range": func(p *state.Piece) { p.First, p.Last = 0, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := append([]state.Piece{}, good...)
			spoil(&bad[0])
			s, err := open(t.Context(), options("work", &state.Restore{Pieces: bad, Files: files}), fs)
			if err == nil {
				_ = s.Close()
				t.Fatal("it was restored")
			}
		})
	}
}

func TestReadPiecesShowsEveryEntry(t *testing.T) {
	fs, files := vfs.NewMem(), &connectortest.Files{}
	s := mustOpen(t, fs, nil)
	countKeys(s, 0, 1000)
	p := checkpointOf(t, s, files, 1)
	o := options("elsewhere", &state.Restore{Pieces: p, Files: files})
	o.First = 5
	want, got := 0, 0
	for i := range 1000 {
		if keyOf(i).Group >= 5 {
			want++
		}
	}
	err := readPieces(t.Context(), o, fs, func(e state.Entry) error {
		if e.Table != "count" || e.NS != 7 || e.Key.Group < 5 || len(e.Value) != 8 {
			t.Fatalf("got %+v", e)
		}
		got++
		return nil
	})
	if err != nil || got != want {
		t.Errorf("%d entries of %d, %v", got, want, err)
	}
}

// TestStateOfDroppedKeysGoes writes namespaces that live for a while, as windows and
// times to live make them, and keys that are deleted one by one.
func TestStateOfDroppedKeysGoes(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	s.limit = 4 * pageSize
	files := &connectortest.Files{}
	const live, keys = 3, 100
	var high int64
	for round := range 60 {
		windows, single := s.Table("windows"), s.Table("single")
		for i := range keys {
			k := keyOf(round*keys + i)
			windows.Put(int64(round), k, bytes.Repeat([]byte{byte(i)}, 40))
			single.Put(0, k, bytes.Repeat([]byte{byte(i)}, 40))
			if round >= live {
				single.Delete(0, keyOf((round-live)*keys+i))
			}
		}
		windows.Drop(int64(round - live))
		retain(files, checkpointOf(t, s, files, uint64(round+1)))
		if disk := s.Usage().Disk; round <= 20 {
			high = max(high, disk)
		} else if disk*2 > 5*high {
			t.Fatalf("after %d rounds there are %d bytes on disk, in the first 20 never more than %d", round, disk, high)
		}
	}
	if got := s.Table("windows").Namespaces(nil, 0, 100); len(got) != live {
		t.Errorf("namespaces %v are there, not the last %d", got, live)
	}
	if n := s.Usage().Keys; n > 10*keys*live {
		t.Errorf("the store says it has %d keys, of %d", n, 2*keys*live)
	}
}
