package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Bounds of what metadata may say, far above what occurs, so that a wrong file
// cannot make the reader allocate without end.
const (
	maxParallelism    = 1 << 20
	maxStateFile      = 1 << 50
	maxStateFilesEach = 1 << 22
)

// Validate reports the first thing in the metadata that cannot be.
func (m *Metadata) Validate() error {
	if m.Format < 1 || m.Format > FormatVersion {
		return fmt.Errorf("format %d is unknown", m.Format)
	}
	if err := CheckPipeline(m.Pipeline); err != nil {
		return err
	}
	if !isJobID(m.Job) {
		return fmt.Errorf("job id %q is not 32 hex digits", m.Job)
	}
	if m.Generation == 0 || m.Number == 0 {
		return errors.New("generation and number begin at 1")
	}
	if !slices.Contains([]Kind{Periodic, Initial, Final, Savepoint}, m.Kind) {
		return fmt.Errorf("kind %q is unknown", m.Kind)
	}
	if m.MaxParallelism < 0 || m.MaxParallelism > maxParallelism {
		return fmt.Errorf("max parallelism %d is not between 0 and %d", m.MaxParallelism, maxParallelism)
	}
	if m.Restored != nil && m.Restored.Number == 0 {
		return errors.New("the number of the restored checkpoint begins at 1")
	}
	seen := map[string]bool{}
	for i := range m.Operators {
		o := &m.Operators[i]
		if o.UID == "" || seen[o.UID] {
			return fmt.Errorf("operator uid %q is empty or there twice", o.UID)
		}
		seen[o.UID] = true
		if err := o.validate(m.MaxParallelism); err != nil {
			return fmt.Errorf("operator %s: %w", o.UID, err)
		}
	}
	if err := m.validateCommittables(); err != nil {
		return err
	}
	return m.validateFiles()
}

func (o *Operator) validate(maxP int) error {
	if o.Parallelism < 0 || o.Parallelism > maxParallelism {
		return fmt.Errorf("parallelism %d is not between 0 and %d", o.Parallelism, maxParallelism)
	}
	splits := map[string]bool{}
	for i := range o.Splits {
		if id := o.Splits[i].ID; id == "" || splits[id] {
			return fmt.Errorf("split id %q is empty or there twice", id)
		}
		splits[o.Splits[i].ID] = true
	}
	for i := range o.Subtasks {
		if o.Subtasks[i].Subtask < 0 {
			return fmt.Errorf("subtask %d is below 0", o.Subtasks[i].Subtask)
		}
	}
	for i := range o.KeyGroups {
		k := &o.KeyGroups[i]
		if k.First < 0 || k.Last < k.First || k.Last >= maxP {
			return fmt.Errorf("key groups %d to %d are not between 0 and %d", k.First, k.Last, maxP-1)
		}
		if k.Offset < 0 || k.Length < 0 || k.Offset > k.File.Size-k.Length {
			return fmt.Errorf("key groups %d to %d lie outside of their file", k.First, k.Last)
		}
	}
	return nil
}

func (m *Metadata) validateCommittables() error {
	for i := range m.Committables {
		c := &m.Committables[i]
		if c.Committer == "" {
			return errors.New("a committable names no committer")
		}
		if c.Checkpoint.Generation == 0 || c.Checkpoint.Number == 0 {
			return fmt.Errorf("a committable of %s names no checkpoint", c.Committer)
		}
	}
	return nil
}

func (m *Metadata) validateFiles() error {
	known := map[string]connectors.StateFile{}
	for f := range m.files() {
		if err := checkStateFile(f); err != nil {
			return err
		}
		if before, ok := known[f.Path]; ok && before != f {
			return fmt.Errorf("file %s is referred to with two checksums", f.Path)
		}
		if len(known) >= maxStateFilesEach {
			return fmt.Errorf("more than %d files", maxStateFilesEach)
		}
		known[f.Path] = f
	}
	return nil
}

func checkStateFile(f connectors.StateFile) error {
	if err := checkFilePath(f.Path); err != nil {
		return err
	}
	if f.Size < 0 || f.Size > maxStateFile {
		return fmt.Errorf("file %s: size %d is not between 0 and %d", f.Path, f.Size, int64(maxStateFile))
	}
	hex, ok := strings.CutPrefix(f.Checksum, checksumPrefix)
	if !ok || len(hex) != 8 || !isHex(hex) {
		return fmt.Errorf("file %s: checksum %q is not %s and 8 hex digits", f.Path, f.Checksum, checksumPrefix)
	}
	return nil
}

// files are all references to files, some of them more than once.
func (m *Metadata) files() func(yield func(connectors.StateFile) bool) {
	return func(yield func(connectors.StateFile) bool) {
		for i := range m.Operators {
			o := &m.Operators[i]
			for j := range o.Subtasks {
				for _, f := range o.Subtasks[j].Files {
					if !yield(f) {
						return
					}
				}
			}
			for j := range o.KeyGroups {
				if !yield(o.KeyGroups[j].File) {
					return
				}
			}
		}
		for i := range m.Committables {
			for _, f := range m.Committables[i].Files {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// Files are the files that the checkpoint refers to, each once, sorted by path.
func (m *Metadata) Files() []connectors.StateFile {
	var out []connectors.StateFile
	for f := range m.files() {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b connectors.StateFile) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b connectors.StateFile) bool { return a.Path == b.Path })
}
