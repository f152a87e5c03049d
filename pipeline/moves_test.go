package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// passing hands everything on as it is.
const passing = `
pipeline: passing
parallelism: 2
source: {feed: {name: FEED-in}}
transforms:
  - filter: true
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

// numbered appends the numbers from first up to last to a partition.
func numbered(f *pipelinetest.Feed, partition, first, last int) {
	f.Append(partition, numbers(first, last)...)
}

func numbers(first, last int) (out []string) {
	for i := first; i < last; i++ {
		out = append(out, fmt.Sprintf(`{"n":%d}`, i))
	}
	return out
}

// readTo runs the pipeline until it has read and published everything. The next run has a
// control of its own.
func readTo(t *testing.T, w *pipelinetest.World) {
	t.Helper()
	p := running(w)
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Options.Control = &pipeline.Control{}
}

func TestAPositionIsMovedForGoodBeforeARecordIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, passing)
		feed, out := w.Feed("in", 2), w.Target("out")
		numbered(feed, 0, 0, 20)
		readTo(t, w)
		numbered(feed, 0, 20, 30)
		feed.Away() // nothing is read
		w.Options.SetOffsets = map[string]int64{"feed/000": 25}
		p := w.Start()
		moved, err := w.Options.Control.Moved(t.Context())
		if want := []pipeline.Moved{{Split: "feed/000", Before: 20, After: 25}}; err != nil || !slices.Equal(moved, want) {
			t.Fatalf("it tells %v, error %v", moved, err)
		}
		p.Crash() // at once
		feed.Back()
		feed.End()
		w.Options.SetOffsets = nil
		s, err := w.Run()
		if err != nil || s.Counts.Read != 5 || s.Moved != nil {
			t.Errorf("%d were read, moved %v, error %v", s.Counts.Read, s.Moved, err)
		}
		equal(t, out.Values(), append(numbers(0, 20), numbers(25, 30)...))
	})
}

func TestAPositionThatIsMovedBackKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, at(2, counting))
		feed, out := w.Feed("in", 1), w.Target("out")
		clicks(feed, 1, 0, 100)
		readTo(t, w)
		w.Options.SetOffsets = map[string]int64{"feed/000": pipeline.Earliest}
		feed.End()
		if s, err := w.Run(); err != nil || s.Counts.Read != 100 || len(s.Moved) != 1 || s.Moved[0].After != 0 {
			t.Fatalf("%d were read, moved %v, error %v", s.Counts.Read, s.Moved, err)
		}
		// The window that ends at 0 was closed before: what comes again is late for it.
		closed := func(row string) bool { return strings.Contains(row, `"end":0,`) }
		open := func(row string) bool { return !closed(row) }
		want := slices.DeleteFunc(wantClicks([2]int{0, 100}), open)
		want = append(want, slices.DeleteFunc(wantClicks([2]int{0, 100}, [2]int{0, 100}), closed)...)
		equal(t, sorted(out.Values()), sorted(want))
	})
}

// A process that is killed before its first checkpoint has moved nothing, and one that is
// killed after it has moved for good.
func TestAMoveStandsWithTheFirstCheckpointOrNotAtAll(t *testing.T) {
	for point, want := range map[string][]string{
		"before-metadata": numbers(0, 20),
		"after-metadata":  slices.Concat(numbers(0, 10), numbers(15, 17), numbers(18, 20)),
	} {
		t.Run(point, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, passing)
				feed, out := w.Feed("in", 1), w.Target("out")
				numbered(feed, 0, 0, 10)
				readTo(t, w)
				numbered(feed, 0, 10, 20)
				reached, crashed := make(chan struct{}), make(chan struct{})
				w.Options.Failpoint = func(name string) {
					if name == point {
						close(reached)
						<-crashed
					}
				}
				w.Options.SetOffsets, w.Options.Skip = map[string]int64{"feed/000": 15}, []pipeline.Coordinates{{Split: "feed/000", Offset: 17}}
				p := w.Start()
				<-reached
				go p.Crash()
				synctest.Wait()
				close(crashed)
				if _, err := p.Wait(); err == nil {
					t.Fatal("the run did not crash")
				}
				if moved, err := w.Options.Control.Moved(t.Context()); err == nil {
					t.Errorf("it says that it has moved %v, before a record could be read", moved)
				}
				w.Options.Failpoint, w.Options.SetOffsets, w.Options.Skip = nil, nil, nil
				feed.End()
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				equal(t, out.Values(), want)
			})
		})
	}
}

// A start that fails before its first checkpoint moves when it is tried again, and one
// that fails later goes on from where it was.
func TestAMoveIsAppliedOnceHoweverOftenTheRunStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := unused("moved")
		w := steered(t, strings.Replace(passing, "STORAGE", "flaky://"+name, 1))
		feed, out := w.Feed("in", 1), w.Target("out")
		numbered(feed, 0, 0, 10)
		readTo(t, w)
		numbered(feed, 0, 10, 20)
		w.Options.SetOffsets = map[string]int64{"feed/000": 2}
		faults(t, name, storagetest.Rule{Op: storagetest.OpCreate, Glob: "*_metadata", Nth: 1}, storagetest.Rule{Op: storagetest.OpClose, Glob: "*_metadata*", Nth: 1, Effect: storagetest.FailAfter})
		p := running(w)
		time.Sleep(time.Minute)
		feed.FailNext(errors.New("connection reset"))
		time.Sleep(time.Minute)
		feed.End()
		s, err := p.Wait()
		if err != nil || s.Restarts < 1 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
		if want := []pipeline.Moved{{Split: "feed/000", Before: 10, After: 2}}; !slices.Equal(s.Moved, want) {
			t.Errorf("moved %v", s.Moved)
		}
		equal(t, out.Values(), slices.Concat(numbers(0, 10), numbers(2, 20)))
	})
}

func TestExactlyOneRecordIsSkippedAndTheOthersBeforeItAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.Replace(passing, "filter: true", "filter: n >= 0", 1))
		feed, out := w.Feed("in", 1), w.Target("out")
		numbered(feed, 0, 0, 10)
		feed.Append(0, "poison")
		numbered(feed, 0, 11, 20)
		if _, err := w.Run(); !connectors.IsPermanent(err) {
			t.Fatalf("the poison record is borne: %v", err)
		}
		w.Options.Control = &pipeline.Control{}
		w.Options.Skip = []pipeline.Coordinates{{Split: "feed/000", Offset: 10}}
		log := logTo(w)
		out.BeforeWrite = failingFirst(3)
		p := running(w)
		moved, err := w.Options.Control.Moved(t.Context())
		if want := []pipeline.Moved{{Split: "feed/000", Before: 10, After: 11}}; err != nil || !slices.Equal(moved, want) {
			t.Errorf("it tells %v, error %v", moved, err)
		}
		time.Sleep(time.Minute)
		p.Crash()
		w.Options.Skip = nil // the checkpoints know it
		numbered(feed, 0, 20, 30)
		feed.End()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		if s.Counts.Skipped != 1 {
			t.Errorf("%d are skipped", s.Counts.Skipped)
		}
		equal(t, out.Values(), slices.Concat(numbers(0, 10), numbers(11, 30)))
		if got := log.String(); !strings.Contains(got, "a record is left out, as asked") || !strings.Contains(got, "topic=feed partition=0") && !strings.Contains(got, "offset=10") {
			t.Errorf("the log does not tell:\n%s", got)
		}
	})
}

// failingFirst fails the first n writes.
func failingFirst(n int64) func(string) error {
	var failed atomic.Int64
	return func(string) error {
		if failed.Add(1) <= n {
			return errors.New("target is down")
		}
		return nil
	}
}

func TestAMoveOfAJobThatHasReadItsInputIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, passing)
		feed := w.Feed("in", 1)
		numbered(feed, 0, 0, 10)
		feed.End()
		wantRun(t, w, 10)
		w.Options.SetOffsets = map[string]int64{"feed/000": 0}
		if s, err := w.Run(); !connectors.IsPermanent(err) || s.Moved != nil {
			t.Errorf("moved %v, error %v", s.Moved, err)
		}
	})
}

func TestPositionsOfASourceThatCannotMoveThemAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, strings.Replace(passing, "{name: FEED-in}", "{name: FEED-in, fixed: true}", 1))
		w.Feed("in", 1)
		w.Options.SetOffsets = map[string]int64{"feed/000": 0}
		if _, err := w.Run(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "positions of source source, a feed, cannot be moved") {
			t.Errorf("error %v", err)
		}
	})
}

func TestMovesThatCannotBeAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		offsets map[string]int64
		skip    []pipeline.Coordinates
		want    string
	}{
		"unknown":      {offsets: map[string]int64{"feed/0001": 1}, want: "no source reads feed/0001; did you mean feed/000? the pipeline reads feed/000, feed/001"},
		"beyond":       {offsets: map[string]int64{"feed/000": 21}, want: "choose one from 0 to 20"},
		"below":        {offsets: map[string]int64{"feed/000": -3}, want: "choose one from 0 to 20"},
		"skip read":    {skip: []pipeline.Coordinates{{Split: "feed/000", Offset: 9}}, want: "read already: the pipeline goes on from offset 10"},
		"skip nothing": {skip: []pipeline.Coordinates{{Split: "feed/000", Offset: 20}}, want: "those from 10 to 19"},
		"two": {offsets: map[string]int64{"feed/000": 21}, skip: []pipeline.Coordinates{{Split: "feed/007", Offset: 1}},
			want: "\nleave out feed/007@1: no source reads feed/007"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := steered(t, passing)
				feed := w.Feed("in", 2)
				numbered(feed, 0, 0, 10)
				readTo(t, w)
				numbered(feed, 0, 10, 20)
				w.Options.SetOffsets, w.Options.Skip = c.offsets, c.skip
				_, err := w.Run()
				if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if _, err := w.Options.Control.Moved(t.Context()); err == nil {
					t.Error("it says that they are moved")
				}
				if s := w.Options.Control.Status(); s.Generation != 0 {
					t.Error("it took a generation")
				}
			})
		})
	}
}
