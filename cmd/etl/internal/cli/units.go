package cli

import (
	"fmt"
	"strconv"
	"time"
)

// unknown stands for a number that nobody knows.
const unknown = "-"

// countText is a number of records for people; below 0 it is not known.
func countText(n int64) string { return rateText(float64(n)) }

// rateText is a number of records a second, with about three digits.
func rateText(n float64) string {
	switch {
	case n < 0:
		return unknown
	case n == 0:
		return "0"
	case n < 10 && n != float64(int64(n)):
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n < 1000:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	i := 0
	for n /= 1000; n >= 999.5 && i < 3; i++ {
		n /= 1000
	}
	digits := 0
	if n < 99.95 {
		digits = 1
	}
	return fmt.Sprintf("%.*f%c", digits, n, "kMGT"[i])
}

// agoText is how long ago something was, in two units at most; nothing for the zero time.
func agoText(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return spanText(now.Sub(t))
}

// spanText is a time that has passed, in two units at most. What is below 0, as between
// two clocks, is 0s.
func spanText(d time.Duration) string {
	d = max(d, 0)
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, rest time.Duration, small string) string {
		if rest == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, rest, small)
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return two(d/day, "d", d%day/time.Hour, "h")
}

// secondsText is a time in seconds; below 0 it is not known.
func secondsText(s float64) string {
	if s < 0 {
		return unknown
	}
	return spanText(seconds(s))
}

// seconds is a time that is given in seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// clockText is a point in time, in the time zone of who reads it.
func clockText(t time.Time) string { return t.Local().Format(time.DateTime) }

// shareText is a share between 0 and 1.
func shareText(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }
