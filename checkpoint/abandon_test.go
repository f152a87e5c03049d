package checkpoint_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// begun starts a file of a checkpoint's state and fills it.
func begun(t *testing.T, f connectors.CheckpointFiles, text string) connectors.StateWriter {
	t.Helper()
	w, err := f.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(w, text); err != nil {
		t.Fatal(err)
	}
	return w
}

func closed(t *testing.T, w connectors.StateWriter) connectors.StateFile {
	t.Helper()
	f, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A disk that is full must not stay so because of the checkpoint that filled it.
func TestTheStateOfAFailedCheckpointGoesAtOnce(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1).claims(2)
	state, sinks := p.job.StateFiles(2), p.job.Files(2)
	closed(t, begun(t, state, "acknowledged"))
	closed(t, begun(t, sinks, "a segment that the next checkpoint hands over"))
	late := begun(t, state, "still being written")
	other := p.job.StateFiles(3)
	closed(t, begun(t, other, "of a checkpoint beside it"))
	if err := p.job.Abandon(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if file, err := late.Close(); err == nil {
		t.Errorf("a task made %v of a checkpoint that had failed", file)
	}
	if _, err := state.Create(t.Context()); err == nil {
		t.Error("a task began a file of a checkpoint that had failed")
	}
	if _, err := p.job.StateFiles(2).Create(t.Context()); err == nil {
		t.Error("a task that is late began a file of a checkpoint that had failed")
	}
	if got, want := what(t, f, p), "1-1 1-2 1-3 chk-1 chk-2 chk-3"; got != want || len(names(t, f, "orders/"+p.job.ID()+"/shared")) != 3 {
		t.Errorf("left are %s, want the sink's file of 2 and all of 3", got)
	}
}

func TestStateThatMayBeOfACompleteCheckpointStays(t *testing.T) {
	for name, rules := range map[string][]storagetest.Rule{
		"complete": nil,
		"nobody knows": {
			{Op: storagetest.OpClose, Glob: "_metadata", Effect: storagetest.FailAfter},
			{Op: storagetest.OpOpen, Glob: "_metadata"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := storagetest.Faulty(mem.New(), 1)
			s := newStore(t, f, checkpoint.StoreOptions{})
			p := start(t, s, "").take(1).claims(1)
			m, err := p.metadata(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			m.Operators[0].KeyGroups = []checkpoint.KeyGroups{{File: closed(t, begun(t, p.job.StateFiles(2), "keys")), Length: 4}}
			f.Set(rules...)
			if err := p.job.Complete(t.Context(), m); (err != nil) != (rules != nil) || errors.Is(err, checkpoint.ErrNotWritten) {
				t.Fatalf("complete: %v", err)
			}
			f.Set()
			if err := p.job.Abandon(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			start(t, s, "").wantRestored(1, 2)
		})
	}
}

// What an older process has left of attempts that failed goes when the next one has
// proven what it restored, before its own first checkpoint.
func TestANewProcessFreesTheDiskBeforeItsFirstCheckpoint(t *testing.T) {
	f, s := memory(t)
	old := start(t, s, "").take(1)
	old.attempt(t)
	closed(t, begun(t, old.job.StateFiles(3), "state"))
	p := start(t, s, "")
	if err := p.job.Proven(t.Context(), 1); err != nil { // as the start does with what it restores
		t.Fatal(err)
	}
	retain(t, p)
	if got, want := what(t, f, p), "1-1 chk-1 chk-2"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}

// A first try is written and its answer lost; the second one is told that a file is
// there, which cannot be read back either. That it exists does not make it another's.
func TestMetadataThatExistsAndCannotBeReadBackIsNotTakenForAnothers(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1)
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(1).claims(1)
	m, err := p.metadata(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	m.Operators[0].KeyGroups = []checkpoint.KeyGroups{{File: closed(t, begun(t, p.job.StateFiles(2), "keys")), Length: 4}}
	f.Set(storagetest.Rule{Op: storagetest.OpClose, Glob: "_metadata", Nth: 1, Effect: storagetest.FailAfter}, storagetest.Rule{Op: storagetest.OpOpen, Glob: "_metadata"})
	for range 2 {
		if err := p.job.Complete(t.Context(), m); err == nil || errors.Is(err, checkpoint.ErrNotWritten) || connectors.IsPermanent(err) {
			t.Fatalf("complete: %v", err)
		}
		if err := p.job.Abandon(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	f.Set()
	if err := p.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	start(t, s, "").wantRestored(1, 2)
}
