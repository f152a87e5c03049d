package pipeline

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// clockReader is a reader that knows what it is told of its progress.
type clockReader struct {
	atEnd  map[int]bool
	until  map[int]int64 // known only at the end
	paused []int
}

func (*clockReader) Poll(context.Context) (*connectors.Batch, error) {
	return nil, errors.New("unused")
}
func (*clockReader) Add([]connectors.Split) error { return nil }
func (*clockReader) Close() error                 { return nil }
func (r *clockReader) CaughtUp(split int) bool    { return r.atEnd[split] }
func (r *clockReader) Pause(paused []int)         { r.paused = slices.Clone(paused) }
func (r *clockReader) Position(split int, next int64) connectors.Split {
	sp := connectors.Split{Offset: next, Until: -1}
	if until, ok := r.until[split]; ok {
		sp.Until = until
	}
	return sp
}

// clockTest is a clock with a time that a test sets.
type clockTest struct {
	*sourceClock
	t      *testing.T
	reader *clockReader
	now    time.Time
}

var clockEpoch = time.UnixMilli(1_000_000_000_000)

func newClockTest(t *testing.T, w spec.Watermark, group *clockGroup, splits ...connectors.Split) *clockTest {
	if group == nil {
		group = newClockGroup()
	}
	c := &clockTest{t: t, reader: &clockReader{atEnd: map[int]bool{}, until: map[int]int64{}}, now: clockEpoch}
	c.sourceClock = newSourceClock("s", w, c.reader, group, 0)
	c.add(splits, c.now)
	c.tick(c.now)
	return c
}

func open(n int) []connectors.Split {
	out := make([]connectors.Split, n)
	for i := range out {
		out[i].Until = -1
	}
	return out
}

// bounded is a watermark block with a limit on the future far beyond tests.
func bounded(w spec.Watermark) spec.Watermark {
	if w.MaxFuture == 0 {
		w.MaxFuture = time.Hour
	}
	return w
}

// read hands records with the given times of a split to the clock and returns their
// marks, and the reasons of those refused.
func (c *clockTest) read(split int, times ...int64) (marks []int64, refused []string) {
	b := &connectors.Batch{}
	b.Size(len(times), 0)
	var rows []uint16
	for i, ms := range times {
		b.Records[i] = connectors.Record{Value: []byte("{}"), Time: ms, Mark: 7}
		rows = append(rows, uint16(i))
	}
	rows = c.observe(split, b, rows, c.now, func(_ uint16, reason string) { refused = append(refused, reason) })
	for _, row := range rows {
		marks = append(marks, b.Records[row].Mark)
	}
	return marks, refused
}

func (c *clockTest) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.judged = time.Time{} // it looks each time
	c.tick(c.now)
}

func (c *clockTest) want(what string, watermark int64, idle bool) {
	c.t.Helper()
	if wm, isIdle := c.current(); wm != watermark || isIdle != idle {
		c.t.Errorf("%s: watermark %d, idle %v, want %d, %v", what, wm, isIdle, watermark, idle)
	}
}

const second = 1000

func TestMarksAreTheWatermarkOfTheSplitJustBefore(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: 5 * time.Second}), nil, open(2)...)
	marks, _ := c.read(0, 10*second, 8*second, 20*second, 21*second)
	if want := []int64{connectors.NoMark, 5 * second, 5 * second, 15 * second}; !slices.Equal(marks, want) {
		t.Errorf("marks %v, want %v", marks, want)
	}
	marks, _ = c.read(1, -3*second, -9*second, -2*second, 0)
	if want := []int64{connectors.NoMark, -8 * second, -8 * second, -7 * second}; !slices.Equal(marks, want) {
		t.Errorf("marks %v before 1970, want %v", marks, want)
	}
	c.want("the least of both", -5*second, false)
}

func TestTheWatermarkIsTheLeastOfTheSplitsAndNeverGoesBack(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second}), nil, open(2)...)
	c.want("without a record", state.MinTime, false)
	c.read(0, 10*second)
	c.want("one split has none yet", state.MinTime, false)
	c.read(1, 3*second)
	c.want("both", 2*second, false)
	c.read(1, 1*second)
	c.want("a record from before", 2*second, false)
	c.read(1, 30*second)
	c.want("the other one is behind now", 9*second, false)
}

func TestTombstonesHaveNoEventTime(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{}), nil, open(1)...)
	c.read(0, 10)
	b := &connectors.Batch{}
	b.Size(1, 0)
	b.Records[0] = connectors.Record{Time: math.MaxInt64}
	rows := c.observe(0, b, []uint16{0}, c.now, func(uint16, string) { t.Error("a tombstone is refused") })
	if len(rows) != 1 || b.Records[0].Mark != 10 {
		t.Errorf("rows %v, mark %d", rows, b.Records[0].Mark)
	}
	c.want("after a tombstone", 10, false)
}

func TestRecordsOfTheFarFutureMoveNothing(t *testing.T) {
	c := newClockTest(t, spec.Watermark{Delay: time.Second, MaxFuture: time.Hour}, nil, open(1)...)
	limit := clockEpoch.UnixMilli() + time.Hour.Milliseconds()
	marks, refused := c.read(0, 10*second, limit+1, math.MaxInt64, 20*second)
	if want := []int64{connectors.NoMark, 9 * second}; !slices.Equal(marks, want) || len(refused) != 2 {
		t.Errorf("marks %v, refused %v", marks, refused)
	}
	for _, words := range []string{"2001-09-09T02:46:40.001Z (1000003600001)", "max_future"} {
		if !strings.Contains(refused[0], words) {
			t.Errorf("%q does not say %q", refused[0], words)
		}
	}
	c.want("they do not count", 19*second, false)
	if _, refused = c.read(0, limit); len(refused) != 0 {
		t.Errorf("a time at the limit is refused: %v", refused)
	}
	c.now = c.now.Add(time.Second)
	if _, refused = c.read(0, limit+second); len(refused) != 0 {
		t.Errorf("the limit does not move with the clock: %v", refused)
	}
}

func TestARecordOfTheFarFutureDoesNotWakeAnIdleSplit(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{IdleAfter: time.Second}), nil, open(1)...)
	c.reader.atEnd[0] = true
	c.pass(0)
	c.pass(time.Second)
	c.read(0, math.MaxInt64)
	c.want("refused", state.MinTime, true)
}

func TestTimesAtTheEndsOfTimeDoNotWrap(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, math.MaxInt64 - 1, math.MaxInt64} {
		c := newClockTest(t, spec.Watermark{Delay: 5 * time.Second, MaxFuture: untimed, MaxDrift: time.Second}, nil, open(2)...)
		marks, refused := c.read(0, ms, ms)
		want := ms - 5*second
		if ms < math.MinInt64+5*second {
			want = math.MinInt64
		}
		if len(refused) > 0 || marks[1] != want {
			t.Errorf("time %d: marks %v, refused %v", ms, marks, refused)
		}
		if high := c.maxTime(0); high == nil || *high != ms {
			t.Errorf("time %d: highest %v", ms, high)
		}
	}
}

func TestASplitIsIdleOnlyAfterItWasSeenAtItsEndForTheWholeTime(t *testing.T) {
	idle := bounded(spec.Watermark{Delay: time.Second, IdleAfter: 30 * time.Second})
	start := func() *clockTest {
		c := newClockTest(t, idle, nil, open(2)...)
		c.read(0, 100*second)
		return c
	}
	c := start()
	c.pass(time.Hour)
	c.want("never at its end", state.MinTime, false)

	c = start()
	c.reader.atEnd[1] = true
	c.pass(time.Second)
	c.pass(29 * time.Second)
	c.want("not long enough", state.MinTime, false)
	c.pass(time.Second)
	c.want("an empty split is idle", 99*second, false)
	c.read(1, 50*second)
	c.want("its first record makes it hold, and time does not go back", 99*second, false)
	c.read(0, 200*second)
	c.want("it holds", 99*second, false)
	c.pass(29 * time.Second)
	c.pass(29 * time.Second)
	c.want("its time begins anew", 99*second, false)
	c.pass(time.Second)
	c.want("idle again", 199*second, false)

	c = start()
	c.reader.atEnd[1] = true
	c.pass(time.Second)
	c.pass(29 * time.Second)
	c.reader.atEnd[1] = false // a broker that does not answer
	c.pass(time.Minute)
	c.want("nobody knows", state.MinTime, false)
	c.reader.atEnd[1] = true
	c.pass(time.Second)
	c.pass(29 * time.Second)
	c.want("the time begins with the answer", state.MinTime, false)
	c.pass(time.Second)
	c.want("idle", 99*second, false)
	c.reader.atEnd[1] = false
	c.pass(time.Second)
	c.read(0, 300*second)
	c.want("there may be more: it holds", 99*second, false)
}

func TestIdleAfterNeverKeepsAQuietSplitHolding(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{}), nil, open(2)...)
	c.reader.atEnd[1] = true
	c.read(0, 100*second)
	c.pass(0)
	c.pass(1000 * time.Hour)
	c.want("never", state.MinTime, false)
}

func TestAReaderThatDoesNotTellIsNeverIdle(t *testing.T) {
	group := newClockGroup()
	c := newSourceClock("s", bounded(spec.Watermark{IdleAfter: time.Second}), struct{ connectors.Reader }{&clockReader{}}, group, 0)
	c.add(open(1), clockEpoch)
	for i := range 10 {
		c.tick(clockEpoch.Add(time.Duration(i) * time.Hour))
	}
	if _, idle := c.current(); idle {
		t.Error("it is idle")
	}
}

func TestWhenAllAreIdleTheHighestWatermarkIsTold(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second, IdleAfter: 30 * time.Second}), nil, open(2)...)
	c.read(0, 100*second)
	c.read(1, 50*second)
	c.reader.atEnd = map[int]bool{0: true, 1: true}
	c.pass(0)
	c.pass(30 * time.Second)
	c.want("all are idle", 99*second, true)
	c.pass(time.Hour)
	c.want("the clock does not move it", 99*second, true)
	c.read(1, 60*second)
	c.want("awake, from where it held", 59*second, false)
}

func TestTheClockMovesEventTimeOnWhileAllAreIdle(t *testing.T) {
	w := bounded(spec.Watermark{Delay: time.Second, IdleAfter: 30 * time.Second, AdvanceWhenIdle: true})
	group := newClockGroup()
	a, b := newClockTest(t, w, group, open(1)...), newClockTest(t, w, group, open(1)...)
	pass := func(d time.Duration) { a.pass(d); b.pass(d); a.pass(0); b.pass(0) }
	a.read(0, 100*second)
	b.read(0, 50*second)
	a.reader.atEnd[0] = true
	pass(0)
	pass(time.Hour)
	a.want("the other source is not idle", 99*second, true)
	b.reader.atEnd[0] = true
	pass(0)
	pass(30 * time.Second)
	pass(10 * time.Second)
	a.want("from the highest of both on", 109*second, true)
	b.want("from the highest of both on", 109*second, true)
	b.read(0, 70*second)
	a.read(0, 101*second)
	pass(0)
	a.want("awake", 100*second, false)
	pass(0)
	pass(30 * time.Second)
	pass(5 * time.Second)
	a.want("from where the clock had moved it on", 114*second, true)
}

func TestTheClockMovesEventTimeNoFurtherThanThePresentLessTheDelay(t *testing.T) {
	w := bounded(spec.Watermark{Delay: time.Minute, IdleAfter: time.Second, AdvanceWhenIdle: true})
	c := newClockTest(t, w, nil, open(1)...)
	now := clockEpoch.UnixMilli()
	c.read(0, now)
	c.reader.atEnd[0] = true
	c.pass(0)
	c.pass(time.Second)
	c.want("the highest", now-60*second, true)
	c.pass(time.Hour)
	c.want("the pace of the clock", now+3540*second, true)

	c = newClockTest(t, w, nil, open(1)...)
	c.read(0, now+1800*second) // allowed, though of the future
	c.reader.atEnd[0] = true
	c.pass(0)
	c.pass(time.Second)
	c.pass(10 * time.Second)
	c.want("the present is not there yet", now+1740*second, true)
	c.pass(time.Hour)
	c.want("the present less the delay", now+(11+3600-60)*second, true)
}

func TestTheClockStandsStillForASourceThatDoesNotWantIt(t *testing.T) {
	w := bounded(spec.Watermark{IdleAfter: time.Second, AdvanceWhenIdle: true})
	group := newClockGroup()
	a := newClockTest(t, w, group, open(1)...)
	w.AdvanceWhenIdle = false
	b := newClockTest(t, w, group, open(1)...)
	for _, c := range []*clockTest{a, b} {
		c.read(0, 100*second)
		c.reader.atEnd[0] = true
	}
	for range 3 {
		a.pass(time.Minute)
		b.pass(time.Minute)
	}
	a.want("the other source says no", 100*second, true)
	b.end()
	a.pass(time.Second)
	a.pass(time.Second)
	a.want("it is at its end", 101*second, true)
}

func TestTheClockGoesOnFromARestoredTime(t *testing.T) {
	group := newClockGroup()
	c := newClockTest(t, bounded(spec.Watermark{IdleAfter: time.Second, AdvanceWhenIdle: true}), group, connectors.Split{Until: -1, MaxTime: ptr(int64(5 * second))})
	group.resume(0, 900*second)
	c.reader.atEnd[0] = true
	c.pass(0)
	c.pass(time.Second)
	c.pass(time.Second)
	c.want("not behind what was", 901*second, true)
}

func ptr[T any](v T) *T { return &v }

func TestRestoredSplitsGoOnFromTheirHighestTime(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second, IdleAfter: time.Second}), nil,
		connectors.Split{Until: -1, Offset: 10, MaxTime: ptr(int64(20 * second))}, connectors.Split{Until: -1})
	marks, _ := c.read(0, 5*second, 30*second)
	if want := []int64{19 * second, 19 * second}; !slices.Equal(marks, want) {
		t.Errorf("marks %v, want %v", marks, want)
	}
	c.want("a split that was not read to its end holds", state.MinTime, false)
	if got := c.maxTime(0); got == nil || *got != 30*second {
		t.Errorf("highest time %v", got)
	}
	if c.maxTime(1) != nil {
		t.Error("a split without a record has a highest time")
	}
}

func TestASplitThatIsFoundLaterHoldsFromItsFirstRecordOn(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second}), nil, open(1)...)
	c.read(0, 100*second)
	c.add(open(1), c.now)
	c.pass(time.Second)
	c.read(0, 101*second)
	c.want("it has no record", 100*second, false)
	c.read(1, 50*second)
	c.read(0, 200*second)
	c.want("its record holds", 100*second, false)
	c.read(1, 150*second)
	c.want("it moves on", 149*second, false)
}

func TestSplitsAtTheirEndDoNotHold(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{}), nil, connectors.Split{Until: 10}, connectors.Split{Until: 10, Offset: 10}, connectors.Split{Until: -1}, connectors.Split{Until: -1})
	c.read(0, 5*second)
	c.read(2, 9*second)
	c.read(3, 1*second)
	c.reader.atEnd[3], c.reader.until[3] = true, 44
	c.advance(3, 44)
	c.pass(time.Second)
	c.want("one is found to be at its end", 5*second, false)
	c.advance(0, 9)
	c.want("not yet", 5*second, false)
	c.advance(0, 10)
	c.want("one reached its end", 9*second, false)
	c.end()
	c.want("all", 9*second, true)
}

func TestProgressTellsOfEachSplit(t *testing.T) {
	c := newClockTest(t, bounded(spec.Watermark{Delay: time.Second, IdleAfter: time.Second}), nil,
		connectors.Split{ID: "a", Until: -1}, connectors.Split{ID: "b", Until: 3})
	c.read(0, 5*second)
	c.advance(0, 17)
	c.advance(1, 3)
	c.reader.atEnd[0] = true
	c.pass(time.Second)
	c.pass(time.Second)
	got := c.progress()
	if len(got) != 2 || got[0].MaxTime == nil || *got[0].MaxTime != 5*second || got[0].current.IsZero() {
		t.Fatalf("progress %+v", got)
	}
	got[0].MaxTime, got[0].current = nil, time.Time{}
	want := []SplitProgress{
		{Source: "s", Split: "a", Next: 17, Watermark: 4 * second, Idle: true, CaughtUp: true, Behind: -1},
		{Source: "s", Split: "b", Next: 3, Watermark: state.MinTime, Ended: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("progress %+v, want %+v", got, want)
	}
}

// TestClocksAgreeWithTheirRules compares the clock with the rules, worked out anew
// from all that happened, over random histories.
func TestClocksAgreeWithTheirRules(t *testing.T) {
	const n, delay, idleAfter = 3, 2 * second, 5 * time.Second
	rapid.Check(t, func(rt *rapid.T) {
		c := newClockTest(t, bounded(spec.Watermark{Delay: 2 * time.Second, IdleAfter: idleAfter}), nil, open(n)...)
		var high [n]int64
		var seen, idle [n]bool
		var since [n]time.Time
		last, began := int64(state.MinTime), false
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, n-1).Draw(rt, "split")
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				ms := rapid.Int64Range(-20*second, 20*second).Draw(rt, "time")
				c.read(i, ms)
				if !seen[i] || ms > high[i] {
					high[i] = ms
				}
				seen[i], idle[i], since[i] = true, false, time.Time{}
			case 1:
				c.reader.atEnd[i] = !c.reader.atEnd[i]
			case 2:
				c.pass(time.Duration(rapid.IntRange(1, 4).Draw(rt, "seconds")) * time.Second)
				for k := range n {
					if !c.reader.atEnd[k] {
						since[k] = time.Time{}
					} else if since[k].IsZero() {
						since[k] = c.now
					}
					idle[k] = !since[k].IsZero() && c.now.Sub(since[k]) >= idleAfter
				}
			}
			least, most, holds := int64(state.MaxTime), int64(state.MinTime), false
			for k := range n {
				wm := int64(state.MinTime)
				if seen[k] {
					wm = high[k] - delay
				}
				most = max(most, wm)
				if !idle[k] {
					holds, least = true, min(least, wm)
				}
			}
			wm, isIdle := c.current()
			if isIdle == holds || !holds && wm != max(most, last) || holds && wm != max(least, last) {
				rt.Fatalf("watermark %d, idle %v; splits %v %v, idle %v", wm, isIdle, high, seen, idle)
			}
			if holds && began && wm < last {
				rt.Fatalf("the watermark went back from %d to %d", last, wm)
			}
			if holds {
				last, began = wm, true
			}
		}
	})
}
