package transform

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"math"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// A value of the table behind is a list of panes: the end, the states of fixed size,
// and for each loose call the length of its state, in 4 bytes, and the state.

// countBehind adds a row of the pane that ends at pane to what counts from the window
// on that ends at from.
func (r *aggregateSliding) countBehind(b *connectors.Batch, row uint16, from, pane int64, k state.Key) {
	old, _ := r.behind.Get(from, k)
	r.value = append(r.value[:0], old...)
	for j := range r.news {
		r.news[j] = r.news[j][:0]
	}
	r.sum = append(r.sum[:0], make([]byte, r.size)...)
	start, end := len(r.value), len(r.value)
	for at := 0; at < len(r.value); {
		next := r.readBehind(at)
		if get64(r.value, at) == pane {
			start, end = at, next
			r.sum = append(r.sum[:0], r.value[at+paneStates:at+r.entry]...)
			r.takeBehind(at, func(j int, loose []byte) { r.news[j] = append(r.news[j], loose...) })
			break
		}
		at = next
	}
	if !r.add(r.sum, b, row, false) {
		return
	}
	slots := b.Row(int(row))
	for j, i := range r.loose {
		if !r.addLoose(j, &r.calls[i], slots, row, false) {
			return
		}
	}
	r.buf = append(r.buf[:0], r.value[:start]...)
	r.buf = append(binary.LittleEndian.AppendUint64(r.buf, uint64(pane)), r.sum...)
	for _, loose := range r.news {
		r.buf = append(binary.LittleEndian.AppendUint32(r.buf, uint32(len(loose))), loose...)
	}
	r.behind.Put(from, k, append(r.buf, r.value[end:]...))
}

// readBehind is where the pane at a place of value ends.
func (r *aggregateSliding) readBehind(at int) (end int) {
	return r.takeBehind(at, func(int, []byte) {})
}

// takeBehind shows the loose states of the pane at a place of value.
func (r *aggregateSliding) takeBehind(at int, take func(j int, loose []byte)) (end int) {
	at += r.entry
	for j := range r.loose {
		n := int(binary.LittleEndian.Uint32(r.value[at:]))
		take(j, r.value[at+4:at+4+n])
		at += 4 + n
	}
	return at
}

// foldBehind moves the panes of value into the ring of their key.
func (r *aggregateSliding) foldBehind(ctx context.Context, k state.Key, value []byte, end int64) error {
	for at := 0; at < len(value); {
		pane := get64(value, at)
		r.sum = append(r.sum[:0], value[at+paneStates:at+r.entry]...)
		if err := r.into(k, pane, r.sum, end); err != nil {
			return err
		}
		var refused, failed error
		at = r.takeBehind(at, func(j int, loose []byte) {
			old, _ := r.tables[j].Get(pane, k)
			r.news[j] = append(r.news[j][:0], old...)
			no, err := r.mergeLoose(j, loose)
			refused, failed = cmp.Or(refused, no), cmp.Or(failed, err)
			r.tables[j].Put(pane, k, r.news[j])
		})
		if failed != nil {
			return failed
		}
		if refused != nil {
			if err := r.lost(ctx, k, end, refused); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost hands late rows to on_error, as one row, that a function has no room for.
func (r *aggregateSliding) lost(ctx context.Context, k state.Key, end int64, reason error) error {
	if r.out.full(1) {
		if err := r.out.flush(ctx); err != nil {
			return err
		}
	}
	n := r.out.add(end - 1)
	r.out.refuse(n, "", reason)
	return r.head(n, k, end-r.window.Size, end)
}

// closedGroups remembers, by key group, up to which end windows were closed, so that
// rings which move to another subtask give none out twice.
type closedGroups struct {
	table  state.Table
	groups int
	keys   []state.Key // one for each group
	seen   []bool      // those that have or had rings
	ends   []int64     // as they were restored
}

func newClosedGroups(run KeyedRun) *closedGroups {
	c := &closedGroups{table: run.Store.Table("closed"), groups: run.Groups, seen: make([]bool, run.Groups), ends: make([]int64, run.Groups)}
	for g := range c.ends {
		c.ends[g] = math.MinInt64
	}
	return c
}

// load reads what was saved: up to which end the windows of all groups were closed,
// and whether there are rings.
func (c *closedGroups) load() (end int64, rings bool) {
	end = math.MaxInt64
	c.table.Scan(0, func(k state.Key, value []byte) bool {
		c.seen[k.Group], c.ends[k.Group] = true, get64(value, 0)
		end = min(end, c.ends[k.Group])
		return true
	})
	if end == math.MaxInt64 {
		return math.MinInt64, false
	}
	return end, true
}

// until is up to which end the windows of a group were closed before the start.
func (c *closedGroups) until(group int) int64 { return c.ends[group] }

// see makes a group one that has rings.
func (c *closedGroups) see(group int) { c.seen[group] = true }

// save notes that the windows of all groups are closed up to an end; or, where there
// are no rings, nothing.
func (c *closedGroups) save(end int64, rings bool) {
	if !rings {
		c.table.Drop(0)
		clear(c.seen)
		return
	}
	for g, seen := range c.seen {
		if seen {
			c.table.Put(0, c.key(g), binary.LittleEndian.AppendUint64(nil, uint64(max(end, c.ends[g]))))
		}
	}
}

// key is a key that is in a group.
func (c *closedGroups) key(group int) state.Key {
	if c.keys == nil {
		c.keys = make([]state.Key, c.groups)
		for i, left := uint64(0), c.groups; left > 0; i++ {
			k := state.MakeKey(binary.AppendUvarint(nil, i), c.groups)
			if c.keys[k.Group].Bytes == nil {
				c.keys[k.Group] = k
				left--
			}
		}
	}
	return c.keys[group]
}

// keyList holds keys one behind the other.
type keyList struct {
	keys  []state.Key // without bytes
	ends  []int
	bytes []byte
}

func (l *keyList) add(k state.Key) {
	l.bytes = append(l.bytes, k.Bytes...)
	k.Bytes = nil
	l.keys, l.ends = append(l.keys, k), append(l.ends, len(l.bytes))
}

func (l *keyList) all() iter.Seq[state.Key] {
	return func(yield func(state.Key) bool) {
		start := 0
		for i, k := range l.keys {
			k.Bytes = l.bytes[start:l.ends[i]]
			start = l.ends[i]
			if !yield(k) {
				return
			}
		}
	}
}

func (l *keyList) reset() { l.keys, l.ends, l.bytes = l.keys[:0], l.ends[:0], l.bytes[:0] }
