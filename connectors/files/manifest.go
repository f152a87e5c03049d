package files

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// manifestFolder is hidden from readers by convention, as its name begins with _.
const manifestFolder = "_manifests/"

// manifest lists what one checkpoint has published.
type manifest struct {
	Pipeline   string                  `json:"pipeline"`
	Sink       string                  `json:"sink"`
	Checkpoint connectors.CheckpointID `json:"checkpoint"`
	Files      []manifestFile          `json:"files"`
	Records    int64                   `json:"records"`
	Bytes      int64                   `json:"bytes"`
}

type manifestFile struct {
	Name    string `json:"name"` // below the sink's path
	Bytes   int64  `json:"bytes"`
	Records int64  `json:"records"`
}

// manifestLog collects what the writers of one checkpoint have published, until all
// have.
type manifestLog struct {
	mu   sync.Mutex
	open map[connectors.CheckpointID]map[int]committableData // by subtask
}

// notes reports whether more is written than the files.
func (s *Sink) notes() bool { return s.config.Manifest || s.config.SuccessFile != "" }

// note takes what is published of a committable. With the last one of a checkpoint it
// gives all of that: the same whenever the commit is repeated, also by another process.
func (l *manifestLog) note(c connectors.Committable, d committableData) (all []committableData, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[connectors.CheckpointID]map[int]committableData{}
	}
	of := l.open[c.Checkpoint]
	if of == nil {
		of = map[int]committableData{}
		l.open[c.Checkpoint] = of
	}
	of[d.Subtask] = d
	if len(of) < d.Subtasks {
		return nil, false
	}
	for _, d := range of {
		all = append(all, d)
	}
	return all, true
}

// forget drops what is proven.
func (l *manifestLog) forget(n connectors.CheckpointID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.open {
		if id.Number <= n.Number {
			delete(l.open, id)
		}
	}
}

// finish writes the manifest and the success file of a checkpoint, once the files of all
// writers are published.
func (c *committer) finish(ctx context.Context, com connectors.Committable, d committableData) error {
	s := (*Sink)(c)
	if d.Subtasks == 0 { // prepared before a manifest was asked for
		return nil
	}
	all, whole := s.log.note(com, d)
	if !whole {
		return nil
	}
	if s.config.Manifest {
		if err := s.writeManifest(ctx, com.Checkpoint, all); err != nil {
			return fmt.Errorf("write the manifest of checkpoint %d: %w", com.Checkpoint.Number, err)
		}
	}
	ended := !slices.ContainsFunc(all, func(d committableData) bool { return !d.End })
	if s.config.SuccessFile == "" || !ended {
		return nil
	}
	if err := s.fs.Claim(ctx, s.config.SuccessFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write %s: %w", s.config.SuccessFile, err)
	}
	return nil
}

func (s *Sink) writeManifest(ctx context.Context, id connectors.CheckpointID, all []committableData) error {
	m := manifest{Pipeline: s.env.Pipeline, Sink: s.env.Name, Checkpoint: id}
	for _, d := range all {
		for _, f := range d.Files {
			m.Files = append(m.Files, manifestFile{f.Name, f.Size, f.Records})
			m.Records += f.Records
			m.Bytes += f.Size
		}
	}
	if len(m.Files) == 0 {
		return nil
	}
	slices.SortFunc(m.Files, func(a, b manifestFile) int { return cmp.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%s%d-%d.json", manifestFolder, s.prefix, id.Generation, id.Number)
	s.failpoint("manifest.before")
	err = storage.WriteFile(ctx, s.fs, name, append(text, '\n'))
	s.failpoint("manifest.after")
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	old, err := storage.ReadFile(ctx, s.fs, name, 1<<30)
	if err == nil && !bytes.Equal(bytes.TrimSpace(old), text) {
		s.env.Log.Warn("a manifest of that name holds something else: it is left as it is", "file", strings.TrimSuffix(s.fs.URL(), "/")+"/"+name)
	}
	return err
}
