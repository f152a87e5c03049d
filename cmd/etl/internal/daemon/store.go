package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// store is the folder in which a daemon keeps what has to outlive it: for each pipeline
// a file of the state that somebody has put it into, and the history of its checkpoints.
type store struct {
	dir  string
	lock *os.File
}

// kept is the state of a pipeline that does not run; one that is to run has none.
type kept struct {
	State api.State `json:"state"` // paused, stopped or finished
	Since time.Time `json:"since"`
	// Cancelled says that the next start has to be told from where to go on.
	Cancelled bool `json:"cancelled,omitempty"`
	// Fingerprint is that of the definition that ran.
	Fingerprint string `json:"fingerprint"`
	// Left is the checkpoint that the job has ended with.
	Left string `json:"left,omitempty"`
}

// defaultStateDir is where a daemon keeps its state by default.
func defaultStateDir() (string, error) {
	if os.Getuid() == 0 {
		return "/var/lib/etl", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "etl"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the state of the daemon: set state_dir: %w", err)
	}
	return filepath.Join(home, ".local", "state", "etl"), nil
}

// openStore makes the folder and locks it against another daemon.
func openStore(dir string) (*store, error) {
	if dir == "" {
		var err error
		if dir, err = defaultStateDir(); err != nil {
			return nil, err
		}
	}
	s := &store{dir: filepath.Join(dir, "pipelines")}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("state_dir: %w: name a folder that the program may write to", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state_dir: %w: name a folder that the program may write to", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("state_dir %s is used by another daemon: give each one its own (%w)", dir, err)
	}
	s.lock = lock
	return s, nil
}

func (s *store) close() error { return s.lock.Close() }

func (s *store) path(name string) string { return filepath.Join(s.dir, name+".json") }

// load is what is kept of a pipeline, nil for nothing.
func (s *store) load(name string) (*kept, error) {
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of pipeline %s: %w", name, err)
	}
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("the state of pipeline %s in %s cannot be read: %w", name, s.path(name), err)
	}
	return &k, nil
}

// save keeps a state; nil removes it.
func (s *store) save(name string, k *kept) error {
	if k == nil {
		err := os.Remove(s.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, syncFolder(s.dir))
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return writeDurably(s.path(name), append(data, '\n'), 0o600)
}

// writeDurably puts a file in the place of the one before, in one step that a crash leaves
// done or not done.
func writeDurably(path string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
