package spec

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Watermark says how event time advances at a source.
type Watermark struct {
	// Delay is how far out of order records may be: the watermark of a split is the
	// highest event time in it less Delay.
	Delay time.Duration
	// IdleAfter is how long a split that is read to its end may bring nothing before
	// it holds event time back no more; 0 is for ever.
	IdleAfter time.Duration
	// MaxDrift is how far a split may be ahead of the slowest one of all sources that
	// have a MaxDrift before it waits; 0 is no limit.
	MaxDrift time.Duration
	// MaxFuture is how far ahead of the clock an event time may be; a record beyond it
	// is an error.
	MaxFuture time.Duration
	// AdvanceWhenIdle lets the clock move event time on while every split is idle.
	AdvanceWhenIdle bool
	// Written says that the file has the block.
	Written bool
}

// never is the word for a time that does not come.
const never = "never"

// patience is a duration or the word never, which is 0.
type patience time.Duration

// tooLittle stands for a duration that Validate refuses.
const tooLittle = -1

// UnmarshalConfig reads both forms.
func (p *patience) UnmarshalConfig(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a duration such as 30s, or never, is wanted, not %v", v)
	}
	if s == never {
		*p = 0
		return nil
	}
	d, err := connectors.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%w, or never", err)
	}
	if d <= 0 {
		d = tooLittle
	}
	*p = patience(d)
	return nil
}

// String is the form that the file uses.
func (p patience) String() string {
	if p == 0 {
		return never
	}
	return spanText(time.Duration(p))
}

type watermarkKeys struct {
	Delay           time.Duration  `key:"delay" doc:"How far out of order records may be."`
	IdleAfter       patience       `key:"idle_after" doc:"A partition that is read to its end and brings nothing for so long holds event time back no more; never for always."`
	MaxDrift        *time.Duration `key:"max_drift" doc:"A partition whose event time is further ahead of the slowest one waits."`
	MaxFuture       time.Duration  `key:"max_future" doc:"An event time further ahead of the clock is an error of its record."`
	AdvanceWhenIdle bool           `key:"advance_when_idle" doc:"Whether the clock moves event time on when all is idle."`
}

// Validate checks the settings of a watermark.
func (k *watermarkKeys) Validate() error {
	faults := []error{notNegative("delay", k.Delay), positive("max_future", k.MaxFuture)}
	if k.IdleAfter < 0 {
		faults = append(faults, &connectors.FieldError{
			Key: "idle_after", Msg: "must be more than 0s", Help: "write never where a partition that brings nothing is to hold event time back for ever",
		})
	}
	if k.MaxDrift != nil {
		faults = append(faults, positive("max_drift", *k.MaxDrift))
	}
	if k.AdvanceWhenIdle && k.IdleAfter == 0 {
		faults = append(faults, &connectors.FieldError{
			Key: "advance_when_idle", Msg: "has no effect beside idle_after: never, with which nothing is idle", Help: "remove one of them",
		})
	}
	return errors.Join(faults...)
}

// watermark reads the block of a source; nil gives the defaults.
func (l *loader) watermark(b block, n *node) Watermark {
	k := watermarkKeys{Delay: 5 * time.Second, IdleAfter: patience(30 * time.Second), MaxFuture: time.Hour}
	written := n != nil && !n.bad
	if written {
		l.config(b.node.entry("watermark").name, n, &k, "watermark")
	}
	w := Watermark{
		Delay: k.Delay, IdleAfter: time.Duration(k.IdleAfter), MaxFuture: k.MaxFuture,
		AdvanceWhenIdle: k.AdvanceWhenIdle, Written: written,
	}
	if k.MaxDrift != nil {
		w.MaxDrift = *k.MaxDrift
	}
	return w
}

// watermark writes the block out again.
func (d *dumper) watermark(w Watermark) any {
	if !w.Written {
		return nil
	}
	var o ordered
	o.add("delay", spanText(w.Delay))
	o.add("idle_after", patience(w.IdleAfter).String())
	if w.MaxDrift > 0 {
		o.add("max_drift", spanText(w.MaxDrift))
	}
	o.add("max_future", spanText(w.MaxFuture))
	o.add("advance_when_idle", w.AdvanceWhenIdle)
	return o
}
