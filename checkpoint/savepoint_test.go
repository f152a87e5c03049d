package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// savepoint copies a checkpoint that is proven.
func (p *process) savepoint(ctx context.Context, n uint64, dir string) (string, error) {
	release := p.job.Pin(n)
	defer release()
	o, err := p.store.Survey(ctx)
	if err != nil {
		return "", err
	}
	for _, f := range o.Checkpoints {
		if f.Number == n {
			return p.job.Savepoint(ctx, f.Meta, dir)
		}
	}
	return "", fmt.Errorf("there is no checkpoint %d", n)
}

func (p *process) saved(t *testing.T, n uint64, dir string) string {
	t.Helper()
	path, err := p.savepoint(t.Context(), n, dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wantWhole checks that every savepoint in a directory can be restored.
func wantWhole(t *testing.T, dir string) []checkpoint.FoundSavepoint {
	t.Helper()
	found, err := checkpoint.Savepoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		r, err := checkpoint.Verify(t.Context(), s.Path)
		if err != nil || len(r.Faults) > 0 {
			t.Fatalf("savepoint %s: %v, %+v", s.Path, err, r)
		}
	}
	return found
}

func TestASavepointNeedsNothingOutsideItsFolder(t *testing.T) {
	_, s := memory(t)
	dir := t.TempDir()
	p := start(t, s, "").take(1)
	p.files = keyed(t, p)
	p.take(1)
	path := p.saved(t, 2, dir)
	base := filepath.Base(path)
	if ok, _ := filepath.Match("savepoint-"+p.job.ID()[:6]+"-????????????", base); !ok {
		t.Errorf("the folder is called %s", base)
	}
	o, err := checkpoint.Inspect(t.Context(), path+"/_metadata")
	if err != nil {
		t.Fatal(err)
	}
	m := o.Meta
	if m.Kind != checkpoint.Savepoint || len(m.Committables) > 0 || m.ID() != id(1, 2) || m.Job != p.job.ID() {
		t.Errorf("its metadata says %s of %v, job %s, with %d committables", m.Kind, m.ID(), m.Job, len(m.Committables))
	}
	want := []string{"_metadata"}
	for _, f := range m.Files() {
		if strings.Contains(f.Path, "/") {
			t.Errorf("it needs %s", f.Path)
		}
		want = append(want, f.Path)
		if state := string(m.Operators[0].Subtasks[0].State); strings.Contains(state, "shared") {
			t.Errorf("its state names a file of the checkpoint: %s", state)
		}
	}
	got := entries(t, filepath.Join(dir, base))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}

	// The pipeline's own storage is gone, and the savepoint lies elsewhere under another name.
	moved := filepath.Join(t.TempDir(), "kept for a year")
	if err := os.Rename(filepath.Join(dir, base), moved); err != nil {
		t.Fatal(err)
	}
	again := start(t, newStore(t, mem.New(), checkpoint.StoreOptions{}), moved).wantRestored(1, 2)
	if again.next != 3 || again.job.ID() == p.job.ID() || len(again.r.Meta.Committables) > 0 {
		t.Errorf("the next number is %d of job %s", again.next, again.job.ID())
	}
	if _, err := again.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	ops, err := again.job.Copy(t.Context(), 3, again.r)
	if err != nil {
		t.Fatal(err)
	}
	sub := ops[0].Subtasks[0]
	if len(sub.Files) != 2 || string(sub.State) != fmt.Sprintf(`{"file":%q}`, sub.Files[0].Path) || !strings.HasPrefix(sub.Files[0].Path, "../shared/1-3-") {
		t.Errorf("the new job's own copy is %+v, %s", sub.Files, sub.State)
	}
}

// keyed gives the next checkpoint a second file.
func keyed(t *testing.T, p *process) []connectors.StateFile {
	t.Helper()
	sv, err := p.store.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sv.Checkpoints[0].Meta.Files()
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// A checkpoint that was triggered for a savepoint is committed as any other: a crash
// before the proof leaves its commits to the next start.
func TestTheCheckpointOfASavepointIsACheckpointUntilItIsCopied(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(1)
	n, err := p.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.metadata(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	m.Kind = checkpoint.Savepoint
	if err := p.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if _, err := p.job.Savepoint(t.Context(), m, t.TempDir()); !connectors.IsPermanent(err) {
		t.Errorf("it was copied before its commits were proven: %v", err)
	}
	again := start(t, s, "").wantRestored(1, 2)
	if len(again.r.Meta.Committables) != 1 {
		t.Fatalf("the restart leaves out what is not committed yet: %+v", again.r.Meta)
	}
	wantSays(t, refused(t, newStore(t, mem.New(), checkpoint.StoreOptions{}), checkpoint.Request{From: p.path(2)}), "checkpoint")
}

func TestASavepointOfABackendsOwnFormIsRefused(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(1)
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := sv.Checkpoints[0].Meta
	m.Operators[0].KeyGroups = []checkpoint.KeyGroups{{Last: 1, File: m.Files()[0], Format: "pebble.1", Name: "000001.sst"}}
	dir := t.TempDir()
	_, err = p.job.Savepoint(t.Context(), m, dir)
	wantSays(t, err, "op", "pebble.1", "triggered as a savepoint")
	if !connectors.IsPermanent(err) || len(entries(t, dir)) > 0 {
		t.Errorf("it left %q, error %v", entries(t, dir), err)
	}
}

func TestSavepointsAreNotKeptInAJobsFolder(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	_, err := p.savepoint(t.Context(), 1, f.URL()+"/orders/"+p.job.ID()+"/savepoints")
	wantSays(t, err, "folder of a job")
}

// faultyPlaces are what addresses of the scheme unsound lead to.
var faultyPlaces sync.Map

func init() {
	storage.Register("unsound", func(u *url.URL) (storage.FS, error) {
		f, ok := faultyPlaces.Load(u.Host)
		if !ok {
			return nil, fmt.Errorf("no place %s", u.Host)
		}
		if dir := strings.Trim(u.Path, "/"); dir != "" {
			return storage.Sub(f.(storage.FS), dir), nil
		}
		return f.(storage.FS), nil
	})
}

// faultyDir makes a directory for savepoints that fails by rules.
func faultyDir(t *testing.T) (*storagetest.FaultyFS, string) {
	t.Helper()
	name := checkpoint.NewJobID()
	f := storagetest.Faulty(mem.New(), 1)
	address := "unsound://" + name
	faultyPlaces.Store(name, addressed{f, address})
	t.Cleanup(func() { faultyPlaces.Delete(name) })
	return f, address
}

// addressed is a file system that its own address leads to.
type addressed struct {
	*storagetest.FaultyFS
	url string
}

func (a addressed) URL() string { return a.url }

func TestASavepointThatFailsLeavesNothingBehind(t *testing.T) {
	for name, rule := range map[string]storagetest.Rule{
		"the first file":                          {Op: storagetest.OpCreate, Nth: 1},
		"the second file in the middle":           {Op: storagetest.OpWrite, Nth: 2, Effect: storagetest.Partial},
		"a file at its end":                       {Op: storagetest.OpClose, Nth: 2},
		"the metadata":                            {Op: storagetest.OpWrite, Glob: "_metadata"},
		"the metadata at its end":                 {Op: storagetest.OpClose, Glob: "_metadata"},
		"the metadata is there, but nobody knows": {Op: storagetest.OpAny, Glob: "_metadata", Effect: storagetest.FailAfter},
	} {
		t.Run(name, func(t *testing.T) {
			to, dir := faultyDir(t)
			_, s := memory(t)
			p := start(t, s, "").take(1)
			p.files = keyed(t, p)
			p.take(1)
			if rule.Op == storagetest.OpAny { // what writes fails, what removes works
				to.Set(storagetest.Rule{Op: storagetest.OpClose, Glob: rule.Glob, Effect: rule.Effect}, storagetest.Rule{Op: storagetest.OpOpen, Glob: rule.Glob})
			} else {
				to.Set(rule)
			}
			if path, err := p.savepoint(t.Context(), 2, dir); err == nil {
				t.Fatalf("it made %s", path)
			}
			to.Set()
			if left := names(t, to, ""); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
			if path := p.saved(t, 2, dir); len(wantWhole(t, dir)) != 1 {
				t.Errorf("%s is not whole", path)
			}
		})
	}
}

func TestASavepointWhoseMetadataIsThereAfterAllIsOne(t *testing.T) {
	to, dir := faultyDir(t)
	_, s := memory(t)
	p := start(t, s, "").take(1)
	to.Set(storagetest.Rule{Op: storagetest.OpClose, Effect: storagetest.FailAfter})
	p.saved(t, 1, dir)
	to.Set()
	if got := wantWhole(t, dir); len(got) != 1 {
		t.Errorf("there are %d savepoints, want 1", len(got))
	}
}

func TestACancelledSavepointLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, dir := faultyDir(t)
		_, s := memory(t)
		p := start(t, s, "").take(1)
		to.Set(storagetest.Rule{Op: storagetest.OpWrite, Glob: "_metadata", Effect: storagetest.Slow, Delay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.savepoint(ctx, 1, dir); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		if left := names(t, to, ""); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
	})
}

func TestADamagedFileNeverBecomesASavepoint(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(1)
	file := "orders/" + p.job.ID() + "/chk-1/" + keyed(t, p)[0].Path
	if err := checkpointtest.Flip(2).Do(t.Context(), f, path.Clean(file)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := p.savepoint(t.Context(), 1, dir)
	wantSays(t, err, "damaged", "checksum")
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

func TestSavepointsAreListedTheNewestFirst(t *testing.T) {
	dir := t.TempDir()
	_, s := memory(t)
	p := start(t, s, "")
	var paths []string
	for n := uint64(1); n <= 3; n++ {
		m := p.takeAt(t, time.Unix(int64(1000+n), 0))
		path, err := p.job.Savepoint(t.Context(), m, dir)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	damaged := strings.TrimPrefix(paths[1], "file://")
	if err := os.WriteFile(damaged+"/_metadata", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"savepoint-0a1b2c-0123456789ab", "notes", "chk-7"} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	found, err := checkpoint.Savepoints(t.Context(), dir)
	if err != nil || len(found) != 3 {
		t.Fatalf("%d are listed, error %v", len(found), err)
	}
	for i, want := range []string{paths[2], paths[0], paths[1]} {
		if found[i].Path != want || (found[i].Err != nil) != (i == 2) {
			t.Errorf("number %d is %+v, want %s", i, found[i], want)
		}
	}
	if m := found[0].Meta; m == nil || m.Number != 3 || m.Job != p.job.ID() {
		t.Errorf("the newest is %+v", m)
	}
	if none, err := checkpoint.Savepoints(t.Context(), filepath.Join(dir, "none")); err != nil || len(none) > 0 {
		t.Errorf("a directory that is not there holds %v, error %v", none, err)
	}
}

// takeAt takes a checkpoint that completes at a time.
func (p *process) takeAt(t *testing.T, at time.Time) *checkpoint.Metadata {
	t.Helper()
	n, err := p.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.metadata(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	m.Completed = at.UTC()
	if err := p.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := p.commit(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAPinnedCheckpointStaysUntilItIsReleased(t *testing.T) {
	f := mem.New()
	p := start(t, newStore(t, f, checkpoint.StoreOptions{Retained: 1}), "").take(1)
	first, second := p.job.Pin(1), p.job.Pin(1)
	p.take(2)
	for _, step := range []struct {
		release func()
		want    string
	}{
		{func() {}, "1-1 1-3 chk-1 chk-3"}, {first, "1-1 1-3 chk-1 chk-3"}, {first, "1-1 1-3 chk-1 chk-3"}, {second, "1-3 chk-3"},
	} {
		step.release()
		retain(t, p)
		if got := what(t, f, p); got != step.want {
			t.Fatalf("left are %s, want %s", got, step.want)
		}
	}
}
