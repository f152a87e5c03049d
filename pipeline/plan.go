package pipeline

import (
	"maps"
	"slices"

	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/storage"
)

// Plan is a pipeline cut into chains, with every expression compiled. It is
// immutable once made and does no I/O.
type Plan struct {
	Spec   *spec.Pipeline
	chains []*chain // each after those that feed it
	sinks  []*sinkNode
	byName map[string]*node
}

// chain is a part of the graph that one task of each subtask runs by function
// calls: it begins at a source, or where records arrive from other chains.
type chain struct {
	name   string // of the operator at its head
	base   *transform.Base
	view   *transform.View // of the records at its head
	source *sourceNode     // nil where records arrive from other chains
	in     []*edge
	out    []*edge // from its head to other chains
	head   []*node // what the head's records go to
	nodes  []*node
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
	outName []string // branch names, nil for one output
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
	carries []carry
}

type sourceNode struct {
	spec      *spec.Source
	timestamp *expr.Program
}

type sinkNode struct {
	spec    *spec.Sink
	exprs   []sinkExpr
	view    *transform.View // nil for a sink of dead letters only
	stride  int
	writers int // per subtask: one for each chain that writes to it
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
	if address := p.Checkpoint.Storage; address != "" {
		if _, err := storage.Open(address); err != nil {
			b.fault([]string{"checkpoint", "storage"}, err)
		}
	}
	b.addSources()
	for _, i := range b.order() {
		b.addTransform(&p.Transforms[i])
	}
	for i := range p.Sinks {
		b.addSink(&p.Sinks[i])
	}
	b.findCarries()
	b.countWriters()
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
		c := b.newChain(s.Name)
		c.source = &sourceNode{spec: s}
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

func (b *planner) newChain(name string) *chain {
	base := transform.NewBase()
	c := &chain{name: name, base: base, view: transform.NewView(base)}
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

// place finds the chain that a node belongs to: that of its inputs where they
// can be mixed as they are, otherwise a new one that they are sent to.
func (b *planner) place(name string, ins []input) *node {
	n := &node{name: name, chain: ins[0].chain, in: ins[0].view, this: expr.WholeRaw}
	fused := true
	for _, in := range ins[1:] {
		fused = fused && in.chain == n.chain && in.view.Same(n.in)
	}
	if fused {
		for _, in := range ins {
			if in.out == nil {
				in.chain.head = append(in.chain.head, n)
			} else {
				in.out.nodes = append(in.out.nodes, n)
			}
		}
	} else {
		n.chain = b.newChain(name)
		n.in = n.chain.view
		n.chain.head = []*node{n}
		for _, in := range ins {
			e := &edge{from: in.view, chain: in.chain, to: n.chain}
			n.chain.in = append(n.chain.in, e)
			if in.out != nil {
				in.out.edges = append(in.out.edges, e)
			} else {
				in.chain.out = append(in.chain.out, e)
			}
		}
	}
	n.chain.nodes = append(n.chain.nodes, n)
	return n
}

func (b *planner) addTransform(t *spec.Transform) {
	ins, ok := b.inputs(t.From)
	if !ok {
		return
	}
	n := b.place(t.Name, ins)
	n.onError = t.OnError
	b.plan.byName[t.Name] = n
	kind, known := transform.Lookup(t.Kind)
	if known && t.Config != nil {
		b.build(n, t, kind)
	}
	n.outName = t.Branches
	for len(n.outputs) < max(len(t.Branches), 1) {
		// The step has faults. What reads it is checked as far as can be without
		// knowing its fields.
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
		return
	}
	ins, ok := b.inputs(s.From)
	if !ok {
		return
	}
	n := b.place(s.Name, ins)
	n.sink, n.onError, sink.view = sink, s.OnError, n.in
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
	if slot, needed := n.in.ThisSlot(); needed {
		n.this = slot
	}
	if _, err := format.NewEncoder(s.Format, n.in.Layout(), format.EncoderOptions{}); err != nil {
		b.fault(s.ConfigPath(), err)
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

// sinksOf lists the sinks that a chain's tasks write to, dead letters included,
// in the order of the file.
func (p *Plan) sinksOf(c *chain) []*sinkNode {
	used := map[string]bool{}
	if c.source != nil {
		used[c.source.spec.OnError.Sink] = true
	}
	for _, n := range c.nodes {
		used[n.onError.Sink] = true
		if n.sink != nil {
			used[n.sink.spec.Name] = true
		}
	}
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
		if c.source != nil && c.source.spec.OnError.Action == spec.DeadLetter {
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

// findCarries finds what each edge hands on in slots rather than as text: the
// fields that steps of the sending chain made and the receiving one reads. So a
// decimal or a timestamp stays what it is.
func (b *planner) findCarries() {
	for _, c := range b.plan.chains {
		for _, e := range c.in {
			made := e.from.Made()
			for _, f := range c.base.Fields() {
				if len(f.Path) != 1 {
					continue
				}
				if ref, ok := made[f.Path[0]]; ok {
					e.carries = append(e.carries, carry{from: ref.Slot, hold: c.base.NewSlot(), to: f.Slot})
				}
			}
		}
	}
}

// carry is one field that travels in a slot: from the sender's slot, held in a
// slot that no decoder fills, to the slot where the receiver reads the field.
type carry struct{ from, hold, to int }
