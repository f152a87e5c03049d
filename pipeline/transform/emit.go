package transform

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// EmitMode says when a keyed step gives its results out.
type EmitMode uint8

// The modes.
const (
	EmitDefault  EmitMode = iota // what the step does where the file says nothing
	EmitOnClose                  // once, when nothing can change any more
	EmitOnChange                 // at each change, as updates
	EmitEvery                    // changes gathered over a span of processing time, as updates
)

// Emit is when a step gives its results out: `on_close`, `on_change`, or
// `{every: 10s}`.
type Emit struct {
	Mode  EmitMode
	Every time.Duration
}

// UnmarshalConfig reads the three forms.
func (e *Emit) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		switch v {
		case "on_close":
			e.Mode = EmitOnClose
			return nil
		case "on_change":
			e.Mode = EmitOnChange
			return nil
		}
		if near := connectors.Nearest(v, []string{"on_close", "on_change"}); near != "" {
			return fmt.Errorf("%q is no way to emit; did you mean %s?", v, near)
		}
	case map[string]any:
		text, ok := v["every"].(string)
		if !ok || len(v) != 1 {
			break
		}
		d, err := connectors.ParseDuration(text)
		if err != nil {
			return err
		}
		if d <= 0 {
			return errors.New("every must be a span above zero, such as 10s")
		}
		e.Mode, e.Every = EmitEvery, d
		return nil
	}
	return errors.New("write on_close, on_change, or {every: 10s}")
}

// or is e, or what a step does where the file says nothing.
func (e Emit) or(mode EmitMode) Emit {
	if e.Mode == EmitDefault {
		e.Mode = mode
	}
	return e
}

// Updating reports whether results that were given out can change.
func (e Emit) Updating() bool { return e.Mode == EmitOnChange || e.Mode == EmitEvery }

// String is the form that the file uses.
func (e Emit) String() string {
	switch e.Mode {
	case EmitOnClose:
		return "on_close"
	case EmitOnChange:
		return "on_change"
	case EmitEvery:
		return "{every: " + e.Every.String() + "}"
	default:
	}
	return ""
}

// definition is what the meaning of state hangs on, as text: whether results were given
// out, and what of them is kept.
func (e Emit) definition() string {
	if e.Mode == EmitEvery {
		return " emit every"
	}
	return " emit " + e.String()
}

// pace says when a step that emits every so often is due.
type pace struct {
	every time.Duration
	next  time.Time
}

// due reports whether a span has passed, and begins the next one.
func (p *pace) due(now time.Time) bool {
	if p.next.IsZero() {
		p.next = now.Add(p.every)
		return false
	}
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(p.every)
	return true
}
