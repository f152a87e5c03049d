package transform

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// Start implements KeyedStep.
func (t *top) Start(run KeyedRun) (KeyedInstance, error) {
	r := &topRun{
		topEntries: topEntries{t, newStoredRows(t.slots)}, run: run, lists: run.Store.Table("rows"), dirty: run.Store.Table("dirty"),
	}
	r.rows = NewRows(&r.run.RunEnv, 0, t.stride())
	switch {
	case t.window != nil:
		r.ends = newWindowEnds(t.window)
	case t.all:
		r.groups = &topRows{topEntries: &r.topEntries, table: r.lists}
	}
	if t.emit.Mode == EmitEvery {
		r.out, r.pace.every = run.Store.Table("out"), t.emit.Every
	}
	return r, nil
}

// topRun holds for each window and key a list of the rows that stay, best first; where
// rows can be taken back all of them, see topRows. dirty holds, for lists that changed
// since changes were given out, what of them was given out before; with emit every that
// is in out. Namespaces are the ends of windows.
type topRun struct {
	topEntries
	run    KeyedRun
	lists  state.Table
	groups *topRows // where rows can be taken back
	dirty  state.Table
	out    state.Table
	rows   *Rows
	ends   *windowEnds
	pace   pace
	lates  []uint16
	spaces []int64
	entry  []byte // of the row that is being handled
	e      ranked // that entry
	list   []ranked
	from   []byte // what list borrows from
	before []ranked
	old    []byte // what before borrows from
	buf    []byte
	key    []byte
}

// Process puts rows into their lists.
func (t *topRun) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&t.run, b, sel)
	t.lates = t.lates[:0]
	for _, row := range sel {
		k := RowKey(b, row, t.run.Groups)
		t.entry = t.encode(t.entry[:0], b, row)
		if err := t.parse(&t.e, t.entry); err != nil {
			return err
		}
		var err error
		switch {
		case t.groups != nil:
			err = t.update(k, b.Records[row].Op.Retracts())
		case t.window == nil:
			err = t.add(0, k)
		default:
			err = t.assign(b, row, k)
		}
		if err != nil {
			return err
		}
	}
	if err := t.reportLate(ctx, b); err != nil || t.emit.Mode != EmitOnChange {
		return err
	}
	return t.gathered(ctx)
}

// assign puts t.e into the lists of its windows that have not closed.
func (t *topRun) assign(b *connectors.Batch, row uint16, k state.Key) error {
	rec := &b.Records[row]
	passed, late := max(rec.Mark, t.run.Watermark(k.Group)), true
	for _, end := range t.ends.of(rec.Time) {
		if end <= passed {
			continue
		}
		late = false
		if err := t.add(end, k); err != nil {
			return err
		}
	}
	if late {
		t.lates = append(t.lates, row)
	}
	return nil
}

func (t *topRun) reportLate(ctx context.Context, b *connectors.Batch) error {
	switch {
	case len(t.lates) == 0:
		return nil
	case t.late:
		return t.run.Emit(ctx, 1, b, t.lates)
	}
	t.run.Late(len(t.lates))
	return nil
}

// windowEnds finds the windows that a time is in.
type windowEnds struct {
	window *Window
	cursor *window.Cursor
	list   []int64
}

func newWindowEnds(w *Window) *windowEnds {
	return &windowEnds{window: w, cursor: window.NewCursor(w.Grid())}
}

// of gives the ends of the windows that t is in.
func (e *windowEnds) of(t int64) []int64 {
	e.list = e.list[:0]
	t = window.Clamp(t)
	if e.window.Kind == TumblingWindow {
		_, end := e.cursor.At(t)
		return append(e.list, end)
	}
	for start := t - window.FloorMod(t-e.window.Offset, e.window.Every); start > t-e.window.Size; start -= e.window.Every {
		e.list = append(e.list, start+e.window.Size)
	}
	return e.list
}

// start is the start of the window with an end.
func (e *windowEnds) start(end int64) int64 {
	if e.window.Kind == TumblingWindow {
		start, _ := e.cursor.At(end - 1)
		return start
	}
	return end - e.window.Size
}

// add puts t.e into a list of rows that stay, if it does.
func (t *topRun) add(ns int64, k state.Key) (err error) {
	if err := t.load(t.lists, ns, k); err != nil {
		return err
	}
	at, _ := slices.BinarySearchFunc(t.list, &t.e, func(x ranked, e *ranked) int { return t.compare(&x, e) })
	if at >= t.n && !(t.keep && t.compareOrder(&t.list[t.n-1], &t.e) == 0) {
		return nil
	}
	t.note(ns, k, t.list)
	n := t.staying(at)
	t.buf = appendEntries(t.buf[:0], t.list[:at])
	t.buf = appendBytes(t.buf, t.e.bytes)
	t.buf = appendEntries(t.buf, t.list[at:max(at, n-1)])
	t.lists.Put(ns, k, t.buf)
	return nil
}

// staying is how many rows stay of list with one more at a place.
func (t *topRun) staying(at int) int {
	n := len(t.list) + 1
	if n <= t.n {
		return n
	}
	with := func(i int) *ranked {
		switch {
		case i < at:
			return &t.list[i]
		case i == at:
			return &t.e
		}
		return &t.list[i-1]
	}
	stay := t.n
	for t.keep && stay < n && t.compareOrder(with(t.n-1), with(stay)) == 0 {
		stay++
	}
	return stay
}

// load reads a list of rows that stay.
func (t *topRun) load(table state.Table, ns int64, k state.Key) (err error) {
	v, _ := table.Get(ns, k)
	t.from = append(t.from[:0], v...)
	t.list, err = t.decode(t.list[:0], t.from)
	return err
}

// update puts t.e among the rows of its group, or takes it out.
func (t *topRun) update(k state.Key, out bool) error {
	if err := t.noteBest(k); err != nil {
		return err
	}
	if !out {
		return t.groups.add(k, &t.e)
	}
	// One that is not there was refused when it came, or left out.
	_, err := t.groups.remove(k, &t.e)
	return err
}

// noteBest is note for a group of which all rows are kept.
func (t *topRun) noteBest(k state.Key) error {
	if t.emit.Mode == EmitOnClose {
		return nil
	}
	if _, noted := t.dirty.Get(0, k); noted {
		return nil
	}
	if t.out != nil {
		t.dirty.Put(0, k, nil)
		return nil
	}
	best, err := t.groups.best(k)
	if err == nil {
		t.note(0, k, best)
	}
	return err
}

// note keeps, at the first change of a list since changes were given out, what of it
// was.
func (t *topRun) note(ns int64, k state.Key, list []ranked) {
	if t.emit.Mode == EmitOnClose {
		return
	}
	if _, noted := t.dirty.Get(ns, k); noted {
		return
	}
	t.buf = t.buf[:0]
	if t.out == nil {
		t.buf = appendEntries(t.buf, list)
	}
	t.dirty.Put(ns, k, t.buf)
}

// Watermark gives out the windows that have ended and forgets them; at the end of the
// input, what without a window was not given out.
func (t *topRun) Watermark(ctx context.Context, wm int64) error {
	switch {
	case t.window != nil:
		t.spaces = t.lists.Namespaces(t.spaces[:0], state.MinTime, wm)
	case wm == state.MaxTime:
		t.spaces = append(t.spaces[:0], 0)
	default:
		return nil
	}
	for _, ns := range t.spaces {
		if err := t.close(ctx, ns); err != nil {
			return err
		}
	}
	return t.rows.Flush(ctx)
}

// Tick gives gathered changes out.
func (t *topRun) Tick(ctx context.Context, now time.Time) error {
	if t.emit.Mode == EmitEvery && t.pace.due(now) {
		return t.gathered(ctx)
	}
	return nil
}

// Barrier implements KeyedInstance: everything is in the store.
func (t *topRun) Barrier(context.Context) error { return nil }
