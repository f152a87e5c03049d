package window

import "time"

// Unit is a unit of the calendar.
type Unit string

// The units.
const (
	Hour  Unit = "hour"  // from full hour to full hour; a change of the clock ends one
	Day   Unit = "day"   // from midnight to midnight: 23 and 25 hours where the clock changes
	Week  Unit = "week"  // from Monday to Monday, as ISO 8601 has it
	Month Unit = "month" // from the first to the first
)

// Units lists the names of all units.
func Units() []string { return []string{string(Hour), string(Day), string(Week), string(Month)} }

// Span is the length of the unit by the wall clock, in milliseconds, the shortest
// there is. Offsets are less.
func (u Unit) Span() int64 {
	switch u {
	case Hour:
		return hourMillis
	case Week:
		return 7 * dayMillis
	case Month:
		return 28 * dayMillis
	default:
	}
	return dayMillis
}

const (
	hourMillis = int64(time.Hour / time.Millisecond)
	dayMillis  = 24 * hourMillis
)

// Calendar is a Grid of calendar units in a time zone. Offset moves the starts by
// the wall clock: a Day with 6 hours begins at 06:00. A unit starts at the first
// moment at which the wall clock shows its start or a later time: where a day has
// no midnight it starts when the clock goes on, where it has two at the first.
type Calendar struct {
	Unit   Unit
	Zone   *time.Location
	Offset int64 // milliseconds by the wall clock
}

// At implements Grid.
func (c Calendar) At(t int64) (start, end int64) {
	t = Clamp(t)
	if c.Unit == Hour {
		return c.hour(t)
	}
	_, seconds := time.UnixMilli(t).In(c.Zone).Zone()
	n := c.index(t + int64(seconds)*1000 - c.Offset)
	start, end = c.boundary(n), c.boundary(n+1)
	// The wall clock does not always go forward.
	for t < start {
		n--
		start, end = c.boundary(n), start
	}
	for t >= end {
		n++
		start, end = end, c.boundary(n+1)
	}
	return start, end
}

// hour is the hour by the wall clock, cut where the clock changes: the hour that
// comes twice in autumn is two windows.
func (c Calendar) hour(t int64) (start, end int64) {
	from, to, offset := period(t, c.Zone)
	start = t - FloorMod(t+offset-c.Offset, hourMillis)
	return max(start, from), min(start+hourMillis, to)
}

// index numbers the units by a wall clock's milliseconds since 1970.
func (c Calendar) index(wall int64) int64 {
	switch c.Unit {
	case Week:
		return FloorDiv(wall+mondayShift, 7*dayMillis)
	case Month:
		d := time.UnixMilli(wall).UTC()
		return int64(d.Year())*12 + int64(d.Month()) - 1
	default:
	}
	return FloorDiv(wall, dayMillis)
}

// mondayShift is how far 1970 began behind a Monday.
const mondayShift = 3 * dayMillis

// wall is what the wall clock shows at the start of unit n.
func (c Calendar) wall(n int64) int64 {
	switch c.Unit {
	case Week:
		return n*7*dayMillis - mondayShift + c.Offset
	case Month:
		return time.Date(0, time.Month(n+1), 1, 0, 0, 0, 0, time.UTC).UnixMilli() + c.Offset
	default:
	}
	return n*dayMillis + c.Offset
}

// furthestZone is more than any zone is ahead of UTC, or behind.
const furthestZone = 26 * hourMillis

// boundary is the first moment at which the wall clock shows the start of unit n
// or a later time.
func (c Calendar) boundary(n int64) int64 {
	wall := c.wall(n)
	t := wall - furthestZone
	for {
		from, to, offset := period(t, c.Zone)
		if at := wall - offset; at < to {
			return max(at, from)
		}
		t = to
	}
}

// period is the time around t in which the zone's offset from UTC is the same.
func period(t int64, zone *time.Location) (from, to, offset int64) {
	at := time.UnixMilli(t).In(zone)
	from, to = -2*Furthest, 2*Furthest
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		from = start.UnixMilli()
	}
	if !end.IsZero() {
		to = end.UnixMilli()
	}
	_, seconds := at.Zone()
	return from, to, int64(seconds) * 1000
}
