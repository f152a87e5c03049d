package checkpoint_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// withLocal is a store whose storage can fail, with copies in a folder.
func withLocal(t *testing.T) (*storagetest.FaultyFS, *checkpoint.Local, *checkpoint.Store, string) {
	t.Helper()
	f := storagetest.Faulty(mem.New(), 1)
	dir := t.TempDir()
	l := checkpoint.NewLocal(dir, "orders", f.URL(), slog.New(slog.DiscardHandler))
	return f, l, newStore(t, f, checkpoint.StoreOptions{Local: l}), dir
}

// copies are the files in a folder of copies, by name.
func copies(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func wantStats(t *testing.T, l *checkpoint.Local, want checkpoint.LocalStats) {
	t.Helper()
	if got := l.Stats(); got != want {
		t.Errorf("counted are %+v, want %+v", got, want)
	}
}

var stateIsUnreadable = storagetest.Rule{Op: storagetest.OpOpen, Glob: "*-*-*"}

func TestARestartReadsTheLocalCopies(t *testing.T) {
	f, l, s, dir := withLocal(t)
	p := start(t, s, "").take(1)
	p.sharing().take(1)
	f.Set(stateIsUnreadable)
	p = start(t, s, "").wantRestored(1, 2)
	if got := p.read(p.r.Meta.Operators[0].Subtasks[0].Files[1]); got != "state of 1 by 1" {
		t.Errorf("the shared file holds %q", got)
	}
	wantStats(t, l, checkpoint.LocalStats{Hits: 3})
	if got := copies(t, dir); len(got) != 2 {
		t.Errorf("copies are %q", got)
	}
}

func TestADamagedCopyIsNeverUsed(t *testing.T) {
	for _, d := range checkpointtest.All(len("state of 1 by 1")) {
		t.Run(d.Name, func(t *testing.T) {
			_, l, s, dir := withLocal(t)
			start(t, s, "").take(1)
			name := copies(t, dir)[0]
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if data = d.Apply(data); data == nil {
				err = os.Remove(name)
			} else {
				err = os.WriteFile(name, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			start(t, s, "").wantRestored(1, 1)
			if st := l.Stats(); st.Hits > 0 || st.Misses == 0 || (st.Failures > 0) != (data != nil) {
				t.Errorf("counted are %+v", st)
			}
			if left := copies(t, dir); len(left) > 0 {
				t.Errorf("it is still there: %q", left)
			}
		})
	}
}

// What the storage has lost is not made up for by a copy: later checkpoints refer to it.
func TestACopyDoesNotHideThatTheFileIsGone(t *testing.T) {
	f, _, s, _ := withLocal(t)
	p := start(t, s, "").take(2)
	if err := f.Remove(t.Context(), stateName(t, f, p, 2)); err != nil {
		t.Fatal(err)
	}
	start(t, s, "").wantRestored(1, 1)
}

func TestNoFailureOfTheLocalDiskFailsACheckpoint(t *testing.T) {
	_, l, s, dir := withLocal(t)
	p := start(t, s, "").take(1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the folder was
		t.Fatal(err)
	}
	p.take(2)
	start(t, s, "").wantRestored(1, 3)
	if l.Stats().Failures == 0 {
		t.Error("nothing was counted")
	}
}

func TestOldCopiesGoAndOthersFilesStay(t *testing.T) {
	_, l, s, dir := withLocal(t)
	p := start(t, s, "").take(1)
	folder := filepath.Dir(copies(t, dir)[0])
	for _, name := range []string{"notes.txt", "2-1-00", ".new-1-1-00", ".new-2-1-00"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.attempt(t)
	p.take(2)
	p.attempt(t) // under way
	var got []string
	for _, name := range copies(t, dir) {
		name = filepath.Base(name)
		got = append(got, name[:min(len(name), 3)])
	}
	hidden, err := filepath.Glob(filepath.Join(folder, ".new-*"))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "[.ne 1-4 1-5 2-1 not]" && fmt.Sprint(got) != "[1-4 1-5 2-1 not]" || len(hidden) != 1 {
		t.Errorf("left are %v and %q", got, hidden)
	}
	// The next process keeps what it restores, and nothing that is its predecessor's alone.
	start(t, s, "").wantRestored(1, 4)
	left := copies(t, dir)
	if !slices.ContainsFunc(left, func(n string) bool { return strings.HasPrefix(filepath.Base(n), "1-4-") }) ||
		slices.ContainsFunc(left, func(n string) bool { return strings.HasPrefix(filepath.Base(n), "1-5-") }) {
		t.Errorf("left are %q", left)
	}
	wantStats(t, l, checkpoint.LocalStats{Hits: 1})
}

// A copy that changes between its check and its reading is an error of that moment,
// not a damage of the checkpoint, and is gone afterwards.
func TestACopyThatChangesWhileItIsReadIsNotUsedAgain(t *testing.T) {
	_, l, s, dir := withLocal(t)
	p := start(t, s, "").claims(1)
	w, err := p.job.Files(1).Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	file, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.metadata(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m.Operators[0].Subtasks[0].Files = []connectors.StateFile{file}
	if err := p.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := p.commit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	p = start(t, s, "") // reads the copy to its end
	name := copies(t, dir)[0]
	changed := bytes.Clone(want)
	changed[2<<20] ^= 1
	if err := os.WriteFile(name, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() ([]byte, error) {
		r, err := p.r.Files.Open(t.Context(), file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.Close() }()
		return io.ReadAll(r)
	}
	if _, err := read(); err == nil || connectors.IsPermanent(err) || strings.Contains(err.Error(), "is damaged") && !strings.Contains(err.Error(), "local copy") {
		t.Fatalf("got %v", err)
	}
	if got, err := read(); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the second time: %v", err)
	}
	wantStats(t, l, checkpoint.LocalStats{Hits: 1, Misses: 1, Failures: 1})
}
