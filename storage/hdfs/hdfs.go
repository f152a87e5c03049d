package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/storage"
)

func init() {
	storage.Register("hdfs", func(u *url.URL) (storage.FS, error) { return clusters.open(u) })
	storage.RegisterSettings("hdfs", storage.Settings{Known: known, Apply: apply})
}

// FS is a folder on HDFS.
type FS struct {
	cluster *cluster
	host    string // with port, as in the address
	root    string
}

// open makes the file system of an address. Hadoop's settings files are read, and
// nothing is sent.
func (r *registry) open(u *url.URL) (*FS, error) {
	cl, err := r.get(u.Host)
	if err != nil {
		return nil, fmt.Errorf("storage address %s: %w", u, err)
	}
	root := path.Clean("/" + u.Path)
	if strings.Contains(root, ":") {
		return nil, fmt.Errorf("storage address %s: HDFS takes no colon in the name of a folder", u)
	}
	return &FS{cluster: cl, host: u.Host, root: root}, nil
}

// URL is the address of the folder.
func (f *FS) URL() string { return (&url.URL{Scheme: "hdfs", Host: f.host, Path: f.root}).String() }

// path is where a name is kept.
func (f *FS) path(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := storage.CheckName(name); err != nil {
		return "", err
	}
	return path.Join(f.root, encode(name)), nil
}

func (f *FS) folder(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		return f.root, ctx.Err()
	}
	return f.path(ctx, dir)
}

// name is the reverse of path.
func (f *FS) name(p string) string {
	return decode(strings.TrimPrefix(strings.TrimPrefix(p, f.root), "/"))
}

// wrap says what was done to what.
func (f *FS) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s %s/%s as user %s: %w", op, strings.TrimSuffix(f.URL(), "/"), name, f.cluster.conf.who(), err)
	}
	return fmt.Errorf("%s %s/%s: %w", op, strings.TrimSuffix(f.URL(), "/"), name, err)
}

// Claim makes an empty file if there is none.
func (f *FS) Claim(ctx context.Context, name string) error {
	p, err := f.path(ctx, name)
	if err != nil {
		return err
	}
	return f.wrap("claim", name, f.put(ctx, &spool{}, p))
}

// Stat describes a file.
func (f *FS) Stat(ctx context.Context, name string) (storage.Info, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return storage.Info{}, err
	}
	e, err := f.stat(ctx, p)
	if err != nil {
		return storage.Info{}, f.wrap("stat", name, err)
	}
	return storage.Info{Name: name, Size: e.size, Modified: e.modified}, nil
}

// stat describes a file; a folder is none.
func (f *FS) stat(ctx context.Context, p string) (e entry, err error) {
	err = f.cluster.call(ctx, func(c *client) error {
		e, err = c.stat(p)
		return err
	})
	if err == nil && e.dir {
		err = fmt.Errorf("it is a folder: %w", fs.ErrNotExist)
	}
	return e, absent(err)
}

// List describes the files below a folder.
func (f *FS) List(ctx context.Context, dir string) ([]storage.Info, error) {
	var out []storage.Info
	err := f.walk(ctx, dir, func(p string, e entry) {
		if !e.hidden() {
			out = append(out, f.info(p, e))
		}
	})
	// A walk goes folder by folder: a/x comes before a-b, which sorts first by its bytes.
	slices.SortFunc(out, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, f.wrap("list", dir, err)
}

func (f *FS) info(p string, e entry) storage.Info {
	return storage.Info{Name: f.name(path.Join(p, e.name)), Size: e.size, Modified: e.modified}
}

// Files describes the files directly in a folder.
func (f *FS) Files(ctx context.Context, dir string) ([]storage.Info, error) {
	p, err := f.folder(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []storage.Info
	err = f.entries(ctx, p, func(e entry) {
		if !e.dir && !e.hidden() {
			out = append(out, f.info(p, e))
		}
	})
	slices.SortFunc(out, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, f.wrap("list", dir, err)
}

// Dirs names the folders directly in a folder.
func (f *FS) Dirs(ctx context.Context, dir string) ([]string, error) {
	p, err := f.folder(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []string
	err = f.entries(ctx, p, func(e entry) {
		if e.dir && !e.hidden() {
			out = append(out, decode(e.name))
		}
	})
	slices.Sort(out)
	return out, f.wrap("list", dir, err)
}

// walk calls visit for every file below a folder, hidden ones too.
func (f *FS) walk(ctx context.Context, dir string, visit func(p string, e entry)) error {
	top, err := f.folder(ctx, dir)
	if err != nil {
		return err
	}
	for todo := []string{top}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := f.entries(ctx, p, func(e entry) {
			if e.dir {
				todo = append(todo, path.Join(p, e.name))
			} else {
				visit(p, e)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// entries calls visit for everything directly in a folder, page by page; one that is
// not there, or is a file, has nothing.
func (f *FS) entries(ctx context.Context, p string, visit func(e entry)) error {
	last := ""
	for more := true; more; {
		var batch []entry
		err := f.cluster.call(ctx, func(c *client) (err error) {
			batch, more, err = c.list(p, last)
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range batch {
			visit(e)
			last = e.name
		}
	}
	return nil
}

// Remove removes files.
func (f *FS) Remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		p, err := f.path(ctx, name)
		if err != nil {
			return err
		}
		if err := f.remove(ctx, p); err != nil {
			return f.wrap("remove", name, err)
		}
	}
	return nil
}

// remove removes a file; a folder is no file.
func (f *FS) remove(ctx context.Context, p string) error {
	err := f.cluster.call(ctx, func(c *client) error {
		e, err := c.stat(p)
		if err != nil || e.dir {
			return err
		}
		return c.remove(p, false)
	})
	if err = absent(err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveAll removes a folder with all that is in it.
func (f *FS) RemoveAll(ctx context.Context, dir string) error {
	p, err := f.path(ctx, dir)
	if err != nil {
		return err
	}
	err = f.cluster.call(ctx, func(c *client) error {
		e, err := c.stat(p)
		if err != nil || !e.dir {
			return err
		}
		return c.remove(p, true)
	})
	if err = absent(err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.wrap("remove folder", dir, err)
}
