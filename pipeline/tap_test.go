package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const tapped = `
pipeline: tapped
parallelism: 1
source: {feed: {name: FEED-in}}
transforms:
  - name: even
    filter: n % 2 == 0
  - name: twice
    set: {double: n * 2}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1h}
`

// tapping opens a tap; the test ends where that is refused.
func tapping(t *testing.T, w *pipelinetest.World, operator string, o pipeline.TapOptions) <-chan pipeline.Tapped {
	t.Helper()
	out, err := w.Options.Control.Tap(t.Context(), operator, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// waiting are the values of what waits in a tap, or of all up to its end.
func waiting(out <-chan pipeline.Tapped) (values []string) {
	synctest.Wait()
	for {
		select {
		case r, ok := <-out:
			if !ok {
				return values
			}
			values = append(values, r.Value)
		default:
			return values
		}
	}
}

func TestATapShowsTheRecordsOfAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, tapped)
		feed := w.Feed("in", 1)
		p := running(w)
		taps := map[string]<-chan pipeline.Tapped{}
		for _, d := range w.Plan().Describe().Operators {
			taps[d.Name] = tapping(t, w, d.Name, pipeline.TapOptions{})
			taps[d.Name+" in"] = tapping(t, w, d.Name, pipeline.TapOptions{Input: true})
		}
		feed.Append(0, `{"n": 1}`, `{"n": 2}`)
		raw, made := []string{`{"n": 1}`, `{"n": 2}`}, []string{`{"n": 2,"double":4}`}
		want := map[string][]string{
			"source": raw, "source in": raw, "even": {`{"n": 2}`}, "even in": raw,
			"twice": made, "twice in": {`{"n": 2}`}, "sink": made, "sink in": made,
		}
		if len(taps) != len(want) {
			t.Errorf("there are %d taps", len(taps))
		}
		for name, w := range want {
			if got := waiting(taps[name]); !slices.Equal(got, w) {
				t.Errorf("a tap of %s shows %s, want %s", name, got, w)
			}
		}
		_, _ = p.Stop()
		for name, out := range taps {
			if _, ok := <-out; ok {
				t.Errorf("%s shows more after the end", name)
			}
		}
	})
}

func TestATapShowsWhereARecordIsFromAndWhatIsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.NewReplacer("filter: n % 2 == 0", "filter: true", "set: {double: n * 2}", "filter: true").Replace(tapped))
		feed := w.Feed("in", 1)
		p := running(w)
		out := tapping(t, w, "source", pipeline.TapOptions{})
		feed.Add(0, pipelinetest.Record{Value: `{"n": 0}`, Key: "k\xff", Time: 1234, Headers: []connectors.Header{{Key: "h", Value: []byte("v")}}})
		feed.Append(0, "bad \xfe\xff")
		feed.Append(0, `{"n": 1, "s": "`+strings.Repeat("ä", 20000)+`"}`)
		feed.Add(0, pipelinetest.Record{Null: true})
		synctest.Wait()
		if len(out) != 4 {
			t.Fatalf("it shows %d records", len(out))
		}
		got := <-out
		if got.Key != `k\xff` || got.Headers["h"] != "v" || got.Topic != "feed" || got.Partition != 0 || got.Offset != 0 || got.EventTime == nil || *got.EventTime != 1234 || got.Time.IsZero() || got.Cut {
			t.Errorf("it shows %+v", got)
		}
		if got = <-out; got.Value != `bad \xfe\xff` || got.Offset != 1 {
			t.Errorf("bytes are shown as %q", got.Value)
		}
		if got = <-out; !got.Cut || len(got.Value) > 16<<10 || len(got.Value) < 15<<10 || !strings.HasSuffix(got.Value, "ä") {
			t.Errorf("a long value is shown in %d bytes, cut %t", len(got.Value), got.Cut)
		}
		if got = <-out; got.Value != "null" || got.Offset != 3 {
			t.Errorf("a tombstone is shown as %q", got.Value)
		}
		p.Crash()
	})
}

func TestATapOfAKeyedStepShowsWholeRecordsAndItsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting))
		feed := w.Feed("in", 1)
		p := running(w)
		name := ""
		for _, d := range w.Plan().Describe().Operators {
			if d.State != nil {
				name = d.Name
			}
		}
		in, out := tapping(t, w, name, pipeline.TapOptions{Input: true}), tapping(t, w, name, pipeline.TapOptions{})
		clicks(feed, 1, 0, 3)
		came := waiting(in)
		if len(came) != 3 || !strings.HasPrefix(came[0], `{"`) || len(came[0]) < 10 {
			t.Errorf("in come %q", came)
		}
		feed.End()
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		var went []string
		for r := range out {
			went = append(went, r.Value)
			if r.Offset != -1 || r.Partition != -1 {
				t.Errorf("a result has the place %s/%d@%d", r.Topic, r.Partition, r.Offset)
			}
		}
		equal(t, sorted(went), sorted(w.Target("out").Values()))
	})
}

func TestATapHoldsNothingUpAndCountsWhatItLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, tapped)
		feed := w.Feed("in", 1)
		p := running(w)
		idle, slow := tapping(t, w, "source", pipeline.TapOptions{PerSecond: 400}), tapping(t, w, "source", pipeline.TapOptions{PerSecond: 2})
		fill(feed, 1, 0, 1000)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		fill(feed, 1, 1000, 1001)
		feed.End()
		if s, err := p.Wait(); err != nil || s.Counts.Read != 1001 {
			t.Fatalf("%d were read, error %v", s.Counts.Read, err)
		}
		shown, left := 0, int64(0)
		for r := range slow {
			shown, left = shown+1, left+r.Left
			if r.Offset == 1000 && int64(shown)+left != 1001 {
				t.Errorf("%d shown and %d left out before the last one", shown, left)
			}
		}
		if shown != 3 {
			t.Errorf("%d were shown, at two a second", shown)
		}
		if n := len(waiting(idle)); n != 64 {
			t.Errorf("%d wait in a tap that nobody reads", n)
		}
	})
}

func TestATapGoesOnAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, tapped)
		feed := w.Feed("in", 1)
		p := running(w)
		out := tapping(t, w, "sink", pipeline.TapOptions{})
		feed.Append(0, `{"n": 2}`)
		equal(t, waiting(out), []string{`{"n": 2,"double":4}`})
		feed.FailNext(errors.New("connection reset"))
		synctest.Wait()
		if phase := w.Options.Control.Status().Phase; phase != pipeline.Restarting {
			t.Errorf("it is %s", phase)
		}
		other := tapping(t, w, "even", pipeline.TapOptions{Limit: 1}) // opened while nothing runs
		time.Sleep(time.Minute)
		equal(t, waiting(out), []string{`{"n": 2,"double":4}`}) // read again
		equal(t, waiting(other), []string{`{"n": 2}`})
		feed.Append(0, `{"n": 4}`)
		equal(t, waiting(out), []string{`{"n": 4,"double":8}`})
		if _, ok := <-other; ok {
			t.Error("a tap goes on beyond its limit")
		}
		p.Crash()
	})
}

func TestATapEndsWithWhoAskedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, tapped)
		feed := w.Feed("in", 1)
		p := running(w)
		ctx, cancel := context.WithCancel(t.Context())
		for range 16 {
			if _, err := w.Options.Control.Tap(ctx, "even", pipeline.TapOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Options.Control.Tap(t.Context(), "even", pipeline.TapOptions{}); err == nil || !strings.Contains(err.Error(), "16 times") {
			t.Errorf("a tap too many: %v", err)
		}
		cancel()
		synctest.Wait()
		out := tapping(t, w, "even", pipeline.TapOptions{})
		feed.Append(0, `{"n": 2}`)
		equal(t, waiting(out), []string{`{"n": 2}`})
		p.Crash()
	})
}

func TestATapThatCannotBeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, tapped)
		w.Feed("in", 1)
		var phase *pipeline.PhaseError
		if _, err := w.Options.Control.Tap(t.Context(), "even", pipeline.TapOptions{}); !errors.As(err, &phase) {
			t.Errorf("before the start: %v", err)
		}
		p := running(w)
		_, err := w.Options.Control.Tap(t.Context(), "twise", pipeline.TapOptions{})
		if want := "did you mean twice? it has source, even, twice, sink"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an unknown name: %v", err)
		}
		if _, err := w.Options.Control.Tap(t.Context(), "even", pipeline.TapOptions{Limit: -1}); err == nil {
			t.Error("a limit below 0 is taken")
		}
		p.Crash()
		if _, err := w.Options.Control.Tap(t.Context(), "even", pipeline.TapOptions{}); !errors.As(err, &phase) {
			t.Errorf("after the end: %v", err)
		}
	})
}
