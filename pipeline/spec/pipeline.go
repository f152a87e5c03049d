// Package spec reads pipeline files: YAML with positions, defaults, variables
// and overrides becomes a typed Pipeline, and every fault of it a diagnostic
// that points at the characters meant. It starts nothing and opens nothing but
// the file and what ${file:…} names.
//
// Values are YAML 1.2's: yes, on and y are texts. A number or a truth value
// where a text is wanted is taken as it is written, and a single text where a
// list of texts or expressions is wanted is a list of one. An expression is the
// scalar's text, whatever YAML would call it. ${…} is replaced in every scalar
// after parsing, once; a plain scalar is typed again after that.
package spec

import (
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/schema"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// Pipeline is a pipeline file, read and checked. It may be used to run only if
// its Diagnostics hold no error.
type Pipeline struct {
	File           string // as it was named
	Name           string
	Description    string
	Parallelism    int // subtasks of each operator; 0 is one for each core
	MaxParallelism int // number of key groups
	OnError        OnError
	Checkpoint     Checkpoint
	Restart        Restart
	Sources        []Source
	Transforms     []Transform // in the order of the file, which need not be that of the graph
	Sinks          []Sink

	root    *node
	file    *file
	diags   Diagnostics
	secrets []string // texts that must not appear in messages
}

// Source is one source block.
type Source struct {
	Name string
	UID  string // identity in checkpoints; Name unless the file says otherwise
	Kind string // key of the connector
	Spec connectors.SourceSpec
	// Config is the connector's configuration, decoded and validated; nil where it has faults.
	Config any
	// Format is the configuration's own key of that name, json where it has none.
	Format connectors.FormatConfig
	// Timestamp is the expression of the event time; unset for the record's own.
	Timestamp connectors.Expr
	// Schema is the type of the records, a map of fields; nil where the file says
	// nothing of them.
	Schema *schema.Type
	// Watermark says how event time advances, with the defaults filled in.
	Watermark Watermark
	OnError   OnError
	Pos       Pos
	Path      []string // keys of the block, for Fault
}

// Transform is one step.
type Transform struct {
	Name  string // the user's, or made of kind and position
	UID   string
	Named bool // the user gave the name
	Kind  string
	Spec  transform.Spec
	// Config is the step's configuration, decoded and validated; nil where it has faults.
	Config   any
	Branches []string // named outputs; nil for the single output
	// From is what it reads, at least one in a pipeline without errors. Of a step
	// whose configuration names its inputs it is those, in the order of Spec.Inputs,
	// and can hold one twice.
	From    []Ref
	OnError OnError
	Pos     Pos
	Path    []string // keys of the step, for Fault
}

// Outputs lists the outputs as a Ref's Branch names them, in order: the branches,
// or the main one, which is "", and what the kind of step has beside it.
func (t *Transform) Outputs() []string {
	if len(t.Branches) > 0 {
		return t.Branches
	}
	return append([]string{""}, t.Spec.Side...)
}

// Sink is one sink block.
type Sink struct {
	Name string
	UID  string
	Kind string
	Spec connectors.SinkSpec
	// Config is the connector's configuration, decoded and validated; nil where it has faults.
	Config any
	// Format is the configuration's own key of that name, json where it has none.
	Format  connectors.FormatConfig
	From    []Ref // empty for a sink that gets dead letters only
	OnError OnError
	Pos     Pos
	Path    []string // keys of the block, for Fault
}

// ConfigPath is the keys of the connector's block, for Fault.
func (s *Source) ConfigPath() []string { return below(s.Path, s.Kind) }

// ConfigPath is the keys of the operator's block, for Fault.
func (t *Transform) ConfigPath() []string { return below(t.Path, t.Kind) }

// ConfigPath is the keys of the connector's block, for Fault.
func (s *Sink) ConfigPath() []string { return below(s.Path, s.Kind) }

// Ref names what a step or sink reads: a source or step, or one branch of a step.
type Ref struct {
	Node   string
	Branch string
}

// String is the form that the file uses.
func (r Ref) String() string {
	if r.Branch == "" {
		return r.Node
	}
	return r.Node + "." + r.Branch
}

// Action is what happens to a record that cannot be handled.
type Action string

// The actions.
const (
	Fail       Action = "fail"        // the pipeline stops
	Skip       Action = "skip"        // the record is counted and left out
	DeadLetter Action = "dead_letter" // the record goes to a sink
)

// OnError is the effective rule for records that fail at one place: its own, or
// the pipeline's where it has none.
type OnError struct {
	Action Action
	Sink   string // name of the sink of dead letters
	// Max failures within Per are borne, one more stops the pipeline; 0 is no limit.
	Max int
	Per time.Duration
}

// Restart is how a failed pipeline is started again.
type Restart struct {
	Strategy RestartStrategy
	// Attempts is how often RestartFixed tries, and how many failures within Per
	// RestartFailureRate bears.
	Attempts int
	Per      time.Duration
	Delay    time.Duration // RestartFixed, RestartFailureRate
	// Initial to ResetAfter belong to RestartExponential: the delay starts at Initial,
	// grows by Multiplier up to Max, varies by the fraction Jitter, and starts
	// over once the pipeline has run for ResetAfter.
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64
	Jitter     float64
	ResetAfter time.Duration
}

// RestartStrategy is a kind of restart.
type RestartStrategy string

// The strategies.
const (
	RestartNone        RestartStrategy = "none"
	RestartFixed       RestartStrategy = "fixed"
	RestartFailureRate RestartStrategy = "failure_rate"
	RestartExponential RestartStrategy = "exponential"
)

func below(path []string, keys ...string) []string {
	return append(append(make([]string, 0, len(path)+len(keys)), path...), keys...)
}
