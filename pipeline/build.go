package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// idleBatches is how many batches a free list keeps.
const idleBatches = 8

// Bounds of what one sender may have in an inbox, in bytes.
const (
	inboxLeast = 64 << 10
	inboxMost  = 1 << 20
)

// inboxLimit is an inbox's share of the memory for queues, for each sender.
func (a *attempt) inboxLimit() int {
	lanes := 0
	for _, c := range a.plan.chains {
		lanes += c.lanes(a.parallelism) * a.parallelism
	}
	return int(min(max(a.opts.memory()/3/int64(max(lanes, 1)), inboxLeast), inboxMost))
}

// buildTasks makes the tasks of all chains, those that receive before those that
// send to them.
func (a *attempt) buildTasks() error {
	inboxes := map[*chain][]*inbox{}
	for _, c := range slices.Backward(a.plan.chains) {
		var tasks []*task
		for i := range a.parallelism {
			t, err := a.buildTask(c, i, inboxes)
			if err != nil {
				return err
			}
			tasks = append(tasks, t)
		}
		a.tasks = append(a.tasks, tasks...)
		if c.source == nil {
			for _, t := range tasks {
				inboxes[c] = append(inboxes[c], t.inbox)
			}
		}
	}
	return nil
}

func (a *attempt) buildTask(c *chain, subtask int, inboxes map[*chain][]*inbox) (*task, error) {
	t := &task{
		attempt: a, chain: c, subtask: subtask, id: checkpoint.TaskID{Chain: c.name, Subtask: subtask},
		exprs: expr.NewEnv(), slice: connectors.MaxBatch,
	}
	if err := t.openWriters(); err != nil {
		return nil, err
	}
	if c.source != nil {
		t.source = t.operator(c.name, 1)
	}
	t.shown.watermark.Store(state.MinTime)
	t.shown.idle.Store(true)
	b := &builder{
		task: t, inboxes: inboxes, exchanges: map[*chain]exchange{}, merged: map[*node]*merger{}, meeting: map[*chain]*merger{},
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	t.failAt = t.failer(c.name, c.onError, c.view)
	if c.source == nil {
		t.openInbox()
		t.failAt = t.operator(operatorOf(c.name), 0).early(t.failAt)
	}
	return t, t.makeDecoder()
}

// openInbox makes what the task receives by, of all that send to its chain.
func (t *task) openInbox() {
	a, c := t.attempt, t.chain
	lanes := c.lanes(a.parallelism)
	limit := a.inboxLimit()
	if len(t.gates) > 0 {
		limit = 1 // a barrier then waits behind one item of each sender
	}
	t.inbox = newInbox(lanes, limit)
	t.align = newAligner(t.inbox, lanes, a.plan.Spec.Checkpoint.Mode != spec.ModeAtLeastOnce)
	t.flow = newFlow(lanes)
	if n := len(c.senders()); lanes > n {
		for i, from := range c.senders() {
			if from.agrees() {
				t.flow.join(i*a.parallelism, a.parallelism)
			}
		}
	}
}

// connect makes what the records of the task's chain go through.
func (b *builder) connect() (err error) {
	c, t := b.task.chain, b.task
	if c.keyed != nil {
		t.keyed, err = b.keyedHead(c.nodes[0])
		return err
	}
	if t.head, err = b.fan(c.head, c.out); err != nil {
		return err
	}
	t.head = b.merging(t.head)
	if c.source != nil {
		t.given = t.tapAt(c.name, true, nil)
		t.head = t.tapAt(c.name, false, c.view).before(t.head)
	}
	return nil
}

// agrees reports whether the tasks of the chain hear the same marks, sooner or later:
// behind an exchange by key they do, and so do those that each hear one of such tasks.
func (c *chain) agrees() bool {
	if c.source != nil {
		return false
	}
	if c.keyed != nil {
		return true
	}
	for _, from := range c.senders() {
		if !from.agrees() {
			return false
		}
	}
	return true
}

// lanes is the number of tasks that send to each task of the chain: all those
// of a chain before an exchange by key, otherwise the one of the same subtask.
func (c *chain) lanes(parallelism int) int {
	n := len(c.senders())
	if c.keyed != nil {
		n *= parallelism
	}
	return n
}

// makeDecoder sets up the reading of the fields that the chain wants.
func (t *task) makeDecoder() error {
	cfg := connectors.FormatConfig{}
	if t.chain.source != nil {
		cfg = t.chain.source.spec.Format
	}
	if err := t.makeIntake(cfg); err != nil {
		return err
	}
	if len(t.chain.base.Fields()) == 0 && !format.Strict(cfg) {
		return nil
	}
	d, err := t.chain.newDecoder(cfg)
	t.decode = d
	return err
}

// senders lists the chains that send to this one, each once.
func (c *chain) senders() []*chain {
	var out []*chain
	for _, e := range c.in {
		if !slices.Contains(out, e.chain) {
			out = append(out, e.chain)
		}
	}
	return out
}

// openWriters makes the task's writers of all sinks that it can reach.
func (t *task) openWriters() error {
	for _, s := range t.attempt.plan.sinksOf(t.chain) {
		run := t.attempt.sinks[s.spec.Name]
		w, err := run.sink.Writer(run.nextWriter)
		if err != nil {
			return fmt.Errorf("sink %s: open writer: %w", s.spec.Name, err)
		}
		t.sinks = append(t.sinks, &sinkWriter{name: s.spec.Name, node: s, index: run.nextWriter, writer: w, counts: t.operator(s.spec.Name, 1), tap: t.tapAt(s.spec.Name, true, nil)})
		run.nextWriter++
	}
	return nil
}

func (t *task) sinkWriter(name string) *sinkWriter {
	i := slices.IndexFunc(t.sinks, func(s *sinkWriter) bool { return s.name == name })
	return t.sinks[i]
}

// builder connects the steps of one task.
type builder struct {
	task      *task
	inboxes   map[*chain][]*inbox
	exchanges map[*chain]exchange
	mergers   []*merger
	merged    map[*node]*merger  // of nodes where branches meet
	meeting   map[*chain]*merger // of chains where they do
}

// fan makes the receiver that hands records to several nodes and edges. Each
// gets a selection of its own, as it may change it.
func (b *builder) fan(nodes []*node, edges []*edge) (receiver, error) {
	var to []receiver
	for _, n := range nodes {
		follow := b.node
		if n.merges {
			follow = b.mergedNode
		}
		r, err := follow(n)
		if err != nil {
			return nil, err
		}
		to = append(to, r)
	}
	for _, e := range edges {
		follow := b.edge
		if e.merges {
			follow = b.mergedEdge
		}
		r, err := follow(e)
		if err != nil {
			return nil, err
		}
		to = append(to, r)
	}
	switch len(to) {
	case 0:
		return nothing, nil
	case 1:
		return to[0], nil
	}
	var scratch []uint16
	return func(ctx context.Context, batch *connectors.Batch, sel []uint16) error {
		// Receivers may come back here only after this call, so one copy is enough.
		own := scratch
		scratch = nil
		for _, r := range to[:len(to)-1] {
			own = append(own[:0], sel...)
			if err := r(ctx, batch, own); err != nil {
				return err
			}
		}
		scratch = own
		return to[len(to)-1](ctx, batch, sel)
	}, nil
}

// node makes the receiver that a step or sink is.
func (b *builder) node(n *node) (receiver, error) {
	t := b.task
	fail := t.failer(n.name, n.onError, n.in)
	var r receiver
	if n.sink != nil {
		op, err := newSinkOp(t, n, t.sinkWriter(n.sink.spec.Name), fail)
		if err != nil {
			return nil, err
		}
		r = op.receive
	} else {
		outs, err := b.outputs(n)
		if err != nil {
			return nil, err
		}
		counts := t.operator(n.name, len(n.outputs))
		counts.branches = n.outName
		inst := n.step.Start(b.runEnv(counts, fail, func(ctx context.Context, output int, batch *connectors.Batch, sel []uint16) error {
			counts.out[output].Add(int64(len(sel)))
			return outs[output](ctx, batch, sel)
		}))
		if g, ok := n.step.(transform.Gate); ok {
			t.gates = append(t.gates, g)
			t.slice = min(t.slice, g.SliceRows())
		}
		r = counts.counting(t.tapAt(n.name, true, n.in).before(inst.Process))
	}
	if n.this == expr.WholeRaw {
		return r, nil
	}
	return wholeValue(n.in, n.this, r)
}

func (b *builder) outputs(n *node) ([]receiver, error) {
	outs := make([]receiver, len(n.outputs))
	for i, o := range n.outputs {
		out, err := b.fan(o.nodes, o.edges)
		if err != nil {
			return nil, err
		}
		place := b.task.tapAt(n.name, false, o.view)
		if n.outName != nil {
			place.branch = n.outName[i]
		}
		outs[i] = place.before(out)
	}
	return outs, nil
}

func (b *builder) runEnv(counts *operatorCounts, fail failFunc, emit func(context.Context, int, *connectors.Batch, []uint16) error) transform.RunEnv {
	t := b.task
	return transform.RunEnv{
		Emit: emit, Fail: fail, Dropped: t.dropper(counts), Exprs: t.exprs, Subtasks: t.attempt.parallelism,
	}
}

// wholeValue puts the value, as it is at this place, into the slot in which the
// expressions of what comes next expect it.
func wholeValue(view *transform.View, slot int, next receiver) (receiver, error) {
	enc, err := format.NewEncoder(connectors.FormatConfig{}, view.Layout(), format.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	rows := connectors.Rows{Layout: view.Layout()}
	return func(ctx context.Context, b *connectors.Batch, sel []uint16) error {
		rows.Batch, rows.Sel = b, sel
		// A value that has no encoded form stays absent; what reads it says so.
		enc.Encode(&rows, func(int, error) {})
		for i, row := range sel {
			if v := rows.Values[i]; len(v) > 0 {
				b.Row(int(row))[slot] = connectors.MapValue(v)
			}
		}
		return next(ctx, b, sel)
	}, nil
}

// edge makes the receiver that sends records to another chain.
func (b *builder) edge(e *edge) (receiver, error) {
	to := b.task.operator(operatorOf(e.to.name), 0)
	fail := to.early(b.task.failer(e.to.name, e.to.onError, e.from))
	l, err := newLane(e, slices.Index(e.to.in, e), fail)
	if err != nil {
		return nil, err
	}
	x := b.exchanges[e.to]
	if x == nil {
		x = b.newExchange(e.to)
		b.exchanges[e.to] = x
		b.task.out = append(b.task.out, x)
	}
	switch x := x.(type) {
	case *localExchange:
		x.edges[e] = l
	case *keyedExchange:
		k := newKeyedLane(e, l, b.task.missed(to))
		if slot, needed := e.from.ThisSlot(); needed {
			if k.whole, err = wholeValue(e.from, slot, nothing); err != nil {
				return nil, err
			}
		}
		x.lanes[e] = k
	}
	send := func(ctx context.Context, batch *connectors.Batch, sel []uint16) error {
		return x.send(ctx, e, batch, sel)
	}
	if e.to.keyed == nil {
		return send, nil
	}
	// What comes to a keyed step is not all of a record.
	return b.task.tapAt(e.to.name, true, e.from).before(send), nil
}

// nothing is the receiver that records end at.
func nothing(context.Context, *connectors.Batch, []uint16) error { return nil }

// newExchange connects the task to the receiving tasks of a chain.
func (b *builder) newExchange(to *chain) exchange {
	t, a := b.task, b.task.attempt
	out := outlet{stride: to.base.Stride(), maxRows: to.maxRows()}
	place := slices.Index(to.senders(), t.chain)
	if to.keyed == nil {
		out.ports = []port{portOf(b.inboxes[to][t.subtask], place, t)}
		out.pool = connectors.NewBatchPool(idleBatches)
		return &localExchange{outlet: out, edges: map[*edge]*lane{}, letters: a.plan.deadLetters()}
	}
	for _, in := range b.inboxes[to] {
		out.ports = append(out.ports, portOf(in, place*a.parallelism+t.subtask, t))
	}
	out.pool = connectors.NewBatchPool(idleBatches * a.parallelism)
	groups := a.plan.Spec.MaxParallelism
	return &keyedExchange{
		outlet: out, lanes: map[*edge]*keyedLane{}, exprs: t.exprs, groups: groups, owners: ownersOf(a.parallelism, groups),
	}
}

// portOf is the way of a task into an inbox, as one of its senders.
func portOf(in *inbox, sender int, from *task) port {
	in.queues[sender].from = &from.time
	return port{inbox: in, sender: sender}
}

// maxRows is how many records are sent to the chain at once.
func (c *chain) maxRows() int {
	rows := connectors.MaxBatch
	for _, n := range c.nodes {
		if g, ok := n.step.(transform.Gate); ok {
			rows = min(rows, g.SliceRows())
		}
	}
	return rows
}
