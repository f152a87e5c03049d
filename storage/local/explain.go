package local

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// explain adds what to do to an error of a write.
func (f *FS) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: the disk of %s is full; free space there, what needs it is tried again", err, f.root)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s is mounted read-only; mount it for writing, what needs it is tried again", err, f.root)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: this process may not write to %s; change its owner or its permissions", err, f.root)
	}
	return err
}
