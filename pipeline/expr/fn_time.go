package expr

import (
	"strings"
	"time"
	_ "time/tzdata" // the zones must be there wherever the binary runs

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	define(
		function{Function: doc("now(zone string?) timestamp", "gives the processing time, in UTC or in a zone", `now() > timestamp(0)`, `true`), changing: true, build: now},
		function{Function: doc("timestamp(time time, zone string?) timestamp", "makes a timestamp of epoch milliseconds or RFC 3339 text, in its own zone or in the one given", `timestamp(1700000000000)`, `"2023-11-14T22:13:20Z"`), build: timestamp},
		function{Function: doc("parse_time(text string, layout string, zone string?) timestamp", "reads a time by a layout, strftime's where it has a % and otherwise Go's; without an offset in the text it is in the zone given, or UTC", `parse_time("14.11.2023 22:13", "%d.%m.%Y %H:%M")`, `"2023-11-14T22:13:00Z"`), build: parseTime},
		function{Function: doc("format_time(time time, layout string, zone string?) string", "writes a time by a layout, strftime's where it has a % and otherwise Go's, in the zone given or UTC", `format_time(1700000000000, "%Y-%m-%d", "Asia/Tokyo")`, `"2023-11-15"`), build: formatTime},
		function{Function: doc("unix_ms(time time) int", "gives the milliseconds since 1970", `unix_ms("2023-11-14T22:13:20Z")`, `1700000000000`), build: ofTime(func(t time.Time) connectors.Value { return connectors.IntValue(t.UnixMilli()) })},
		function{Function: doc("unix(time time) int", "gives the seconds since 1970", `unix("2023-11-14T22:13:20Z")`, `1700000000`), build: ofTime(func(t time.Time) connectors.Value { return connectors.IntValue(t.Unix()) })},
		function{Function: doc("date_trunc(unit string, time time, zone string?) timestamp", "gives the start of the second, minute, hour, day, week (Monday), month, quarter or year, in the zone given or UTC", `date_trunc("hour", "2023-11-14T22:13:20Z")`, `"2023-11-14T22:00:00Z"`), build: dateTrunc},
		function{Function: doc("date(text string, layout string?, zone string?) timestamp", "reads a time by Go's layout, or in one of the common forms", `date("2023-11-14")`, `"2023-11-14T00:00:00Z"`), build: date},
		function{Function: doc("duration(text string) duration", "reads a span of time, such as 1h30m", `duration("90s")`, `"1m30s"`), run1: duration},
	)
	part := func(name, words, result string, get func(time.Time) int) {
		define(function{Function: doc(name+"(time time, zone string?) int", words+", in the zone given or the time's own", name+`("2023-11-14T22:13:20Z")`, result),
			build: withZone(0, 1, func(e *Env, s *site, t time.Time, zone *time.Location) connectors.Value {
				if zone != nil {
					t = t.In(zone)
				}
				return connectors.IntValue(int64(get(t)))
			})})
	}
	part("year", "gives the year", "2023", time.Time.Year)
	part("month", "gives the month, from 1", "11", func(t time.Time) int { return int(t.Month()) })
	part("day", "gives the day of the month", "14", time.Time.Day)
	part("hour", "gives the hour", "22", time.Time.Hour)
	part("minute", "gives the minute", "13", time.Time.Minute)
	part("second", "gives the second", "20", time.Time.Second)
	part("weekday", "gives the day of the week, from 0 for Sunday", "2", func(t time.Time) int { return int(t.Weekday()) })
	part("year_day", "gives the day of the year, from 1", "318", time.Time.YearDay)
	span := func(name string, result string, get func(time.Duration) connectors.Value, typ string) {
		define(function{Function: doc(name+"(span duration) "+typ, "gives a span of time in "+name, name+`(duration("90s"))`, result),
			run1: func(_ *Env, _ *site, v connectors.Value) connectors.Value { return get(v.Duration()) }})
	}
	float := func(f func(time.Duration) float64) func(time.Duration) connectors.Value {
		return func(d time.Duration) connectors.Value { return connectors.FloatValue(f(d)) }
	}
	span("hours", "0.025", float(time.Duration.Hours), "float")
	span("minutes", "1.5", float(time.Duration.Minutes), "float")
	span("seconds", "90", float(time.Duration.Seconds), "float")
	span("milliseconds", "90000", func(d time.Duration) connectors.Value { return connectors.IntValue(d.Milliseconds()) }, "int")
}

// methods maps expr-lang's methods of times and durations to functions.
var methods = map[string]string{
	"Year": "year", "Month": "month", "Day": "day", "Hour": "hour", "Minute": "minute", "Second": "second",
	"Weekday": "weekday", "YearDay": "year_day", "Unix": "unix", "UnixMilli": "unix_ms", "Format": "format_time",
	"Hours": "hours", "Minutes": "minutes", "Seconds": "seconds", "Milliseconds": "milliseconds",
}

func millis(ms int64) connectors.Value { return connectors.TimestampValue(time.UnixMilli(ms).UTC()) }

// asTime reads what functions of time take.
func (e *Env) asTime(s *site, v connectors.Value) (time.Time, bool) {
	switch v.Kind() {
	case connectors.Timestamp:
		return v.Time(), true
	case connectors.Int:
		return time.UnixMilli(v.Int()).UTC(), true
	case connectors.String:
		t, err := time.Parse(time.RFC3339, v.Text())
		if err == nil {
			return t, true
		}
		e.fail(s, KindArgument, s.name+" is text that is no time of RFC 3339, such as 2006-01-02T15:04:05Z; parse_time() reads other forms")
	case failed:
	case connectors.Absent, connectors.Null:
		e.null(s, "read as a time", "0")
	default:
		e.failf(s, KindType, "a time is a timestamp, an int of epoch milliseconds or RFC 3339 text, and %s is %s", s.name, article(v.Kind()))
	}
	return time.Time{}, false
}

// zoneCache keeps the zones that records name, also the unknown ones: looking
// them up reads files.
type zoneCache struct{ byName map[string]*time.Location }

const zonesKept = 256

func loadZone(name string) *time.Location {
	switch name {
	case "", "Local":
		// The machine's own zone must not decide what a pipeline computes.
		return nil
	case "UTC":
		return time.UTC
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

func (e *Env) zone(s *site, name string) *time.Location {
	zone, known := e.zones.byName[name]
	if !known {
		const longest = 64
		if len(name) <= longest {
			zone = loadZone(name)
			if e.zones.byName == nil || len(e.zones.byName) >= zonesKept {
				e.zones.byName = map[string]*time.Location{}
			}
			e.zones.byName[strings.Clone(name)] = zone
		}
	}
	if zone == nil {
		e.fail(s, KindArgument, s.name+" is no zone such as Europe/Berlin")
	}
	return zone
}

// zoneOf compiles the argument i as a zone, nil where it is not given. ok is
// false if a fault was noted.
func (c *compiler) zoneOf(args []*node, i int) (get func(e *Env) (*time.Location, bool), ok bool) {
	if i >= len(args) {
		return func(*Env) (*time.Location, bool) { return nil, true }, true
	}
	n := args[i]
	if name, fixed := n.text(); fixed {
		zone := loadZone(name)
		if zone == nil {
			c.fault(n.at, "no zone is called `"+name+"`", "names are as in Europe/Berlin, or UTC")
			return nil, false
		}
		return func(*Env) (*time.Location, bool) { return zone, true }, true
	}
	run, at := n.run, n.at
	return func(e *Env) (*time.Location, bool) {
		v := run(e)
		if v.Kind() != connectors.String {
			if v.Kind() != failed {
				e.failf(at, KindType, "a zone is a string, and %s is %s", at.name, article(v.Kind()))
			}
			return nil, false
		}
		zone := e.zone(at, v.Text())
		return zone, zone != nil
	}, true
}

// withZone compiles a function of the time at argument i and an optional zone at
// argument j.
func withZone(i, j int, do func(*Env, *site, time.Time, *time.Location) connectors.Value) func(*compiler, *site, []*node) fn {
	return func(c *compiler, at *site, args []*node) fn {
		zone, ok := c.zoneOf(args, j)
		if !ok {
			return nil
		}
		run, when := args[i].run, args[i].at
		return func(e *Env) connectors.Value {
			t, ok := e.asTime(when, run(e))
			if !ok {
				return failure
			}
			z, ok := zone(e)
			if !ok {
				return failure
			}
			return do(e, at, t, z)
		}
	}
}

func ofTime(get func(time.Time) connectors.Value) func(*compiler, *site, []*node) fn {
	return withZone(0, 1, func(_ *Env, _ *site, t time.Time, _ *time.Location) connectors.Value { return get(t) })
}

func timestamp(c *compiler, at *site, args []*node) fn {
	return withZone(0, 1, func(_ *Env, _ *site, t time.Time, zone *time.Location) connectors.Value {
		if zone != nil {
			t = t.In(zone)
		}
		return connectors.TimestampValue(t)
	})(c, at, args)
}

func now(c *compiler, at *site, args []*node) fn {
	zone, ok := c.zoneOf(args, 0)
	if !ok {
		return nil
	}
	return func(e *Env) connectors.Value {
		z, ok := zone(e)
		if !ok {
			return failure
		}
		if z == nil {
			z = time.UTC
		}
		clock := e.Now
		if clock == nil {
			clock = time.Now
		}
		return connectors.TimestampValue(clock().In(z))
	}
}

func duration(e *Env, s *site, v connectors.Value) connectors.Value {
	d, err := time.ParseDuration(v.Text())
	if err != nil {
		return e.fail(s, KindArgument, "the text given to duration() is no span of time such as 1h30m")
	}
	return connectors.DurationValue(d)
}

// truncate gives the start of a unit of time.
type truncate func(t time.Time) time.Time

var units = map[string]truncate{
	"second": func(t time.Time) time.Time { return t.Add(-time.Duration(t.Nanosecond())) },
	"minute": func(t time.Time) time.Time { return t.Add(-sinceMinute(t)) },
	// Subtracting keeps the two hours apart that a clock set back shows alike.
	"hour": func(t time.Time) time.Time {
		return t.Add(-sinceMinute(t) - time.Duration(t.Minute())*time.Minute)
	},
	"day":  func(t time.Time) time.Time { return dayStart(t, t.Year(), t.Month(), t.Day()) },
	"week": func(t time.Time) time.Time { return dayStart(t, t.Year(), t.Month(), t.Day()-int(t.Weekday()+6)%7) },
	"month": func(t time.Time) time.Time {
		return dayStart(t, t.Year(), t.Month(), 1)
	},
	"quarter": func(t time.Time) time.Time { return dayStart(t, t.Year(), (t.Month()-1)/3*3+1, 1) },
	"year":    func(t time.Time) time.Time { return dayStart(t, t.Year(), time.January, 1) },
}

func sinceMinute(t time.Time) time.Duration {
	return time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
}

// dayStart is the first moment of a day in t's zone. Where a clock is set
// forward at midnight that is not 00:00.
func dayStart(t time.Time, y int, m time.Month, d int) time.Time {
	start := time.Date(y, m, d, 0, 0, 0, 0, t.Location())
	noon := time.Date(y, m, d, 12, 0, 0, 0, t.Location())
	if start.Day() == noon.Day() {
		return start
	}
	_, end := start.ZoneBounds()
	return end
}

func dateTrunc(c *compiler, at *site, args []*node) fn {
	unit := c.unitOf(args[0])
	if unit == nil {
		return nil
	}
	return withZone(1, 2, func(e *Env, _ *site, t time.Time, zone *time.Location) connectors.Value {
		cut := unit(e)
		if cut == nil {
			return failure
		}
		if zone == nil {
			zone = time.UTC
		}
		return connectors.TimestampValue(cut(t.In(zone)))
	})(c, at, args)
}

const unitNames = "second, minute, hour, day, week, month, quarter or year"

func (c *compiler) unitOf(n *node) func(e *Env) truncate {
	if name, ok := n.text(); ok {
		unit := units[name]
		if unit == nil {
			c.fault(n.at, "there is no unit `"+name+"`", "it is one of "+unitNames)
			return nil
		}
		return func(*Env) truncate { return unit }
	}
	run, at := n.run, n.at
	return func(e *Env) truncate {
		v := run(e)
		if v.Kind() == failed {
			return nil
		}
		unit := truncate(nil)
		if v.Kind() == connectors.String {
			unit = units[v.Text()]
		}
		if unit == nil {
			e.fail(at, KindArgument, at.name+" is none of "+unitNames)
		}
		return unit
	}
}
