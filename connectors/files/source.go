package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/storage"
)

// Source reads files of JSON lines, each to the end that it had when the job
// began. A file may grow meanwhile; one that shrinks, changes or goes is an error.
// A split is a file; its position is the offset of a line, in a compressed file
// that of the uncompressed line.
type Source struct {
	config SourceConfig
	url    *url.URL
	layout layout
}

var _ connectors.Source = (*Source)(nil)

// NewSource makes a source of a configuration that Validate accepts.
func NewSource(c SourceConfig) (*Source, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := storage.Parse(c.Path)
	if err != nil {
		return nil, err
	}
	l, err := layoutOf(c.Format)
	return &Source{config: c, url: u, layout: l}, err
}

// detail is how a split's file looked when the job began.
type detail struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// Splits lists the files. A restored job reads those that it began with.
func (s *Source) Splits(ctx context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	if restored != nil {
		return restored, nil
	}
	dir, infos, err := s.list(ctx)
	if err != nil {
		return nil, denied(fmt.Errorf("list files of %s: %w", s.config.Path, err), "let this user read it")
	}
	if len(infos) == 0 {
		return nil, connectors.Permanent(fmt.Errorf("list files of %s: there is no file; check the path, and that this user may read it", s.config.Path))
	}
	splits := make([]connectors.Split, 0, len(infos))
	for _, info := range infos {
		raw, err := json.Marshal(detail{Size: info.Size, Modified: info.Modified})
		if err != nil {
			return nil, fmt.Errorf("describe file %s: %w", info.Name, err)
		}
		split := connectors.Split{ID: s.id(dir, info.Name), Until: info.Size, Detail: raw}
		if s.packed(info.Name) != compressionNone || s.counted() {
			split.Until = -1 // known only when it is read
		}
		splits = append(splits, split)
	}
	return splits, nil
}

// list finds the folder that the path names or lies in, and the files meant.
func (s *Source) list(ctx context.Context) (dir string, infos []storage.Info, err error) {
	p := s.url.Path
	if strings.ContainsAny(p, "*?[") {
		return s.glob(ctx, p)
	}
	dir, base := path.Split(strings.TrimSuffix(p, "/"))
	if base != "" && !strings.HasSuffix(p, "/") {
		info, err := s.stat(ctx, dir, base)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return dir, []storage.Info{info}, err
		}
	}
	f, err := openAt(s.url, p)
	if err != nil {
		return "", nil, err
	}
	infos, err = f.List(ctx, "")
	return p, visible(infos, nil), err
}

func (s *Source) stat(ctx context.Context, dir, base string) (storage.Info, error) {
	f, err := openAt(s.url, dir)
	if err != nil {
		return storage.Info{}, err
	}
	return f.Stat(ctx, base)
}

// glob lists the files that match a pattern; no part of it reaches over a slash.
func (s *Source) glob(ctx context.Context, pattern string) (string, []storage.Info, error) {
	at := strings.LastIndexByte(pattern[:strings.IndexAny(pattern, "*?[")], '/') + 1
	dir, pattern := pattern[:at], pattern[at:]
	if _, err := path.Match(pattern, ""); err != nil {
		return "", nil, connectors.Permanent(fmt.Errorf("pattern %q: %w", pattern, err))
	}
	f, err := openAt(s.url, dir)
	if err != nil {
		return "", nil, err
	}
	infos, err := f.List(ctx, "")
	return dir, visible(infos, func(name string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	}), err
}

// visible drops files that are hidden by convention: below a name that begins
// with a dot or an underscore, such as _SUCCESS.
func visible(infos []storage.Info, want func(string) bool) []storage.Info {
	var out []storage.Info
	for _, info := range infos {
		hidden := false
		for element := range strings.SplitSeq(info.Name, "/") {
			hidden = hidden || strings.HasPrefix(element, ".") || strings.HasPrefix(element, "_")
		}
		if !hidden && (want == nil || want(info.Name)) {
			out = append(out, info)
		}
	}
	return out
}

// id is the address of a file: a plain path on local disks.
func (s *Source) id(dir, name string) string {
	full := path.Join(dir, name)
	if s.url.Scheme == "file" {
		return full
	}
	return s.url.Scheme + "://" + s.url.Host + "/" + strings.TrimPrefix(full, "/")
}

// openAt opens a folder of the store that u is in.
func openAt(u *url.URL, dir string) (storage.FS, error) {
	if u.Scheme == "file" {
		return storage.Open(dir)
	}
	return storage.Open((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: dir}).String())
}

// packed is how a file is compressed as a whole.
func (s *Source) packed(name string) string {
	if s.counted() {
		return compressionNone // within the file
	}
	if s.config.Compression != compressionAuto {
		return s.config.Compression
	}
	return compress.ByName(name)
}

// counted reports whether positions are numbers of rows.
func (s *Source) counted() bool { return s.layout.avro != nil || s.layout.parquet != nil }

// Discover finds nothing: the files are those of the job's beginning.
func (s *Source) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}

// Committed does nothing.
func (s *Source) Committed(context.Context, []connectors.Split) error { return nil }

// Close does nothing.
func (s *Source) Close() error { return nil }

// Reader makes a reader that reads its files one after the other.
func (s *Source) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	r := newReader(s, env)
	return r, r.Add(splits)
}
