package expr

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// layout is how a time is written, in segments: literal text, or a layout of Go
// that stands for one part.
type layout struct {
	segments []segment
	plain    string // Go's layout for all of it, for reading
	seconds  bool   // it is the seconds since 1970
}

type segment struct {
	text    string
	literal bool
}

// directives maps strftime's letters to Go's layouts.
var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'p': "PM", 'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'j': "002", 'z': "-0700", 'Z': "MST",
}

var compound = map[byte]string{'F': "%Y-%m-%d", 'T': "%H:%M:%S", 'R': "%H:%M", 'D': "%m/%d/%y"}

var escapes = map[byte]string{'%': "%", 'n': "\n", 't': "\t"}

// A fraction of a second is a directive of its own in strftime, and belongs to
// the point before it in Go.
var fractions = map[byte]string{'f': "000000", 'L': "000", 'N': "000000000"}

// newLayout reads a layout: strftime's where it has a %, otherwise Go's.
func newLayout(text string) (*layout, error) {
	if !strings.Contains(text, "%") {
		return &layout{segments: []segment{{text: text}}, plain: text}, nil
	}
	if text == "%s" {
		return &layout{seconds: true}, nil
	}
	l := &layout{}
	if err := l.read(text); err != nil {
		return nil, err
	}
	for _, s := range l.segments {
		l.plain += s.text
	}
	return l, nil
}

func (l *layout) read(text string) error {
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			l.literal(text[i : i+1])
			continue
		}
		if i++; i == len(text) {
			return errors.New("the layout ends with %; a percent sign is written %%")
		}
		letter := text[i]
		switch {
		case directives[letter] != "":
			l.segments = append(l.segments, segment{text: directives[letter]})
		case compound[letter] != "":
			if err := l.read(compound[letter]); err != nil {
				return err
			}
		case escapes[letter] != "":
			l.literal(escapes[letter])
		case fractions[letter] != "":
			n := len(l.segments) - 1
			if n < 0 || !l.segments[n].literal || !strings.HasSuffix(l.segments[n].text, ".") {
				return fmt.Errorf("%%%c needs a point before it, as in %%S.%%%c", letter, letter)
			}
			l.segments[n].text = strings.TrimSuffix(l.segments[n].text, ".")
			l.segments = append(l.segments, segment{text: "." + fractions[letter]})
		default:
			return fmt.Errorf("%%%c is not known in a layout", letter)
		}
	}
	return nil
}

func (l *layout) literal(text string) {
	if n := len(l.segments) - 1; n >= 0 && l.segments[n].literal {
		l.segments[n].text += text
		return
	}
	l.segments = append(l.segments, segment{text: text, literal: true})
}

func (l *layout) append(dst []byte, t time.Time) []byte {
	if l.seconds {
		return fmt.Appendf(dst, "%d", t.Unix())
	}
	for _, s := range l.segments {
		if s.literal {
			dst = append(dst, s.text...)
		} else {
			dst = t.AppendFormat(dst, s.text)
		}
	}
	return dst
}

// readable says why times cannot be read by the layout: where its literal text
// is something else to Go.
func (l *layout) readable() error {
	if l.seconds {
		return nil
	}
	for _, t := range []time.Time{time.Date(2031, 7, 19, 21, 37, 43, 123456789, time.UTC), time.Date(1998, 10, 28, 5, 8, 9, 0, time.FixedZone("XYZ", 3600))} {
		if got := t.Format(l.plain); got != string(l.append(nil, t)) {
			return errors.New("times cannot be read by a layout with this text in it; use a layout of Go's")
		}
	}
	return nil
}

// layoutOf compiles the argument i as a layout.
func (c *compiler) layoutOf(n *node, reading bool) func(e *Env) *layout {
	read := func(text string) (*layout, error) {
		l, err := newLayout(text)
		if err == nil && reading {
			err = l.readable()
		}
		return l, err
	}
	if text, ok := n.text(); ok {
		l, err := read(text)
		if err != nil {
			c.fault(n.at, err.Error(), "")
			return nil
		}
		return func(*Env) *layout { return l }
	}
	run, at := n.run, n.at
	return func(e *Env) *layout {
		v := run(e)
		if v.Kind() != connectors.String {
			if v.Kind() != failed {
				e.failf(at, KindType, "a layout is a string, and %s is %s", at.name, article(v.Kind()))
			}
			return nil
		}
		const longest = 256
		if len(v.Text()) > longest {
			e.failf(at, KindLimit, "a layout has at most %d bytes", longest)
			return nil
		}
		l, err := read(v.Text())
		if err != nil {
			e.fail(at, KindArgument, at.name+" is no valid layout")
			return nil
		}
		return l
	}
}

func formatTime(c *compiler, at *site, args []*node) fn {
	how := c.layoutOf(args[1], false)
	if how == nil {
		return nil
	}
	return withZone(0, 2, func(e *Env, s *site, t time.Time, zone *time.Location) connectors.Value {
		l := how(e)
		if l == nil {
			return failure
		}
		if zone == nil {
			zone = time.UTC
		}
		const room = 128
		a := e.arena()
		out := a.Keep(l.append(a.Grow(room), t.In(zone)))
		if !e.spend(s, len(out)) {
			return failure
		}
		return connectors.TextValue(connectors.String, out)
	})(c, at, args)
}

// parsing compiles the reading of text by layouts that how gives.
func (c *compiler) parsing(at *site, args []*node, how func(e *Env, text string, zone *time.Location) (time.Time, bool)) fn {
	zone, ok := c.zoneOf(args, 2)
	if !ok {
		return nil
	}
	text := checked(functions["parse_time"], 0, args[0])
	return func(e *Env) connectors.Value {
		v := text(e)
		if v.Kind() == failed {
			return v
		}
		z, ok := zone(e)
		if !ok {
			return failure
		}
		if z == nil {
			z = time.UTC
		}
		t, ok := how(e, v.Text(), z)
		if !ok {
			return e.fail(at, KindArgument, args[0].at.name+" is not written as the layout says")
		}
		return connectors.TimestampValue(t)
	}
}

func parseTime(c *compiler, at *site, args []*node) fn {
	l := c.layoutOf(args[1], true)
	if l == nil {
		return nil
	}
	return c.parsing(at, args, func(e *Env, text string, zone *time.Location) (time.Time, bool) {
		by := l(e)
		switch {
		case by == nil:
			return time.Time{}, false
		case by.seconds:
			v := toInt(e, at, connectors.StringValue(text))
			return time.Unix(v.Int(), 0).UTC(), v.Kind() == connectors.Int
		}
		t, err := time.ParseInLocation(by.plain, text, zone)
		return t, err == nil
	})
}

// The forms that expr-lang's date() reads.
var dateForms = []string{
	"2006-01-02", "15:04:05", "2006-01-02 15:04:05", time.RFC3339, time.RFC822, time.RFC850, time.RFC1123,
}

func date(c *compiler, at *site, args []*node) fn {
	if len(args) > 1 {
		if text, ok := args[1].text(); ok {
			return c.parsing(at, args, func(_ *Env, s string, zone *time.Location) (time.Time, bool) {
				t, err := time.ParseInLocation(text, s, zone)
				return t, err == nil
			})
		}
		return parseTime(c, at, args)
	}
	return c.parsing(at, args, func(_ *Env, s string, zone *time.Location) (time.Time, bool) {
		for _, form := range dateForms {
			if t, err := time.ParseInLocation(form, s, zone); err == nil {
				return t, true
			}
		}
		return time.Time{}, false
	})
}
