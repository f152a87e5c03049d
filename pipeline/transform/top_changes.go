package transform

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// gathered gives out the changes of all lists since the last time.
func (t *topRun) gathered(ctx context.Context) error {
	t.spaces = t.dirty.Namespaces(t.spaces[:0], state.MinTime, state.MaxTime)
	for _, ns := range t.spaces {
		if err := t.changes(ctx, ns); err != nil {
			return err
		}
	}
	return t.rows.Flush(ctx)
}

// changes gives out the changes of a window's lists since the last time.
func (t *topRun) changes(ctx context.Context, ns int64) error {
	var failed error
	t.dirty.Scan(ns, func(k state.Key, before []byte) bool {
		k = ownKey(k, &t.key)
		if t.out != nil {
			before, _ = t.out.Get(ns, k)
		}
		failed = t.change(ctx, ns, k, before)
		return failed == nil
	})
	if failed == nil {
		t.dirty.Drop(ns)
	}
	return failed
}

// change gives out what makes a list of what it was before.
func (t *topRun) change(ctx context.Context, ns int64, k state.Key, before []byte) (err error) {
	t.old = append(t.old[:0], before...)
	if t.before, err = t.decode(t.before[:0], t.old); err != nil {
		return err
	}
	list, err := t.now(ns, k)
	if err != nil {
		return err
	}
	if err := t.diff(ctx, ns, t.before, list); err != nil || t.out == nil {
		return err
	}
	if len(list) == 0 {
		t.out.Delete(ns, k)
		return nil
	}
	t.buf = appendEntries(t.buf[:0], list)
	t.out.Put(ns, k, t.buf)
	return nil
}

// now is the list of the rows that stay.
func (t *topRun) now(ns int64, k state.Key) ([]ranked, error) {
	if t.groups != nil {
		return t.groups.best(k)
	}
	err := t.load(t.lists, ns, k)
	return t.list, err
}

// diff gives out what makes now of before.
func (t *topRun) diff(ctx context.Context, ns int64, before, now []ranked) error {
	t.number(before)
	t.number(now)
	if !t.keep && (t.rank >= 0 || t.n == 1) {
		return t.places(ctx, ns, before, now)
	}
	i, j := 0, 0
	for i < len(before) || j < len(now) {
		var c int
		switch {
		case i == len(before):
			c = 1
		case j == len(now):
			c = -1
		default:
			c = t.compare(&before[i], &now[j])
		}
		var err error
		switch {
		case c < 0:
			err = t.give(ctx, ns, &before[i], connectors.Delete)
		case c > 0:
			err = t.give(ctx, ns, &now[j], connectors.Insert)
		case t.rank >= 0 && before[i].rank != now[j].rank:
			err = t.replace(ctx, ns, &before[i], &now[j])
		}
		if err != nil {
			return err
		}
		if c <= 0 {
			i++
		}
		if c >= 0 {
			j++
		}
	}
	return nil
}

// places gives out the changes place by place: each place is a row of the result.
func (t *topRun) places(ctx context.Context, ns int64, before, now []ranked) error {
	for i := range max(len(before), len(now)) {
		var err error
		switch {
		case i >= len(before):
			err = t.give(ctx, ns, &now[i], connectors.Insert)
		case i >= len(now):
			err = t.give(ctx, ns, &before[i], connectors.Delete)
		case t.compare(&before[i], &now[i]) != 0:
			err = t.replace(ctx, ns, &before[i], &now[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *topRun) replace(ctx context.Context, ns int64, old, now *ranked) error {
	if err := t.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := t.give(ctx, ns, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return t.give(ctx, ns, now, connectors.UpdateAfter)
}

// give gives a row out. One of a window has the time of the window.
func (t *topRun) give(ctx context.Context, ns int64, e *ranked, op connectors.Op) error {
	if err := t.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	slots, rec, err := t.stored.add(t.rows, e.row, op)
	if err != nil {
		return t.corrupt()
	}
	if t.rank >= 0 {
		slots[t.rank] = connectors.IntValue(e.rank)
	}
	if t.window == nil {
		return nil
	}
	rec.Time = ns - 1
	if t.bounds[0] >= 0 {
		slots[t.bounds[0]] = connectors.IntValue(t.ends.start(ns))
	}
	if t.bounds[1] >= 0 {
		slots[t.bounds[1]] = connectors.IntValue(ns)
	}
	return nil
}

// close gives out what of a window was not given out, and forgets it; without a window,
// at the end of the input.
func (t *topRun) close(ctx context.Context, ns int64) error {
	if t.emit.Mode != EmitOnClose {
		if err := t.changes(ctx, ns); err != nil || t.window == nil {
			return err
		}
		t.lists.Drop(ns)
		if t.out != nil {
			t.out.Drop(ns)
		}
		return nil
	}
	var failed error
	t.lists.Scan(ns, func(k state.Key, _ []byte) bool {
		failed = t.final(ctx, ns, ownKey(k, &t.key))
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if t.groups == nil {
		t.lists.Drop(ns)
		return nil
	}
	for _, chunk := range t.lists.Namespaces(nil, state.MinTime, state.MaxTime) {
		t.lists.Drop(chunk)
	}
	return nil
}

// final gives out a list that does not change any more.
func (t *topRun) final(ctx context.Context, ns int64, k state.Key) error {
	list, err := t.now(ns, k)
	if err != nil {
		return err
	}
	t.number(list)
	for i := range list {
		if err := t.give(ctx, ns, &list[i], connectors.Insert); err != nil {
			return err
		}
	}
	return nil
}
