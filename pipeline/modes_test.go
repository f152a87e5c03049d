package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// twoInputs is a union of two sources, one of which is slow, before an exchange by key.
const twoInputs = `
pipeline: two-inputs
parallelism: PARALLELISM
max_parallelism: 12
sources:
  a: {feed: {name: FEED-a, batch: 3}}
  b: {feed: {name: FEED-b, batch: 5}}
transforms:
  - {name: slow, from: a, throttle: {records_per_second: 300}}
  - {name: both, from: [slow, b], set: {k: word}}
  - {name: counts, aggregate: {by: [k], select: {n: count()}, emit: on_close}}
sinks:
  to-counts: {from: counts, collect: {name: TARGET-counts}}
  to-rows: {from: both, collect: {name: TARGET-rows}}
checkpoint: {storage: STORAGE, interval: 20ms, mode: MODE, max_concurrent: CONCURRENT}
`

// countTwoInputs counts words from two sources over some crashes, and gives how many more
// than there are were counted, how many were published again, and how many are missing.
func countTwoInputs(t *testing.T, mode string, seed uint64) (excess, repeated, short int) {
	r := rand.New(rand.NewPCG(seed, 7))
	yaml := func() string {
		return strings.NewReplacer("PARALLELISM", fmt.Sprint(1+r.IntN(3)), "CONCURRENT", fmt.Sprint(1+r.IntN(3)), "MODE", mode).Replace(twoInputs)
	}
	w := pipelinetest.New(t, yaml())
	a, b := w.Feed("a", 2), w.Feed("b", 3)
	truth, rows := map[string]int{}, 0
	feed := func() {
		for range 60 {
			word := fmt.Sprint("w", r.IntN(7))
			truth[word]++
			rows++
			if row := fmt.Sprintf(`{"word":%q,"i":%d}`, word, rows); r.IntN(2) == 0 {
				a.Append(r.IntN(2), row)
			} else {
				b.Append(r.IntN(3), row)
			}
		}
	}
	for range 5 {
		p := w.Start()
		for range 4 {
			feed()
			time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		}
		p.Crash()
		w.Redefine(yaml())
	}
	b.End() // one input ends before the other
	p := w.Start()
	time.Sleep(100 * time.Millisecond)
	feedLast := fmt.Sprintf(`{"word":"w0","i":%d}`, rows+1)
	a.Append(0, feedLast)
	truth["w0"]++
	rows++
	a.End()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for _, v := range w.Target("counts").Values() {
		var row struct {
			K string
			N int
		}
		if err := json.Unmarshal([]byte(v), &row); err != nil {
			t.Fatal(err)
		}
		counted[row.K] = row.N
	}
	for word, n := range truth {
		switch got := counted[word]; {
		case got < n:
			short += n - got
		default:
			excess += got - n
		}
	}
	seen := map[string]bool{}
	for _, v := range w.Target("rows").Values() {
		seen[v] = true
	}
	return excess, len(w.Target("rows").Values()) - len(seen), short + rows - len(seen)
}

func TestTwoInputsAreCountedExactlyOrAtLeastByTheMode(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			if excess, repeated, short := countTwoInputs(t, "exactly_once", seed); excess+repeated+short != 0 {
				t.Errorf("seed %d: exactly_once counted %d too many, published %d twice, and lacks %d", seed, excess, repeated, short)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			if _, _, short := countTwoInputs(t, "at_least_once", seed); short != 0 {
				t.Errorf("seed %d: at_least_once lacks %d", seed, short)
			}
		})
	}
}

// lateBarrier has an input that brings its barrier late while it is stuck.
const lateBarrier = `
pipeline: late-barrier
parallelism: 1
sources:
  a: {feed: {name: FEED-a}}
  b: {feed: {name: FEED-b}}
transforms:
  - {name: both, from: [a, b], set: {x: 1}}
sinks:
  stuck: {from: b, collect: {name: TARGET-stuck, exactly_once: false}}
  once: {from: both, collect: {name: TARGET-once}}
checkpoint: {storage: STORAGE, interval: 1h, mode: MODE}
`

// startLateBarrier takes a checkpoint for whose barrier a task waits three seconds, while
// 20 rows come on its other input.
func startLateBarrier(t *testing.T, mode string) (*pipelinetest.World, *pipelinetest.Process, checkpoint.Stats) {
	w := pipelinetest.New(t, strings.Replace(lateBarrier, "MODE", mode, 1))
	w.Options.Control = &pipeline.Control{}
	a, b := w.Feed("a", 1), w.Feed("b", 1)
	w.Target("stuck").BeforeWrite = func(string) error {
		time.Sleep(5 * time.Second)
		return nil
	}
	p := w.Start()
	time.Sleep(time.Second)
	b.Append(0, `{"i":-1}`)
	time.Sleep(2 * time.Second) // 3 more that b is stuck
	time.AfterFunc(time.Second, func() {
		for i := range 20 {
			a.Append(0, fmt.Sprintf(`{"i":%d}`, i))
		}
	})
	if _, err := w.Options.Control.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, p, w.Options.Control.Checkpoints()
}

func TestWhatAnInputBringsBehindItsBarrierIsRepeatedInOneModeOnly(t *testing.T) {
	for mode, want := range map[string]int{"exactly_once": 21, "at_least_once": 41} {
		synctest.Test(t, func(t *testing.T) {
			w, p, _ := startLateBarrier(t, mode)
			p.Crash()
			w.Options.Control = nil
			w.Feed("a", 1).End()
			w.Feed("b", 1).End()
			if _, err := w.Run(); err != nil {
				t.Fatal(err)
			}
			if rows := len(w.Target("once").Values()); rows != want {
				t.Errorf("%s: %d rows are published, want %d", mode, rows, want)
			}
		})
	}
}

// A checkpoint that waits for a slow input fails after its timeout, and does not hold the
// others back any more.
func TestAFailedCheckpointDoesNotHoldItsInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: stuck-input
parallelism: 1
sources:
  a: {feed: {name: FEED-a}}
  b: {feed: {name: FEED-b}}
transforms:
  - {name: both, from: [a, b], set: {x: 1}}
sinks:
  stuck: {from: b, collect: {name: TARGET-stuck, exactly_once: false}}
  seen: {from: both, collect: {name: TARGET-seen, exactly_once: false}}
  once: {from: both, collect: {name: TARGET-once}}
checkpoint: {storage: STORAGE, interval: 1s, timeout: 2s, tolerable_failures: unlimited}
`)
		a, b := w.Feed("a", 1), w.Feed("b", 1)
		began := false
		w.Target("stuck").BeforeWrite = func(string) error {
			if !began {
				began = true
				time.Sleep(20 * time.Second)
			}
			return nil
		}
		p := w.Start()
		b.Append(0, `{"i":0}`)
		want := []string{`{"i":0,"x":1}`}
		for i := 1; i < 150; i++ {
			a.Append(0, fmt.Sprintf(`{"i":%d}`, i))
			want = append(want, fmt.Sprintf(`{"i":%d,"x":1}`, i))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(w.Target("seen").Values()); n < 100 {
			t.Errorf("while one input was stuck for 15 seconds, %d rows of 149 of the other one came through", n)
		}
		a.End()
		b.End()
		if s, err := p.Wait(); err != nil || s.Restarts > 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("once").Values()), sorted(want))
	})
}

// A barrier that comes late on one input is seen in the statistics of the task that waits
// for it: how long, and how much it held back meanwhile.
func TestStatisticsTellWhereABarrierWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, stats := startLateBarrier(t, "exactly_once")
		got := map[string]checkpoint.TaskStats{}
		for _, task := range stats.Last.Tasks {
			got[task.Task.Chain] = task
		}
		if s := got["b"]; s.StartDelay != 3*time.Second || s.Alignment != 0 || s.Buffered != 0 {
			t.Errorf("the stuck source: %+v", s)
		}
		if s := got["a"]; s.StartDelay != 0 || s.Alignment != 0 || s.Buffered != 0 {
			t.Errorf("the other source: %+v", s)
		}
		if s := got["both"]; s.StartDelay != 0 || s.Alignment != 3*time.Second || s.Buffered < 20*int64(len(`{"i":0}`)) {
			t.Errorf("the task behind them: %+v", s)
		}
		p.Crash()
	})
}

// mute is storage in memory that does not answer who writes one file of state.
type mute struct{ storage.FS }

var muted atomic.Int64 // writers that wait

func init() {
	storage.Register("mute", func(u *url.URL) (storage.FS, error) {
		fs, err := storage.Open("mem://" + u.Host + u.Path)
		return mute{fs}, err
	})
}

func (m mute) Create(ctx context.Context, name string) (storage.Writer, error) {
	if strings.Contains(name, "/shared/") && muted.Add(1) == 1 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return m.FS.Create(ctx, name)
}

func TestAnUploadThatHangsEndsWithItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		muted.Store(0)
		w := pipelinetest.New(t, strings.NewReplacer("STORAGE", "mute://"+unused("mute"), "interval: 100ms", "interval: 1s, timeout: 10s").Replace(at(1, counting)))
		feed := w.Feed("in", 2)
		clicks(feed, 2, 0, 1000)
		p := w.Start()
		time.Sleep(9 * time.Second)
		if n := len(w.Target("out").Values()); n != 0 || muted.Load() != 1 {
			t.Errorf("%d rows are published, %d files were begun: no upload hangs", n, muted.Load())
		}
		time.Sleep(5 * time.Second)
		if n := len(w.Target("out").Values()); n == 0 {
			t.Error("nothing is published after the timeout of the checkpoint whose upload hung")
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Restarts > 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 1000}))
	})
}
