//go:build linux || darwin

package pipeline

import (
	"golang.org/x/sys/unix"
)

// fileLimit is how many files the process may have open.
func fileLimit() (n uint64, known bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return r.Cur, true
}

// diskSpace is what the disk of a folder has free for this user; an error says that the
// folder cannot be written to.
func diskSpace(dir string) (free, total int64, known bool, err error) {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return 0, 0, false, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, false, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), true, nil //nolint:unconvert // not everywhere of this type
}
