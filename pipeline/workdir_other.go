//go:build !unix || solaris || illumos || aix

package pipeline

import "os"

// lockFile opens a file that other processes cannot remove while it is open; nil
// where one of them has it.
func lockFile(name string) (*os.File, error) {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, nil
	}
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}
