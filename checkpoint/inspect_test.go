package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
)

func TestListShowsEveryJobAndWhatCanBeRestored(t *testing.T) {
	f, s := memory(t)
	first := start(t, s, "").take(3)
	if err := first.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Cancelled}); err != nil {
		t.Fatal(err)
	}
	second := start(t, s, first.path(2)).take(1)
	if _, err := second.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := checkpointtest.Zero().Do(t.Context(), f, first.chk(1, "_metadata")); err != nil {
		t.Fatal(err)
	}
	jobs, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range jobs {
		for _, c := range j.Checkpoints {
			got = append(got, fmt.Sprintf("current %v ended %v: %d committed %v orphan %v damaged %v", j.Current, j.Ended != nil, c.Number, c.Committed, c.Orphan, c.Err != nil))
		}
	}
	want := []string{
		"current true ended false: 4 committed false orphan false damaged false",
		"current true ended false: 3 committed true orphan false damaged false",
		"current false ended true: 3 committed true orphan true damaged false",
		"current false ended true: 2 committed true orphan false damaged false",
		"current false ended true: 1 committed true orphan false damaged true",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestVerifyNamesEveryDamagedFile(t *testing.T) {
	dir := t.TempDir()
	f, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "").take(1)
	sv, err := p.store.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.files = sv.Checkpoints[0].Meta.Files()
	p.take(1)
	chk := filepath.Join(dir, "orders", p.job.ID(), "chk-2")
	r, err := checkpoint.Verify(t.Context(), chk)
	if err != nil || r.Files != 2 || r.Bytes != 30 || len(r.Faults) != 0 || !r.Committed || r.Meta.Number != 2 || r.Path != "file://"+chk {
		t.Fatalf("got %+v, %v", r, err)
	}
	for n := uint64(1); n <= 2; n++ {
		if err := checkpointtest.Flip(3).Do(t.Context(), f, stateName(t, f, p, n)); err != nil {
			t.Fatal(err)
		}
	}
	r, err = checkpoint.Verify(t.Context(), chk+"/_metadata")
	if err != nil || len(r.Faults) != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for i, fault := range r.Faults {
		wantSays(t, fault, fmt.Sprintf("shared/1-%d-", i+1), "checksum")
	}
	if err := checkpointtest.Truncate(40).Do(t.Context(), f, p.chk(2, "_metadata")); err != nil {
		t.Fatal(err)
	}
	var damage *checkpoint.DamageError
	if _, err := checkpoint.Verify(t.Context(), chk); !errors.As(err, &damage) {
		t.Fatalf("got %v", err)
	}
	if _, err := checkpoint.Inspect(t.Context(), filepath.Dir(chk)); err == nil {
		t.Fatal("a job's folder was read as a checkpoint")
	} else {
		wantSays(t, err, "chk-1, chk-2")
	}
}

func TestPipelineNamesAreLabels(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "orders-2": true, "0": true, "": false, "-a": false, "a-": false, "A": false, "a.b": false, "a/b": false, "..": false,
		"ü": false, "a234567890123456789012345678901234567890123456789012345678901234": false} {
		if _, err := checkpoint.NewStore(nil, name, checkpoint.StoreOptions{}); (err == nil) != ok {
			t.Errorf("%q: %v, allowed should be %v", name, err, ok)
		}
	}
}

// forgetful is a file system on which a file can be opened that is removed before its
// first byte is read, as HDFS does it.
type forgetful struct {
	storage.FS
	name string
}

func (f forgetful) Open(ctx context.Context, name string) (storage.Reader, error) {
	r, err := f.FS.Open(ctx, name)
	if err == nil && name == f.name {
		return removed{r}, nil
	}
	return r, err
}

type removed struct{ storage.Reader }

func (removed) Read([]byte) (int, error) { return 0, fs.ErrNotExist }

func TestWhatIsRemovedWhileItIsLookedAtIsNoError(t *testing.T) {
	f, s := memory(t)
	first := start(t, s, "").take(2)
	start(t, s, first.path(2)).take(1)
	for _, name := range []string{"orders/owner-1.json", first.chk(1, "_metadata")} {
		jobs, err := newStore(t, forgetful{f, name}, checkpoint.StoreOptions{}).List(t.Context())
		if err != nil || len(jobs) != 2 {
			t.Errorf("without %s: %d jobs, %v", name, len(jobs), err)
		}
	}
}
