package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// mostWorkdirs is how many processes of one pipeline find a working directory at a
// time: one that takes over does not wait for those that do not know yet.
const mostWorkdirs = 16

// workdir is the directory that a run keeps state in, for as long as it runs. What is
// in it outlives no process.
type workdir struct {
	path string
	lock *os.File
}

// openWorkdir takes a directory below base that no process uses, and removes what
// processes that are gone have left in it and beside it.
func openWorkdir(base string) (*workdir, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("make the working directory %s: %w", base, err)
	}
	var mine *workdir
	for i := range mostWorkdirs {
		path := filepath.Join(base, strconv.Itoa(i))
		if _, err := os.Stat(path + ".lock"); mine != nil && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		lock, err := lockFile(path + ".lock")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s.lock: %w", path, err), mine.close())
		}
		if lock == nil {
			continue // another process works there
		}
		w := &workdir{path: path, lock: lock}
		if mine != nil {
			if err := w.close(); err != nil {
				return nil, errors.Join(err, mine.close())
			}
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return nil, errors.Join(fmt.Errorf("remove what an earlier process left: %w", err), w.close())
		}
		mine = w
	}
	if mine == nil {
		return nil, fmt.Errorf("all %d working directories in %s are in use by other processes", mostWorkdirs, base)
	}
	return mine, nil
}

// close gives the directory back, empty.
func (w *workdir) close() error {
	if w == nil {
		return nil
	}
	err := os.RemoveAll(w.path)
	return errors.Join(err, w.lock.Close())
}
