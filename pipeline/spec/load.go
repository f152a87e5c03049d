package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// Options are what reading a pipeline depends on besides its file.
type Options struct {
	// Set are overrides of the form key.path=value, as --set takes them. A step can be
	// named by its number or its name: transforms.per-item.filter=…
	Set []string
	// Env looks a variable up; nil is the process's environment.
	Env func(string) (string, bool)
	// ReadFile reads the pipeline's file and what ${file:…} names; nil is the
	// file system.
	ReadFile func(string) ([]byte, error)
	// ReadSchema asks a schema registry for a version of the configuration's subject. nil
	// asks none: the fields of a source that has its schema from one are not known then.
	ReadSchema func(c *registry.Config, version int) (registry.Schema, error)
}

// Load reads the pipeline file at path. See Parse.
func Load(path string, opts Options) (*Pipeline, Diagnostics) {
	read := opts.ReadFile
	if read == nil {
		read = readBounded
	}
	data, err := read(path)
	if err != nil {
		help := "check the path"
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		if errors.Is(err, fs.ErrPermission) {
			help = "check the file's permissions"
		}
		p := &Pipeline{File: path, file: newFile(path, nil)}
		p.report(Diagnostic{Severity: Error, Code: CodeRead, Pos: p.file.at(0), End: p.file.at(0), Msg: fmt.Sprintf("the file cannot be read: %v", err), Help: help})
		return p, p.Diagnostics()
	}
	return Parse(path, data, opts)
}

// readBounded reads a file, but no more of it than shows that it is too large.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFileSize+1))
}

// readRegular is readBounded of what is no pipe, which would be waited for without end.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		return nil, err
	}
	return readBounded(path)
}

// Parse reads a pipeline from data; name is what its positions say. The
// pipeline is never nil and holds what could be read of it; it may be run only
// if the diagnostics hold no error. More faults can be added by Fault.
func Parse(name string, data []byte, opts Options) (*Pipeline, Diagnostics) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	if opts.ReadFile == nil {
		opts.ReadFile = readRegular
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	p := &Pipeline{File: name, file: newFile(name, data)}
	l := &loader{p: p, opts: opts}
	if root := parseFile(p.file, l.report); root != nil {
		p.root = root
		l.override()
		l.resolve(p.root)
		l.pipeline()
	}
	return p, p.Diagnostics()
}

// loader reads one file.
type loader struct {
	p    *Pipeline
	opts Options
	// inherited is the pipeline's own rule for records that fail.
	inherited OnError
	froms     []from
	// incomplete says that sources, sinks or names are missing, so that what reads
	// what cannot be told.
	incomplete bool
	letters    []*node // names of dead-letter sinks, where they are written
	nodes      map[string]*definition
}

func (l *loader) report(d Diagnostic) { l.p.report(d) }

// document is the top level of a file.
type document struct {
	Pipeline       string `key:"pipeline" required:"true" doc:"The pipeline's name: lower-case letters, digits and -."`
	Description    string `key:"description" doc:"What it is for."`
	Parallelism    int    `key:"parallelism" doc:"Subtasks of each operator; one for each core by default."`
	MaxParallelism int    `key:"max_parallelism" doc:"Number of key groups, which bounds parallelism for good."`
	OnError        *node  `key:"on_error" doc:"What happens to a record that cannot be handled: fail, skip or {dead_letter: SINK}."`
	MaxErrors      *node  `key:"max_errors" doc:"How many failures are borne: N per DURATION."`
	Checkpoint     *node  `key:"checkpoint" doc:"Where and how often checkpoints are taken."`
	Restart        *node  `key:"restart" doc:"How a failed pipeline is started again."`
	Source         *node  `key:"source" doc:"The only source."`
	Sources        *node  `key:"sources" doc:"Several sources by name."`
	Transforms     *node  `key:"transforms" doc:"The steps, in order."`
	Sink           *node  `key:"sink" doc:"The only sink."`
	Sinks          *node  `key:"sinks" doc:"Several sinks by name."`
	Tests          *node  `key:"tests" doc:"Inputs with the outputs that are expected."`
}

// pipeline reads the whole tree.
func (l *loader) pipeline() {
	p, root := l.p, l.p.root
	d := document{MaxParallelism: 128}
	l.config(root, root, &d, "the pipeline")
	p.Name, p.Description = d.Pipeline, d.Description
	p.Parallelism, p.MaxParallelism = d.Parallelism, d.MaxParallelism
	l.pipelineName(root.get("pipeline"))
	l.inherited = l.onError(d.OnError, d.MaxErrors, OnError{Action: Fail})
	p.OnError = l.inherited
	l.checkpoint(root, d.Checkpoint)
	l.restart(d.Restart)
	l.sources(d.Source, d.Sources)
	l.transforms(d.Transforms)
	l.sinks(d.Sink, d.Sinks)
	l.tests(d.Tests)
	l.graph()
}

// Validate checks the numbers of the top level.
func (d *document) Validate() error {
	var faults []error
	if d.MaxParallelism < 1 || d.MaxParallelism > 32768 {
		faults = append(faults, &connectors.FieldError{Key: "max_parallelism", Msg: "must be from 1 to 32768", Help: "128 is the default"})
	}
	if d.Parallelism < 0 || d.Parallelism > d.MaxParallelism {
		faults = append(faults, &connectors.FieldError{
			Key: "parallelism", Msg: fmt.Sprintf("must be from 1 to max_parallelism, which is %d", d.MaxParallelism), Help: "leave it out for one subtask a core",
		})
	}
	return errors.Join(faults...)
}

// tests looks at the shape of the tests, which other commands run.
func (l *loader) tests(n *node) {
	if n == nil || n.bad || n.kind == nullNode {
		return
	}
	if n.kind != listNode {
		l.fault(n, CodeType, "tests must be a list, not "+n.words(), "start each test with `- name: …`")
		return
	}
	for _, item := range n.items {
		if item.bad {
			continue
		}
		if item.kind != mapNode {
			l.fault(item, CodeType, "a test takes keys with values, not "+item.words(), "its keys are name, input, expect")
			continue
		}
		type keys struct {
			Name   string `key:"name" required:"true" doc:"What the test shows."`
			Input  *node  `key:"input" required:"true" doc:"Records of each source."`
			Expect *node  `key:"expect" required:"true" doc:"What each sink gets."`
		}
		l.structure(item, item, reflect.ValueOf(&keys{}).Elem(), "test")
	}
}
