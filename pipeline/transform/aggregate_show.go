package transform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/accumulate"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// aggregateLayout is how an aggregate keeps its groups.
type aggregateLayout struct {
	Keys   []string        `json:"keys"`
	Window *windowLayout   `json:"window,omitempty"`
	TTL    int64           `json:"ttl,omitempty"`  // milliseconds
	Head   bool            `json:"head,omitempty"` // values have the head of groups that can change
	Calls  []aggregateForm `json:"calls"`
	// Select are the fields of the result, which the table of dirty groups has.
	Select []string `json:"select"`
}

// aggregateForm is one call of an aggregate function.
type aggregateForm struct {
	Text string          `json:"text"`
	Form accumulate.Form `json:"form"`
	Size int             `json:"size"` // of its state, -1 for a table of its own
}

// Layout implements Layouter.
func (s *aggregate) Layout() any {
	l := aggregateLayout{
		Keys: s.names, Window: s.window.layout(), TTL: s.ttl.millis(),
		Head: !s.window.Timed() || s.window.Kind == TumblingWindow && s.emit.Updating(), Select: s.fields,
	}
	for i := range s.calls {
		c := &s.calls[i]
		l.Calls = append(l.Calls, aggregateForm{Text: c.text, Form: c.form, Size: c.size})
	}
	return l
}

// aggregateReader implements StateReader for an aggregate.
type aggregateReader struct {
	*aggregateLayout
	kind  string
	grid  window.Grid
	fns   []accumulate.Function
	offs  []int // of the calls of fixed size, in the value they share
	loose []int // the other calls
	size  int
	arena connectors.Arena
}

func openAggregate(layout []byte) (StateReader, error) {
	l, err := layoutOf[aggregateLayout](layout)
	if err != nil {
		return nil, err
	}
	r := &aggregateReader{aggregateLayout: l, offs: make([]int, len(l.Calls))}
	if l.Window != nil {
		r.kind = l.Window.Kind
		if r.grid, err = l.Window.grid(); err != nil {
			return nil, err
		}
	}
	for i, c := range l.Calls {
		fn, err := c.Form.Function()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Text, err)
		}
		if fn.Size() != c.Size {
			return nil, fmt.Errorf("%s: its state has %d bytes, and this program would keep it in %d", c.Text, c.Size, fn.Size())
		}
		r.fns = append(r.fns, fn)
		if c.Size < 0 {
			r.loose = append(r.loose, i)
			continue
		}
		r.offs[i] = r.size
		r.size += c.Size
	}
	return r, nil
}

// grid is the division of time that the namespaces go by; nil where they do not.
func (l *windowLayout) grid() (window.Grid, error) {
	w := Window{Kind: windowKinds[l.Kind], Size: l.Size, Every: l.Every, Unit: window.Unit(l.Unit), Offset: l.Offset}
	bad := errors.New("there is no such window")
	switch {
	case w.Kind == NoWindow || w.Kind == SessionWindow && l.Gap <= 0:
		return nil, bad
	case w.Kind != TumblingWindow && w.Kind != SlidingWindow:
		return nil, nil
	case w.Unit != "":
		span := w.Unit.Span()
		if !slices.Contains(window.Units(), l.Unit) || w.Offset >= span || w.Offset <= -span {
			return nil, bad
		}
		zone, err := time.LoadLocation(l.Zone)
		if err != nil {
			return nil, err
		}
		w.Zone = zone
	case w.Size <= 0 || w.Size > window.Furthest || w.Offset < 0 || w.Offset > w.Size,
		w.Kind == SlidingWindow && (w.Every <= 0 || w.Every > w.Size):
		return nil, bad
	}
	return w.Grid(), nil
}

// span is the window or pane that ends at a namespace.
func (r *aggregateReader) span(end int64) *Span { return spanOf(r.grid, r.kind, end) }

func spanOf(grid window.Grid, kind string, end int64) *Span {
	what := "window"
	if kind == "sliding" {
		what = "pane"
	}
	if end != window.Clamp(end) {
		return nil
	}
	start, _ := grid.At(end - 1)
	return &Span{What: what, Start: start, End: end}
}

// Show implements StateReader.
func (r *aggregateReader) Show(e *state.Entry, s *Shown) error {
	r.arena.Reset()
	if r.grid != nil && e.Table != "rings" && e.Table != "closed" {
		s.Span = r.span(e.NS)
	}
	var o shownObject
	var err error
	switch {
	case strings.HasPrefix(e.Table, "call-"):
		err = r.call(&o, e, s)
	case e.Table == "dirty":
		err = r.given(&o, e.Value)
	case e.Table == "rings":
		err = r.ring(&o, e.Value)
	case e.Table == "behind":
		s.Span = nil // it counts for the window that ends then, and for later ones
		err = r.behind(&o, e)
	case e.Table == "closed" && len(e.Value) == 8:
		s.Key, s.Reason = []byte("null"), "" // one stands for a key group
		o.time("closed_until", get64(e.Value, 0))
	case e.Table != "groups":
		err = errNoField
	case r.kind == "session":
		err = r.sessions(&o, e.Value)
	default:
		err = r.group(&o, e.Value)
	}
	s.Value = o.done()
	return err
}

// group shows a group of no window, of a count, a tumbling window or a pane.
func (r *aggregateReader) group(o *shownObject, value []byte) error {
	head := 0
	if r.Head {
		head = headSize
	}
	if len(value) != max(1, head+r.size) {
		return state.ErrCorrupt
	}
	if head > 0 {
		o.int("rows", get64(value, headRows))
		o.time("newest", get64(value, headTime))
		if r.TTL > 0 {
			touched := get64(value, headStamp)
			o.time("touched", touched)
			o.time("expires", plusTime(touched, r.TTL))
		}
	}
	return r.states(o, value[head:])
}

// states shows the results of the calls that share a value.
func (r *aggregateReader) states(o *shownObject, states []byte) error {
	if len(states) < r.size {
		return state.ErrCorrupt
	}
	for i, fn := range r.fns {
		if size := fn.Size(); size >= 0 {
			if err := r.result(o, i, states[r.offs[i]:r.offs[i]+size:r.offs[i]+size]); err != nil {
				return err
			}
		}
	}
	return nil
}

// result shows what a function makes of its state. What it refuses, such as a sum that
// does not fit, is shown too.
func (r *aggregateReader) result(o *shownObject, i int, value []byte) error {
	v, err := r.fns[i].Result(value, &r.arena)
	var refused *expr.EvalError
	switch {
	case errors.As(err, &refused):
		var no shownObject
		no.text("error", refused.Reason)
		o.raw(r.Calls[i].Text, no.done())
		return nil
	case err != nil:
		return err
	}
	o.value(r.Calls[i].Text, v)
	return nil
}

// call shows the state of a call that has a table of its own. In a session the
// namespace is a time within it.
func (r *aggregateReader) call(o *shownObject, e *state.Entry, s *Shown) error {
	i, err := strconv.Atoi(strings.TrimPrefix(e.Table, "call-"))
	if err != nil || i < 0 || i >= len(r.fns) || r.fns[i].Size() >= 0 {
		return errNoField
	}
	if r.kind == "session" {
		s.Span = nil
		o.time("session", e.NS)
	}
	return r.result(o, i, e.Value)
}

// given shows what of a group was given out last, where it has changed since.
func (r *aggregateReader) given(o *shownObject, value []byte) error {
	if len(value) == 0 || value[0] > 1 || value[0] == 0 && len(value) > 1 {
		return state.ErrCorrupt
	}
	if value[0] == 0 {
		o.raw("given", []byte("null"))
		return nil
	}
	var row shownObject
	if err := showValues(&row, value[1:], r.Select); err != nil {
		return err
	}
	o.raw("given", row.done())
	return nil
}

// sessions shows the sessions of a key. One that is long enough to be cut is kept in
// several parts, which touch.
func (r *aggregateReader) sessions(o *shownObject, value []byte) error {
	entry := sessionStates + r.size
	if len(value) < sessionHead || (len(value)-sessionHead)%entry != 0 {
		return state.ErrCorrupt
	}
	o.time("timer", get64(value, 0))
	var list shownList
	for at := sessionHead; at < len(value); at += entry {
		part := value[at : at+entry : at+entry]
		var one shownObject
		one.time("start", get64(part, sessionStart))
		one.time("end", get64(part, sessionEnd))
		if len(r.loose) > 0 {
			one.time("session", get64(part, sessionAnchor))
		}
		if err := r.states(&one, part[sessionStates:]); err != nil {
			return err
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("sessions", list.done())
	return nil
}

// ring shows the panes that the open windows of a key have in common, taken together.
func (r *aggregateReader) ring(o *shownObject, value []byte) error {
	f := ringForm{size: r.size, merge: r.merge}
	if len(value) < f.head() || (len(value)-f.head())%f.entry() != 0 {
		return state.ErrCorrupt
	}
	n := f.count(value)
	if front := f.front(value); front < 0 || front > n {
		return state.ErrCorrupt
	}
	var ends shownList
	for i := range n {
		ends.next()
		ends.b = appendMillis(ends.b, f.end(value, i))
	}
	o.raw("pane_ends", ends.done())
	if n == 0 {
		return nil
	}
	// What merges writes to is a copy.
	total, _, err := f.total(nil, append([]byte(nil), value...), 0)
	if err != nil {
		return err
	}
	return r.states(o, total)
}

func (r *aggregateReader) merge(states, other []byte) error {
	for i, fn := range r.fns {
		if size := fn.Size(); size >= 0 {
			at := r.offs[i]
			if _, err := fn.Merge(states[at:at+size:at+size], other[at:at+size]); err != nil {
				return err
			}
		}
	}
	return nil
}

// behind shows late rows that wait for the window from which they count.
func (r *aggregateReader) behind(o *shownObject, e *state.Entry) error {
	o.time("counts_from_window_ending", e.NS)
	var list shownList
	for value := e.Value; len(value) > 0; {
		entry := paneStates + r.size
		if len(value) < entry {
			return state.ErrCorrupt
		}
		var one shownObject
		one.time("pane_end", get64(value, paneEnd))
		if err := r.states(&one, value[paneStates:entry]); err != nil {
			return err
		}
		value = value[entry:]
		for _, i := range r.loose {
			if len(value) < 4 || uint64(binary.LittleEndian.Uint32(value)) > uint64(len(value)-4) {
				return state.ErrCorrupt
			}
			n := int(binary.LittleEndian.Uint32(value)) + 4
			if err := r.result(&one, i, value[4:n:n]); err != nil {
				return err
			}
			value = value[n:]
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("panes", list.done())
	return nil
}
