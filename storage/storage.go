// Package storage is the file system below checkpoints and file sinks, chosen by
// URL scheme. Names are slash-separated paths relative to the file system's root;
// folders need not be made.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"
)

// FS is one place that files are kept in. It is safe for concurrent use. A
// missing file is reported as fs.ErrNotExist, a taken name as fs.ErrExist, both
// for errors.Is. Any other error of a call that writes leaves its outcome unknown.
type FS interface {
	// URL is the address of the root, as a user would write it.
	URL() string
	// Claim makes an empty file if there is none, which exactly one of any number
	// of callers can do, and makes it durable. fs.ErrExist says that another did.
	Claim(ctx context.Context, name string) error
	// Create starts a file that appears under its name, whole and durable, when
	// Close returns nil, and never before. It replaces nothing: Close of a name
	// that exists reports fs.ErrExist.
	Create(ctx context.Context, name string) (Writer, error)
	// Open reads a file.
	Open(ctx context.Context, name string) (Reader, error)
	// Stat describes a file.
	Stat(ctx context.Context, name string) (Info, error)
	// List describes the files below a folder, at any depth, sorted by name. A
	// folder that is not there has none. Files not yet closed or published are not
	// listed.
	List(ctx context.Context, dir string) ([]Info, error)
	// Files describes the files directly in a folder, sorted by name.
	Files(ctx context.Context, dir string) ([]Info, error)
	// Dirs names the folders directly in a folder, sorted.
	Dirs(ctx context.Context, dir string) ([]string, error)
	// Remove removes files; one that is not there is no error.
	Remove(ctx context.Context, names ...string) error
	// RemoveAll removes a folder with all that is in it.
	RemoveAll(ctx context.Context, dir string) error

	// Stage starts a file that stays hidden from readers after it is closed, until
	// Publish. It outlives the process.
	Stage(ctx context.Context, name string) (StagedWriter, error)
	// Publish makes a staged file visible under its name, atomically. The staged
	// file is used up by it: where it is missing, Publish reports fs.ErrNotExist,
	// also when an earlier Publish succeeded. It replaces nothing: fs.ErrExist. See ErrVanished.
	Publish(ctx context.Context, s Staged) error
	// Discard removes a staged file; one that is not there is no error.
	Discard(ctx context.Context, s Staged) error
	// Staged lists the staged files whose names are below a folder.
	Staged(ctx context.Context, dir string) ([]Staged, error)
}

// ErrVanished is reported by Publish beside fs.ErrNotExist where no file is under the
// name either, by a storage on which more than Publish and Discard takes staged files
// away, such as a rule for old uploads: nobody knows whether it was ever published.
var ErrVanished = errors.New("the staged file is gone and there is no file of its name")

// Writer writes one file.
type Writer interface {
	io.Writer
	// Close makes the file durable and visible.
	Close() error
	// Abort drops what was written. After Close it does nothing.
	Abort()
}

// StagedWriter writes one staged file. Where the store can read back what it is
// staging, it is an io.ReaderAt too, until it is closed.
type StagedWriter interface {
	io.Writer
	// Close makes the file durable and returns its handle.
	Close() (Staged, error)
	// Abort drops what was written. After Close it does nothing.
	Abort()
}

// Staged is the handle of a staged file. It can be stored and used by another process.
type Staged struct {
	Name  string `json:"name"`            // what it will be called
	Token string `json:"token,omitempty"` // what the store knows it by
	Size  int64  `json:"size"`
}

// Reader reads one file.
type Reader interface {
	io.ReadSeekCloser
	io.ReaderAt
	Size() int64
}

// Info describes a file.
type Info struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Capabilities are what a file system has been found to do.
type Capabilities struct {
	// Exclusive says that Claim, Create and Publish give a name to one of several
	// processes. Without it a pipeline must not be started twice at once.
	Exclusive bool
	// Reason says in words why Exclusive is false.
	Reason string
}

// Prober is a file system that cannot know what it can do before it has tried.
type Prober interface {
	// Probe tries with a scratch file, which it removes. An error says that it could
	// not be found out, for now or, marked as such by the scheme, for good.
	Probe(ctx context.Context) (Capabilities, error)
}

// Probe asks a file system what it can do. One that is no Prober does all that FS says.
func Probe(ctx context.Context, f FS) (Capabilities, error) {
	if p, ok := f.(Prober); ok {
		return p.Probe(ctx)
	}
	return Capabilities{Exclusive: true}, nil
}

// Setting describes one setting of a scheme, for the program's settings file.
type Setting struct {
	Key     string
	Doc     string
	Default string // as written in the settings file; empty for none
}

// Settings are what a scheme can be set up with, for all of its file systems in the process.
type Settings struct {
	Known []Setting
	// Apply takes the values that were given, as a settings file holds them. It
	// refuses all unknown keys and bad values at once. It is called before any file
	// system of the scheme is opened.
	Apply func(values map[string]any) error
}

var settings = map[string]Settings{}

// RegisterSettings makes the settings of a scheme known, from init, as Register does.
func RegisterSettings(scheme string, s Settings) {
	if _, taken := settings[scheme]; taken || s.Apply == nil {
		panic("settings of storage scheme " + scheme + " are registered twice or cannot be applied")
	}
	settings[scheme] = s
}

// SettingsOf are the settings of all schemes that have some, by scheme.
func SettingsOf() map[string]Settings { return settings }

// Opener makes the file system of a URL of its scheme. It does no I/O.
type Opener func(u *url.URL) (FS, error)

var openers = map[string]Opener{}

// Register makes a URL scheme known. Schemes call it from init; one registered
// twice panics, at the program's start.
func Register(scheme string, open Opener) {
	if _, taken := openers[scheme]; taken || open == nil {
		panic("storage scheme " + scheme + " is registered twice or without an opener")
	}
	openers[scheme] = open
}

// Open makes the file system that an address names. An address without a scheme is a local path.
func Open(address string) (FS, error) {
	u, err := Parse(address)
	if err != nil {
		return nil, err
	}
	open, ok := openers[u.Scheme]
	if !ok {
		return nil, fmt.Errorf("storage address %q: this program knows no scheme %q, only %s", address, u.Scheme, strings.Join(Schemes(), ", "))
	}
	return open(u)
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(ctx context.Context, f FS, name string, limit int64) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	if r.Size() > limit {
		return nil, fmt.Errorf("read %s: it has %d bytes, more than the %d allowed", name, r.Size(), limit)
	}
	data := make([]byte, r.Size())
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// WriteFile writes a whole file, which must not exist.
func WriteFile(ctx context.Context, f FS, name string, data []byte) error {
	w, err := f.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return w.Close()
}

// Exists reports whether there is a file of that name.
func Exists(ctx context.Context, f FS, name string) (bool, error) {
	_, err := f.Stat(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
