package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// Where branches of an updating stream meet again, their rows go on in the order in
// which they were before they parted: otherwise the new row of an update could come
// before the old one. Within a chain all branches have the same batch, so that a row's
// index is its place.

// merger holds back what comes by several branches until all have had their rows.
type merger struct {
	place    int // flushed in ascending order
	batch    *connectors.Batch
	rows     []mergedRow
	branches int
	next     []receiver
	sel      []uint16
}

// mergedRow is a row that came by a branch.
type mergedRow struct {
	unit   uint16 // the old row of the update that it is part of, or the row itself
	row    uint16
	branch int
	next   int // the receiver that it goes to
}

// to adds a receiver that rows go on to.
func (m *merger) to(r receiver) int {
	m.next = append(m.next, r)
	return len(m.next) - 1
}

// branch is the receiver of a further branch, whose rows go on to one of next.
func (m *merger) branch(next int) receiver {
	branch := m.branches
	m.branches++
	return func(_ context.Context, b *connectors.Batch, sel []uint16) error {
		m.batch = b
		for i, row := range sel {
			unit := row
			if i > 0 && b.Records[row].Op == connectors.UpdateAfter && b.Records[sel[i-1]].Op == connectors.UpdateBefore {
				unit = sel[i-1]
			}
			m.rows = append(m.rows, mergedRow{unit, row, branch, next})
		}
		return nil
	}
}

// flush hands on what was held back, none twice in a call.
func (m *merger) flush(ctx context.Context) error {
	slices.SortFunc(m.rows, func(a, b mergedRow) int {
		return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.branch, b.branch), cmp.Compare(a.row, b.row))
	})
	rows := m.rows
	for i := 0; i < len(rows); {
		first := rows[i]
		m.sel = append(m.sel[:0], first.row)
		for i++; i < len(rows) && rows[i].next == first.next && rows[i].row > rows[i-1].row; i++ {
			m.sel = append(m.sel, rows[i].row)
		}
		if err := m.next[first.next](ctx, m.batch, m.sel); err != nil {
			return err
		}
	}
	m.rows, m.batch = m.rows[:0], nil
	return nil
}

// mergedNode is the receiver of one of the branches that n reads.
func (b *builder) mergedNode(n *node) (receiver, error) {
	m := b.merged[n]
	if m == nil {
		next, err := b.node(n)
		if err != nil {
			return nil, err
		}
		m = b.newMerger(slices.Index(b.task.chain.nodes, n))
		m.to(next)
		b.merged[n] = m
	}
	return m.branch(0), nil
}

// mergedEdge is the receiver of an edge whose rows meet those of other edges to the
// same chain.
func (b *builder) mergedEdge(e *edge) (receiver, error) {
	send, err := b.edge(e)
	if err != nil {
		return nil, err
	}
	m := b.meeting[e.to]
	if m == nil {
		m = b.newMerger(len(b.task.chain.nodes))
		b.meeting[e.to] = m
	}
	return m.branch(m.to(send)), nil
}

func (b *builder) newMerger(place int) *merger {
	m := &merger{place: place}
	b.mergers = append(b.mergers, m)
	return m
}

// merging makes a receiver that hands on what the branches behind it held back.
func (b *builder) merging(r receiver) receiver {
	if len(b.mergers) == 0 {
		return r
	}
	all := slices.SortedFunc(slices.Values(b.mergers), func(a, b *merger) int { return cmp.Compare(a.place, b.place) })
	return func(ctx context.Context, batch *connectors.Batch, sel []uint16) error {
		if err := r(ctx, batch, sel); err != nil {
			return err
		}
		for _, m := range all {
			if err := m.flush(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// partsMeet notes where branches of an updating stream meet again, and refuses that
// where they come by different ways, so that their order is lost.
func (b *planner) partsMeet(path []string, refs []spec.Ref, ins []input) (merges bool) {
	if len(ins) < 2 || !slices.ContainsFunc(ins, func(in input) bool { return in.view.Updates() != nil }) {
		return false
	}
	for i := range ins {
		for j := range i {
			if ins[i].chain == ins[j].chain {
				merges = true
				continue
			}
			of := b.makers(refs[i : i+1])
			for _, maker := range b.makers(refs[j : j+1]) {
				if slices.Contains(of, maker) {
					b.partedFault(path, refs[j], refs[i], maker)
					return false
				}
			}
		}
	}
	return merges
}

func (b *planner) partedFault(path []string, one, other spec.Ref, maker string) {
	b.fault(append(slices.Clone(path), "from"), &connectors.FieldError{
		Msg:  fmt.Sprintf("%s and %s both have changes of %s, and come by different ways: of an update that moves a row from one to the other, the new row could come before the old one", one, other, maker),
		Help: "let the branches meet in one union, or give each its own sink",
	})
}

// makers names the sources and steps that made the updating streams which are read.
func (b *planner) makers(refs []spec.Ref) (names []string) {
	for _, r := range refs {
		if c, ok := b.sources[r.Node]; ok {
			if c.view.Updates() != nil {
				names = append(names, "source "+r.Node)
			}
			continue
		}
		n := b.plan.byName[r.Node]
		switch {
		case n == nil || !slices.ContainsFunc(n.outputs, func(o output) bool { return o.view.Updates() != nil }):
		case n.chain.keyed != nil && n == n.chain.nodes[0]:
			names = append(names, "step "+r.Node)
		default:
			names = append(names, b.makers(n.from)...)
		}
	}
	return names
}
