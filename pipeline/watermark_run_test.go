package pipeline_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// ticking counts records in windows of 10 s, by a source with a watermark block.
const ticking = `
pipeline: ticking
parallelism: 2
source:
  feed: {name: FEED-in}
  timestamp: t
  watermark: WATERMARK
transforms:
  - {name: tally, zz-tally: {by: [k], size: 10s}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 2s}
`

func tickingWorld(t *testing.T, watermark string) (*pipelinetest.World, *pipeline.Control) {
	w := pipelinetest.New(t, strings.Replace(ticking, "WATERMARK", watermark, 1))
	w.Options.Control = &pipeline.Control{}
	return w, w.Options.Control
}

// stepTime is how far event time has come in the steps, the least of all subtasks.
func stepTime(m *pipeline.Control) int64 {
	least := int64(math.MaxInt64)
	for _, s := range m.Progress().Steps {
		least = min(least, s.Watermark)
	}
	return least
}

// settle lets what is on its way arrive.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func wantTime(t *testing.T, m *pipeline.Control, what string, want int64) {
	t.Helper()
	settle()
	if got := stepTime(m); got != want {
		t.Errorf("%s: event time is %d, want %d", what, got, want)
	}
}

func ended(t *testing.T, p *pipelinetest.Process) *pipeline.Summary {
	t.Helper()
	s, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPartitionWithARecordOnceInALongWhileNeitherStopsWindowsNorLosesItsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := tickingWorld(t, "{delay: 1s, idle_after: 5s}")
		feed := w.Feed("in", 3) // the last one is empty
		p := w.Start()
		const n = 60
		for i := range n {
			now := int(time.Now().UnixMilli())
			click(feed, 0, now)
			if i%20 == 10 {
				click(feed, 1, now)
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if open := n - len(w.Target("out").Values()); open > 2 {
			t.Errorf("%d windows are still open", open)
		}
		feed.End()
		if s := ended(t, p); s.Counts.Late != 0 {
			t.Errorf("%d records are late", s.Counts.Late)
		}
		if got := len(w.Target("out").Values()); got != n {
			t.Errorf("%d windows, want %d", got, n)
		}
	})
}

func TestWhenAllPartitionsAreIdleEventTimeGoesToTheHighestOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := tickingWorld(t, "{delay: 1s, idle_after: 30s}")
		feed := w.Feed("in", 4)
		p := w.Start()
		click(feed, 0, 5000)
		click(feed, 1, 22000)
		click(feed, 2, 14000)
		wantTime(t, m, "one has no record", math.MinInt64)
		time.Sleep(31 * time.Second)
		wantTime(t, m, "all are idle", 21000)
		time.Sleep(2 * time.Minute)
		wantTime(t, m, "the clock does not move it", 21000)
		click(feed, 0, 40000)
		wantTime(t, m, "one goes on", 39000)
		click(feed, 3, 35000)
		wantTime(t, m, "the empty one begins, and time does not go back", 39000)
		feed.End()
		ended(t, p)
	})
}

func TestTheClockClosesTheLastWindowsWhereItIsAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := tickingWorld(t, "{delay: 1s, idle_after: 30s, advance_when_idle: true}")
		feed := w.Feed("in", 3)
		p := w.Start()
		for i := range 3 {
			click(feed, i, 1000*i+2000)
		}
		time.Sleep(25 * time.Second)
		if got := w.Target("out").Values(); len(got) != 0 {
			t.Errorf("windows before all are idle: %v", got)
		}
		time.Sleep(5*time.Second + 400*time.Millisecond)
		synctest.Wait()
		if got := stepTime(m); got < 3000 || got > 4000 {
			t.Errorf("event time is %d when all became idle", got)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		equal(t, w.Target("out").Values(), []string{`{"key":1,"end":10000,"n0":3}`})
		if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		before := stepTimeAfterRestart(t, w, m)
		if before < 13000 {
			t.Errorf("event time is %d after a restart, and has not gone on", before)
		}
	})
}

func TestTheClockGoesOnInASourceWhenAnotherHasEndedBeforeARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: two
parallelism: 1
sources:
  a: {feed: {name: FEED-a}, timestamp: t, watermark: {delay: 1s, advance_when_idle: true}}
  b: {feed: {name: FEED-b}, timestamp: t, watermark: {delay: 1s, advance_when_idle: true}}
transforms:
  - {name: x, from: a, zz-tally: {by: [k], size: 10s}}
  - {name: y, from: b, zz-tally: {by: [k], size: 10s}}
  - {name: both, from: [x, y], zz-tally: {by: {k: key}}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 2s}
`)
		w.Options.Control = &pipeline.Control{}
		a, b := w.Feed("a", 1), w.Feed("b", 1)
		click(a, 0, 5000)
		a.End()
		click(b, 0, 50000)
		p := w.Start()
		time.Sleep(10 * time.Second)
		p.Crash()
		p = w.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, s := range w.Options.Control.Progress().Steps {
			if s.Step == "y" && (s.Watermark < 70_000 || s.Watermark > 120_000) {
				t.Errorf("the clock has moved event time on to %d", s.Watermark)
			}
		}
		b.End()
		ended(t, p)
	})
}

// stepTimeAfterRestart runs the pipeline anew until all is idle and a second more.
func stepTimeAfterRestart(t *testing.T, w *pipelinetest.World, m *pipeline.Control) int64 {
	p := w.Start()
	time.Sleep(32 * time.Second)
	synctest.Wait()
	at := stepTime(m)
	p.Crash()
	return at
}

func TestARecordOfTheFarFutureGoesToOnErrorAndMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(ticking, "WATERMARK", "{delay: 1s, max_future: 1h}\n  on_error: {dead_letter: dead}", 1)
		yaml = strings.Replace(yaml, "sink: {collect: {name: TARGET-out}}", "sinks: {out: {from: tally, collect: {name: TARGET-out}}, dead: {collect: {name: TARGET-dead}}}", 1)
		w := pipelinetest.New(t, yaml)
		w.Options.Control = &pipeline.Control{}
		feed := w.Feed("in", 1)
		p := w.Start()
		now := time.Now().Add(time.Hour).UnixMilli()
		click(feed, 0, 5000, int(now)+60000, 6000, math.MaxInt64, 7000)
		wantTime(t, w.Options.Control, "only the others count", 6000)
		feed.End()
		s := ended(t, p)
		equal(t, w.Target("out").Values(), []string{`{"key":1,"end":10000,"n0":3}`})
		dead := w.Target("dead").Rows()
		if len(dead) != 2 || s.Failures["source: future"] != 2 || s.Counts.Late != 0 {
			t.Fatalf("dead letters %v, failures %v, late %d", dead, s.Failures, s.Counts.Late)
		}
		if h := dead[0].Headers; h["dead_letter.kind"] != "future" || !strings.Contains(h["dead_letter.reason"], "max_future") {
			t.Errorf("headers %v", h)
		}
	})
}

func TestAFutureTimeIsNoErrorWhereNothingGoesByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: untimed
source: {feed: {name: FEED-in}, timestamp: t}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 2s}
`)
		feed := w.Feed("in", 1)
		click(feed, 0, math.MaxInt64, math.MinInt64)
		feed.End()
		ended(t, w.Start())
		if got := w.Target("out").Values(); len(got) != 2 {
			t.Errorf("rows %v", got)
		}
	})
}

func TestAPartitionWhoseRecordsWaitForAThrottleIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := tickingWorld(t, "{}")
		w.Redefine(strings.NewReplacer("WATERMARK", "{delay: 0s, idle_after: 15s}",
			"transforms:", "transforms:\n  - throttle: {records_per_second: 0.05}").Replace(ticking))
		feed := w.Feed("in", 2)
		p := w.Start()
		click(feed, 1, 1_000_000)
		settle()
		click(feed, 0, 0, 10_000, 20_000, 30_000)
		time.Sleep(5 * time.Minute)
		feed.End()
		if s := ended(t, p); s.Counts.Late != 0 {
			t.Errorf("%d records are late", s.Counts.Late)
		}
	})
}

func TestTimesBefore1970GoTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := tickingWorld(t, "{delay: 1s, idle_after: never}")
		feed := w.Feed("in", 1)
		p := w.Start()
		click(feed, 0, -25000, -20001, -20000)
		wantTime(t, m, "before 1970", -21000)
		click(feed, 0, -8000)
		wantTime(t, m, "before 1970", -9000)
		click(feed, 0, 3)
		feed.End()
		ended(t, p)
		equal(t, sorted(w.Target("out").Values()), []string{
			`{"key":1,"end":-10000,"n0":1}`, `{"key":1,"end":-20000,"n0":2}`, `{"key":1,"end":0,"n0":1}`, `{"key":1,"end":10000,"n0":1}`,
		})
	})
}

// pairTicking counts the records of two sources together.
const pairTicking = `
pipeline: pair
parallelism: 2
sources:
  a: {feed: {name: FEED-a, plain: PLAIN}, timestamp: t, watermark: {delay: 0s, idle_after: 10s, max_drift: DRIFT}}
  b: {feed: {name: FEED-b, plain: PLAIN}, timestamp: t, watermark: {delay: 0s, idle_after: 10s, max_drift: DRIFT}}
transforms:
  - {name: tally, from: [a, b], zz-tally: {by: [k], size: 10s}}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 2s}
`

func pairWorld(t *testing.T, drift string, plain bool) (*pipelinetest.World, *pipeline.Control) {
	w := pipelinetest.New(t, strings.NewReplacer("DRIFT", drift, "PLAIN", fmt.Sprint(plain)).Replace(pairTicking))
	w.Options.Control = &pipeline.Control{}
	return w, w.Options.Control
}

func TestASourceThatDoesNotAnswerHoldsHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := pairWorld(t, "1000h", false)
		a, b := w.Feed("a", 1), w.Feed("b", 1)
		b.Away()
		p := w.Start()
		click(a, 0, 1000, 50000)
		click(b, 0, 2000, 55000)
		time.Sleep(2 * time.Minute)
		wantTime(t, m, "nobody knows what the other one has", math.MinInt64)
		b.Back()
		wantTime(t, m, "it answers", 50000)
		b.Away()
		click(a, 0, 90000)
		time.Sleep(2 * time.Minute)
		wantTime(t, m, "it was at its end, and does not answer any more", 55000)
		a.End()
		b.End()
		b.Back()
		if s := ended(t, p); s.Counts.Late != 0 {
			t.Errorf("%d records are late", s.Counts.Late)
		}
	})
}

func TestSourcesStayWithinTheDriftWhileOneReadsABacklog(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(map[bool]string{false: "paused by partition", true: "held as a whole"}[plain], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := pairWorld(t, "60s", plain)
				a, b := w.Feed("a", 2), w.Feed("b", 1)
				const n = 1200
				for i := range n {
					click(a, i%2, i*1000)
				}
				click(b, 0, 0)
				p := w.Start()
				most := int64(0)
				for i := range n / 10 {
					click(b, 0, (i+1)*10000)
					for range 4 {
						time.Sleep(250 * time.Millisecond)
						synctest.Wait()
						most = max(most, ahead(m.Progress()))
					}
				}
				// The drift, a batch of seven records of every other second, and what b brings
				// within the time by which what is shown can be old.
				if limit := int64(60000 + 14000 + 20000); most > limit || most < 50000 {
					t.Errorf("a is %d ms ahead of b, want about 60000 and at most %d", most, limit)
				}
				a.End()
				b.End()
				if s := ended(t, p); s.Counts.Late != 0 || s.Counts.Read != n+n/10+1 {
					t.Errorf("counts %+v", s.Counts)
				}
			})
		})
	}
}

// ahead is how far the furthest split of source a is ahead of source b.
func ahead(p pipeline.Progress) int64 {
	a, b := int64(math.MinInt64), int64(math.MinInt64)
	for _, s := range p.Splits {
		if s.Source == "a" && s.MaxTime != nil {
			a = max(a, *s.MaxTime)
		} else if s.Source == "b" && s.MaxTime != nil {
			b = *s.MaxTime
		}
	}
	if a == math.MinInt64 || b == math.MinInt64 {
		return 0
	}
	return a - b
}

func TestAPausedSourceTakesBarriersAndGoesOnWhenTheOtherIsIdleOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := pairWorld(t, "10s", false)
		a, b := w.Feed("a", 1), w.Feed("b", 1)
		for i := range 100 {
			click(a, 0, i*1000)
		}
		b.Away()
		p := w.Start()
		settle()
		paused := func() bool {
			return slices.ContainsFunc(m.Progress().Splits, func(s pipeline.SplitProgress) bool { return s.Paused })
		}
		if !paused() {
			t.Error("nothing is paused while the other source does not answer")
		}
		p.Crash()
		p = w.Start()
		settle()
		if !paused() {
			t.Error("nothing is paused after a restart")
		}
		if _, err := p.Stop(); err != nil {
			t.Fatalf("stop while a source is paused: %v", err)
		}
		p = w.Start()
		settle()
		b.Back() // it is empty
		time.Sleep(5 * time.Second)
		if paused() {
			t.Error("a source waits for one that is empty")
		}
		a.End()
		b.End()
		s := ended(t, p)
		if got := len(w.Target("out").Values()); got != 10 || s.Counts.Late != 0 {
			t.Errorf("%d windows, want 10; %d late", got, s.Counts.Late)
		}
	})
}

func TestAPartitionThatIsFoundHoldsFromItsFirstRecordOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := tickingWorld(t, "{delay: 1s, idle_after: never}")
		feed := w.Feed("in", 1)
		p := w.Start()
		click(feed, 0, 10000)
		settle()
		click(feed, 1, 5000)
		time.Sleep(2 * time.Second)
		click(feed, 0, 30000)
		wantTime(t, m, "the new one holds", 9000)
		click(feed, 1, 25000)
		wantTime(t, m, "and moves on", 24000)
		feed.End()
		ended(t, p)
	})
}

func TestHighestTimesOfPartitionsAreRestoredAtAnyParallelism(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := tickingWorld(t, "{delay: 1s, idle_after: never}")
		feed := w.Feed("in", 3)
		p := w.Start()
		click(feed, 0, 10000, 4000)
		click(feed, 1, 20000)
		settle()
		p.Crash()
		w.Redefine(strings.NewReplacer("WATERMARK", "{delay: 1s, idle_after: never}", "parallelism: 2", "parallelism: 3").Replace(ticking))
		p = w.Start()
		settle()
		got := map[string]string{}
		for _, s := range m.Progress().Splits {
			got[s.Split] = "none"
			if s.MaxTime != nil {
				got[s.Split] = fmt.Sprint(*s.MaxTime, s.Watermark)
			}
		}
		if want := "map[feed/000:10000 9000 feed/001:20000 19000 feed/002:none]"; fmt.Sprint(got) != want {
			t.Errorf("restored %v, want %s", got, want)
		}
		p.Crash()
	})
}
