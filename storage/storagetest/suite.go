package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-etl/sluice/storage"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want one matching %v", what, err, want)
	}
}

func write(t *testing.T, f storage.FS, name, data string) {
	t.Helper()
	must(t, storage.WriteFile(t.Context(), f, name, []byte(data)))
}

func wantFile(t *testing.T, f storage.FS, name, want string) {
	t.Helper()
	got, err := storage.ReadFile(t.Context(), f, name, 1<<30)
	must(t, err)
	if string(got) != want {
		t.Fatalf("%s holds %.60q, want %.60q", name, got, want)
	}
	info, err := f.Stat(t.Context(), name)
	must(t, err)
	if info.Size != int64(len(want)) || info.Name != name || info.Modified.IsZero() {
		t.Fatalf("%s is described as %+v, want %d bytes", name, info, len(want))
	}
}

func wantMissing(t *testing.T, f storage.FS, name string) {
	t.Helper()
	_, err := f.Stat(t.Context(), name)
	wantIs(t, "stat "+name, err, fs.ErrNotExist)
	_, err = f.Open(t.Context(), name)
	wantIs(t, "open "+name, err, fs.ErrNotExist)
}

func wantNames(t *testing.T, f storage.FS, dir string, want ...string) {
	t.Helper()
	infos, err := f.List(t.Context(), dir)
	must(t, err)
	var got []string
	for _, i := range infos {
		got = append(got, i.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("list of %q is %q, want %q", dir, got, want)
	}
}

func testCreate(t *testing.T, f storage.FS) {
	w, err := f.Create(t.Context(), "a/b/data")
	must(t, err)
	_, err = io.WriteString(w, "first ")
	must(t, err)
	_, err = io.WriteString(w, "second")
	must(t, err)
	wantMissing(t, f, "a/b/data")
	wantNames(t, f, "")
	must(t, w.Close())
	wantFile(t, f, "a/b/data", "first second")
	w.Abort()
	wantFile(t, f, "a/b/data", "first second")
	if _, err := w.Write([]byte("x")); err == nil {
		t.Fatal("a closed file took more")
	}
	write(t, f, "empty", "")
	wantFile(t, f, "empty", "")
}

func testCreateExisting(t *testing.T, f storage.FS) {
	write(t, f, "a", "old")
	err := storage.WriteFile(t.Context(), f, "a", []byte("new"))
	wantIs(t, "close over a file", err, fs.ErrExist)
	must(t, f.Claim(t.Context(), "c"))
	wantFile(t, f, "c", "")
	wantIs(t, "close over a claim", storage.WriteFile(t.Context(), f, "c", []byte("new")), fs.ErrExist)
	wantIs(t, "claim over a file", f.Claim(t.Context(), "a"), fs.ErrExist)
	wantFile(t, f, "a", "old")
	wantFile(t, f, "c", "")
	wantNames(t, f, "", "a", "c")
}

func testAbort(t *testing.T, f storage.FS) {
	w, err := f.Create(t.Context(), "d/a")
	must(t, err)
	_, err = w.Write([]byte("x"))
	must(t, err)
	w.Abort()
	w.Abort()
	if w.Close() == nil {
		t.Fatal("an aborted file was closed")
	}
	s, err := f.Stage(t.Context(), "d/s")
	must(t, err)
	s.Abort()
	if _, err := s.Close(); err == nil {
		t.Fatal("an aborted staged file was closed")
	}
	wantMissing(t, f, "d/a")
	wantNames(t, f, "")
	wantStaged(t, f, "")
}

// race runs n goroutines at once and returns how many succeeded; all others must
// report fs.ErrExist or other.
func race(t *testing.T, n int, other error, do func(i int) error) []int {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	var won []int
	for i, err := range errs {
		switch {
		case err == nil:
			won = append(won, i)
		case !errors.Is(err, fs.ErrExist) && (other == nil || !errors.Is(err, other)):
			t.Fatalf("a loser got %v", err)
		}
	}
	return won
}

func testClaimRace(t *testing.T, f storage.FS) {
	for round := range 8 {
		name := fmt.Sprintf("r%d/deep/claim", round)
		if won := race(t, 32, nil, func(int) error { return f.Claim(t.Context(), name) }); len(won) != 1 {
			t.Fatalf("%d of 32 claims succeeded", len(won))
		}
		wantFile(t, f, name, "")
	}
}

func testCreateRace(t *testing.T, f storage.FS) {
	content := func(i int) string { return strings.Repeat(string(rune('a'+i)), 10000) }
	won := race(t, 16, nil, func(i int) error {
		return storage.WriteFile(t.Context(), f, "d/file", []byte(content(i)))
	})
	if len(won) != 1 {
		t.Fatalf("%d of 16 writers succeeded", len(won))
	}
	wantFile(t, f, "d/file", content(won[0]))
	wantNames(t, f, "", "d/file")
}

func testMissing(t *testing.T, f storage.FS) {
	wantMissing(t, f, "no")
	wantMissing(t, f, "no/such/file")
	write(t, f, "file", "x")
	wantMissing(t, f, "file/below")
	write(t, f, "dir/file", "x")
	wantMissing(t, f, "dir")
	wantNames(t, f, "no/such")
	for _, list := range []func() (int, error){
		func() (int, error) { got, err := f.Files(t.Context(), "no"); return len(got), err },
		func() (int, error) { got, err := f.Dirs(t.Context(), "no"); return len(got), err },
		func() (int, error) { got, err := f.Staged(t.Context(), "no"); return len(got), err },
		func() (int, error) { got, err := f.List(t.Context(), "file"); return len(got), err },
	} {
		if n, err := list(); n != 0 || err != nil {
			t.Fatalf("a missing folder has %d entries, error %v", n, err)
		}
	}
}

func wantStaged(t *testing.T, f storage.FS, dir string, want ...storage.Staged) {
	t.Helper()
	got, err := f.Staged(t.Context(), dir)
	must(t, err)
	less := func(a, b storage.Staged) int { return strings.Compare(a.Name+a.Token, b.Name+b.Token) }
	slices.SortFunc(got, less)
	slices.SortFunc(want, less)
	if !slices.Equal(got, want) {
		t.Fatalf("staged below %q are %v, want %v", dir, got, want)
	}
}

func stage(t *testing.T, f storage.FS, name, data string) storage.Staged {
	t.Helper()
	w, err := f.Stage(t.Context(), name)
	must(t, err)
	_, err = io.WriteString(w, data)
	must(t, err)
	s, err := w.Close()
	must(t, err)
	w.Abort()
	if s.Name != name || s.Size != int64(len(data)) {
		t.Fatalf("staging %s gave %+v", name, s)
	}
	return s
}

func testStaged(t *testing.T, f storage.FS) {
	w, err := f.Stage(t.Context(), "out/unfinished")
	must(t, err)
	_, err = io.WriteString(w, "some rows")
	must(t, err)
	if r, ok := w.(io.ReaderAt); ok {
		back := make([]byte, 4)
		_, err := r.ReadAt(back, 5)
		must(t, err)
		if string(back) != "rows" {
			t.Fatalf("what is being staged reads as %q", back)
		}
	}
	w.Abort()
	wantStaged(t, f, "")
	s := stage(t, f, "out/part.json", "rows")
	again := stage(t, f, "out/part.json", "other rows")
	elsewhere := stage(t, f, "elsewhere/x", "")
	wantMissing(t, f, "out/part.json")
	wantNames(t, f, "")
	wantStaged(t, f, "", s, again, elsewhere)
	wantStaged(t, f, "out", s, again)
	must(t, f.Publish(t.Context(), s))
	wantFile(t, f, "out/part.json", "rows")
	wantNames(t, f, "", "out/part.json")
	wantIs(t, "publish again", f.Publish(t.Context(), s), fs.ErrNotExist)
	wantFile(t, f, "out/part.json", "rows")
	wantStaged(t, f, "", again, elsewhere)
}

func testPublishExisting(t *testing.T, f storage.FS) {
	s := stage(t, f, "a", "new")
	write(t, f, "a", "old")
	wantIs(t, "publish over a file", f.Publish(t.Context(), s), fs.ErrExist)
	wantFile(t, f, "a", "old")
	wantStaged(t, f, "", s)
}

func testPublishRace(t *testing.T, f storage.FS) {
	for range 8 {
		s := stage(t, f, "d/a", "rows")
		won := race(t, 8, fs.ErrNotExist, func(int) error { return f.Publish(t.Context(), s) })
		if len(won) != 1 {
			t.Fatalf("%d of 8 published one staged file", len(won))
		}
		wantFile(t, f, "d/a", "rows")
		must(t, f.Remove(t.Context(), "d/a"))
	}
}

func testDiscard(t *testing.T, f storage.FS) {
	s := stage(t, f, "d/a", "rows")
	must(t, f.Discard(t.Context(), s))
	must(t, f.Discard(t.Context(), s))
	wantIs(t, "publish a discarded one", f.Publish(t.Context(), s), fs.ErrNotExist)
	wantStaged(t, f, "")
	wantMissing(t, f, "d/a")
}

func testList(t *testing.T, f storage.FS) {
	for _, name := range []string{"b", "a/z", "a/b/c", "a-b", "a/b/a", "ab"} {
		write(t, f, name, name)
	}
	wantNames(t, f, "", "a-b", "a/b/a", "a/b/c", "a/z", "ab", "b")
	wantNames(t, f, "a", "a/b/a", "a/b/c", "a/z")
	wantNames(t, f, "a/b", "a/b/a", "a/b/c")
	infos, err := f.Files(t.Context(), "a")
	must(t, err)
	if len(infos) != 1 || infos[0].Name != "a/z" || infos[0].Size != 3 {
		t.Fatalf("files directly in a: %+v", infos)
	}
	infos, err = f.Files(t.Context(), "")
	must(t, err)
	if len(infos) != 3 {
		t.Fatalf("files directly in the root: %+v", infos)
	}
	dirs, err := f.Dirs(t.Context(), "")
	must(t, err)
	if !slices.Equal(dirs, []string{"a"}) {
		t.Fatalf("folders directly in the root: %q", dirs)
	}
	dirs, err = f.Dirs(t.Context(), "a")
	must(t, err)
	if !slices.Equal(dirs, []string{"b"}) {
		t.Fatalf("folders directly in a: %q", dirs)
	}
}

func testRemove(t *testing.T, f storage.FS) {
	for _, name := range []string{"a/1", "a/2", "a/b/3", "ab/4", "5"} {
		write(t, f, name, "x")
	}
	s := stage(t, f, "a/staged", "x")
	must(t, f.Remove(t.Context(), "a/1", "no", "no/such"))
	wantNames(t, f, "", "5", "a/2", "a/b/3", "ab/4")
	must(t, f.Remove(t.Context()))
	must(t, f.Remove(t.Context(), "a"))
	wantNames(t, f, "", "5", "a/2", "a/b/3", "ab/4")
	must(t, f.RemoveAll(t.Context(), "a"))
	must(t, f.RemoveAll(t.Context(), "a"))
	must(t, f.RemoveAll(t.Context(), "no/such"))
	wantNames(t, f, "", "5", "ab/4")
	wantIs(t, "publish from a removed folder", f.Publish(t.Context(), s), fs.ErrNotExist)
	write(t, f, "a/1", "again")
	wantFile(t, f, "a/1", "again")
	must(t, f.Claim(t.Context(), "a/b/c/d"))
}

// BadNames are names that every scheme refuses.
var BadNames = []string{"", ".", "..", "/", "/etc/passwd", "a/", "../a", "a/../b", "a/..", "./a", "a//b", "a/./b", "a\x00b", "a\nb",
	"a\\b", "\xff", storage.HiddenPrefix + "x", "a/" + storage.HiddenPrefix + "staged-0", "a/" + storage.HiddenPrefix + "d/b"}

func testBadNames(t *testing.T, f storage.FS) {
	ctx := t.Context()
	for _, name := range BadNames {
		for op, call := range map[string]func() error{
			"claim":     func() error { return f.Claim(ctx, name) },
			"create":    func() error { return storage.WriteFile(ctx, f, name, nil) },
			"open":      func() error { _, err := f.Open(ctx, name); return err },
			"stat":      func() error { _, err := f.Stat(ctx, name); return err },
			"remove":    func() error { return f.Remove(ctx, name) },
			"removeall": func() error { return f.RemoveAll(ctx, name) },
			"stage":     func() error { _, err := f.Stage(ctx, name); return err },
			"publish":   func() error { return f.Publish(ctx, storage.Staged{Name: name}) },
			"discard":   func() error { return f.Discard(ctx, storage.Staged{Name: name}) },
		} {
			if err := call(); err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				t.Errorf("%s %q: got %v, want the name refused", op, name, err)
			}
		}
		if _, err := f.List(ctx, name); err == nil && name != "" {
			t.Errorf("list %q: the name is not refused", name)
		}
	}
	wantNames(t, f, "")
}

func testNames(t *testing.T, f storage.FS) {
	names := []string{"with space/a b", "ünïcödé/数据", "%41?x=1#y", "a+b&c", "...", "..a", ".hidden", "~", "a'b\"c", "x:y", strings.Repeat("n", 200), "part.part", "e\u0301", "chk-1/_metadata"}
	for _, name := range names {
		write(t, f, name, name)
	}
	for _, name := range names {
		wantFile(t, f, name, name)
		s := stage(t, f, name+"-s", "staged")
		wantStaged(t, f, "", s)
		must(t, f.Publish(t.Context(), s))
		wantFile(t, f, name+"-s", "staged")
		must(t, f.Remove(t.Context(), name+"-s"))
	}
	slices.Sort(names)
	wantNames(t, f, "", names...)
}

func testLarge(t *testing.T, f storage.FS) {
	data := make([]byte, 5<<20+17)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	w, err := f.Create(t.Context(), "big")
	must(t, err)
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 99991)
		_, err := w.Write(rest[:n])
		must(t, err)
		rest = rest[n:]
	}
	must(t, w.Close())
	r, err := f.Open(t.Context(), "big")
	must(t, err)
	defer func() { must(t, r.Close()) }()
	if r.Size() != int64(len(data)) {
		t.Fatalf("size is %d", r.Size())
	}
	got, err := io.ReadAll(r)
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Fatal("reading through gave other bytes")
	}
	piece := make([]byte, 1000)
	_, err = r.ReadAt(piece, 4<<20+3)
	must(t, err)
	if !bytes.Equal(piece, data[4<<20+3:][:1000]) {
		t.Fatal("reading at an offset gave other bytes")
	}
	_, err = r.Seek(-5, io.SeekEnd)
	must(t, err)
	got, err = io.ReadAll(r)
	must(t, err)
	if !bytes.Equal(got, data[len(data)-5:]) {
		t.Fatal("reading after a seek gave other bytes")
	}
	if n, err := r.ReadAt(piece, int64(len(data))-10); n != 10 || !errors.Is(err, io.EOF) {
		t.Fatalf("reading over the end gave %d bytes and %v", n, err)
	}
	if _, err := storage.ReadFile(t.Context(), f, "big", 100); err == nil {
		t.Fatal("a file over the limit was read")
	}
}

func testCancelled(t *testing.T, f storage.FS) {
	write(t, f, "there", "x")
	s := stage(t, f, "staged", "x")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := f.Create(ctx, "begun")
	must(t, err)
	cancel()
	if err := w.Close(); err == nil {
		t.Error("close: no error")
	}
	w.Abort()
	for op, call := range map[string]func() error{
		"claim":     func() error { return f.Claim(ctx, "a") },
		"create":    func() error { return storage.WriteFile(ctx, f, "a", nil) },
		"open":      func() error { _, err := f.Open(ctx, "there"); return err },
		"stat":      func() error { _, err := f.Stat(ctx, "there"); return err },
		"list":      func() error { _, err := f.List(ctx, ""); return err },
		"files":     func() error { _, err := f.Files(ctx, ""); return err },
		"dirs":      func() error { _, err := f.Dirs(ctx, ""); return err },
		"remove":    func() error { return f.Remove(ctx, "there") },
		"removeall": func() error { return f.RemoveAll(ctx, "there") },
		"publish":   func() error { return f.Publish(ctx, s) },
		"discard":   func() error { return f.Discard(ctx, s) },
		"staged":    func() error { _, err := f.Staged(ctx, ""); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", op, err)
		}
	}
	wantNames(t, f, "", "there")
	wantStaged(t, f, "", s)
}

func testSub(t *testing.T, f storage.FS) {
	sub := storage.Sub(f, "in/side")
	if want := strings.TrimSuffix(f.URL(), "/") + "/in/side"; sub.URL() != want {
		t.Fatalf("its address is %s, want %s", sub.URL(), want)
	}
	var inner atomic.Int32
	for _, c := range []func(t *testing.T, f storage.FS){testCreate, testStaged, testList, testRemove, testBadNames} {
		c(t, storage.Sub(f, fmt.Sprintf("in/side%d", inner.Add(1))))
	}
	write(t, sub, "a/x", "x")
	wantFile(t, f, "in/side/a/x", "x")
	wantNames(t, sub, "", "a/x")
}
