package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// Offsets that Options.SetOffsets takes for a place instead of a number.
const (
	Latest   int64 = -1 // behind the last record that can be read
	Earliest int64 = -2 // the first record that is there
)

// Coordinates name one record: its split, such as topic/partition, and its offset in it.
type Coordinates struct {
	Split  string `json:"split"`
	Offset int64  `json:"offset"`
}

func (c Coordinates) String() string { return fmt.Sprintf("%s@%d", c.Split, c.Offset) }

// Moved tells of a position that was moved on purpose: where its split was read on from,
// and where it is now. Of a record that is left out it is its own, and the one behind it.
type Moved struct {
	Split  string `json:"split"`
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// Moved waits until what Options.SetOffsets and Skip ask for stands in a checkpoint, from
// when on no crash undoes it, and tells what was changed. It fails where the run ends
// before. Before Run it waits for that; of a control that has served one it tells of that,
// until the next one has begun.
func (c *Control) Moved(ctx context.Context) ([]Moved, error) {
	select {
	case <-c.settledMoves():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unmoved {
		return nil, c.cannot("move positions")
	}
	return c.moved, nil
}

// settledMoves is closed once it is known what has become of them.
func (c *Control) settledMoves() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moves == nil {
		c.moves = make(chan struct{})
	}
	return c.moves
}

// settleMoves tells who waits for them. ok says that they stand.
func (c *Control) settleMoves(moved []Moved, ok bool) {
	moves := c.settledMoves()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isClosed(moves) {
		c.moved, c.unmoved = moved, !ok
		close(moves)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// moves are the positions that a start changes on purpose. They are applied anew by every
// attempt until a checkpoint holds them, before which no record is read: applied to
// themselves they change nothing.
type moves struct {
	offsets map[string]int64
	skip    []Coordinates
	settled bool
	moved   []Moved // in the order of their splits
}

func (m *moves) pending() bool { return !m.settled && len(m.offsets)+len(m.skip) > 0 }

// note remembers a change; of several attempts the first one knows what was before.
func (m *moves) note(split string, before, after int64) {
	i := slices.IndexFunc(m.moved, func(x Moved) bool { return x.Split == split && x.After == after })
	if i < 0 {
		m.moved = append(m.moved, Moved{split, before, after})
	}
}

// apply changes the splits that the sources are about to read. All that is wrong is told
// at once, and nothing is changed then.
func (m *moves) apply(ctx context.Context, sources []*sourceRun) error {
	if !m.pending() {
		return nil
	}
	var faults []error
	fault := func(what string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.offsets)) {
		p, err := findPosition(ctx, sources, name)
		if err == nil {
			err = p.move(m, m.offsets[name])
		}
		if connectors.IsPermanent(err) || err == nil {
			fault("move the position of "+name, err)
			continue
		}
		return err
	}
	for _, c := range m.skip {
		p, err := findPosition(ctx, sources, c.Split)
		if err == nil {
			err = p.leaveOut(m, c.Offset)
		}
		if connectors.IsPermanent(err) || err == nil {
			fault("leave out "+c.String(), err)
			continue
		}
		return err
	}
	return connectors.Permanent(errors.Join(faults...))
}

// position is a split that is to be changed, and what it has.
type position struct {
	name  string // of the split
	split *connectors.Split
	mover connectors.Mover
	has   connectors.Availability
}

// findPosition finds the split that a name means, topic/partition or
// source:topic/partition. An error that is not permanent is worth another try.
func findPosition(ctx context.Context, sources []*sourceRun, name string) (*position, error) {
	var of []*sourceRun
	var p position
	var known []string
	for _, s := range sources {
		for i := range s.splits {
			id := s.splits[i].ID
			known = append(known, id)
			if id == name || s.node.spec.Name+":"+id == name {
				of, p.split, p.name = append(of, s), &s.splits[i], id
			}
		}
	}
	switch len(of) {
	case 0:
		return nil, connectors.Permanent(unknownSplit(name, known))
	case 1:
	default:
		return nil, connectors.Permanent(fmt.Errorf("the sources %s and %s both read it: name one, as in %s:%s", of[0].node.spec.Name, of[1].node.spec.Name, of[0].node.spec.Name, name))
	}
	s := of[0]
	checker, knows := s.source.(connectors.PositionChecker)
	mover, moves := s.source.(connectors.Mover)
	if !knows || !moves {
		return nil, connectors.Permanent(fmt.Errorf("positions of source %s, a %s, cannot be moved", s.node.spec.Name, s.node.spec.Kind))
	}
	has, err := checker.CheckPositions(ctx, []connectors.Split{*p.split})
	if err != nil {
		return nil, sourceFault(s, err)
	}
	if p.mover, p.has = mover, has[0]; p.has.Gone {
		return nil, connectors.Permanent(errors.New("it is not there now"))
	}
	return &p, nil
}

// mostNamed is how many names an error lists.
const mostNamed = 10

func unknownSplit(name string, known []string) error {
	slices.Sort(known)
	hint := "there is nothing to read"
	if len(known) > 0 {
		hint = "the pipeline reads " + strings.Join(known[:min(len(known), mostNamed)], ", ")
		if more := len(known) - mostNamed; more > 0 {
			hint += fmt.Sprintf(" and %d more", more)
		}
	}
	if near := connectors.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	return fmt.Errorf("no source reads %s; %s", name, hint)
}

// move moves the position to an offset.
func (p *position) move(m *moves, to int64) error {
	switch to {
	case Earliest:
		to = p.has.First
	case Latest:
		to = p.has.End
	}
	last := p.has.End
	if p.split.Until >= 0 {
		last = min(last, p.split.Until)
	}
	if to < p.has.First || to > last {
		return connectors.Permanent(fmt.Errorf("offset %d is outside of what is there to read: choose one from %d to %d", to, p.has.First, last))
	}
	m.note(p.name, p.split.Offset, to)
	if to != p.split.Offset {
		*p.split = p.mover.Move(*p.split, to)
	}
	return nil
}

// leaveOut makes the record at an offset be left out when its turn comes.
func (p *position) leaveOut(m *moves, at int64) error {
	last := p.has.End - 1
	if p.split.Until >= 0 {
		last = min(last, p.split.Until-1)
	}
	first := max(p.has.First, p.split.Offset)
	switch {
	case at < p.split.Offset:
		return connectors.Permanent(fmt.Errorf("it was read already: the pipeline goes on from offset %d", p.split.Offset))
	case at < first || at > last:
		return connectors.Permanent(fmt.Errorf("there is no such record to read: there are those from %d to %d", first, last))
	}
	m.note(p.name, at, at+1)
	if i, there := slices.BinarySearch(p.split.Skip, at); !there {
		p.split.Skip = slices.Insert(slices.Clone(p.split.Skip), i, at)
	}
	return nil
}

// settleMoves tells what was moved, once a checkpoint holds it.
func (r *runner) settleMoves(m *checkpoint.Metadata) {
	if r.moves.pending() {
		slices.SortStableFunc(r.moves.moved, func(a, b Moved) int { return cmp.Compare(a.Split, b.Split) })
		for _, x := range r.moves.moved {
			r.log.Warn("a position was moved, as asked", "split", x.Split, "before", x.Before, "after", x.After, "checkpoint", m.Number)
		}
		r.moves.settled = true
	}
	r.opts.Control.settleMoves(r.moves.moved, true)
}

// keepSkips gives splits the records that are to be left out of them, which sources know
// nothing of.
func keepSkips(splits, restored []connectors.Split) {
	for i := range splits {
		j := slices.IndexFunc(restored, func(r connectors.Split) bool { return r.ID == splits[i].ID })
		if j >= 0 {
			splits[i].Skip = restored[j].Skip
		}
	}
}

// leaveOut takes the records out of a source's batch that somebody asked to skip.
func (t *task) leaveOut(b *connectors.Batch) {
	skip := t.reader.skip[b.Split]
	if len(skip) == 0 {
		return
	}
	b.Records = slices.DeleteFunc(b.Records, func(r connectors.Record) bool {
		_, out := slices.BinarySearch(skip, r.Offset)
		if out {
			t.counts.skipped.Add(1)
			args := []any{"source", t.chain.name, "offset", r.Offset}
			if r.Origin != nil {
				args = append(args, "topic", r.Origin.Topic, "partition", r.Origin.Partition)
			}
			t.attempt.log.Warn("a record is left out, as asked", args...)
		}
		return out
	})
}
