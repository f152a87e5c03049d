// Package transform holds the steps of a pipeline, one file each: what their
// block in the file looks like and how they work on batches.
package transform

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
)

// Spec describes a kind of transform.
type Spec struct {
	// Name is the operator key in the pipeline file, such as "filter".
	Name string
	// Doc is what it does, in a sentence.
	Doc string
	// NewConfig returns a pointer to a configuration struct with defaults, tagged
	// like a connector's. A single field with key:"." takes the whole value.
	NewConfig func() any
	// Branches lists the named outputs that a configuration makes; nil for steps
	// with one output.
	Branches func(config any) []string
	// Build makes the step for one place of the graph. It reports all faults
	// through env.Fault and returns nil when there was one. Nil for keyed steps.
	Build func(config any, env *Env) Step
	// BuildKeyed is Build for steps with keyed state.
	BuildKeyed func(config any, env *KeyedEnv) KeyedStep
	// Inputs gives the inputs that the configuration itself names, such as a join's
	// left and right, in the order of KeyedEnv.In; nil for steps that read their from.
	Inputs func(config any) []connectors.Ref
	// Side lists named outputs beside the main one, such as late.
	Side []string
	// Updates says what the step does with an updating stream.
	Updates UpdateRule
	// OpenState makes the reader of what the step keeps, by its layout, see Layouter; nil
	// for steps without keyed state.
	OpenState func(layout []byte) (StateReader, error)
}

var specs = map[string]Spec{}

// Register makes a kind of transform known; a name taken twice panics at start.
func Register(s Spec) {
	if _, taken := specs[s.Name]; taken || s.Name == "" || s.Doc == "" || s.NewConfig == nil || (s.Build == nil) == (s.BuildKeyed == nil) {
		panic("transform " + s.Name + " is registered twice or incompletely")
	}
	specs[s.Name] = s
}

// Lookup finds a kind of transform by its key.
func Lookup(name string) (Spec, bool) { s, ok := specs[name]; return s, ok }

// All lists the kinds of transform, sorted by name.
func All() []Spec {
	return slices.SortedFunc(maps.Values(specs), func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
}
