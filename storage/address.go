package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Parse reads a storage address: a URL, or a local path, which is relative to
// the working directory unless it begins with a slash. It checks the form only;
// whether this program knows the scheme is found by Open.
func Parse(address string) (*url.URL, error) {
	if address == "" {
		return nil, errors.New("storage address is empty: write a path or a URL such as file:///var/lib/etl")
	}
	if strings.ContainsRune(address, 0) {
		return nil, fmt.Errorf("storage address %q holds a zero byte", address)
	}
	scheme, _, isURL := strings.Cut(address, "://")
	if !isURL {
		if before, _, ok := strings.Cut(address, ":"); ok && openers[strings.ToLower(before)] != nil {
			return nil, fmt.Errorf("storage address %q: write %s:// with two slashes", address, before)
		}
		return localURL(address, address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("storage address %q is no URL: %w", address, errors.Unwrap(err))
	}
	if u.User != nil {
		return nil, fmt.Errorf("storage address with scheme %s holds a user or password: give credentials in the environment or settings", scheme)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("storage address %q: nothing is read after ? or #; write %%3F or %%23 where they belong to a name", address)
	}
	if u.Scheme != "file" {
		return u, nil
	}
	if u.Host != "" && u.Host != "localhost" {
		return nil, fmt.Errorf("storage address %q names the host %q: write file:///%s%s for a local path", address, u.Host, u.Host, u.Path)
	}
	if u.Path == "" {
		return nil, fmt.Errorf("storage address %q has no path", address)
	}
	return localURL(u.Path, address)
}

func localURL(path, address string) (*url.URL, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("storage address %q: %w", address, err)
	}
	return &url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}, nil
}

// Schemes names the URL schemes that this program knows, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(openers)) }

// HiddenPrefix begins the last element of names that file systems keep for
// themselves: files being written and staged ones. No file may be called so.
const HiddenPrefix = ".sluice-"

// CheckName reports why name is none that a file can have: it must be a relative
// path of UTF-8 text with slashes, without empty, `.` and `..` elements, control
// characters, backslashes and elements that begin with HiddenPrefix.
func CheckName(name string) error {
	if name == "." || !fs.ValidPath(name) {
		return fmt.Errorf("storage name %q is not a clean relative path", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == '\\' {
			return fmt.Errorf("storage name %q holds the character %q", name, r)
		}
	}
	if strings.HasPrefix(name, HiddenPrefix) || strings.Contains(name, "/"+HiddenPrefix) {
		return fmt.Errorf("storage name %q begins with %s, which is kept for files in the making", name, HiddenPrefix)
	}
	return nil
}

// CheckDir is CheckName for a folder; the empty name is the root.
func CheckDir(dir string) error {
	if dir == "" {
		return nil
	}
	return CheckName(dir)
}
