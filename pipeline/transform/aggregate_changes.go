package transform

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// The head of a group's value, where there is one. The form is part of checkpoints.
const (
	headRows  = 0             // how many rows the group has
	headTime  = 8             // the highest time of them
	headStamp = 16            // when the group was touched last, see state.TTL
	headIndex = headStamp + 8 // where it is in aggregateChanges.touched, if it is there
	headDirty = headIndex + 4 // 1 where the row given out last is in the table of dirty ones
	headSize  = (headDirty + 8) &^ (8 - 1)
)

// aggregateChanges gives out what changes of the results of groups: at the end of
// each batch, once for a group, or every so often. In a batch of results rows 2i
// and 2i+1 are the old and the new one of the group i of touched.
type aggregateChanges struct {
	*aggregateRun
	touched []touchedGroup
	dirty   state.Table // rows as they were given out last, of groups that have changed since; nil without every
	pace    pace
	olds    []uint16
	news    []uint16
	buf     []byte
	rowKey  []byte
}

// touchedGroup is a group whose result may have changed.
type touchedGroup struct {
	ns  int64
	key state.Key // its bytes are in the arena
	old bool      // it has a row that was given out
	// given says that the old row is complete: it is what was given out, and not yet to be evaluated.
	given bool
}

func newAggregateChanges(r *aggregateRun) *aggregateChanges {
	c := &aggregateChanges{aggregateRun: r}
	if r.emit.Mode == EmitEvery {
		c.dirty = r.run.Store.Table("dirty")
		c.pace = pace{every: r.emit.Every}
	}
	return c
}

// full reports whether no other group goes in before finish.
func (c *aggregateChanges) full() bool { return c.out.full(2) }

// touch notes that the group is about to change, once before each finish. It reports
// whether value is still valid.
func (c *aggregateChanges) touch(ns int64, k state.Key, value []byte, fresh bool) (valid bool, err error) {
	if c.dirty != nil && value[headDirty] != 0 {
		return true, nil
	}
	if i := binary.LittleEndian.Uint32(value[headIndex:]); int(i) < len(c.touched) {
		if g := &c.touched[i]; g.ns == ns && g.key.Hash == k.Hash && bytes.Equal(g.key.Bytes, k.Bytes) {
			return true, nil
		}
	}
	binary.LittleEndian.PutUint32(value[headIndex:], uint32(len(c.touched)))
	if c.dirty != nil {
		value[headDirty] = 1
	}
	n, err := c.enter(ns, k)
	if err != nil {
		return false, err
	}
	g := &c.touched[len(c.touched)-1]
	g.old = !fresh && binary.LittleEndian.Uint64(value[headRows:]) > 0
	if g.old {
		c.results(n, value[headSize:], ns, g.key)
		return len(c.loose) == 0, nil
	}
	return true, nil
}

// enter adds a group and its two rows, and gives the old one.
func (c *aggregateChanges) enter(ns int64, k state.Key) (old uint16, err error) {
	k.Bytes = c.out.arena().Copy(k.Bytes)
	c.touched = append(c.touched, touchedGroup{ns: ns, key: k})
	start, end := c.span(ns)
	old = c.out.add(0)
	if err := c.head(old, k, start, end); err != nil {
		return old, err
	}
	return old, c.head(c.out.add(0), k, start, end)
}

// span is the window that a namespace is of.
func (c *aggregateChanges) span(ns int64) (start, end int64) {
	if c.start < 0 {
		return 0, 0
	}
	start, _ = c.window.Grid().At(ns - 1)
	return start, ns
}

// finish gives out what changed, or notes it for later. held says that it is not to
// be noted.
func (c *aggregateChanges) finish(ctx context.Context, held bool) error {
	if len(c.touched) == 0 {
		return nil
	}
	if err := c.evaluateOld(ctx); err != nil {
		return err
	}
	if held {
		c.hold()
	} else if err := c.compare(ctx); err != nil {
		return err
	}
	clear(c.touched)
	c.touched = c.touched[:0]
	c.out.reset()
	return nil
}

func (c *aggregateChanges) evaluateOld(ctx context.Context) error {
	c.olds = c.olds[:0]
	for i := range c.touched {
		if g := &c.touched[i]; g.old && !g.given {
			c.olds = append(c.olds, uint16(2*i))
			g.old = false
		}
	}
	rows, err := c.out.evaluate(ctx, c.olds, true)
	if err != nil {
		return err
	}
	c.out.silence()
	for _, n := range rows {
		c.touched[n/2].old = true
	}
	return nil
}

// hold keeps the rows that were given out last, of groups that have changed since.
func (c *aggregateChanges) hold() {
	for i := range c.touched {
		g := &c.touched[i]
		if value, ok := c.table.Get(g.ns, g.key); ok && gone(value) {
			c.remove(g.ns, g.key)
		}
		if _, ok := c.dirty.Get(g.ns, g.key); ok {
			continue // the group had gone, and has come again
		}
		c.buf = append(c.buf[:0], 0)
		if g.old {
			c.buf[0] = 1
			row := c.out.slots(uint16(2 * i))
			for _, slot := range c.columns {
				c.buf = state.AppendValue(c.buf, row[slot])
			}
		}
		c.dirty.Put(g.ns, g.key, c.buf)
	}
}

// gone reports whether a group has no rows: all were taken back, or its first was
// refused.
func gone(value []byte) bool { return binary.LittleEndian.Uint64(value[headRows:]) == 0 }

// compare evaluates the new rows, and gives out those that differ from the old ones.
func (c *aggregateChanges) compare(ctx context.Context) error {
	c.news = c.news[:0]
	for i := range c.touched {
		if c.renew(i) {
			c.news = append(c.news, uint16(2*i+1))
		}
	}
	rows, err := c.out.evaluate(ctx, c.news, false)
	if err != nil {
		return err
	}
	c.out.sel = c.out.sel[:0]
	for i := range c.touched {
		old, now := uint16(2*i), uint16(2*i+1)
		fresh := len(rows) > 0 && rows[0] == now
		if fresh {
			rows = rows[1:]
		}
		c.change(old, now, c.touched[i].old, fresh)
	}
	return c.out.emit(ctx, c.out.sel)
}

// change selects the rows of one group that are given out.
func (c *aggregateChanges) change(old, now uint16, was, is bool) {
	records := c.out.batch.Records
	switch {
	case was && is:
		if c.out.sameResult(old, now) {
			return
		}
		records[old].Op, records[now].Op = connectors.UpdateBefore, connectors.UpdateAfter
		c.out.sel = append(c.out.sel, old, now)
	case was:
		records[old].Op = connectors.Delete
		c.out.sel = append(c.out.sel, old)
	case is:
		records[now].Op = connectors.Insert
		c.out.sel = append(c.out.sel, now)
	}
}

// renew computes the new results of a group and reports whether it is there.
func (c *aggregateChanges) renew(i int) bool {
	g := &c.touched[i]
	value, ok := c.table.Get(g.ns, g.key)
	if ok && c.dirty != nil && value[headDirty] != 0 {
		value, _ = c.table.Upsert(g.ns, g.key, len(value))
		value[headDirty] = 0
	}
	at := g.ns - 1
	if !c.window.Timed() {
		at = 0
		if ok {
			at = int64(binary.LittleEndian.Uint64(value[headTime:]))
		}
	}
	records := c.out.batch.Records
	records[2*i].Time, records[2*i+1].Time = at, at
	if ok && gone(value) {
		c.remove(g.ns, g.key)
		return false
	}
	if ok {
		c.results(uint16(2*i+1), value[headSize:], g.ns, g.key)
	}
	return ok
}

// flush gives out what changed since the last time, of windows that end by bound.
func (c *aggregateChanges) flush(ctx context.Context, bound int64) error {
	for _, ns := range c.dirty.Namespaces(nil, math.MinInt64, bound) {
		var failed error
		c.dirty.Scan(ns, func(k state.Key, value []byte) bool {
			if c.full() {
				// What Scan lends does not outlive the changes of other tables.
				c.rowKey, c.buf = append(c.rowKey[:0], k.Bytes...), append(c.buf[:0], value...)
				k.Bytes, value = c.rowKey, c.buf
				if failed = c.finish(ctx, false); failed != nil {
					return false
				}
			}
			failed = c.recall(ns, k, value)
			return failed == nil
		})
		if failed == nil {
			failed = c.finish(ctx, false)
		}
		if failed != nil {
			return failed
		}
		c.dirty.Drop(ns)
	}
	return nil
}

// flushOne gives out what changed of one group.
func (c *aggregateChanges) flushOne(ctx context.Context, ns int64, k state.Key) error {
	value, ok := c.dirty.Get(ns, k)
	if !ok {
		return nil
	}
	if err := c.recall(ns, k, value); err != nil {
		return err
	}
	c.dirty.Delete(ns, k)
	return c.finish(ctx, false)
}

// recall enters a group with the row that was given out last.
func (c *aggregateChanges) recall(ns int64, k state.Key, value []byte) error {
	n, err := c.enter(ns, k)
	if err != nil {
		return err
	}
	g := &c.touched[len(c.touched)-1]
	g.given, g.old = true, value[0] != 0
	if !g.old {
		return nil
	}
	row, rest := c.out.slots(n), value[1:]
	for _, slot := range c.columns {
		var v connectors.Value
		if v, rest, err = state.ReadValue(rest); err != nil {
			return fmt.Errorf("read a row of step %s: %w", c.name, err)
		}
		row[slot] = keepValue(c.out.arena(), v)
	}
	return nil
}
