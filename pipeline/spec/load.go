package spec

// Options are what reading a pipeline depends on besides its file.
type Options struct {
	// Set are overrides of the form key.path=value, as --set takes them.
	Set []string
	// Env looks a variable up; nil is the process's environment.
	Env func(string) (string, bool)
	// ReadFile reads the pipeline's file and what ${file:…} names; nil is the
	// file system.
	ReadFile func(string) ([]byte, error)
}

// Load reads the pipeline file at path. See Parse.
func Load(path string, opts Options) (*Pipeline, Diagnostics) { return Parse(path, nil, opts) }

// Parse reads a pipeline from data; name is what its positions say. The
// pipeline is never nil and holds what could be read; it may be run only if the
// diagnostics hold no error.
func Parse(name string, data []byte, opts Options) (*Pipeline, Diagnostics) {
	return &Pipeline{}, nil
}

// Fault adds a fault found after loading, at the value that the keys lead to.
// An error that has the methods Span() (offset, length int), Message() string
// and Hint() string is an expression's and is placed within its text. A
// *connectors.FieldError is placed at its own key below the path. Joined errors are
// taken apart.
func (p *Pipeline) Fault(path []string, err error) {}

// Diagnostics are all faults so far, sorted by place.
func (p *Pipeline) Diagnostics() Diagnostics { return p.diags }

// Position is where the value is that the keys lead to, or the nearest block
// around it that the file has. Items of lists are named by their number.
func (p *Pipeline) Position(keys ...string) Pos { return Pos{} }

// Digest is the SHA-256, in hex, of what the pipeline means: defaults filled
// in, without comments, layout, description, tests and secrets.
func (p *Pipeline) Digest() string { return "" }

// Redacted is the pipeline as it is in effect, as YAML, with secrets replaced.
func (p *Pipeline) Redacted() []byte { return nil }

type node struct{}
