package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// Each process has a socket in a runtime directory, <pid>.sock, over which its API is
// served to programs of the same user.
const socketSuffix = ".sock"

// longestSocket is how long the path of a socket may be, in bytes: the least of the
// systems', less the zero at its end.
const longestSocket = 103

// RuntimeDirs are the directories in which processes have their sockets: the one that
// is set, or else the user's runtime directory and one among the temporary files, for
// a service and a shell of the same user may differ in what they have.
func RuntimeDirs(setting string) []string {
	if setting != "" {
		return []string{setting}
	}
	var dirs []string
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		dirs = append(dirs, filepath.Join(run, "etl"))
	}
	return append(dirs, filepath.Join(os.TempDir(), fmt.Sprintf("etl-%d", os.Getuid())))
}

// Listen makes the socket of this process in the first directory that can be had.
// What dead processes left there is removed.
func Listen(ctx context.Context, dirs []string) (net.Listener, error) {
	var faults []error
	for _, dir := range dirs {
		ln, err := listenIn(ctx, dir)
		if err == nil {
			return ln, nil
		}
		faults = append(faults, fmt.Errorf("runtime directory %s: %w", dir, err))
	}
	return nil, errors.Join(faults...)
}

func listenIn(ctx context.Context, dir string) (net.Listener, error) {
	path, err := filepath.Abs(filepath.Join(dir, strconv.Itoa(os.Getpid())+socketSuffix))
	if err != nil {
		return nil, err
	}
	if len(path) > longestSocket {
		return nil, fmt.Errorf("the path of a socket in it has %d bytes, and %d are possible: set runtime_dir to a shorter one", len(path), longestSocket)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	if found, err := sockets(dir); err == nil {
		for _, s := range found {
			if dead(s.pid) && deserted(ctx, s.path) {
				_ = os.Remove(s.path)
			}
		}
	}
	// One of this process's own number is of a dead one, or of another container.
	if _, err := os.Lstat(path); err == nil && !deserted(ctx, path) {
		return nil, errors.New("a process of the same number listens there, in another container: set a runtime_dir of its own for each")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// private refuses a directory in which others could put or replace sockets, or that is not the own one.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("it is no directory")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("it belongs to the user with number %d", st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write to it (mode %s): chmod 700 it", info.Mode().Perm())
	}
	return nil
}

type socket struct {
	path string
	pid  int
}

// sockets lists those in a directory, also of dead processes.
func sockets(dir string) ([]socket, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []socket
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), socketSuffix)
		pid, err := strconv.Atoi(name)
		if ok && err == nil && pid > 0 {
			out = append(out, socket{path: filepath.Join(dir, e.Name()), pid: pid})
		}
	}
	return out, nil
}

// dead reports whether there certainly is no process of that number, among those that
// this one can see.
func dead(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// deserted reports whether nobody listens on a socket any more.
func deserted(ctx context.Context, path string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Process is a process that serves its API, with its pipelines.
type Process struct {
	PID       int
	Client    *Client
	Pipelines []api.Pipeline
}

// answerWithin bounds how long a process may take to say what it runs.
const answerWithin = 5 * time.Second

// Processes asks the processes that have sockets in the directories. Those that do
// not answer are left out; what dead ones left is removed. A socket that may not be
// used is an error, with which those of the other directories are returned: among
// temporary files anybody can put a directory.
func Processes(ctx context.Context, dirs []string) ([]Process, error) {
	var out []Process
	var faults []error
	for _, dir := range dirs {
		found, err := sockets(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && os.Getuid() != 0 { // root may ask all
			err = private(dir)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("runtime directory %s: %w", dir, err))
			continue
		}
		for _, s := range found {
			p := Process{PID: s.pid, Client: NewClient(s.path)}
			asked, cancel := context.WithTimeout(ctx, answerWithin)
			p.Pipelines, err = p.Client.Pipelines(asked)
			cancel()
			switch {
			case err == nil:
				out = append(out, p)
			case errors.Is(err, fs.ErrPermission):
				faults = append(faults, fmt.Errorf("socket %s: %w", s.path, err))
			case errors.Is(err, syscall.ECONNREFUSED) && dead(s.pid):
				_ = os.Remove(s.path)
			}
		}
	}
	return out, errors.Join(append(faults, ctx.Err())...)
}

// shutDownWithin is how long answers that are under way may take at the end.
const shutDownWithin = 5 * time.Second
