package checkpoint_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// what describes what is left of a job: its checkpoints' folders and shared files by attempt.
func what(t *testing.T, f storage.FS, p *process) string {
	t.Helper()
	var out []string
	for _, name := range names(t, f, "orders/"+p.job.ID()) {
		parts := strings.Split(strings.TrimPrefix(name, "orders/"+p.job.ID()+"/"), "/")
		if parts[0] == "shared" {
			parts = strings.SplitAfterN(parts[1], "-", 3)[:2]
			parts = []string{strings.Trim(strings.Join(parts, ""), "-")}
		}
		out = append(out, parts[0])
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

func retain(t *testing.T, p *process) {
	t.Helper()
	if err := p.job.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A proof may come while what it subsumes is being removed.
func TestRetentionBesideProofs(t *testing.T) {
	f := mem.New()
	p := start(t, newStore(t, f, checkpoint.StoreOptions{Retained: 2}), "").take(3)
	for range 100 {
		n, err := p.complete(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var beside sync.WaitGroup
		beside.Go(func() {
			if err := p.job.Retain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if err := p.commit(t.Context(), n); err != nil {
			t.Error(err)
		}
		beside.Wait()
	}
	retain(t, p)
	if got := what(t, f, p); got != "1-102 1-103 chk-102 chk-103" {
		t.Errorf("it left %s", got)
	}
}

func TestRetentionKeepsTheNewestAndWhatTheyReferTo(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, f storage.FS, p *process)
		want string
	}{
		{"subsumed ones go", func(_ *testing.T, _ storage.FS, p *process) { p.take(5) },
			"1-4 1-5 chk-4 chk-5"},
		{"nothing goes before there are more", func(_ *testing.T, _ storage.FS, p *process) { p.take(2) },
			"1-1 1-2 chk-1 chk-2"},
		{"an old file that is still referred to stays", func(t *testing.T, f storage.FS, p *process) {
			p.take(1)
			sv, err := p.store.Survey(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.files = sv.Checkpoints[0].Meta.Files()
			p.take(4)
		}, "1-1 1-4 1-5 chk-4 chk-5"},
		{"failed attempts go once a later one is proven", func(t *testing.T, _ storage.FS, p *process) {
			p.take(1)
			p.attempt(t)
			p.take(2)
			p.attempt(t)
		}, "1-3 1-4 1-5 chk-3 chk-4 chk-5"},
		{"complete ones above the newest proven stay", func(t *testing.T, _ storage.FS, p *process) {
			p.take(3)
			for range 3 {
				if _, err := p.complete(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}, "1-3 1-4 1-5 1-6 chk-3 chk-4 chk-5 chk-6"},
		{"strangers' files stay", func(t *testing.T, f storage.FS, p *process) {
			p.take(5)
			for _, name := range []string{"notes.txt", "shared/9-1-ab", "shared/1-1-notes", "chk-9/notes"} {
				if err := storage.WriteFile(t.Context(), f, "orders/"+p.job.ID()+"/"+name, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}, "1-1 1-4 1-5 9-1 chk-4 chk-5 chk-9 notes.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := mem.New()
			p := start(t, newStore(t, f, checkpoint.StoreOptions{Retained: 2}), "")
			c.do(t, f, p)
			retain(t, p)
			retain(t, p)
			if got := what(t, f, p); got != c.want {
				t.Errorf("left are %s, want %s", got, c.want)
			}
		})
	}
}

// attempt claims a number, writes its files, and fails.
func (p *process) attempt(t *testing.T) uint64 {
	t.Helper()
	n := p.next
	p.next++
	if mine, err := p.job.Claim(t.Context(), n); err != nil || !mine {
		t.Fatal(err)
	}
	if _, err := p.metadata(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAbortRemovesAnAttemptOnceALaterOneIsProven(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	n := p.attempt(t)
	for _, want := range []string{"1-1 1-2 chk-1 chk-2", "1-1 1-3 chk-1 chk-3"} {
		if err := p.job.Abort(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if got := what(t, f, p); got != want {
			t.Fatalf("left are %s, want %s", got, want)
		}
		p.take(1)
	}
	if err := p.job.Abort(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got := what(t, f, p); !strings.Contains(got, "chk-3") {
		t.Errorf("it dropped a complete one: %s", got)
	}
}

func TestANewOwnerRemovesWhatOlderOnesLeftOnlyOnceItHasProvenItsOwn(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 2})
	old := start(t, s, "").take(2)
	old.attempt(t)
	p := start(t, s, "")
	retain(t, p)
	if got, want := what(t, f, p), "1-1 1-2 1-3 chk-1 chk-2 chk-3"; got != want {
		t.Fatalf("before: left are %s, want %s", got, want)
	}
	p.take(1)
	retain(t, p)
	if got, want := what(t, f, p), "1-2 2-4 chk-2 chk-4"; got != want {
		t.Fatalf("after: left are %s, want %s", got, want)
	}
}

// An orphan has no place among the retained ones.
func TestOrphansAreRemovedAndTakeNoPlace(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 2})
	old := start(t, s, "").take(2).claims(3)
	p := start(t, s, "").wantRestored(1, 2)
	for n := uint64(3); n <= 5; n++ {
		if err := old.finish(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	p.take(1) // skips the numbers that are taken
	retain(t, p)
	if got, want := what(t, f, p), "1-2 2-6 chk-2 chk-6"; got != want {
		t.Fatalf("left are %s, want %s", got, want)
	}
}

func TestADamagedCheckpointKeepsItsPlaceFree(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 2})
	old := start(t, s, "").take(3)
	if err := checkpointtest.Zero().Do(t.Context(), f, old.chk(3, "_metadata")); err != nil {
		t.Fatal(err)
	}
	p := start(t, s, "").wantRestored(1, 2).take(1)
	retain(t, p)
	if got, want := what(t, f, p), "1-1 1-2 1-3 2-4 chk-2 chk-3 chk-4"; got != want {
		t.Fatalf("left are %s, want %s", got, want)
	}
	p.take(1)
	retain(t, p)
	if got, want := what(t, f, p), "2-4 2-5 chk-4 chk-5"; got != want {
		t.Fatalf("left are %s, want %s", got, want)
	}
}

func TestARemovalThatFailsIsDoneByTheNextPass(t *testing.T) {
	for _, op := range []storagetest.Op{storagetest.OpRemove, storagetest.OpRemoveAll, storagetest.OpList} {
		for _, effect := range []storagetest.Effect{storagetest.FailBefore, storagetest.FailAfter} {
			t.Run(fmt.Sprint(op, effect), func(t *testing.T) {
				f := storagetest.Faulty(mem.New(), 1)
				p := start(t, newStore(t, f, checkpoint.StoreOptions{Retained: 1}), "").take(4)
				for n := range 6 {
					f.Set(storagetest.Rule{Op: op, Nth: n + 1, Effect: effect})
					_ = p.job.Retain(t.Context())
					f.Set()
					if _, err := begin(t.Context(), newStore(t, mem.New(), checkpoint.StoreOptions{}), checkpoint.Request{}); err != nil {
						t.Fatal(err)
					}
				}
				retain(t, p)
				if got, want := what(t, f, p), "1-4 chk-4"; got != want {
					t.Fatalf("left are %s, want %s", got, want)
				}
				start(t, p.store, "").wantRestored(1, 4)
			})
		}
	}
}

func TestOldOwnersRecordsGoWithTheLastCheckpointThatNeedsThem(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 2})
	var p *process
	for range 5 {
		p = start(t, s, "").take(1)
		retain(t, p)
	}
	var owners []string
	for _, name := range names(t, f, "orders") {
		if strings.Contains(name, "owner-") {
			owners = append(owners, strings.TrimPrefix(name, "orders/"))
		}
	}
	// The generations themselves stay: an old process must find the one after its own.
	if want := []string{"owner-1", "owner-2", "owner-3", "owner-4", "owner-4.json", "owner-5", "owner-5.json"}; !slices.Equal(owners, want) {
		t.Fatalf("left are %q, want %q", owners, want)
	}
	start(t, s, "").wantRestored(5, 5)
}

func TestNothingOutsideOfTheJobsFolderIsRemoved(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 1})
	first := start(t, s, "").take(3)
	second := start(t, s, first.path(2)).take(4)
	retain(t, second)
	if got, want := what(t, f, first), "1-1 1-2 1-3 chk-1 chk-2 chk-3"; got != want {
		t.Fatalf("left of the other job are %s, want %s", got, want)
	}
	start(t, s, first.path(3)).wantRestored(1, 3)
}

func TestNumbersAreClaimedOnceForGood(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1)
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "")
	if mine, err := p.job.Claim(t.Context(), 1); !mine || err != nil {
		t.Fatal(mine, err)
	}
	if mine, err := p.job.Claim(t.Context(), 1); mine || err != nil {
		t.Fatal("claimed twice", err)
	}
	f.Set(storagetest.Rule{Op: storagetest.OpClaim, Effect: storagetest.FailAfter})
	if mine, err := p.job.Claim(t.Context(), 2); mine || err == nil {
		t.Fatal("an unknown outcome counts as claimed", err)
	}
	f.Set()
	m, err := p.metadata(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.job.Complete(t.Context(), m); err == nil {
		t.Fatal("metadata was written without a claim")
	}
}

func TestMetadataIsWrittenOnceWhateverTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []storagetest.Rule
		first bool // the first try succeeds
	}{
		{"a lost answer is found by reading back", []storagetest.Rule{{Op: storagetest.OpClose, Glob: "_metadata", Effect: storagetest.FailAfter}}, true},
		{"a failure can be repeated", []storagetest.Rule{{Op: storagetest.OpClose, Glob: "_metadata", Nth: 1}}, false},
		{"half a write never appears", []storagetest.Rule{{Op: storagetest.OpWrite, Glob: "_metadata", Nth: 1, Effect: storagetest.Partial}}, false},
		{"a lost answer and no reading back can be repeated", []storagetest.Rule{{Op: storagetest.OpClose, Glob: "_metadata", Nth: 1, Effect: storagetest.FailAfter},
			{Op: storagetest.OpOpen, Glob: "_metadata", Nth: 1}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := storagetest.Faulty(mem.New(), 1)
			p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "")
			if mine, err := p.job.Claim(t.Context(), 1); !mine || err != nil {
				t.Fatal(err)
			}
			m, err := p.metadata(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			f.Set(c.rules...)
			if err := p.job.Complete(t.Context(), m); (err == nil) != c.first {
				t.Fatalf("the first try: %v", err)
			}
			if err := p.job.Complete(t.Context(), m); err != nil {
				t.Fatalf("the second try: %v", err)
			}
			start(t, p.store, "").wantRestored(1, 1)
		})
	}
}

func TestAStateFileIsWrittenOnceWhateverTheAnswer(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpClose, Glob: "1-1-*", Effect: storagetest.FailAfter})
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "")
	w, err := p.job.Files(1).Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("123456789")); err != nil {
		t.Fatal(err)
	}
	file, err := w.Close()
	if err != nil {
		t.Fatalf("a lost answer was not resolved: %v", err)
	}
	// The check value of CRC-32C in the catalogues.
	if want := (connectors.StateFile{Path: file.Path, Size: 9, Checksum: "crc32c:e3069283"}); file != want {
		t.Errorf("got %+v, want %+v", file, want)
	}
	f.Set(storagetest.Rule{Op: storagetest.OpClose, Glob: "1-1-*"})
	if w, err = p.job.Files(1).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err == nil {
		t.Fatal("a file that was not written has a reference")
	}
}
