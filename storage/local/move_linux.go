package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// moveNew renames a file and never replaces one: fs.ErrExist.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	// Some file systems, NFS among them, do not know the flag.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return link(from, to)
	}
	if errors.Is(err, unix.EEXIST) && sameFile(from, to) {
		return os.Remove(from) // a crash cut link short
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
