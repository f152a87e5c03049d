package checkpoint_test

import (
	"path"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// Sinks of databases keep their rows in files that only committables list.
func TestFilesOfCommittablesBelongToTheCheckpoint(t *testing.T) {
	f, l, s, _ := withLocal(t)
	p := start(t, s, "").take(1)
	n, err := p.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.metadata(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.job.Files(n).Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("rows")); err != nil {
		t.Fatal(err)
	}
	file, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	m.Committables = append(m.Committables, connectors.Committable{Committer: "database", Checkpoint: m.ID(), Files: []connectors.StateFile{file}})
	if err := p.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	retain(t, p)
	q := start(t, s, "")
	before := l.Stats().Hits
	f.Set(stateIsUnreadable)
	if got := q.read(file); q.r.Meta.Number != n || got != "rows" || l.Stats().Hits != before+1 {
		t.Errorf("checkpoint %d is restored, its file holds %q", q.r.Meta.Number, got)
	}
	f.Set()
	if err := f.Remove(t.Context(), path.Join(path.Dir(stateName(t, f, p, 1)), path.Base(file.Path))); err != nil {
		t.Fatal(err)
	}
	start(t, s, "").wantRestored(1, 1)
}
