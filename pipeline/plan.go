package pipeline

import (
	"maps"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// Plan is a pipeline cut into chains, with every expression compiled. It is
// immutable once made and does no I/O.
type Plan struct {
	Spec   *spec.Pipeline
	chains []*chain // each after those that feed it
	sinks  []*sinkNode
	byName map[string]*node
	marked bool // see findMarks
}

// chain is a part of the graph that one task of each subtask runs by function
// calls: it begins at a source, or where records arrive from other chains.
type chain struct {
	name    string // of the operator at its head
	base    *transform.Base
	view    *transform.View // of the records at its head
	source  *sourceNode     // nil where records arrive from other chains
	keyed   *keyedNode      // the step with keyed state at its head, if that is one
	onError spec.OnError    // for records that cannot be read at its head
	in      []*edge
	out     []*edge // from its head to other chains
	head    []*node // what the head's records go to
	nodes   []*node
	// timestamped says that the sources above all have an event time of their own.
	timestamped bool
	scope       int // the same for all chains that are connected
}

// node is one step or sink, placed in a chain.
type node struct {
	name    string
	chain   *chain
	in      *transform.View
	step    transform.Step
	this    int // slot that wants the whole value before the step, or expr.WholeRaw
	sink    *sinkNode
	onError spec.OnError
	outputs []output
	outName []string // branch names, empty for a main output; nil for one output
	from    []spec.Ref
	merges  bool // branches of an updating stream meet here, see merger
}

// output is one output of a node: what is known of its records and who reads them.
type output struct {
	view  *transform.View
	nodes []*node
	edges []*edge
}

// edge leads from an output to the head of another chain.
type edge struct {
	from    *transform.View
	chain   *chain // it comes from
	to      *chain
	input   int     // of the keyed step at the head of to
	keying  *keying // nil where to begins with no keyed step
	carries []carry
	merges  bool // likewise, with others from the same chain
}

type sourceNode struct {
	spec      *spec.Source
	check     *schema.Checker // nil where no types are declared
	timestamp *expr.Program
	scope     int  // the same for sources that feed the same steps
	timed     bool // one of those goes by event time
}

type sinkNode struct {
	spec    *spec.Sink
	exprs   []sinkExpr
	view    *transform.View // nil for a sink of dead letters only
	columns []connectors.Column
	// passedBy are the steps that a dead letter can have failed at which are not on the way
	// to this sink; nil but where dead letters are brought in.
	passedBy map[string]bool
	changes  sinkChanges
	stride   int
	writers  int // per subtask: one for each chain that writes to it
	// guarantee is what the sink promises by itself.
	guarantee connectors.Guarantee
}

// sinkExpr is an expression in the sink's configuration.
type sinkExpr struct {
	text string
	prog *expr.Program
	slot int
}

// NewPlan cuts a pipeline into chains and compiles its expressions. Faults are
// added to the pipeline's diagnostics; the plan may be run only if there is no
// error among them.
func NewPlan(p *spec.Pipeline) *Plan {
	b := &planner{plan: &Plan{Spec: p, byName: map[string]*node{}}, spec: p, sources: map[string]*chain{}}
	b.checkAddresses()
	b.addSources()
	for _, i := range b.order() {
		b.addTransform(&p.Transforms[i])
	}
	for i := range p.Sinks {
		b.addSink(&p.Sinks[i])
	}
	b.findCarries()
	b.findScopes()
	b.warnOfTime()
	b.findMarks()
	b.countWriters()
	b.checkGuarantees()
	return b.plan
}

type planner struct {
	plan    *Plan
	spec    *spec.Pipeline
	sources map[string]*chain
}

func (b *planner) fault(path []string, err error) { b.spec.Fault(path, err) }

func (b *planner) addSources() {
	for i := range b.spec.Sources {
		s := &b.spec.Sources[i]
		c := b.newChain(s.Name, s.OnError)
		c.source = &sourceNode{spec: s}
		b.declare(c, s)
		c.timestamped = s.Timestamp.Set()
		if s.Timestamp.Set() {
			prog, err := expr.Compile(s.Timestamp.Text, c.view, expr.Options{})
			if err != nil {
				b.fault(append(slices.Clone(s.Path), "timestamp"), err)
			}
			c.source.timestamp = prog
		}
		b.sources[s.Name] = c
		if s.Config != nil {
			if _, err := s.Spec.New(s.Config); err != nil {
				b.fault(s.ConfigPath(), err)
			}
		}
	}
}

func (b *planner) newChain(name string, onError spec.OnError) *chain {
	base := transform.NewBase()
	c := &chain{name: name, base: base, view: transform.NewView(base), onError: onError, timestamped: true}
	b.plan.chains = append(b.plan.chains, c)
	return c
}

// order lists the transforms so that each comes after those it reads. spec has
// refused cycles and unknown names.
func (b *planner) order() []int {
	index := map[string]int{}
	for i := range b.spec.Transforms {
		index[b.spec.Transforms[i].Name] = i
	}
	var out []int
	seen := make([]bool, len(b.spec.Transforms))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, r := range b.spec.Transforms[i].From {
			if j, ok := index[r.Node]; ok {
				visit(j)
			}
		}
		out = append(out, i)
	}
	for i := range b.spec.Transforms {
		visit(i)
	}
	return out
}

// input is one resolved input of a node.
type input struct {
	chain *chain
	view  *transform.View
	out   *output // nil where the head of a source's chain is read
}

// inputs finds what a node reads. It fails where a name leads to something that
// has faults, which are reported there.
func (b *planner) inputs(refs []spec.Ref) ([]input, bool) {
	var ins []input
	for _, r := range refs {
		if c, ok := b.sources[r.Node]; ok {
			ins = append(ins, input{chain: c, view: c.view})
			continue
		}
		n := b.plan.byName[r.Node]
		if n == nil {
			return nil, false
		}
		i := 0
		if n.outName != nil {
			i = slices.Index(n.outName, r.Branch)
		}
		if i < 0 || i >= len(n.outputs) {
			return nil, false
		}
		ins = append(ins, input{chain: n.chain, view: n.outputs[i].view, out: &n.outputs[i]})
	}
	return ins, len(ins) > 0
}

// fused reports whether the inputs can be mixed as they are, in one chain.
func fused(ins []input) bool {
	for _, in := range ins[1:] {
		if in.chain != ins[0].chain || !in.view.Same(ins[0].view) {
			return false
		}
	}
	return true
}

// mixed is the view of records of several inputs that look the same, or of a
// chain where they meet. Rows of updating streams that were mixed have no key in
// common.
func mixed(view *transform.View, ins []input) *transform.View {
	if len(ins) == 1 {
		if u := ins[0].view.Updates(); u != nil && view.Updates() == nil {
			return view.Updating(u.Key).Spread(u.Spread)
		}
		return view
	}
	var spread []string
	updating := false
	for _, in := range ins {
		if u := in.view.Updates(); u != nil {
			updating, spread = true, append(spread, u.Spread...)
		}
	}
	if !updating {
		return view
	}
	return view.Updating(nil).Spread(spread)
}

// meet makes the chain where records of several inputs come together.
func (b *planner) meet(name string, onError spec.OnError, ins []input) *chain {
	c := b.newChain(name, onError)
	c.view = transform.Receive(c.base, viewsOf(ins)...)
	for _, in := range ins {
		b.link(in, &edge{from: in.view, chain: in.chain, to: c})
	}
	return c
}

// link makes an input's records take an edge.
func (b *planner) link(in input, e *edge) {
	e.to.in = append(e.to.in, e)
	e.to.timestamped = e.to.timestamped && in.chain.timestamped
	if in.out != nil {
		in.out.edges = append(in.out.edges, e)
	} else {
		in.chain.out = append(in.chain.out, e)
	}
}

// place finds the chain that a node belongs to: that of its inputs where they
// can be mixed as they are, otherwise a new one that they are sent to.
func (b *planner) place(name string, path []string, onError spec.OnError, from []spec.Ref, ins []input) *node {
	n := &node{name: name, this: expr.WholeRaw, onError: onError, from: from}
	merges := b.partsMeet(path, from, ins)
	if fused(ins) {
		n.chain, n.in, n.merges = ins[0].chain, mixed(ins[0].view, ins), merges
		for _, in := range ins {
			if in.out == nil {
				in.chain.head = append(in.chain.head, n)
			} else {
				in.out.nodes = append(in.out.nodes, n)
			}
		}
	} else {
		n.chain = b.meet(name, onError, ins)
		n.in = n.chain.view
		n.chain.head = []*node{n}
		for _, e := range n.chain.in {
			e.merges = merges
		}
	}
	n.chain.nodes = append(n.chain.nodes, n)
	return n
}

func (b *planner) addTransform(t *spec.Transform) {
	kind, known := transform.Lookup(t.Kind)
	if known && kind.BuildKeyed != nil {
		b.addKeyed(t, kind)
		return
	}
	ins, ok := b.inputs(t.From)
	if !ok {
		return
	}
	n := b.place(t.Name, t.Path, t.OnError, t.From, ins)
	n.outName = t.Branches
	b.plan.byName[t.Name] = n
	if known && t.Config != nil && b.takesUpdates(t, kind, n.in) {
		b.build(n, t, kind)
	}
	n.fillOutputs(max(len(t.Branches), 1))
}

// fillOutputs gives a node the outputs that it lacks since the step has faults.
// What reads it is checked as far as can be without knowing its fields.
func (n *node) fillOutputs(want int) {
	for len(n.outputs) < want {
		n.outputs = append(n.outputs, output{view: transform.NewView(n.chain.base)})
	}
}

func (b *planner) build(n *node, t *spec.Transform, kind transform.Spec) {
	env := &transform.Env{
		Name: t.Name, In: n.in,
		Fault: func(keys []string, err error) { b.fault(append(t.ConfigPath(), keys...), err) },
	}
	n.step = kind.Build(t.Config, env)
	if slot, needed := n.in.ThisSlot(); needed {
		n.this = slot
	}
	if n.step == nil {
		return
	}
	for _, v := range env.Outputs() {
		n.outputs = append(n.outputs, output{view: v})
	}
}

func (b *planner) addSink(s *spec.Sink) {
	sink := &sinkNode{spec: s}
	b.plan.sinks = append(b.plan.sinks, sink)
	if s.Config == nil {
		return
	}
	if _, err := s.Spec.New(s.Config); err != nil {
		b.fault(s.ConfigPath(), err)
	}
	if len(s.From) == 0 {
		if s.Spec.DeadLetterRows {
			sink.columns = letterColumns()
		}
		b.checkRows(sink)
		return
	}
	ins, ok := b.inputs(s.From)
	if !ok {
		return
	}
	n := b.place(s.Name, s.Path, s.OnError, s.From, ins)
	n.sink, sink.view = sink, n.in
	for _, x := range spec.Expressions(s.Config) {
		if !x.Expr.Set() {
			continue
		}
		prog, err := expr.Compile(x.Expr.Text, n.in, expr.Options{})
		if err != nil {
			b.fault(append(s.ConfigPath(), x.Path...), err)
			continue
		}
		x.Expr.Slot = n.chain.base.NewSlot()
		sink.exprs = append(sink.exprs, sinkExpr{x.Expr.Text, prog, x.Expr.Slot})
	}
	b.takeChanges(n, s)
	if slot, needed := n.in.ThisSlot(); needed {
		n.this = slot
	}
	if _, err := format.NewEncoder(s.Format, sink.view.Layout(), format.EncoderOptions{}); err != nil {
		b.fault(s.ConfigPath(), err)
	}
	if _, err := format.NewOutput(s.Format); err != nil {
		b.fault(s.ConfigPath(), err)
	}
	if format.MarksInHeaders(s.Format) && !s.Spec.Headers {
		b.fault(s.ConfigPath(), &connectors.FieldError{
			Key: "format", Msg: "records of this sink have no headers, which registry.mark: header puts schemas into",
			Help: "leave mark out, and the schema of a value is said in front of it",
		})
	}
	sink.columns = columnsOf(sink.view)
	b.checkRows(sink)
}

// findMarks finds out whether records come with marks of schemas in their headers, which
// are of values that no sink writes as they came.
func (b *planner) findMarks() {
	for _, s := range b.spec.Sources {
		b.plan.marked = b.plan.marked || format.ReadsMarks(s.Format)
	}
}

// countWriters finds out which chains write to each sink, dead letters included.
func (b *planner) countWriters() {
	for _, s := range b.plan.sinks {
		users := map[*chain]bool{}
		for _, c := range b.plan.chains {
			if slices.Contains(b.plan.sinksOf(c), s) {
				users[c] = true
			}
		}
		s.writers = len(users)
		s.stride = 0
		for c := range maps.Keys(users) {
			s.stride = max(s.stride, c.base.Stride())
		}
	}
}

// edgesOut lists the edges from the chain to others.
func (c *chain) edgesOut() []*edge {
	out := slices.Clone(c.out)
	for _, n := range c.nodes {
		for i := range n.outputs {
			out = append(out, n.outputs[i].edges...)
		}
	}
	return out
}

// sinksOf lists the sinks that a chain's tasks write to, dead letters included,
// in the order of the file.
func (p *Plan) sinksOf(c *chain) []*sinkNode {
	used := map[string]bool{c.onError.Sink: true}
	for _, n := range c.nodes {
		used[n.onError.Sink] = true
		if n.sink != nil {
			used[n.sink.spec.Name] = true
		}
	}
	for _, e := range c.edgesOut() {
		used[e.to.onError.Sink] = true
	}
	p.addRefusers(used)
	var out []*sinkNode
	for _, s := range p.sinks {
		if used[s.spec.Name] {
			out = append(out, s)
		}
	}
	return out
}

// deadLetters reports whether some step sends dead letters.
func (p *Plan) deadLetters() bool {
	for _, c := range p.chains {
		if c.onError.Action == spec.DeadLetter {
			return true
		}
		for _, n := range c.nodes {
			if n.onError.Action == spec.DeadLetter {
				return true
			}
		}
	}
	return false
}
