package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// JobFound is one job's folder, for lists.
type JobFound struct {
	ID          string
	Current     bool
	Ended       *Ended  // how it ended, nil where it has not or it is not known
	Checkpoints []Found // the newest first
}

// List describes all jobs of the pipeline that have a folder, the current one first.
func (s *Store) List(ctx context.Context) ([]JobFound, error) {
	sv, err := s.Survey(ctx)
	if err != nil {
		return nil, err
	}
	dirs, err := s.fs.Dirs(ctx, s.pipeline)
	if err != nil {
		return nil, fmt.Errorf("list jobs of pipeline %s: %w", s.pipeline, err)
	}
	var out []JobFound
	if sv.Job != "" {
		out = append(out, JobFound{ID: sv.Job, Current: true, Ended: sv.Ended, Checkpoints: sv.Checkpoints})
	}
	for _, d := range dirs {
		if !isJobID(d) || d == sv.Job {
			continue
		}
		other := &Survey{Job: d, Owners: sv.Owners, Damaged: map[string]error{}}
		if err := s.readEnded(ctx, other); err != nil {
			return nil, err
		}
		found, err := s.checkpoints(ctx, d, sv.Owners)
		if err != nil {
			return nil, err
		}
		out = append(out, JobFound{ID: d, Ended: other.Ended, Checkpoints: found})
	}
	return out, nil
}

// Opened is a checkpoint or savepoint that was found by its path.
type Opened struct {
	Meta      *Metadata
	Path      string // as -s takes it
	Committed bool
	// Files reads the files of Meta.
	Files connectors.CheckpointFiles

	files *files
}

// Inspect reads the metadata that a path names: a checkpoint's or savepoint's folder
// or its `_metadata`, as a URL or a local path. It needs no daemon and no pipeline.
func Inspect(ctx context.Context, address string) (*Opened, error) {
	u, err := storage.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", address, err)
	}
	folder(u)
	at, err := outside(u)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", address, err)
	}
	m, err := readMetadata(ctx, at.fs, at.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noMetadata(ctx, at, "inspect "+address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", address, err)
	}
	committed, err := storage.Exists(ctx, at.fs, at.dir+"/"+committedName)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", address, err)
	}
	f := &files{fs: at.fs, dir: at.dir}
	return &Opened{Meta: m, Path: u.String(), Committed: committed, Files: f, files: f}, nil
}

// Report is what Verify found.
type Report struct {
	*Opened
	Files  int   // that were read
	Bytes  int64 // in them
	Faults []error
	// Warnings are about files that no restore needs.
	Warnings []error
}

// Amount is how much of a checkpoint's files was read.
type Amount struct {
	Files int
	Bytes int64
}

// Verify reads every byte of a checkpoint and reports each file that is not what was
// written. Its error says that the metadata itself cannot be used.
func Verify(ctx context.Context, address string) (*Report, error) {
	o, err := Inspect(ctx, address)
	if err != nil {
		return nil, err
	}
	return o.Verify(ctx, nil), nil
}

// Verify reads every byte of the checkpoint's files. progress is told after each file,
// one call at a time; it may be nil.
func (o *Opened) Verify(ctx context.Context, progress func(done, all Amount)) *Report {
	list := o.Meta.Files()
	r := &Report{Opened: o, Files: len(list)}
	for _, f := range list {
		r.Bytes += f.Size
	}
	r.Faults = verifyFiles(ctx, watched(o.files, Amount{Files: r.Files, Bytes: r.Bytes}, progress), list, false)
	if _, err := o.Statistics(ctx); err != nil {
		r.Warnings = append(r.Warnings, err)
	}
	return r
}

// watched tells of each file that is verified.
func watched(f verifiable, all Amount, progress func(done, all Amount)) verifiable {
	if progress == nil {
		return f
	}
	return &watchedFiles{verifiable: f, all: all, progress: progress}
}

type watchedFiles struct {
	verifiable
	all      Amount
	progress func(done, all Amount)

	mu   sync.Mutex
	done Amount
}

func (w *watchedFiles) verify(ctx context.Context, f connectors.StateFile) error {
	err := w.verifiable.verify(ctx, f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done.Files++
	w.done.Bytes += f.Size
	w.progress(w.done, w.all)
	return err
}
