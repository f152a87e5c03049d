package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// claim starts from a path that becomes the new job's own, up to its first checkpoint.
func claim(t *testing.T, s *checkpoint.Store, from string) *process {
	t.Helper()
	p, err := begin(t.Context(), s, checkpoint.Request{From: from, Claim: true})
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	return p.initial()
}

// initial takes the first checkpoint of a new job.
func (p *process) initial() *process {
	p.t.Helper()
	n, err := p.claim(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := p.metadata(p.t.Context(), n)
	if err != nil {
		p.t.Fatal(err)
	}
	m.Kind = checkpoint.Initial
	if err := p.job.Complete(p.t.Context(), m); err != nil {
		p.t.Fatal(err)
	}
	if err := p.commit(p.t.Context(), n); err != nil {
		p.t.Fatal(err)
	}
	return p
}

func TestAClaimedSavepointGoesOnceItIsSubsumed(t *testing.T) {
	to, dir := faultyDir(t)
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 2})
	old := start(t, s, "").take(2)
	path, other := old.saved(t, 2, dir), old.saved(t, 2, dir)
	p := claim(t, s, path)
	for range 2 {
		retain(t, p)
		if got := len(wantWhole(t, dir)); got != 2 {
			t.Fatalf("%d savepoints are left of 2 before its checkpoints have taken its place", got)
		}
		p.take(1)
	}
	// The removal is cut off, and the process dies: the next one goes on with it.
	to.Set(storagetest.Rule{Op: storagetest.OpRemoveAll})
	if err := p.job.Retain(t.Context()); err == nil {
		t.Fatal("the removal did not fail")
	}
	to.Set()
	if got := wantWhole(t, dir); len(got) != 1 || got[0].Path != other {
		t.Fatalf("what is being removed still looks like a savepoint: %+v", got)
	}
	p = start(t, s, "").take(1)
	retain(t, p)
	for _, name := range names(t, to, "") {
		if strings.HasPrefix(name, path[strings.LastIndex(path, "/")+1:]) {
			t.Errorf("%s is left", name)
		}
	}
	if got := wantWhole(t, dir); len(got) != 1 {
		t.Errorf("%d savepoints are left, want the other one", len(got))
	}
	if got := what(t, f, old); got != "1-1 1-2 chk-1 chk-2" {
		t.Errorf("of the older job are left %s", got)
	}
}

// Somebody has put another savepoint into the place of the claimed one meanwhile.
func TestWhatIsNotWhatWasClaimedStays(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, mem.New(), checkpoint.StoreOptions{Retained: 1})
	old := start(t, s, "").take(2)
	path, other := old.saved(t, 2, dir), old.saved(t, 1, dir)
	p := claim(t, s, path)
	at, from := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, filepath.Base(other))
	if err := errors.Join(os.RemoveAll(at), os.Rename(from, at)); err != nil {
		t.Fatal(err)
	}
	p.take(2)
	retain(t, p)
	if got := wantWhole(t, dir); len(got) != 1 || got[0].Meta.Number != 1 {
		t.Errorf("left are %+v", got)
	}
}

func TestAClaimedCheckpointGoesWithTheFilesThatOnlyItNeeds(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 3})
	old := start(t, s, "").take(1)
	old.files = keyed(t, old) // of 1, which 2 and 3 need too
	old.take(2)
	failed := old.attempt(t)
	p := claim(t, s, old.path(2)).take(3)
	retain(t, p)
	if got, want := what(t, f, old), "1-1 1-3 1-4 chk-1 chk-3 chk-4"; got != want || failed != 4 {
		t.Errorf("of the older job are left %s, want %s", got, want)
	}
	for _, n := range []uint64{1, 3} {
		if r, err := checkpoint.Verify(t.Context(), old.path(n)); err == nil && len(r.Faults) > 0 {
			t.Errorf("checkpoint %d: %v", n, r.Faults)
		}
		start(t, newStore(t, f, checkpoint.StoreOptions{}), old.path(n)).wantRestored(1, n)
	}
}

func TestNothingIsRemovedThatIsNotClaimed(t *testing.T) {
	dir := t.TempDir()
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{Retained: 1})
	old := start(t, s, "").take(2)
	for _, from := range []string{old.saved(t, 2, dir), old.path(2)} {
		p := start(t, s, from).initial().take(3)
		retain(t, p)
	}
	if got := what(t, f, old); got != "1-1 1-2 chk-1 chk-2" || len(wantWhole(t, dir)) != 1 {
		t.Errorf("of the older job are left %s", got)
	}
}

func TestAClaimTouchesNothingElse(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f storage.FS, old *process, save *storagetest.FaultyFS) string{
		"another checkpoint there cannot be read": func(t *testing.T, f storage.FS, old *process, _ *storagetest.FaultyFS) string {
			if err := checkpointtest.Zero().Do(t.Context(), f, old.chk(1, "_metadata")); err != nil {
				t.Fatal(err)
			}
			return ""
		},
		"another savepoint lies there now": func(t *testing.T, _ storage.FS, _ *process, save *storagetest.FaultyFS) string {
			all := names(t, save, "")
			for _, name := range all {
				if err := save.Remove(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			dir, _, _ := strings.Cut(all[0], "/")
			if err := storage.WriteFile(t.Context(), save, dir+"/_metadata", []byte("of somebody else")); err != nil {
				t.Fatal(err)
			}
			return "savepoint"
		},
	} {
		t.Run(name, func(t *testing.T) {
			save, dir := faultyDir(t)
			f := mem.New()
			s := newStore(t, f, checkpoint.StoreOptions{Retained: 1})
			old := start(t, s, "").take(2)
			path := old.saved(t, 2, dir)
			from := old.path(2)
			if strings.HasPrefix(name, "another savepoint") {
				from = path
			}
			p := claim(t, s, from)
			spoil(t, f, old, save)
			before, saved := what(t, f, old), names(t, save, "")
			p.take(2)
			retain(t, p)
			if got := what(t, f, old); got != before {
				t.Errorf("of the older job are left %s, want %s", got, before)
			}
			if got := names(t, save, ""); len(got) != len(saved) {
				t.Errorf("the savepoint's folder holds %q, want %q", got, saved)
			}
		})
	}
}

func TestAFencedProcessSettlesNoClaim(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, mem.New(), checkpoint.StoreOptions{Retained: 1})
	old := start(t, s, "").take(1)
	p := claim(t, s, old.saved(t, 1, dir)).take(2)
	start(t, s, "")
	if err := p.job.Retain(t.Context()); err == nil {
		t.Error("a fenced process cleans up")
	}
	if len(wantWhole(t, dir)) != 1 {
		t.Error("a fenced process removed what it had claimed")
	}
}

func TestWhatCannotBeRemovedSafelyCannotBeClaimed(t *testing.T) {
	f := mem.New()
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(1)
	dir := t.TempDir()
	saved := p.saved(t, 1, dir)
	renamed := t.TempDir()
	copyTree(t, strings.TrimPrefix(saved, "file://"), renamed)
	other, err := checkpoint.NewStore(f, "copies", checkpoint.StoreOptions{Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		store *checkpoint.Store
		from  string
		says  string
	}{
		{s, renamed, "may hold other things"},
		{other, p.path(1), "pipeline orders"},
	} {
		sv, err := c.store.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSays(t, c.store.Check(t.Context(), sv, checkpoint.Request{From: c.from, Claim: true}), c.says, "claim: no")
		if err := c.store.Check(t.Context(), sv, checkpoint.Request{From: c.from}); err != nil {
			t.Errorf("restored without a claim: %v", err)
		}
	}
}
