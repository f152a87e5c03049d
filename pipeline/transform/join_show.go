package transform

import (
	"encoding/binary"
	"time"

	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// joinLayout is how a join keeps its rows. Spans are in milliseconds.
type joinLayout struct {
	Keys   []string      `json:"keys"`
	Form   string        `json:"form"` // window, session, within, latest or plain
	Window *windowLayout `json:"window,omitempty"`
	// Processing says that a plain join goes by processing time.
	Processing bool          `json:"processing,omitempty"`
	TTL        int64         `json:"ttl,omitempty"` // 0 for ever
	Before     int64         `json:"before,omitempty"`
	After      int64         `json:"after,omitempty"`
	Wide       bool          `json:"wide,omitempty"` // left rows of within say their range themselves
	Sides      [2]sideLayout `json:"sides"`
}

// sideLayout is what is kept of the rows of a side.
type sideLayout struct {
	Whole  bool     `json:"whole,omitempty"` // the record, and these fields beside it
	Fields []string `json:"fields,omitempty"`
	Timed  bool     `json:"timed,omitempty"`  // a time stands in front of rows, for within
	Counts bool     `json:"counts,omitempty"` // matches of rows are counted
}

// The forms of a join in a layout.
const (
	formWindow  = "window"
	formSession = "session"
	formWithin  = "within"
	formLatest  = "latest"
	formPlain   = "plain"
)

// Layout implements Layouter.
func (s *joinStep) Layout() any {
	c := s.config
	l := joinLayout{Keys: s.keys, TTL: c.TTL.millis(), Processing: s.processing}
	switch {
	case c.windowed() && c.Window.Kind == SessionWindow:
		l.Form, l.Window = formSession, c.Window.layout()
	case c.windowed():
		l.Form, l.Window = formWindow, c.Window.layout()
	case c.Within != nil:
		l.Form, l.Wide = formWithin, c.Within.From.Set()
		l.Before, l.After = time.Duration(c.Within.Before).Milliseconds(), time.Duration(c.Within.After).Milliseconds()
	case c.Latest:
		l.Form = formLatest
	default:
		l.Form = formPlain
	}
	for side := range s.sides {
		kept := &s.sides[side]
		l.Sides[side] = sideLayout{
			Whole: kept.whole, Fields: kept.paths, Timed: l.Form == formWithin && (c.outer(side) || l.Wide && side == leftSide),
			Counts: l.Form != formLatest && (c.outer(side) || c.leftOnly() && side == leftSide),
		}
	}
	return l
}

// joinReader implements StateReader for a join.
type joinReader struct {
	*joinLayout
	grid    window.Grid
	records [2]*recordReader
}

func openJoin(layout []byte) (StateReader, error) {
	l, err := layoutOf[joinLayout](layout)
	if err != nil {
		return nil, err
	}
	r := &joinReader{joinLayout: l}
	for side := range r.records {
		r.records[side] = newRecordReader(l.Sides[side].Fields)
	}
	if l.Window != nil {
		r.grid, err = l.Window.grid()
	} else if l.Form == formWindow || l.Form == formSession {
		err = errNoField
	}
	return r, err
}

// Show implements StateReader.
func (r *joinReader) Show(e *state.Entry, s *Shown) error {
	var o shownObject
	var err error
	side := leftSide
	switch e.Table {
	case "spans":
		err = r.spans(&o, e.Value)
	case "versions":
		err = r.versions(&o, e.Value)
	case "waiting":
		s.Span = &Span{What: "bucket", Start: e.NS, End: plusTime(e.NS, waitingWidth)}
		err = r.rows(&o, leftSide, e.Value)
	case sideNames[rightSide]:
		side = rightSide
		fallthrough
	case sideNames[leftSide]:
		s.Span = r.span(side, e.NS)
		if r.Form == formWindow {
			err = r.windowRows(&o, side, e.Value)
		} else {
			err = r.rows(&o, side, e.Value)
		}
	default:
		err = errNoField
	}
	s.Value = o.done()
	return err
}

// span is what the namespace of a side's rows stands for.
func (r *joinReader) span(side int, ns int64) *Span {
	width := int64(0)
	switch {
	case r.Form == formWindow && r.Window.Kind == "sliding":
		return &Span{What: "window", Start: plusTime(ns, -r.Window.Size), End: ns}
	case r.Form == formWindow && r.grid != nil:
		return spanOf(r.grid, r.Window.Kind, ns)
	case r.Form == formPlain && r.TTL > 0, r.Form == formWithin && r.Wide && side == rightSide && r.TTL > 0:
		width = max(leastBucket, r.TTL/bucketsOf)
	case r.Form == formWithin && !r.Wide:
		width = max(leastBucket, (r.Before+r.After)/bucketsOf)
	}
	if width == 0 {
		return nil
	}
	return &Span{What: "bucket", Start: ns, End: plusTime(ns, width)}
}

// rows shows kept rows, each with when it goes.
func (r *joinReader) rows(o *shownObject, side int, value []byte) error {
	if r.Sides[side].Timed {
		if len(value) < 8 {
			return state.ErrCorrupt
		}
		o.time("timer", get64(value, 0))
		value = value[8:]
	}
	var list shownList
	for len(value) > 0 {
		e, rest, err := nextEntry(value)
		if err != nil {
			return err
		}
		value = rest
		var one shownObject
		r.times(&one, side, e)
		if r.Sides[side].Counts {
			one.int("matches", int64(e.count()))
		}
		if err := r.kept(&one, side, e.record().kept); err != nil {
			return err
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("rows", list.done())
	return nil
}

// times shows the times of a kept row: its own, with which times of the other side it
// matches where it says so itself, how late it came, and when it goes.
func (r *joinReader) times(o *shownObject, side int, e joinEntry) {
	o.time("time", e.time())
	switch {
	case !e.bounded():
	case r.Form == formPlain && r.Processing:
		a, _ := e.bounds()
		o.time("event_time", a)
	default:
		a, b := e.bounds()
		o.time("from", a)
		o.time("to", b)
	}
	if e.marked() {
		o.time("came_at_watermark", e.mark())
	}
	switch {
	case r.Form == formPlain && r.TTL > 0:
		o.time("expires", plusTime(e.time(), r.TTL))
	case r.Form != formWithin:
	case side == leftSide && e.bounded():
		_, to := e.bounds()
		o.time("expires", to)
	case side == leftSide:
		o.time("expires", plusTime(e.time(), r.After))
	case !r.Wide:
		o.time("expires", plusTime(e.time(), r.Before))
	case r.TTL > 0:
		o.time("expires", plusTime(e.time(), r.TTL))
	}
}

// kept shows what is kept of a record.
func (r *joinReader) kept(o *shownObject, side int, kept []byte) error {
	if r.Sides[side].Whole {
		record, err := r.records[side].show(kept)
		o.raw("record", record)
		return err
	}
	var fields shownObject
	if err := showValues(&fields, kept, r.Sides[side].Fields); err != nil {
		return err
	}
	o.raw("fields", fields.done())
	return nil
}

// windowRows shows the rows of a window.
func (r *joinReader) windowRows(o *shownObject, side int, value []byte) error {
	var list shownList
	for len(value) > 0 {
		x, rest, err := nextWindowRow(value)
		if err != nil {
			return err
		}
		value = rest
		var one shownObject
		if err := r.kept(&one, side, x.kept); err != nil {
			return err
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("rows", list.done())
	return nil
}

// spans shows the sessions of a key, in parts where one is long enough to be cut.
func (r *joinReader) spans(o *shownObject, value []byte) error {
	if len(value) < sessionHead || (len(value)-sessionHead)%spanSize != 0 {
		return state.ErrCorrupt
	}
	o.time("timer", get64(value, 0))
	var list shownList
	for at := sessionHead; at < len(value); at += spanSize {
		var one shownObject
		one.time("start", get64(value, at))
		one.time("end", get64(value, at+8))
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("sessions", list.done())
	return nil
}

// versions shows the right records that are the value of their key one after the other.
func (r *joinReader) versions(o *shownObject, value []byte) error {
	if len(value) < versionsHead || int(binary.LittleEndian.Uint32(value)) > len(value) {
		return state.ErrCorrupt
	}
	var list shownList
	for rest := value[versionsHead:]; len(rest) > 0; {
		e, tail, err := nextEntry(rest)
		if err != nil {
			return err
		}
		rest = tail
		v := version{e}
		var one shownObject
		one.time("from", v.begin())
		one.time("time", v.time())
		if r.TTL > 0 {
			one.time("expires", plusTime(v.time(), r.TTL))
		}
		switch {
		case v.count() > 1:
			return state.ErrCorrupt
		case v.ends():
			one.raw("deleted", []byte("true"))
		default:
			if err := r.kept(&one, rightSide, v.record().kept); err != nil {
				return err
			}
		}
		list.next()
		list.b = append(list.b, one.done()...)
	}
	o.raw("versions", list.done())
	return nil
}
