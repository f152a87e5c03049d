package pipeline

import (
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// Description is a plan for people and programs to read.
type Description struct {
	Pipeline string `json:"pipeline"`
	// Parallelism is the subtasks of each operator, 0 for one for each core.
	Parallelism    int `json:"parallelism"`
	MaxParallelism int `json:"max_parallelism"`
	// Mode is what happens at a barrier on one of several inputs, and ModesEqual says
	// that no task has several.
	Mode       string                `json:"mode"`
	ModesEqual bool                  `json:"modes_equal"`
	Operators  []OperatorDescription `json:"operators"`
}

// OperatorDescription is a source, step or sink, after those that it reads.
type OperatorDescription struct {
	Name string `json:"name"`
	Role string `json:"role"` // source, step or sink
	Kind string `json:"kind"`
	// Chain names the operator that begins the chain which this one is part of.
	// Operators of a chain hand records on by function calls.
	Chain  string             `json:"chain"`
	Inputs []InputDescription `json:"inputs,omitempty"`
	State  *StateDescription  `json:"state,omitempty"`
	// Changes is how a sink takes an updating stream; empty for an append-only one.
	Changes string `json:"changes,omitempty"`
	// Guarantee is what holds of each result of a sink: the weaker of what the sink
	// promises and of the mode.
	Guarantee connectors.Guarantee `json:"guarantee,omitempty"`
	Takes     *StreamDescription   `json:"takes,omitempty"` // of a sink
	Outputs   []StreamDescription  `json:"outputs,omitempty"`
}

// How records come from one operator to another.
const (
	Chained = "chained" // by a function call
	Forward = "forward" // to the task of the same subtask
	ByKey   = "key"     // to the task that owns the key
)

// InputDescription is one thing that an operator reads.
type InputDescription struct {
	From     string   `json:"from"`
	Exchange string   `json:"exchange"` // Chained, Forward or ByKey
	Key      []string `json:"key,omitempty"`
}

// StateDescription is the state of an operator.
type StateDescription struct {
	Key     []string `json:"key"`
	Backend string   `json:"backend"`
}

// StreamDescription is what is known of the records at one place.
type StreamDescription struct {
	Branch string             `json:"branch,omitempty"`
	Fields []FieldDescription `json:"fields"`
	// Complete says that no field beside these can be named.
	Complete bool `json:"complete"`
	Updating bool `json:"updating"`
	// Key are the fields by which the rows of an updating stream are told apart.
	Key []string `json:"key,omitempty"`
}

// FieldDescription is one field.
type FieldDescription struct {
	Name string `json:"name"`
	Type string `json:"type"` // any where nothing is known
}

// Describe tells how the pipeline will run.
func (p *Plan) Describe() Description {
	d := Description{Pipeline: p.Spec.Name, Parallelism: p.Spec.Parallelism, MaxParallelism: p.Spec.MaxParallelism}
	d.Mode, d.ModesEqual = p.Spec.Checkpoint.Mode, !p.severalInputs()
	for _, c := range p.chains {
		if c.source == nil {
			continue
		}
		s := c.source.spec
		d.Operators = append(d.Operators, OperatorDescription{
			Name: s.Name, Role: "source", Kind: s.Kind, Chain: c.name, Outputs: []StreamDescription{streamOf("", c.view)},
		})
	}
	for _, n := range p.inOrder() {
		d.Operators = append(d.Operators, p.describe(n))
	}
	return d
}

// operatorNames lists the operators in the order of Describe.
func (p *Plan) operatorNames() []string {
	var names []string
	for _, c := range p.chains {
		if c.source != nil {
			names = append(names, c.name)
		}
	}
	for _, n := range p.inOrder() {
		names = append(names, n.name)
	}
	return names
}

// inOrder lists the steps and sinks so that each comes after those it reads.
func (p *Plan) inOrder() []*node {
	var out []*node
	seen := map[*node]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, r := range n.from {
			visit(p.byName[r.Node])
		}
		out = append(out, n)
	}
	for i := range p.Spec.Transforms {
		visit(p.byName[p.Spec.Transforms[i].Name])
	}
	return append(out, p.sinkNodes()...)
}

// sinkNodes lists the sinks' places in the order of the file; one that gets dead
// letters only has none in the graph.
func (p *Plan) sinkNodes() []*node {
	var out []*node
	for _, s := range p.sinks {
		at := &node{name: s.spec.Name, sink: s}
		for _, c := range p.chains {
			if i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.sink == s }); i >= 0 {
				at = c.nodes[i]
			}
		}
		out = append(out, at)
	}
	return out
}

func (p *Plan) describe(n *node) OperatorDescription {
	if n.chain == nil {
		return OperatorDescription{Name: n.name, Role: "sink", Kind: n.sink.spec.Kind, Guarantee: p.Guarantee(n.sink.guarantee)}
	}
	o := OperatorDescription{Name: n.name, Role: "step", Chain: n.chain.name}
	for _, r := range n.from {
		o.Inputs = append(o.Inputs, InputDescription{From: r.String(), Exchange: Forward})
	}
	p.describeInputs(n, &o)
	if n.sink != nil {
		takes := streamOf("", n.sink.view)
		o.Role, o.Kind, o.Takes = "sink", n.sink.spec.Kind, &takes
		o.Guarantee = p.Guarantee(n.sink.guarantee)
		switch n.sink.changes.mode {
		case connectors.Changelog:
			o.Changes = "changelog"
		case connectors.Upserts:
			o.Changes = "upserts by " + n.sink.changes.key.Text
		default:
		}
		return o
	}
	i := slices.IndexFunc(p.Spec.Transforms, func(t spec.Transform) bool { return t.Name == n.name })
	o.Kind = p.Spec.Transforms[i].Kind
	for i, out := range n.outputs {
		branch := ""
		if n.outName != nil {
			branch = n.outName[i]
		}
		if n.chain.keyed != nil && branch != "" && len(out.nodes)+len(out.edges) == 0 {
			continue // a side branch that nothing reads is no part of the plan
		}
		o.Outputs = append(o.Outputs, streamOf(branch, out.view))
	}
	return o
}

// describeInputs says how records come to n, and what state it keeps of them.
func (p *Plan) describeInputs(n *node, o *OperatorDescription) {
	c := n.chain
	if c.keyed == nil || c.nodes[0] != n {
		for i, r := range n.from {
			if p.chainOf(r) == c {
				o.Inputs[i].Exchange = Chained
			}
		}
		return
	}
	o.State = &StateDescription{Backend: p.Spec.Checkpoint.State.Backend}
	for _, e := range c.in {
		if e.input == 0 {
			o.State.Key = e.keying.by
		}
		for i := range o.Inputs {
			// A step with one input reads all that stands in its from by it.
			if e.input == i || c.keyed.spec.Spec.Inputs == nil {
				o.Inputs[i].Exchange, o.Inputs[i].Key = ByKey, e.keying.by
			}
		}
	}
}

// chainOf is the chain that what a reference names is part of.
func (p *Plan) chainOf(r spec.Ref) *chain {
	if n := p.byName[r.Node]; n != nil {
		return n.chain
	}
	for _, c := range p.chains {
		if c.source != nil && c.name == r.Node {
			return c
		}
	}
	return nil
}

func streamOf(branch string, v *transform.View) StreamDescription {
	s := StreamDescription{Branch: branch, Complete: v.Complete(), Fields: []FieldDescription{}}
	for _, f := range v.Fields() {
		typ := f.Type.String()
		if plain := f.Type.NonNull(); f.Type.MayBeNull() && f.Type != expr.Any && !strings.Contains(plain.String(), " ") {
			typ = plain.String() + "?"
		}
		if f.Shape != nil && (f.Shape.Elem != nil || f.Shape.Fields != nil) {
			typ = f.Shape.String()
		}
		s.Fields = append(s.Fields, FieldDescription{f.Name, typ})
	}
	if u := v.Updates(); u != nil {
		s.Updating, s.Key = true, u.Key
	}
	return s
}
