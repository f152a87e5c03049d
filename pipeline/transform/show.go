package transform

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Layouter is implemented by keyed steps whose state can be shown without the pipeline
// file: what Layout gives, as JSON, stands in checkpoints, and is what Spec.OpenState
// is given. Members may be added to it, and never change their meaning.
type Layouter interface{ Layout() any }

// StateReader takes the entries of a step's state apart, for people to look at.
type StateReader interface {
	// Show fills in what an entry holds but for its key. An error, such as
	// state.ErrCorrupt, says why it cannot; whatever the entry holds it does not panic.
	Show(e *state.Entry, s *Shown) error
}

// Shown is an entry of a step's state in words of its user.
type Shown struct {
	// Key is an object with the fields of the key, a list where their names are not
	// known, and null where the entry is of no key.
	Key json.RawMessage
	// Span is what the namespace of the entry stands for; nil for nothing.
	Span *Span
	// Value is what the entry holds; nil where Reason says why it cannot be told.
	Value  json.RawMessage
	Reason string
}

// Span is a span of time.
type Span struct {
	What       string // window, pane or bucket
	Start, End int64
}

// timersTable is the name that the table of timers has in all steps.
const timersTable = "timers"

// StateView shows the entries of a step's state.
type StateView struct {
	keys   []string
	reader StateReader
	reason string // why there is no reader
}

// ViewState makes the view of what a step of a kind keeps, by the layout that its
// checkpoint has. Where there is none, or one that this program does not know, keys and
// timers are shown, and of all else why it is not.
func ViewState(kind string, layout []byte) *StateView {
	v := &StateView{}
	if len(layout) == 0 {
		v.reason = "the checkpoint does not say how the step keeps it: an older program wrote it"
		return v
	}
	var common struct {
		Keys []string `json:"keys"`
	}
	spec, known := Lookup(kind)
	if !known || spec.OpenState == nil {
		v.reason = fmt.Sprintf("this program knows no step %q with state", kind)
		return v
	}
	err := json.Unmarshal(layout, &common)
	if err == nil {
		v.keys = common.Keys
		v.reader, err = spec.OpenState(layout)
	}
	if err != nil {
		v.reader, v.reason = nil, fmt.Sprintf("how the step keeps it cannot be read: %v", err)
	}
	return v
}

// Show shows an entry. What Shown holds is its own.
func (v *StateView) Show(e *state.Entry) Shown {
	s := Shown{}
	var err error
	if s.Key, err = showKey(e.Key.Bytes, v.keys); err != nil {
		s.Reason = err.Error()
	}
	switch {
	case e.Table == timersTable:
		err = showTimers(e, &s)
	case v.reader == nil:
		err = errors.New(v.reason)
	default:
		err = v.reader.Show(e, &s)
	}
	if err != nil {
		s.Value = nil
		s.Reason = err.Error()
	}
	return s
}

// showKey writes the fields of a key.
func showKey(key []byte, names []string) (json.RawMessage, error) {
	var list shownList
	var fields shownObject
	n := 0
	for rest := key; len(rest) > 0; n++ {
		v, tail, err := state.ReadKey(rest)
		if err != nil {
			return json.RawMessage("null"), fmt.Errorf("read the key: %w", err)
		}
		list.next()
		list.b = appendShown(list.b, v)
		if n < len(names) {
			fields.value(names[n], v)
		}
		rest = tail
	}
	if names != nil && n == len(names) {
		return fields.done(), nil
	}
	return list.done(), nil
}

// showTimers shows the timers that a key has in a bucket.
func showTimers(e *state.Entry, s *Shown) error {
	var list shownList
	err := state.ReadTimers(e.NS, e.Value, func(at int64, _ []byte) {
		list.next()
		list.b = appendMillis(list.b, at)
	})
	if err != nil {
		return err
	}
	var o shownObject
	o.raw("timers", list.done())
	s.Value = o.done()
	return nil
}

// layoutOf reads a layout.
func layoutOf[T any](layout []byte) (*T, error) {
	l := new(T)
	if err := json.Unmarshal(layout, l); err != nil {
		return nil, err
	}
	return l, nil
}

// keyNames are the names of what makes a key.
func keyNames(by connectors.Keys) []string {
	names := []string{}
	for _, k := range by {
		names = append(names, k.Name)
	}
	return names
}

// windowLayout is a Window in a layout. Spans are in milliseconds.
type windowLayout struct {
	Kind       string `json:"kind"`
	Size       int64  `json:"size,omitempty"`
	Unit       string `json:"unit,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Offset     int64  `json:"offset,omitempty"`
	Every      int64  `json:"every,omitempty"`
	Gap        int64  `json:"gap,omitempty"`
	Max        int64  `json:"max,omitempty"`
	Count      int64  `json:"count,omitempty"`
	Processing bool   `json:"processing,omitempty"`
}

// layout is w for a layout; nil where there is no window.
func (w *Window) layout() *windowLayout {
	l := &windowLayout{
		Size: w.Size, Unit: string(w.Unit), Offset: w.Offset, Every: w.Every, Gap: w.Gap, Max: w.Max,
		Count: w.Count, Processing: w.Processing,
	}
	for name, kind := range windowKinds {
		if kind == w.Kind {
			l.Kind = name
		}
	}
	if w.Unit != "" {
		l.Zone = w.Zone.String()
	}
	if l.Kind == "" {
		return nil
	}
	return l
}

// errNoField is what an entry fails with that has other tables or fields than the
// layout says.
var errNoField = errors.New("the layout in the checkpoint does not say what this is")

// appendShown appends a value as JSON, whatever it holds.
func appendShown(dst []byte, v connectors.Value) []byte {
	at := len(dst)
	out, err := format.AppendValue(dst, v)
	switch k := v.Kind(); {
	case err != nil: // a float that JSON has no number for
		return format.AppendString(dst[:at], fmt.Sprint(v.Float()))
	case (k == connectors.Decimal || k == connectors.List || k == connectors.Map) && !json.Valid(out[at:]):
		return format.AppendString(out[:at], v.Text())
	default:
	}
	return out
}
