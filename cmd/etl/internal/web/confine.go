package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/storage"
)

// rootsKey are the roots that who asks is confined to.
type rootsKey struct{}

// Confine refuses a path or an address of storage, given by who asks, that is not below
// one of the roots, and returns the address to use: that of a local path has its symbolic
// links resolved. Callers over the socket are confined to nothing: they have the rights
// of the process anyway. An empty address stays empty. The error is a *Problem.
func Confine(ctx context.Context, address string) (string, error) {
	roots, ok := ctx.Value(rootsKey{}).(func() []string)
	if !ok || address == "" {
		return address, nil
	}
	out, err := confine(address, roots())
	if err != nil {
		return "", &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: err.Error()}
	}
	return out, nil
}

// confine is Confine to given roots.
func confine(address string, roots []string) (string, error) {
	place, err := parsePlace(address)
	if err != nil {
		return "", err
	}
	place, err = resolved(place)
	if err != nil {
		return "", fmt.Errorf("%q cannot be looked at: %w", address, err)
	}
	var usable []string
	for _, r := range roots {
		root, err := parsePlace(r)
		if err != nil {
			continue // of a pipeline, which says so itself
		}
		if name := root.String(); !slices.Contains(usable, name) {
			usable = append(usable, name)
		}
		if root, err = resolved(root); err == nil && below(place, root) {
			return place.String(), nil
		}
	}
	if len(usable) == 0 {
		return "", fmt.Errorf("%q is below none of the folders that callers may name: set http.roots", address)
	}
	return "", fmt.Errorf("%q is below none of the folders that callers may name: use one of %s, or add it to http.roots", address, someOf(usable))
}

// mostRoots is how many roots an answer names.
const mostRoots = 10

func someOf(roots []string) string {
	text := strings.Join(roots[:min(len(roots), mostRoots)], ", ")
	if more := len(roots) - mostRoots; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// below reports whether a place is a root or below it, by whole elements.
func below(place, root *url.URL) bool {
	if place.Scheme != root.Scheme || place.Host != root.Host {
		return false
	}
	p, r := strings.TrimSuffix(place.Path, "/"), strings.TrimSuffix(root.Path, "/")
	return p == r || strings.HasPrefix(p, r+"/")
}

// parsePlace reads an absolute path or an address of storage that has only one reading:
// what one program takes for a step upwards must be no name for another.
func parsePlace(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") && !filepath.IsAbs(address) {
		return nil, fmt.Errorf("%q is a relative path: write it from the root, such as /var/lib/etl/savepoints, or as an address of storage", address)
	}
	u, err := storage.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Opaque != "" || u.Path != "" && u.Path[0] != '/' {
		return nil, fmt.Errorf("%q is no address of storage: write it as scheme://place/folder", address)
	}
	if u.Scheme == "mem" {
		return nil, fmt.Errorf("%q is memory of the process, which ends with it: write an address that outlives it, such as file:///var/lib/etl/savepoints", address)
	}
	if !utf8.ValidString(u.Path) || !utf8.ValidString(u.Host) {
		return nil, fmt.Errorf("%q is no UTF-8 text", address)
	}
	if strings.ContainsFunc(u.Path+u.Host, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
		return nil, fmt.Errorf("%q holds a control character or a backslash", address)
	}
	if clean := path.Clean("/" + u.Path); u.Path != "" && strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(clean, "/") {
		return nil, fmt.Errorf("%q holds an element that is empty, . or ..: write it without", address)
	}
	return u, nil
}

// resolved follows the symbolic links of a local path, as far as it is there. Other
// stores have none.
func resolved(u *url.URL) (*url.URL, error) {
	if u.Scheme != "file" {
		return u, nil
	}
	there, rest := filepath.FromSlash(u.Path), ""
	for {
		target, err := filepath.EvalSymlinks(there)
		if err == nil {
			return &url.URL{Scheme: u.Scheme, Path: filepath.ToSlash(filepath.Join(target, rest))}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// A link to nowhere is not there for EvalSymlinks, and would be followed when
		// what it points to is made.
		if _, err := os.Lstat(there); err == nil {
			return nil, fmt.Errorf("%s is a symbolic link to nowhere", there)
		}
		parent := filepath.Dir(there)
		if parent == there {
			return nil, err
		}
		there, rest = parent, filepath.Join(filepath.Base(there), rest)
	}
}
