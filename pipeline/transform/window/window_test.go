package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func ms(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func zone(t interface{ Fatal(args ...any) }, name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestFixedWindowsBeginAtMultiplesOfTheirSizeAlsoBefore1970(t *testing.T) {
	for _, c := range []struct{ size, offset, t, start int64 }{
		{10, 0, 0, 0}, {10, 0, 9, 0}, {10, 0, 10, 10}, {10, 0, -1, -10}, {10, 0, -10, -10}, {10, 0, -11, -20},
		{10, 3, 2, -7}, {10, 3, 3, 3}, {10, -3, 7, 7}, {10, -3, 6, -3}, {10, 3, -8, -17},
		{1, 0, -5, -5}, {7, 0, Furthest * 2, Furthest - FloorMod(Furthest, 7)},
	} {
		start, end := Fixed{c.size, c.offset}.At(c.t)
		if start != c.start || end != c.start+c.size {
			t.Errorf("size %d offset %d at %d: %d to %d", c.size, c.offset, c.t, start, end)
		}
	}
}

func TestCalendarWindowsGoByTheWallClock(t *testing.T) {
	for name, c := range map[string]struct {
		unit   Unit
		zone   string
		offset time.Duration
		at     string
		start  string
		end    string
	}{
		"an ordinary day":                           {Day, "Europe/Berlin", 0, "2024-06-01T12:00:00Z", "2024-06-01T00:00:00+02:00", "2024-06-02T00:00:00+02:00"},
		"a day of 23 hours in Berlin":               {Day, "Europe/Berlin", 0, "2024-03-31T12:00:00Z", "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		"a day of 25 hours in Berlin":               {Day, "Europe/Berlin", 0, "2024-10-27T00:30:00Z", "2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00"},
		"a day of 23 hours in New York":             {Day, "America/New_York", 0, "2024-03-10T05:00:00Z", "2024-03-10T00:00:00-05:00", "2024-03-11T00:00:00-04:00"},
		"a day of 25 hours in New York":             {Day, "America/New_York", 0, "2024-11-04T04:59:59.999Z", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00"},
		"a day of 23½ hours on Lord Howe":           {Day, "Australia/Lord_Howe", 0, "2024-10-05T20:00:00Z", "2024-10-06T00:00:00+10:30", "2024-10-07T00:00:00+11:00"},
		"a day of 24½ hours on Lord Howe":           {Day, "Australia/Lord_Howe", 0, "2024-04-06T14:00:00Z", "2024-04-07T00:00:00+11:00", "2024-04-08T00:00:00+10:30"},
		"a day in Kolkata":                          {Day, "Asia/Kolkata", 0, "2024-03-31T18:29:59Z", "2024-03-31T00:00:00+05:30", "2024-04-01T00:00:00+05:30"},
		"a day without midnight in São Paulo":       {Day, "America/Sao_Paulo", 0, "2018-11-04T12:00:00Z", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		"the day before it":                         {Day, "America/Sao_Paulo", 0, "2018-11-04T02:59:59Z", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		"a midnight that the clock goes back from":  {Day, "America/Sao_Paulo", 0, "2018-02-18T02:30:00Z", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		"a midnight that comes twice in Havana":     {Day, "America/Havana", 0, "2024-11-03T04:30:00Z", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00"},
		"the clock goes back behind midnight":       {Day, "America/St_Johns", 0, "2010-11-07T02:45:00Z", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		"a date that Samoa left out":                {Day, "Pacific/Apia", 0, "2011-12-30T11:00:00Z", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		"a day before 1970":                         {Day, "Europe/Berlin", 0, "1960-05-05T23:30:00Z", "1960-05-06T00:00:00+01:00", "1960-05-07T00:00:00+01:00"},
		"a day in local mean time":                  {Day, "Europe/Berlin", 0, "1890-01-01T00:00:00Z", "1889-12-31T23:06:32Z", "1890-01-01T23:06:32Z"},
		"a day that begins at six":                  {Day, "Europe/Berlin", 6 * time.Hour, "2024-03-31T03:59:59Z", "2024-03-30T06:00:00+01:00", "2024-03-31T06:00:00+02:00"},
		"a day that begins at a time that is none":  {Day, "Europe/Berlin", 2*time.Hour + 30*time.Minute, "2024-03-31T01:00:00Z", "2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"},
		"a week begins on Monday":                   {Week, "Europe/Berlin", 0, "2024-03-31T21:59:59Z", "2024-03-25T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		"a week that begins on Sunday":              {Week, "America/New_York", -24 * time.Hour, "2024-03-10T06:00:00Z", "2024-03-10T00:00:00-05:00", "2024-03-17T00:00:00-04:00"},
		"a week before 1970":                        {Week, "UTC", 0, "1969-12-31T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		"a month":                                   {Month, "Europe/Berlin", 0, "2024-02-29T22:59:59Z", "2024-02-01T00:00:00+01:00", "2024-03-01T00:00:00+01:00"},
		"a month across a change":                   {Month, "Europe/Berlin", 0, "2024-03-31T21:59:59Z", "2024-03-01T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		"a month before 1970":                       {Month, "UTC", 0, "1969-12-31T23:59:59Z", "1969-12-01T00:00:00Z", "1970-01-01T00:00:00Z"},
		"a month that begins on the fifth":          {Month, "UTC", 4 * 24 * time.Hour, "2024-01-04T00:00:00Z", "2023-12-05T00:00:00Z", "2024-01-05T00:00:00Z"},
		"an hour":                                   {Hour, "Europe/Berlin", 0, "2024-06-01T12:10:00Z", "2024-06-01T12:00:00Z", "2024-06-01T13:00:00Z"},
		"an hour in a zone of half hours":           {Hour, "Asia/Kolkata", 0, "2024-06-01T12:10:00Z", "2024-06-01T11:30:00Z", "2024-06-01T12:30:00Z"},
		"an hour that comes twice, first":           {Hour, "Europe/Berlin", 0, "2024-10-27T00:30:00Z", "2024-10-27T02:00:00+02:00", "2024-10-27T02:00:00+01:00"},
		"an hour that comes twice, second":          {Hour, "Europe/Berlin", 0, "2024-10-27T01:30:00Z", "2024-10-27T02:00:00+01:00", "2024-10-27T03:00:00+01:00"},
		"an hour of which half comes twice, first":  {Hour, "Australia/Lord_Howe", 0, "2024-04-06T14:59:59Z", "2024-04-07T01:00:00+11:00", "2024-04-07T02:00:00+11:00"},
		"an hour of which half comes twice, second": {Hour, "Australia/Lord_Howe", 0, "2024-04-06T15:10:00Z", "2024-04-07T01:30:00+10:30", "2024-04-07T02:00:00+10:30"},
	} {
		t.Run(name, func(t *testing.T) {
			start, end := Calendar{c.unit, zone(t, c.zone), c.offset.Milliseconds()}.At(ms(t, c.at))
			if start != ms(t, c.start) || end != ms(t, c.end) {
				z := zone(t, c.zone)
				t.Errorf("it is %s to %s, not %s to %s", time.UnixMilli(start).In(z), time.UnixMilli(end).In(z), c.start, c.end)
			}
		})
	}
}

func TestWindowsOfAGridMeetWithoutGapAndOverlap(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "America/Sao_Paulo", "Africa/Cairo", "Asia/Manila", "Africa/Monrovia"}
	rapid.Check(t, func(t *rapid.T) {
		var g Grid
		if rapid.Bool().Draw(t, "fixed") {
			size := rapid.Int64Range(1, 1e9).Draw(t, "size")
			g = Fixed{size, rapid.Int64Range(-size+1, size-1).Draw(t, "offset")}
		} else {
			unit := Unit(rapid.SampledFrom(Units()).Draw(t, "unit"))
			g = Calendar{unit, zone(t, rapid.SampledFrom(zones).Draw(t, "zone")), rapid.Int64Range(-unit.Span()+1, unit.Span()-1).Draw(t, "offset")}
		}
		at := rapid.OneOf(rapid.Int64Range(-4e12, 4e12), rapid.Int64Range(1.2e12, 1.8e12), rapid.Int64Range(-Furthest/2, Furthest/2)).Draw(t, "time")
		start, end := g.At(at)
		if in := Clamp(at); in < start || in >= end {
			t.Fatalf("%d is not in %d to %d", in, start, end)
		}
		for _, same := range []int64{start, end - 1} {
			if s, e := g.At(same); s != start || e != end {
				t.Fatalf("%d is in %d to %d, and %d in %d to %d", at, start, end, same, s, e)
			}
		}
		if s, _ := g.At(end); s != end {
			t.Fatalf("behind %d to %d the next window starts at %d", start, end, s)
		}
		if _, e := g.At(start - 1); e != start {
			t.Fatalf("before %d to %d a window ends at %d", start, end, e)
		}
		c := NewCursor(g)
		for _, x := range []int64{at, start, end, start - 1, at} {
			s, e := c.At(x)
			if ws, we := g.At(x); s != ws || e != we {
				t.Fatalf("the cursor says %d to %d, the grid %d to %d", s, e, ws, we)
			}
		}
	})
}

func TestGCD(t *testing.T) {
	for _, c := range [][3]int64{{60, 60, 60}, {60, 24, 12}, {7, 3, 1}, {3600000, 60000, 60000}} {
		if got := GCD(c[0], c[1]); got != c[2] {
			t.Errorf("the divisor of %d and %d is %d", c[0], c[1], got)
		}
	}
}
