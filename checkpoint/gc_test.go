package checkpoint_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func garbage(t *testing.T, s *checkpoint.Store, opts checkpoint.GCOptions) *checkpoint.Garbage {
	t.Helper()
	g, err := s.Garbage(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func collect(t *testing.T, s *checkpoint.Store, opts checkpoint.GCOptions) {
	t.Helper()
	if err := s.RemoveGarbage(t.Context(), garbage(t, s, opts), func(checkpoint.GarbageItem) {}); err != nil {
		t.Fatal(err)
	}
}

// noHoles checks that every checkpoint that is listed can be restored.
func noHoles(t *testing.T, f storage.FS, s *checkpoint.Store) (n int) {
	t.Helper()
	jobs, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		for _, c := range j.Checkpoints {
			if c.Err != nil {
				t.Fatalf("checkpoint %s: %v", c.Path, c.Err)
			}
			if c.Meta == nil {
				continue
			}
			n++
			for _, file := range c.Meta.Files() {
				name := "orders/" + j.ID + "/" + file.Path[len("../"):]
				if ok, err := storage.Exists(t.Context(), f, name); !ok {
					t.Fatalf("checkpoint %s lacks %s: %v", c.Path, name, err)
				}
			}
		}
	}
	return n
}

// jobs makes a pipeline with two old jobs and a current one with what a crash left.
func jobs(t *testing.T, s *checkpoint.Store) (old, middle, current *process) {
	t.Helper()
	old = start(t, s, "").take(3)
	middle = start(t, s, old.path(2)).take(2)
	middle.attempt(t)
	current = start(t, s, middle.path(3)).take(1)
	current.attempt(t)
	current.take(2)
	return old, middle, current
}

func TestGarbageIsShownBeforeItIsRemoved(t *testing.T) {
	f, s := memory(t)
	old, middle, current := jobs(t, s)
	before := names(t, f, "orders")
	g := garbage(t, s, checkpoint.GCOptions{KeepJobs: 1})
	if !slices.Equal(before, names(t, f, "orders")) {
		t.Fatal("looking changed something")
	}
	var got []string
	for _, it := range g.Items {
		got = append(got, fmt.Sprintf("%s %s %d %d", it.What, it.Path, it.Files, it.Bytes))
	}
	url, dir := f.URL()+"/orders/", current.job.ID()
	want := []string{
		fmt.Sprintf("job %s%s 12 42", url, old.job.ID()),
		fmt.Sprintf("attempt %s%s/chk-5 1 0", url, dir),
		fmt.Sprintf("files %s%s/shared/3-5-* 1 15", url, dir),
	}
	want[0] = got[0] // its metadata's size says nothing
	if !slices.Equal(got, want) || g.Items[0].Path != url+old.job.ID() || g.Items[0].Files != 12 {
		t.Errorf("garbage is\n%q, want\n%q", got, want)
	}
	if len(g.Kept) != 1 || g.Kept[0].Path != url+middle.job.ID() {
		t.Errorf("kept are %v", g.Kept)
	}
	collect(t, s, checkpoint.GCOptions{})
	if got := what(t, f, old) + what(t, f, middle); got != "" {
		t.Errorf("of the old jobs are left %q", got)
	}
	if got, want := what(t, f, current), "3-4 3-6 3-7 chk-4 chk-6 chk-7"; got != want {
		t.Errorf("of the current job are left %q, want %q", got, want)
	}
	if g := garbage(t, s, checkpoint.GCOptions{}); len(g.Items) > 0 {
		t.Errorf("a second look finds %v", g.Items)
	}
	if again := start(t, s, "").wantRestored(3, 7); again.r.Job != dir {
		t.Error("it does not go on with its job")
	}
}

func TestACollectionThatBreaksOffLeavesNoCheckpointWithHoles(t *testing.T) {
	for _, op := range []storagetest.Op{storagetest.OpRemove, storagetest.OpRemoveAll, storagetest.OpList} {
		for _, effect := range []storagetest.Effect{storagetest.FailBefore, storagetest.FailAfter} {
			t.Run(fmt.Sprint(op, effect), func(t *testing.T) {
				f := storagetest.Faulty(mem.New(), 1)
				s := newStore(t, f, checkpoint.StoreOptions{})
				jobs(t, s)
				broke := 0
				for nth := 1; ; nth++ {
					g := garbage(t, s, checkpoint.GCOptions{})
					f.Set(storagetest.Rule{Op: op, Nth: nth, Effect: effect})
					err := s.RemoveGarbage(t.Context(), g, func(checkpoint.GarbageItem) {})
					f.Set()
					noHoles(t, f, s)
					if err == nil {
						break
					}
					broke++
				}
				if broke == 0 {
					t.Error("nothing failed")
				}
				collect(t, s, checkpoint.GCOptions{})
				if n := noHoles(t, f, s); n != 3 {
					t.Errorf("%d checkpoints are left, want those of the current job", n)
				}
			})
		}
	}
}

func TestGarbageIsLeftToAProcessThatHasStartedMeanwhile(t *testing.T) {
	f, s := memory(t)
	old, _, _ := jobs(t, s)
	g := garbage(t, s, checkpoint.GCOptions{})
	p := start(t, s, old.path(3))
	if err := s.RemoveGarbage(t.Context(), g, func(checkpoint.GarbageItem) {}); !errors.Is(err, checkpoint.ErrStarted) {
		t.Fatalf("got %v", err)
	}
	p.wantRestored(1, 3)
	// Its job has no checkpoint yet: the one that it restored stays, however old.
	collect(t, s, checkpoint.GCOptions{})
	if got, want := what(t, f, old), "1-1 1-2 1-3 chk-1 chk-2 chk-3"; got != want {
		t.Fatalf("left are %q, want %q", got, want)
	}
	p.take(1)
	collect(t, s, checkpoint.GCOptions{})
	if got := what(t, f, old); got != "" {
		t.Fatalf("left are %q", got)
	}
}

func TestNothingIsGarbageWhereTheOwnersCannotBeRead(t *testing.T) {
	f, s := memory(t)
	jobs(t, s)
	if err := checkpointtest.Flip(9).Do(t.Context(), f, "orders/owner-1.json"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Garbage(t.Context(), checkpoint.GCOptions{})
	wantSays(t, err, "owner-1.json is damaged", "nothing is removed")
}

func TestStrangersFilesKeepAJob(t *testing.T) {
	f, s := memory(t)
	old, _, _ := jobs(t, s)
	if err := storage.WriteFile(t.Context(), f, "orders/"+old.job.ID()+"/savepoint-012345-0123456789ab/_metadata", []byte("x")); err != nil {
		t.Fatal(err)
	}
	collect(t, s, checkpoint.GCOptions{})
	if got, want := what(t, f, old), "1-1 1-2 1-3 chk-1 chk-2 chk-3 savepoint-012345-0123456789ab"; got != want {
		t.Errorf("left are %q, want %q", got, want)
	}
}
