package connectors

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SourceSpec describes a kind of source to the program: what its block in a
// pipeline file may hold and how to make one of it.
type SourceSpec struct {
	// Name is the key of the block, such as "kafka".
	Name string
	// Doc is what it does, in a sentence or two.
	Doc string
	// NewConfig returns a pointer to a configuration struct that holds the
	// defaults. Its fields carry tags: key, doc, and where they apply required,
	// secret ("true") and enum ("a|b|c").
	NewConfig func() any
	// New makes a source of such a configuration, decoded and validated.
	New func(config any) (Source, error)
	// Bounded tells whether a source so configured ends by itself.
	Bounded func(config any) bool
	// LooseTime says what the time of its records is where that does not tell when
	// they happened, such as "the time when its file was last changed". A step that
	// goes by it is warned of. Empty where the time is the records' own.
	LooseTime string
	// Moves says that the sources implement PositionChecker and Mover: their positions can
	// be moved, and single records left out.
	Moves bool
	// Back makes the configurations of sinks that write records back to where a source so
	// configured reads them, by topic; nil for sources that nothing can be written back to.
	Back func(config any) ([]Back, error)
	// Example is a block of the source as it stands below source:, which validates.
	Example string
}

// Back is a way back to where records came from.
type Back struct {
	Topic  string // as in Origin
	Sink   string // the kind of sink
	Config any
}

// ReadBack reads what a sink was given as dead letters.
type ReadBack struct {
	// Source reads it from its beginning to where it ends now.
	Source Source
	// Same reports whether two splits of one ID are the same thing, not one that was made
	// anew under its name; nil where a name is never used twice.
	Same func(a, b Split) bool
}

// SinkSpec describes a kind of sink, as SourceSpec does a source.
type SinkSpec struct {
	Name      string
	Doc       string
	NewConfig func() any
	New       func(config any) (Sink, error)
	// DeadLetterRows says that dead letters come as rows of a table (JSON objects
	// with topic, partition, offset, key, value, reason …), since the sink has no
	// headers to carry those facts in.
	DeadLetterRows bool
	// Headers says that records are written with headers, in which a format can say the
	// schema of a value.
	Headers bool
	// Lines says that values are written one a line: the encoder then gives values
	// without raw line breaks, null for a tombstone, and refuses empty ones.
	Lines bool
	// Changes tells how a sink so configured takes an updating stream; nil for sinks
	// that can only append.
	Changes func(config any) Changes
	// Check refuses a configuration that does not fit the rows, when the pipeline is
	// loaded; nil for sinks that take any. Columns are nil where the types of the rows
	// are not known. A *FieldError places the fault.
	Check func(config any, columns []Column) error
	// Letters makes what reads the dead letters that a sink so configured was given; nil
	// where they cannot be read back.
	Letters func(config any) (ReadBack, error)
	// Beside is the configuration with which another pipeline writes to the same target at
	// the same time, told apart by a suffix; nil where the configuration serves for that.
	Beside func(config any, suffix string) any
	// Example is a block of the sink as it stands below sink:, which validates.
	Example string
}

var (
	sources = map[string]SourceSpec{}
	sinks   = map[string]SinkSpec{}
)

// RegisterSource makes a kind of source known. Connectors call it from init. An
// incomplete description or a name taken twice panics, at the program's start.
func RegisterSource(s SourceSpec) {
	if s.NewConfig == nil || s.New == nil || s.Bounded == nil {
		panic("source " + s.Name + " is registered incompletely")
	}
	checkSpec("source", s.Name, s.Doc, s.NewConfig())
	if _, taken := sources[s.Name]; taken {
		panic("source " + s.Name + " is registered twice")
	}
	sources[s.Name] = s
}

// RegisterSink makes a kind of sink known, as RegisterSource does.
func RegisterSink(s SinkSpec) {
	if s.NewConfig == nil || s.New == nil {
		panic("sink " + s.Name + " is registered incompletely")
	}
	checkSpec("sink", s.Name, s.Doc, s.NewConfig())
	if _, taken := sinks[s.Name]; taken {
		panic("sink " + s.Name + " is registered twice")
	}
	sinks[s.Name] = s
}

// LookupSource finds a kind of source by its key.
func LookupSource(name string) (SourceSpec, bool) { s, ok := sources[name]; return s, ok }

// LookupSink finds a kind of sink by its key.
func LookupSink(name string) (SinkSpec, bool) { s, ok := sinks[name]; return s, ok }

// Sources lists the kinds of source, sorted by name.
func Sources() []SourceSpec {
	out := make([]SourceSpec, 0, len(sources))
	for _, s := range sources {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceSpec) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Sinks lists the kinds of sink, sorted by name.
func Sinks() []SinkSpec {
	out := make([]SinkSpec, 0, len(sinks))
	for _, s := range sinks {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SinkSpec) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// checkSpec panics unless each field of a configuration has a key and a doc.
func checkSpec(kind, name, doc string, config any) {
	t := reflect.TypeOf(config)
	if name == "" || doc == "" || t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("%s %q needs a name, a doc and a configuration struct", kind, name))
	}
	for _, f := range Fields(t.Elem()) {
		if f.Key == "" || f.Doc == "" {
			panic(fmt.Sprintf("%s %s: field %s needs the tags key and doc", kind, name, f.Name))
		}
	}
}

// Field describes one key of a configuration struct, from its tags.
type Field struct {
	Name     string // of the Go field
	Index    int
	Type     reflect.Type
	Key      string
	Doc      string
	Required bool
	Secret   bool
	Enum     []string // allowed texts; nil for any
}

// Fields lists the keys of a configuration struct in their order.
func Fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		d := Field{
			Name: f.Name, Index: i, Type: f.Type, Key: f.Tag.Get("key"), Doc: f.Tag.Get("doc"),
			Required: f.Tag.Get("required") == "true", Secret: f.Tag.Get("secret") == "true",
		}
		if e := f.Tag.Get("enum"); e != "" {
			d.Enum = strings.Split(e, "|")
		}
		out = append(out, d)
	}
	return out
}
