// Package window assigns times to windows that are the same for all keys: of a
// fixed size, or by the calendar of a time zone. Times are milliseconds since 1970,
// negative ones before it. A window holds its start and not its end.
package window

// Furthest is the distance from 1970, in milliseconds, beyond which times count as
// being at it, so that no end of a window overflows: 73 million years.
const Furthest = 1 << 61

// Grid divides all of time into windows without gaps. Grids are immutable.
type Grid interface {
	// At gives the window that t is in.
	At(t int64) (start, end int64)
}

// Fixed is a Grid of windows of Size milliseconds, one of which starts at Offset.
type Fixed struct{ Size, Offset int64 }

// At implements Grid.
func (f Fixed) At(t int64) (start, end int64) {
	t = Clamp(t)
	start = t - FloorMod(t-f.Offset, f.Size)
	return start, start + f.Size
}

// Clamp is t, or the furthest time on its side.
func Clamp(t int64) int64 { return min(max(t, -Furthest), Furthest) }

// FloorMod is the remainder of a divided by size that is never negative.
func FloorMod(a, size int64) int64 {
	m := a % size
	if m < 0 {
		m += size
	}
	return m
}

// FloorDiv is a divided by size, rounded down.
func FloorDiv(a, size int64) int64 {
	d := a / size
	if a%size < 0 {
		d--
	}
	return d
}

// GCD is the greatest common divisor of two positive numbers.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Cursor finds windows of a Grid fast where one time is mostly in the window of
// the time before it. It is used by one goroutine.
type Cursor struct {
	grid       Grid
	start, end int64
}

// NewCursor makes a Cursor that has seen no time yet.
func NewCursor(g Grid) *Cursor { return &Cursor{grid: g} }

// At gives the window that t is in.
func (c *Cursor) At(t int64) (start, end int64) {
	if t < c.start || t >= c.end {
		c.start, c.end = c.grid.At(t)
	}
	return c.start, c.end
}
