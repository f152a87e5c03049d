package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// WindowKind is how a window is made.
type WindowKind uint8

// The kinds of windows.
const (
	NoWindow       WindowKind = iota
	TumblingWindow            // of one size, one behind the other, or by the calendar
	SlidingWindow             // of one size, beginning every so often
	SessionWindow             // as long as records come without a gap
	CountWindow               // a number of records
)

// Window is the configuration of a window: `{tumbling: 10s}`, `{tumbling: day, zone:
// Europe/Berlin}`, `{sliding: {size: 1h, every: 1m}}`, `{session: {gap: 10m, max:
// 2h}}` or `{count: 100}`. All spans are in milliseconds.
type Window struct {
	Kind       WindowKind
	Size       int64       // tumbling by size, and sliding
	Unit       window.Unit // tumbling by the calendar
	Zone       *time.Location
	Offset     int64 // moves the starts; at least 0, but for calendar units
	Every      int64 // sliding: from start to start
	Gap        int64 // session: without a record for as long, it is over
	Max        int64 // session: no longer than this; 0 for any length
	Count      int64
	Processing bool // by the time of processing, not by that of the records
}

// Timed reports whether the window is a span of time.
func (w *Window) Timed() bool { return w.Kind != NoWindow && w.Kind != CountWindow }

// Grid is the division of time that an aligned window goes by: of a sliding one its
// panes, of which all its windows consist.
func (w *Window) Grid() window.Grid {
	switch {
	case w.Unit != "":
		return window.Calendar{Unit: w.Unit, Zone: w.Zone, Offset: w.Offset}
	case w.Kind == SlidingWindow:
		return window.Fixed{Size: w.pane(), Offset: w.Offset}
	default:
	}
	return window.Fixed{Size: w.Size, Offset: w.Offset}
}

func (w *Window) pane() int64 { return window.GCD(w.Size, w.Every) }

// String is the form that the file uses.
func (w *Window) String() string {
	var b strings.Builder
	switch w.Kind {
	case TumblingWindow:
		if w.Unit != "" {
			fmt.Fprintf(&b, "{tumbling: %s, zone: %s", w.Unit, w.Zone)
		} else {
			fmt.Fprintf(&b, "{tumbling: %s", millis(w.Size))
		}
	case SlidingWindow:
		fmt.Fprintf(&b, "{sliding: {size: %s, every: %s}", millis(w.Size), millis(w.Every))
	case SessionWindow:
		fmt.Fprintf(&b, "{session: {gap: %s", millis(w.Gap))
		if w.Max > 0 {
			fmt.Fprintf(&b, ", max: %s", millis(w.Max))
		}
		b.WriteString("}")
	case CountWindow:
		fmt.Fprintf(&b, "{count: %d", w.Count)
	default:
		return "none"
	}
	if w.Offset != 0 {
		fmt.Fprintf(&b, ", offset: %s", millis(w.Offset))
	}
	if w.Processing {
		b.WriteString(", time: processing")
	}
	return b.String() + "}"
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

var windowKinds = map[string]WindowKind{
	"tumbling": TumblingWindow, "sliding": SlidingWindow, "session": SessionWindow, "count": CountWindow,
}

const windowForms = "write {tumbling: 10s}, {tumbling: day, zone: Europe/Berlin}, {sliding: {size: 1h, every: 1m}}, {session: {gap: 10m}} or {count: 100}"

// UnmarshalConfig reads the forms, and gives all faults at once, each with its key.
func (w *Window) UnmarshalConfig(v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return &connectors.FieldError{Msg: fmt.Sprintf("a window is a kind with its size, and not %v", v), Help: windowForms}
	}
	r := &windowReader{w: w, m: m}
	r.kind()
	r.zone()
	r.offset()
	r.time()
	return errors.Join(r.faults...)
}

// windowsElsewhere is what other systems call the keys of windows.
var windowsElsewhere = map[string]string{
	"tumble": "tumbling", "fixed": "tumbling", "hop": "sliding", "hopping": "sliding", "slide": "every", "advance": "every", "step": "every",
	"length": "size", "timeout": "gap", "inactivity": "gap",
}

// nearestOfWindow is the key that was meant by another, or "".
func nearestOfWindow(key string, known []string) string {
	if own := windowsElsewhere[key]; slices.Contains(known, own) {
		return own
	}
	return connectors.Nearest(key, known)
}

// windowReader gathers the faults of one window.
type windowReader struct {
	w      *Window
	m      map[string]any
	faults []error
	broken bool // its kind has a fault, so that what depends on it is not judged
}

func (r *windowReader) fault(key, msg, help string) {
	r.faults = append(r.faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
}

// kind finds the one key that says what kind of window it is.
func (r *windowReader) kind() {
	known := []string{"tumbling", "sliding", "session", "count", "offset", "zone", "time"}
	var kinds []string
	for _, key := range sortedKeys(r.m) {
		if _, ok := windowKinds[key]; ok {
			kinds = append(kinds, key)
		} else if !slices.Contains(known, key) {
			r.broken = true
			if near := nearestOfWindow(key, known); near != "" {
				r.fault(key, "a window has no such key", fmt.Sprintf("did you mean %q?", near))
			} else {
				r.fault(key, "a window has no such key", windowForms)
			}
		}
	}
	if len(kinds) != 1 {
		if !r.broken && len(kinds) == 0 {
			r.fault("", "the kind of window is missing", windowForms)
		}
		if len(kinds) > 1 {
			r.fault("", "a window is of one kind, and these are "+strings.Join(kinds, " and "), "make a step of each")
		}
		r.broken = true
		return
	}
	r.w.Kind = windowKinds[kinds[0]]
	before := len(r.faults)
	switch v := r.m[kinds[0]]; r.w.Kind {
	case TumblingWindow:
		r.tumbling(v)
	case SlidingWindow:
		r.sliding(v)
	case SessionWindow:
		r.session(v)
	default:
		r.count(v)
	}
	r.broken = r.broken || len(r.faults) > before
}

func (r *windowReader) tumbling(v any) {
	text, _ := v.(string)
	if slices.Contains(window.Units(), text) {
		r.w.Unit = window.Unit(text)
		return
	}
	if near := connectors.Nearest(text, window.Units()); near != "" {
		r.fault("tumbling", fmt.Sprintf("there is no unit %q", text), fmt.Sprintf("did you mean %q?", near))
		return
	}
	r.w.Size = r.span("tumbling", v, "a duration such as 10s, or one of "+strings.Join(window.Units(), ", "))
}

func (r *windowReader) sliding(v any) {
	m := r.block("sliding", v, "{size: 1h, every: 1m}", "size", "every")
	if m == nil {
		return
	}
	r.w.Size = r.span("sliding.size", m["size"], "the length of a window, such as 1h")
	r.w.Every = r.span("sliding.every", m["every"], "how often a window begins, such as 1m")
	if r.w.Size > 0 && r.w.Every > r.w.Size {
		r.fault("sliding.every", "it is longer than the size, so that records between two windows would count in none", "make it at most the size")
	}
	if r.w.Size > 0 && r.w.Every > 0 && r.w.Size/r.w.pane() > maxPanes {
		r.fault("sliding", fmt.Sprintf("a window would consist of %d panes of %s, the greatest span that divides size and every; %d is the most",
			r.w.Size/r.w.pane(), millis(r.w.pane()), maxPanes), "choose an every that divides the size, or a longer one")
	}
}

// maxPanes bounds what is merged to make a sliding window.
const maxPanes = 10_000

func (r *windowReader) session(v any) {
	m := r.block("session", v, "{gap: 10m, max: 2h}", "gap", "max")
	if m == nil {
		return
	}
	r.w.Gap = r.span("session.gap", m["gap"], "the time without a record that ends a session, such as 10m")
	if limit, ok := m["max"]; ok {
		r.w.Max = r.span("session.max", limit, "the longest that a session may be, such as 2h")
	}
	if r.w.Max > 0 && r.w.Max < r.w.Gap {
		r.fault("session.max", "it is shorter than the gap, which the session of a single record is long", "make it at least the gap")
	}
}

func (r *windowReader) count(v any) {
	n, ok := v.(int64)
	if !ok || n < 1 {
		r.fault("count", fmt.Sprintf("it must be a number of records from 1, not %v", v), "")
	}
	r.w.Count = n
}

// block reads a map that may have these keys and must have the first.
func (r *windowReader) block(key string, v any, form string, keys ...string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		r.fault(key, "it takes keys with values", "write "+form)
		return nil
	}
	for _, k := range sortedKeys(m) {
		if slices.Contains(keys, k) {
			continue
		}
		help := "its keys are " + strings.Join(keys, " and ")
		if near := nearestOfWindow(k, keys); near != "" {
			help = fmt.Sprintf("did you mean %q?", near)
		}
		r.fault(key+"."+k, "there is no such key", help)
	}
	return m
}

// span reads a duration above zero in whole milliseconds; 0 where it is none.
func (r *windowReader) span(key string, v any, want string) int64 {
	text, ok := v.(string)
	if !ok {
		r.fault(key, "it must be "+want, "")
		return 0
	}
	d, err := connectors.ParseDuration(text)
	switch {
	case err != nil:
		r.fault(key, fmt.Sprintf("%q is none: it must be %s", text, want), "")
	case d <= 0:
		r.fault(key, "it must be above zero", "")
	case d%time.Millisecond != 0:
		r.fault(key, "it must be in whole milliseconds, which times are in", "")
	default:
		return d.Milliseconds()
	}
	return 0
}

func (r *windowReader) zone() {
	v, ok := r.m["zone"]
	r.w.Zone = time.UTC
	if !ok {
		return
	}
	name, _ := v.(string)
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		r.fault("zone", fmt.Sprintf("%v is no time zone", v), "write an IANA name such as Europe/Berlin or UTC")
		return
	}
	r.w.Zone = zone
	if !r.broken && r.w.Unit == "" {
		r.fault("zone", "only windows by the calendar have a time zone", "write tumbling: hour, day, week or month, or remove it")
	}
}

func (r *windowReader) offset() {
	v, ok := r.m["offset"]
	if !ok {
		return
	}
	text, _ := v.(string)
	d, err := connectors.ParseDuration(text)
	if err != nil || d%time.Millisecond != 0 {
		r.fault("offset", "it must be a duration in whole milliseconds, such as 15m", "")
		return
	}
	if r.broken {
		return
	}
	size := r.w.Size
	switch {
	case r.w.Unit != "":
		size = r.w.Unit.Span()
	case r.w.Kind == SlidingWindow:
		size = r.w.Every
	case r.w.Kind != TumblingWindow:
		r.fault("offset", "only tumbling and sliding windows have an offset", "remove it")
		return
	}
	r.w.Offset = d.Milliseconds()
	if r.w.Offset >= size || r.w.Offset <= -size {
		r.fault("offset", fmt.Sprintf("it must be less than %s, after which the windows begin anew", millis(size)), "")
	}
	if r.w.Unit == "" {
		r.w.Offset = window.FloorMod(r.w.Offset, size)
	}
}

func (r *windowReader) time() {
	v, ok := r.m["time"]
	if !ok {
		return
	}
	switch v {
	case "event":
	case "processing":
		r.w.Processing = true
	default:
		r.fault("time", fmt.Sprintf("it cannot be %v", v), "write event or processing")
	}
	if r.w.Kind == CountWindow {
		r.fault("time", "a window of a number of records goes by no time", "remove it")
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
