package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// keyedNode is a step with keyed state, at the head of its chain.
type keyedNode struct {
	spec *spec.Transform
	step transform.KeyedStep // nil where it has faults
	// definition is what the state hangs on, as text; empty where the step does not say.
	definition string
	// layout is how the state is kept, for those who look at it without the file.
	layout json.RawMessage
	// decodes says, by output, that rows which the step kept and gives out again have
	// fields that are to be read.
	decodes []bool
	// delay is by how many milliseconds event time can have passed a row that the step
	// gives out, see transform.Delayer.
	delay int64
}

// definer is implemented by keyed steps whose state fits one definition only: a
// changed key, window or aggregate.
type definer interface{ Definition() string }

// keying is what a chain does for one input of a keyed step before the exchange.
type keying struct {
	step  string
	exprs []keyExpr // evaluated for each row, in order
	keys  []int     // slots of the sending chain that make the key
	by    []string  // their expressions, as they are written
	slots []move    // what travels in slots
	rows  bool      // records travel whole, and are read behind the exchange
	// letters says that key, headers and the value that the source gave travel, for
	// dead letters.
	letters bool
	// tombstones says that rows without a value are keyed like others.
	tombstones bool
}

// keyExpr is an expression that is evaluated before the exchange.
type keyExpr struct {
	prog *expr.Program
	slot int
}

// move is a value that travels from a slot of the sending chain to one of the
// receiving.
type move struct{ from, to int }

// addKeyed places a keyed step: it begins a chain, behind an exchange by key.
func (b *planner) addKeyed(t *spec.Transform, kind transform.Spec) {
	inputs, ok := b.keyedInputs(t, kind)
	if !ok {
		return
	}
	c := b.newChain(t.Name, t.OnError)
	c.keyed = &keyedNode{spec: t}
	n := &node{name: t.Name, chain: c, this: expr.WholeRaw, onError: t.OnError, from: t.From}
	c.head, c.nodes = []*node{n}, []*node{n}
	n.outName = append([]string{""}, kind.Side...)
	b.plan.byName[t.Name] = n
	takes := t.Config != nil
	var views []*transform.View
	for i, ins := range inputs {
		views = append(views, mixed(ins[0].view, ins))
		takes = b.takesUpdates(t, kind, views[i]) && takes
		for _, in := range ins {
			b.link(in, &edge{from: views[i], chain: in.chain, to: c, input: i, keying: &keying{step: t.Name}})
		}
	}
	c.view = transform.Receive(c.base, views...).AppendOnly()
	n.in = c.view
	if takes {
		b.buildKeyed(n, t, kind, views)
	}
	n.fillOutputs(1 + len(kind.Side))
}

// keyedInputs finds what a keyed step reads, by input. What cannot be mixed as it
// is meets in a chain of its own first.
func (b *planner) keyedInputs(t *spec.Transform, kind transform.Spec) ([][]input, bool) {
	if kind.Inputs == nil {
		ins, ok := b.inputs(t.From)
		if !ok {
			return nil, false
		}
		if !fused(ins) {
			c := b.meet(t.Name+meetingSuffix, t.OnError, ins)
			ins = []input{{chain: c, view: c.view}}
		}
		return [][]input{ins}, true
	}
	var all [][]input
	for _, r := range t.From {
		ins, ok := b.inputs([]spec.Ref{r})
		if !ok {
			return nil, false
		}
		all = append(all, ins)
	}
	return all, t.Config == nil || len(all) == len(kind.Inputs(t.Config)) && len(all) > 0
}

func (b *planner) buildKeyed(n *node, t *spec.Transform, kind transform.Spec, views []*transform.View) {
	c := n.chain
	env := transform.NewKeyedEnv(t.Name, views, c.view)
	env.Fault = func(keys []string, err error) { b.fault(append(t.ConfigPath(), keys...), err) }
	env.Reads = func(branch string) bool { return b.reads(t.Name, branch) }
	env.Timestamped = c.timestamped
	step := kind.BuildKeyed(t.Config, env)
	if step == nil || env.Faulted() {
		return
	}
	c.keyed.step = step
	if d, ok := step.(definer); ok {
		c.keyed.definition = b.spec.Mask(d.Definition())
	}
	c.keyed.layout = layoutOf(step, b.spec.Mask)
	if d, ok := step.(transform.Delayer); ok {
		c.keyed.delay = d.Delay()
	}
	for _, v := range env.Outputs() {
		n.outputs = append(n.outputs, output{view: v})
		c.keyed.decodes = append(c.keyed.decodes, !v.Layout().Empty)
	}
	for i, in := range env.Inputs() {
		b.plan.planKeying(c, i, in)
	}
}

// planKeying decides what the edges of one input do before the exchange.
func (p *Plan) planKeying(c *chain, index int, in transform.KeyedInput) {
	for _, e := range c.in {
		if e.input != index {
			continue
		}
		k := e.keying
		base := e.from.Base()
		for _, prog := range in.Keys {
			k.keys, k.by = append(k.keys, k.place(base, prog)), append(k.by, prog.Text())
		}
		for _, cr := range in.Carries {
			k.slots = append(k.slots, move{from: k.place(base, cr.Program), to: cr.Slot})
		}
		k.rows = in.Rows
		k.letters = c.onError.Action == spec.DeadLetter
		k.tombstones = in.Rows && !slices.ContainsFunc(in.Keys, readsValue)
	}
}

// readsValue reports whether the expression needs the record's value: keys that
// do cannot be made of a tombstone.
func readsValue(p *expr.Program) bool { return len(p.Fields()) > 0 || p.This() }

// place gives the slot in which a program's value is before the exchange.
func (k *keying) place(base *transform.Base, prog *expr.Program) int {
	for _, x := range k.exprs {
		if x.prog == prog {
			return x.slot
		}
	}
	slot, bare := prog.Slot()
	if bare && prog.Want() == expr.Any {
		return slot
	}
	if !bare {
		slot = base.NewSlot()
	}
	k.exprs = append(k.exprs, keyExpr{prog, slot})
	return slot
}

// reads reports whether something in the file reads a branch of a step.
func (b *planner) reads(step, branch string) bool {
	ref := spec.Ref{Node: step, Branch: branch}
	for i := range b.spec.Transforms {
		if slices.Contains(b.spec.Transforms[i].From, ref) {
			return true
		}
	}
	for i := range b.spec.Sinks {
		if slices.Contains(b.spec.Sinks[i].From, ref) {
			return true
		}
	}
	return false
}

// takesUpdates refuses an updating stream where the step would count the two rows
// of an update as two.
func (b *planner) takesUpdates(t *spec.Transform, kind transform.Spec, in *transform.View) bool {
	if in.Updates() == nil || kind.Updates != transform.RefusesUpdates {
		return true
	}
	maker := b.updatesFrom(t.From)
	b.fault(t.ConfigPath(), &connectors.FieldError{
		Msg: fmt.Sprintf("%s cannot read an updating stream: the results of %s change after they were given out, "+
			"and the old and the new row of each change would count as two records", t.Kind, maker),
		Help: fmt.Sprintf("let %s emit each result once (emit: on_close), or read it with an aggregate without a window, a plain join, or top", maker),
	})
	return false
}

// updatesFrom names the source or step that made a stream updating.
func (b *planner) updatesFrom(refs []spec.Ref) string {
	if makers := b.makers(refs); len(makers) > 0 {
		return makers[0]
	}
	return "a step above"
}

// findScopes finds the sources whose event time meets somewhere.
func (b *planner) findScopes() {
	scope := map[*chain]int{}
	for i, c := range b.plan.chains {
		scope[c] = i
	}
	for _, c := range b.plan.chains {
		for _, e := range c.in {
			from, to := scope[e.chain], scope[c]
			for other := range scope {
				if scope[other] == to {
					scope[other] = from
				}
			}
		}
	}
	timed := map[int]bool{}
	for _, c := range b.plan.chains {
		c.scope = scope[c]
		timed[c.scope] = timed[c.scope] || c.keyed != nil
	}
	for _, c := range b.plan.chains {
		if c.source != nil {
			c.source.scope, c.source.timed = c.scope, timed[c.scope]
		}
	}
}
