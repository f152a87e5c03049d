package storage

import (
	"context"
	"strings"
)

// Sub is the part of a file system below a folder, which must be a valid name.
func Sub(f FS, dir string) FS { return &sub{f, dir + "/", dir} }

type sub struct {
	fs     FS
	prefix string
	dir    string
}

func (s *sub) URL() string { return strings.TrimSuffix(s.fs.URL(), "/") + "/" + s.dir }

// full is the name in the whole file system. A bad name stays bad: it is checked here,
// as the folder in front could turn `..` into a valid one only by path.Clean.
func (s *sub) full(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return s.prefix + name, nil
}

func (s *sub) fullDir(dir string) (string, error) {
	if dir == "" {
		return s.dir, nil
	}
	return s.full(dir)
}

func (s *sub) Claim(ctx context.Context, name string) error {
	full, err := s.full(name)
	if err != nil {
		return err
	}
	return s.fs.Claim(ctx, full)
}

func (s *sub) Create(ctx context.Context, name string) (Writer, error) {
	full, err := s.full(name)
	if err != nil {
		return nil, err
	}
	return s.fs.Create(ctx, full)
}

func (s *sub) Open(ctx context.Context, name string) (Reader, error) {
	full, err := s.full(name)
	if err != nil {
		return nil, err
	}
	return s.fs.Open(ctx, full)
}

func (s *sub) Stat(ctx context.Context, name string) (Info, error) {
	full, err := s.full(name)
	if err != nil {
		return Info{}, err
	}
	info, err := s.fs.Stat(ctx, full)
	info.Name = name
	return info, err
}

func (s *sub) List(ctx context.Context, dir string) ([]Info, error) {
	return s.list(ctx, dir, s.fs.List)
}

func (s *sub) Files(ctx context.Context, dir string) ([]Info, error) {
	return s.list(ctx, dir, s.fs.Files)
}

func (s *sub) list(ctx context.Context, dir string, list func(context.Context, string) ([]Info, error)) ([]Info, error) {
	full, err := s.fullDir(dir)
	if err != nil {
		return nil, err
	}
	infos, err := list(ctx, full)
	for i := range infos {
		infos[i].Name = strings.TrimPrefix(infos[i].Name, s.prefix)
	}
	return infos, err
}

func (s *sub) Dirs(ctx context.Context, dir string) ([]string, error) {
	full, err := s.fullDir(dir)
	if err != nil {
		return nil, err
	}
	return s.fs.Dirs(ctx, full)
}

func (s *sub) Remove(ctx context.Context, names ...string) error {
	all := make([]string, len(names))
	for i, name := range names {
		full, err := s.full(name)
		if err != nil {
			return err
		}
		all[i] = full
	}
	return s.fs.Remove(ctx, all...)
}

func (s *sub) RemoveAll(ctx context.Context, dir string) error {
	full, err := s.full(dir)
	if err != nil {
		return err
	}
	return s.fs.RemoveAll(ctx, full)
}

func (s *sub) Stage(ctx context.Context, name string) (StagedWriter, error) {
	full, err := s.full(name)
	if err != nil {
		return nil, err
	}
	w, err := s.fs.Stage(ctx, full)
	if err != nil {
		return nil, err
	}
	return &subStaged{w, name}, nil
}

type subStaged struct {
	StagedWriter
	name string
}

func (w *subStaged) Close() (Staged, error) {
	s, err := w.StagedWriter.Close()
	s.Name = w.name
	return s, err
}

func (s *sub) Publish(ctx context.Context, staged Staged) error {
	return s.staged(ctx, staged, s.fs.Publish)
}

func (s *sub) Discard(ctx context.Context, staged Staged) error {
	return s.staged(ctx, staged, s.fs.Discard)
}

func (s *sub) staged(ctx context.Context, staged Staged, do func(context.Context, Staged) error) error {
	full, err := s.full(staged.Name)
	if err != nil {
		return err
	}
	staged.Name = full
	return do(ctx, staged)
}

func (s *sub) Staged(ctx context.Context, dir string) ([]Staged, error) {
	full, err := s.fullDir(dir)
	if err != nil {
		return nil, err
	}
	all, err := s.fs.Staged(ctx, full)
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, s.prefix)
	}
	return all, err
}

func (s *sub) Probe(ctx context.Context) (Capabilities, error) { return Probe(ctx, s.fs) }

// Examine is that of the whole file system, as far as it has one: rules, space and clock are its own.
func (s *sub) Examine(ctx context.Context, o ExamineOptions, report func(Remark)) {
	if e, ok := s.fs.(Examiner); ok {
		e.Examine(ctx, o, report)
	}
}
