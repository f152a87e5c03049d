package storage_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
)

// examined are the remarks on a file system by their checks.
func examined(t *testing.T, f storage.FS, write bool) map[string]storage.Remark {
	t.Helper()
	out := map[string]storage.Remark{}
	storage.Examine(t.Context(), f, storage.ExamineOptions{Write: write, Staging: true}, func(r storage.Remark) { out[r.Check] = r })
	return out
}

func newMem(t *testing.T) storage.FS {
	t.Helper()
	return mem.New()
}

func TestAnExaminationLeavesNothingBehind(t *testing.T) {
	f := newMem(t)
	for check, r := range examined(t, f, true) {
		if r.Err != nil || r.Advice != "" {
			t.Errorf("%s: %+v of a file system that is well", check, r)
		}
	}
	files, err := f.List(t.Context(), "")
	staged, serr := f.Staged(t.Context(), "")
	if err != nil || serr != nil || len(files)+len(staged) != 0 {
		t.Errorf("left: %v, %v, %v, %v", files, staged, err, serr)
	}
}

// readOnly is a file system in which nothing can be written, or, with repeats, in which
// a name that is taken is given away again.
type odd struct {
	storage.FS
	readOnly, repeats bool
	wrote             bool
}

func (f *odd) Create(ctx context.Context, name string) (storage.Writer, error) {
	f.wrote = true
	if f.readOnly {
		return nil, fs.ErrPermission
	}
	return f.FS.Create(ctx, name)
}

func (f *odd) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	f.wrote = true
	return f.FS.Stage(ctx, name)
}

func (f *odd) Claim(ctx context.Context, name string) error {
	f.wrote = true
	if f.repeats {
		return nil
	}
	return f.FS.Claim(ctx, name)
}

func TestAnExaminationWritesOnlyWhereItMay(t *testing.T) {
	f := &odd{FS: newMem(t), readOnly: true}
	if found := examined(t, f, false); f.wrote || len(found) != 1 || found["list"].Err != nil {
		t.Errorf("wrote: %t; found %v, want the list alone", f.wrote, found)
	}
	found := examined(t, f, true)
	if r := found["write"]; !errors.Is(r.Err, fs.ErrPermission) || !strings.Contains(r.Advice, "let this user") {
		t.Errorf("a read-only file system: %+v", r)
	}
	if r, ok := found["conditional writes"]; ok {
		t.Errorf("%+v is told of a file system that takes no writes", r)
	}
}

func TestAStoreThatGivesANameAwayTwiceIsFoundOut(t *testing.T) {
	f := &odd{FS: newMem(t), repeats: true}
	if r := examined(t, f, true)["write"]; r.Err == nil || !strings.Contains(r.Err.Error(), "given away again") {
		t.Errorf("found %+v", r)
	}
}
