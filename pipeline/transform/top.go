package transform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// TopConfig is the block of a top.
type TopConfig struct {
	By     connectors.Keys `key:"by" doc:"What the best are kept for: fields, or expressions by name. Without it, all records are one group, in one subtask."`
	N      int             `key:"n" doc:"How many stay." required:"true"`
	Order  Order           `key:"order" doc:"What is best: fields or expressions, each with asc or desc, such as [{price: desc}, {bidder: asc}]. What is equal in all goes by event time, topic, partition and offset." required:"true"`
	Rank   string          `key:"rank" doc:"Field that takes the rank, 1 for the first."`
	Ties   string          `key:"ties" doc:"Whether records that equal the last one in all of order are left out, or stay and share its rank." enum:"cut|keep"`
	Window Window          `key:"window" doc:"A window of time for each of which the best are found, as in aggregate: tumbling or sliding."`
	Emit   Emit            `key:"emit" doc:"When they are given out: on_close (the default with a window) once, on_change (the default without) as updates, or {every: 10s}."`
}

// Validate checks the block.
func (c *TopConfig) Validate() error {
	var errs []error
	if c.N <= 0 {
		errs = append(errs, &connectors.FieldError{Key: "n", Msg: "at least one must stay"})
	}
	if c.N > maxTop {
		errs = append(errs, &connectors.FieldError{Key: "n", Msg: fmt.Sprintf("at most %d can be kept for a key", maxTop)})
	}
	if k := c.Window.Kind; k == SessionWindow || k == CountWindow || c.Window.Processing {
		errs = append(errs, &connectors.FieldError{Key: "window", Msg: "the best are found in tumbling and sliding windows of event time only"})
	}
	return errors.Join(errs...)
}

// maxTop bounds the rows of a key, which are read and written as one.
const maxTop = 10_000

// Order is a list of what to sort by.
type Order []OrderBy

// OrderBy is one thing to sort by.
type OrderBy struct {
	Text string
	Desc bool
}

// UnmarshalConfig reads a list of {expression: asc|desc}, or of bare expressions,
// which ascend.
func (o *Order) UnmarshalConfig(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		by := OrderBy{}
		switch item := item.(type) {
		case string:
			by.Text = item
		case map[string]any:
			if len(item) != 1 {
				return errors.New("each entry of order has one field: [{price: desc}, {bidder: asc}]")
			}
			for text, way := range item {
				by.Text = text
				switch way {
				case "asc":
				case "desc":
					by.Desc = true
				default:
					return fmt.Errorf("%s is sorted asc or desc, not %v", text, way)
				}
			}
		default:
			return errors.New("write a list such as [{price: desc}, {bidder: asc}]")
		}
		*o = append(*o, by)
	}
	if len(*o) == 0 {
		return errors.New("there is nothing to sort by")
	}
	return nil
}

func init() {
	Register(Spec{
		Name:       "top",
		Doc:        "Keeps the best records of each group.",
		NewConfig:  func() any { return &TopConfig{Ties: "cut"} },
		BuildKeyed: buildTop,
		Updates:    TakesUpdates,
	})
}

type top struct {
	name   string
	n      int
	keep   bool // ties stay
	all    bool // rows can be taken back, so that all are kept
	desc   []bool
	order  []int // slots of what is sorted by
	texts  []string
	slots  []int
	rank   int // slot, -1 for none
	emit   Emit
	window *Window // nil for none
	stride func() int
	text   string
}

func buildTop(config any, env *KeyedEnv) KeyedStep {
	c := config.(*TopConfig)
	t := &top{
		name: env.Name, n: c.N, keep: c.Ties == "keep", all: env.In[0].Updates() != nil, rank: -1,
		stride: env.Row.Base().Stride,
	}
	keys := env.KeyBy(0, c.By, "by")
	for _, o := range c.Order {
		p := env.Compile(0, connectors.Expr{Text: o.Text}, expr.Options{Deterministic: true, Want: sortable}, "order")
		if p == nil {
			continue
		}
		t.order, t.desc, t.texts = append(t.order, env.Carry(0, p)), append(t.desc, o.Desc), append(t.texts, p.Text())
	}
	t.emit = c.Emit.or(EmitOnChange)
	if c.Window.Kind != NoWindow {
		t.window, t.emit = &c.Window, c.Emit.or(EmitOnClose)
	}
	if t.all && t.window != nil {
		env.Report([]string{"window"}, errors.New("rows of an updating stream cannot be taken back from a window that has closed: leave window out, or emit on_close above"))
	}
	if keys == nil || env.Faulted() {
		return nil
	}
	t.output(env, c)
	var by []string
	for _, k := range keys {
		by = append(by, k.Text())
	}
	t.text = fmt.Sprintf("by %s order %v n %d ties %s window %s", strings.Join(by, ", "), c.Order, c.N, c.Ties, c.Window.String())
	return t
}

// sortable is the values that have an order.
const sortable = expr.Any &^ (1<<connectors.List | 1<<connectors.Map | 1<<connectors.Null | 1<<connectors.Absent)

func (t *top) output(env *KeyedEnv, c *TopConfig) {
	view, slots := env.carryMade(0)
	t.slots = slots
	if c.Rank != "" {
		t.rank = env.NewSlot()
		view = view.Set(c.Rank, expr.Ref{Slot: t.rank, Covered: 1, Type: expr.Of(connectors.Int)})
	}
	if !t.emit.Updating() {
		env.Output(view.AppendOnly())
		return
	}
	key := keyFields(c.By)
	if len(c.By) > 0 && key == nil || t.keep || t.rank < 0 && t.n > 1 {
		env.Output(view.Updating(nil))
		return
	}
	if t.rank >= 0 {
		key = append(key, c.Rank)
	}
	env.Output(view.Updating(key))
}

// Definition is what the meaning of the state hangs on.
func (t *top) Definition() string { return t.text }

// Start implements KeyedStep.
func (t *top) Start(run KeyedRun) (KeyedInstance, error) {
	r := &topRun{
		top: t, run: run, lists: run.Store.Table("rows"), dirty: run.Store.Table("dirty"),
		stored: newStoredRows(t.slots), newest: state.MinTime,
	}
	r.rows = NewRows(&r.run.RunEnv, 0, t.stride())
	if t.window != nil {
		r.ends = newWindowEnds(t.window)
	}
	if t.emit.Mode == EmitEvery {
		r.out, r.pace.every = run.Store.Table("out"), t.emit.Every
	}
	return r, nil
}

// topRun holds for each window and key a list of rows, best first: of all where
// rows can be taken back, otherwise of those that stay. dirty holds, for lists that
// changed since changes were given out, what of them was given out before; with
// emit every that is in out.
type topRun struct {
	*top
	run    KeyedRun
	lists  state.Table
	dirty  state.Table
	out    state.Table
	stored *storedRows
	rows   *Rows
	ends   *windowEnds
	pace   pace
	newest int64 // event time of what came, where rows do not keep theirs
	spaces []int64
	entry  []byte
	list   []ranked
	before []ranked
	old    []byte
	buf    []byte
	key    []byte
}

// ranked is one row of a list.
type ranked struct {
	bytes []byte // of the entry in state: what it is sorted by, and the record
	order []connectors.Value
	row   []byte // the record
	rank  int64
}

// Process puts rows into their lists.
func (t *topRun) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&t.run, b, sel)
	for _, row := range sel {
		k := RowKey(b, row, t.run.Groups)
		rec := &b.Records[row]
		t.entry = t.encode(t.entry[:0], b, row)
		if t.window == nil {
			if err := t.change(0, k, rec.Op.Retracts()); err != nil {
				return err
			}
			continue
		}
		late := true
		passed := max(rec.Mark, t.run.Watermark(k.Group))
		for _, end := range t.ends.of(rec.Time) {
			if end <= passed {
				continue
			}
			late = false
			if err := t.change(end, k, false); err != nil {
				return err
			}
		}
		if late {
			t.run.Late(1)
		}
	}
	if t.emit.Mode == EmitOnChange {
		return t.gathered(ctx)
	}
	return nil
}

// encode writes a row as an entry: the length of what it is sorted by, that, and
// the record.
func (t *topRun) encode(dst []byte, b *connectors.Batch, row uint16) []byte {
	t.buf = t.buf[:0]
	at := b.Row(int(row))
	for _, slot := range t.order {
		t.buf = state.AppendValue(t.buf, at[slot])
	}
	dst = appendBytes(dst, t.buf)
	rec := b.Records[row]
	if t.all {
		// A row is taken back by what it holds, whatever made that known.
		t.newest = max(t.newest, rec.Time)
		rec.Origin, rec.Offset, rec.Time = nil, 0, 0
	}
	return t.stored.append(dst, &rec, at)
}

// decode reads a list of entries, which it borrows from.
func (t *topRun) decode(dst []ranked, list []byte) ([]ranked, error) {
	for c := (cursor{rest: list}); len(c.rest) > 0; {
		entry := c.bytes()
		if c.bad {
			return nil, t.corrupt()
		}
		if len(dst) < cap(dst) {
			dst = dst[:len(dst)+1]
		} else {
			dst = append(dst, ranked{})
		}
		if err := t.parse(&dst[len(dst)-1], entry); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (t *topRun) parse(e *ranked, entry []byte) error {
	c := cursor{rest: entry}
	order := c.bytes()
	e.bytes, e.row, e.order, e.rank = entry, c.rest, e.order[:0], 0
	for range t.order {
		v, rest, err := state.ReadValue(order)
		if err != nil || c.bad {
			return t.corrupt()
		}
		e.order, order = append(e.order, v), rest
	}
	return nil
}

func (t *topRun) corrupt() error {
	return connectors.Permanent(fmt.Errorf("step %s: %w", t.name, state.ErrCorrupt))
}

// compare orders entries: by what the file says, then by where the records come
// from, then by their bytes, so that it never hangs on the order of arrival.
func (t *topRun) compare(a, b *ranked) int {
	if c := t.compareOrder(a, b); c != 0 {
		return c
	}
	x, errX := t.stored.record(a.row)
	y, errY := t.stored.record(b.row)
	if errX == nil && errY == nil && x.Origin != nil && y.Origin != nil {
		return cmp.Or(cmp.Compare(x.Time, y.Time), strings.Compare(x.Origin.Topic, y.Origin.Topic),
			cmp.Compare(x.Origin.Partition, y.Origin.Partition), cmp.Compare(x.Offset, y.Offset), bytes.Compare(a.row, b.row))
	}
	return bytes.Compare(a.row, b.row)
}

func (t *topRun) compareOrder(a, b *ranked) int {
	for i := range t.order {
		c := compareValues(a.order[i], b.order[i])
		if t.desc[i] {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// compareValues orders all values that have an order: those of different kinds by
// kind.
func compareValues(a, b connectors.Value) int {
	if c, ok := expr.Compare(a, b); ok {
		return c
	}
	if a.Kind() != b.Kind() {
		return cmp.Compare(a.Kind(), b.Kind())
	}
	if a.Kind() == connectors.Bool && a.Bool() != b.Bool() {
		if a.Bool() {
			return 1
		}
		return -1
	}
	return 0
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

// change puts t.entry into a list, or takes it out.
func (t *topRun) change(ns int64, k state.Key, out bool) (err error) {
	stored, _ := t.lists.Get(ns, k)
	t.old = append(t.old[:0], stored...)
	if t.list, err = t.decode(t.list[:0], t.old); err != nil {
		return err
	}
	var e ranked
	if err := t.parse(&e, t.entry); err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(t.list, &e, func(x ranked, e *ranked) int { return t.compare(&x, e) })
	switch {
	case out && !found: // it was refused when it came, or left out
		return nil
	case out:
		t.note(ns, k)
		t.list = slices.Delete(t.list, at, at+1)
	case !t.all && at >= t.n && !t.tied(&e):
		return nil
	default:
		t.note(ns, k)
		t.list = slices.Insert(t.list, at, e)
		if !t.all {
			t.list = t.list[:t.kept(t.list)]
		}
	}
	t.store(t.lists, ns, k, t.list)
	return nil
}

// tied reports whether e equals the last row that stays.
func (t *topRun) tied(e *ranked) bool {
	return t.keep && t.compareOrder(&t.list[t.n-1], e) == 0
}

// kept is how many rows of a list stay.
func (t *topRun) kept(list []ranked) int {
	n := min(t.n, len(list))
	for t.keep && n > 0 && n < len(list) && t.compareOrder(&list[t.n-1], &list[n]) == 0 {
		n++
	}
	return n
}

// note keeps, at the first change of a list since changes were given out, what of it
// was.
func (t *topRun) note(ns int64, k state.Key) {
	if t.emit.Mode == EmitOnClose {
		return
	}
	if _, noted := t.dirty.Get(ns, k); noted {
		return
	}
	if t.out != nil {
		t.dirty.Put(ns, k, nil)
		return
	}
	t.store(t.dirty, ns, k, t.list[:t.kept(t.list)])
}

// store puts a list into a table; an empty one of rows is no entry.
func (t *topRun) store(table state.Table, ns int64, k state.Key, list []ranked) {
	if len(list) == 0 && table != t.dirty {
		table.Delete(ns, k)
		return
	}
	t.buf = t.buf[:0]
	for i := range list {
		t.buf = binary.AppendUvarint(t.buf, uint64(len(list[i].bytes)))
		t.buf = append(t.buf, list[i].bytes...)
	}
	table.Put(ns, k, t.buf)
}

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
		t.old = append(t.old[:0], before...)
		if t.before, failed = t.decode(t.before[:0], t.old); failed != nil {
			return false
		}
		now, _ := t.lists.Get(ns, k)
		t.entry = append(t.entry[:0], now...)
		if t.list, failed = t.decode(t.list[:0], t.entry); failed != nil {
			return false
		}
		t.list = t.list[:t.kept(t.list)]
		if failed = t.diff(ctx); failed != nil {
			return false
		}
		if t.out != nil {
			t.store(t.out, ns, k, t.list)
		}
		return true
	})
	if failed == nil {
		t.dirty.Drop(ns)
	}
	return failed
}

// diff gives out what makes t.list of t.before.
func (t *topRun) diff(ctx context.Context) error {
	t.number(t.before)
	t.number(t.list)
	if !t.keep && (t.rank >= 0 || t.n == 1) {
		return t.places(ctx)
	}
	i, j := 0, 0
	for i < len(t.before) || j < len(t.list) {
		c := 0
		switch {
		case i == len(t.before):
			c = 1
		case j == len(t.list):
			c = -1
		default:
			c = t.compare(&t.before[i], &t.list[j])
			if c == 0 && t.rank >= 0 && t.before[i].rank != t.list[j].rank {
				if err := t.replace(ctx, &t.before[i], &t.list[j]); err != nil {
					return err
				}
			}
		}
		var err error
		if c < 0 {
			err = t.give(ctx, &t.before[i], connectors.Delete)
		} else if c > 0 {
			err = t.give(ctx, &t.list[j], connectors.Insert)
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
func (t *topRun) places(ctx context.Context) error {
	for i := range max(len(t.before), len(t.list)) {
		var err error
		switch {
		case i >= len(t.before):
			err = t.give(ctx, &t.list[i], connectors.Insert)
		case i >= len(t.list):
			err = t.give(ctx, &t.before[i], connectors.Delete)
		case !bytes.Equal(t.before[i].bytes, t.list[i].bytes):
			err = t.replace(ctx, &t.before[i], &t.list[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// number sets the ranks of a list.
func (t *topRun) number(list []ranked) {
	for i := range list {
		list[i].rank = int64(i + 1)
		if t.keep && i > 0 && t.compareOrder(&list[i-1], &list[i]) == 0 {
			list[i].rank = list[i-1].rank
		}
	}
}

func (t *topRun) replace(ctx context.Context, old, now *ranked) error {
	if err := t.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := t.give(ctx, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return t.give(ctx, now, connectors.UpdateAfter)
}

func (t *topRun) give(ctx context.Context, e *ranked, op connectors.Op) error {
	if err := t.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	slots, rec, err := t.stored.add(t.rows, e.row, op)
	if err != nil {
		return t.corrupt()
	}
	if t.all {
		rec.Time = t.newest
	}
	if t.rank >= 0 {
		slots[t.rank] = connectors.IntValue(e.rank)
	}
	return nil
}

// Watermark gives out the windows that have ended and forgets them.
func (t *topRun) Watermark(ctx context.Context, wm int64) error {
	if t.window == nil && wm != state.MaxTime {
		return nil
	}
	t.spaces = t.lists.Namespaces(t.spaces[:0], state.MinTime, wm)
	for _, ns := range t.spaces {
		if err := t.close(ctx, ns); err != nil {
			return err
		}
	}
	return t.rows.Flush(ctx)
}

func (t *topRun) close(ctx context.Context, ns int64) error {
	if t.emit.Mode == EmitOnClose {
		var failed error
		t.lists.Scan(ns, func(_ state.Key, list []byte) bool {
			t.old = append(t.old[:0], list...)
			if t.list, failed = t.decode(t.list[:0], t.old); failed != nil {
				return false
			}
			t.list = t.list[:t.kept(t.list)]
			t.number(t.list)
			for i := range t.list {
				if failed = t.give(ctx, &t.list[i], connectors.Insert); failed != nil {
					return false
				}
			}
			return true
		})
		if failed != nil {
			return failed
		}
		t.lists.Drop(ns)
		return nil
	}
	if err := t.changes(ctx, ns); err != nil {
		return err
	}
	if t.window != nil {
		t.lists.Drop(ns)
		if t.out != nil {
			t.out.Drop(ns)
		}
	}
	return nil
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
