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

// lock takes a file for its writer; false says that another process has taken it.
// Where the file system has no locks, nothing is ever taken for abandoned.
func lock(file *os.File) bool {
	return !errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// abandoned reports whether a file's writer is gone.
func abandoned(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
