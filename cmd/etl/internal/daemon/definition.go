package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// definition is a pipeline file as it was read once.
type definition struct {
	file   string // its path
	name   string // of the pipeline; empty where it cannot be told
	plan   *pipeline.Plan
	faults spec.Diagnostics
	extra  string      // a fault that lies outside of the text, such as in other files
	base   *definition // what this is a copy of with extra set
	// content is the hash of the file and of all that its variables name, by their paths.
	content   map[string][sha256.Size]byte
	described func() *pipeline.Description // made once
	// fingerprint tells what the definition means, secrets among it.
	fingerprint string
}

// moves reports whether positions of a source can be moved, and single records left out.
func (f *definition) moves() bool {
	return f.plan != nil && slices.ContainsFunc(f.plan.Spec.Sources, func(s spec.Source) bool { return s.Spec.Moves })
}

// description is the plan for people; only of one that is valid.
func (f *definition) description() *pipeline.Description { return f.described() }

// valid reports whether it can run.
func (f *definition) valid() bool { return f.extra == "" && f.plan != nil && !f.faults.HasErrors() }

// clashing is the definition with the fault that another file has its name.
func (f *definition) clashing(other *definition) *definition {
	c := *f
	c.base, c.extra = f, "pipeline "+f.name+" is defined in "+other.file+" already: give one of the two another name"
	return &c
}

// origin is the definition without a clash.
func (f *definition) origin() *definition {
	if f.base != nil {
		return f.base
	}
	return f
}

// same reports whether both are of one reading, with the same faults.
func (f *definition) same(other *definition) bool {
	return f.origin() == other.origin() && f.extra == other.extra
}

// mostDefinition bounds a pipeline file, in bytes; spec refuses such a one.
const mostDefinition = 4 << 20

// readDefinition reads and plans a file. It never fails: what is wrong is in the answer.
func readDefinition(path string) *definition {
	f := &definition{file: path}
	data, err := readFile(path)
	if err != nil {
		f.parse(nil, func(string) ([]byte, error) { return nil, err })
		return f
	}
	f.parse(data, readFile)
	return f
}

// parse reads and plans a definition. A panic in it is a fault of the file.
func (f *definition) parse(data []byte, read func(string) ([]byte, error)) {
	defer func() {
		if p := recover(); p != nil {
			f.plan, f.extra = nil, fmt.Sprintf("reading it panics, which is a fault of this program: %v", p)
		}
	}()
	f.content = map[string][sha256.Size]byte{}
	opts := spec.Options{ReadSchema: registry.Read, ReadFile: func(path string) ([]byte, error) {
		data, err := read(path)
		f.content[path] = contentOf(data, err)
		return data, err
	}}
	var p *spec.Pipeline
	if data == nil {
		p, _ = spec.Load(f.file, opts)
	} else {
		f.content[f.file] = contentOf(data, nil)
		p, _ = spec.Parse(f.file, data, opts)
	}
	f.name = p.Name
	plan := pipeline.NewPlan(p)
	f.plan = plan
	f.described = sync.OnceValue(func() *pipeline.Description {
		d := plan.Describe()
		return &d
	})
	f.faults = p.Diagnostics()
	f.fingerprint = p.Fingerprint()
}

// fresh reports whether all that was read is still the same.
func (f *definition) fresh() bool {
	for path, sum := range f.content {
		data, err := readFile(path)
		if contentOf(data, err) != sum {
			return false
		}
	}
	return len(f.content) > 0
}

func contentOf(data []byte, err error) [sha256.Size]byte {
	if err != nil {
		return sha256.Sum256([]byte("unreadable: " + err.Error()))
	}
	return sha256.Sum256(data)
}

// readFile reads a regular file, but not more of it than shows that it is too large.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would have it wait for who writes
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is no regular file")})
	}
	return io.ReadAll(io.LimitReader(file, mostDefinition))
}

// failure is the first fault in a line, with how many more there are.
func (f *definition) failure() string {
	if f.extra != "" {
		return f.extra
	}
	errs := slices.DeleteFunc(slices.Clone(f.faults), func(d spec.Diagnostic) bool { return d.Severity != spec.Error })
	if len(errs) == 0 {
		return ""
	}
	text := errs[0].Pos.String() + ": " + errs[0].Msg
	if errs[0].Help != "" {
		text += "; " + errs[0].Help
	}
	if more := len(errs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// report is all faults with their places, as etl validate prints them; empty for none.
func (f *definition) report() string {
	var b strings.Builder
	if f.extra != "" {
		b.WriteString(f.extra + "\n")
	}
	if len(f.faults) > 0 {
		_ = f.faults.Print(&b, false) // into a strings.Builder
	}
	return b.String()
}

// validation is the faults one by one.
func (f *definition) validation() *api.Validation {
	v := &api.Validation{Valid: f.valid(), Pipeline: f.name, Faults: []api.Fault{}}
	if f.extra != "" {
		v.Faults = append(v.Faults, api.Fault{Level: levelError, Text: f.extra})
	}
	for i := range f.faults {
		d := &f.faults[i]
		v.Faults = append(v.Faults, api.Fault{
			Level: string(d.Severity), Line: d.Pos.Line(), Column: d.Pos.Column(), Code: string(d.Code), Text: d.Msg, Help: d.Help,
		})
	}
	return v
}

// label is what a file is called that does not tell the name of its pipeline.
func label(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// definitionFiles lists the pipeline files of a folder by their names.
func definitionFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read the folder of pipelines: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		stem := strings.TrimSuffix(name, ext)
		if ext != ".yaml" && ext != ".yml" || strings.HasPrefix(name, ".") || strings.HasSuffix(stem, "_test") {
			continue
		}
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			continue
		}
		out = append(out, path)
	}
	return out, nil
}
