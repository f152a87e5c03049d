//go:build linux || darwin

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-etl/sluice/storage"
)

var _ storage.Examiner = (*FS)(nil)

// A disk is nearly full when less than a twentieth of it is free, and less than 10 GiB.
const (
	littleOf = 20
	little   = 10 << 30
)

// Examine tells whether the folder, or the nearest one above it that there is, can be
// written to, and what room its disk has.
func (f *FS) Examine(_ context.Context, _ storage.ExamineOptions, report func(storage.Remark)) {
	at := f.root
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file where a folder must be", at)
		}
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
			at = filepath.Dir(at)
			continue
		}
		if err == nil {
			err = unix.Access(at, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			report(storage.Remark{Check: "folder", Err: f.explain(fmt.Errorf("write into %s: %w", at, err)), Advice: "let this user write there, or choose another path"})
			return
		}
		break
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		report(storage.Remark{Check: "folder", Err: fmt.Errorf("look at the disk of %s: %w", at, err)})
		return
	}
	const gib = 1 << 30
	free, total := int64(s.Bavail)*int64(s.Bsize), int64(s.Blocks)*int64(s.Bsize) //nolint:unconvert // not everywhere of this type
	r := storage.Remark{Check: "folder", Detail: fmt.Sprintf("this user may write to it; %.1f of %.1f GiB of its disk are free", float64(free)/gib, float64(total)/gib)}
	if at != f.root {
		r.Detail = fmt.Sprintf("it is made at the first start, in %s; %.1f of %.1f GiB of its disk are free", at, float64(free)/gib, float64(total)/gib)
	}
	if free < total/littleOf && free < little {
		r.Advice = "make room, or choose another disk"
	}
	report(r)
}
