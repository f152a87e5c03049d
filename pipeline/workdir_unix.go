//go:build unix && !solaris && !illumos && !aix

package pipeline

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file until it is closed or the process ends; nil where another
// process has it locked.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	closed := f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, closed
	}
	return nil, errors.Join(err, closed)
}
