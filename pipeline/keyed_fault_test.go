package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// shaky is storage in memory that takes no files of state for a while.
type shaky struct{ storage.FS }

var (
	stateRefused atomic.Int64 // how many files are refused yet
	shakies      atomic.Int64
)

func init() {
	storage.Register("shaky", func(u *url.URL) (storage.FS, error) {
		fs, err := storage.Open("mem://" + u.Host + u.Path)
		return shaky{fs}, err
	})
}

func (s shaky) Create(ctx context.Context, name string) (storage.Writer, error) {
	if strings.Contains(name, "/shared/") && stateRefused.Add(-1) >= 0 {
		return nil, errors.New("no room")
	}
	return s.FS.Create(ctx, name)
}

func TestAPictureOfStateThatCannotBeWrittenFailsItsCheckpointOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(at(2, counting), "STORAGE", fmt.Sprint("shaky://fault-", shakies.Add(1)), 1))
		feed := w.Feed("in", 2)
		clicks(feed, 2, 0, 1000)
		p := w.Start()
		time.Sleep(150 * time.Millisecond)
		before := len(w.Target("out").Values())
		stateRefused.Store(4)
		time.Sleep(time.Second)
		if n := stateRefused.Load(); n > 0 {
			t.Errorf("%d refusals are left: no state was written", n)
		}
		clicks(feed, 2, 1000, 1000)
		time.Sleep(time.Second)
		if n := len(w.Target("out").Values()); n <= before {
			t.Errorf("%d rows are published, as before the failures", n)
		}
		p.Crash()
		feed.End()
		s, err := w.Run()
		if err != nil || s.Restarts != 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
		equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 1000}, [2]int{1000, 1000}))
	})
}

func TestStateMovesBetweenBackendsInTheFormThatBothRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		memory := at(2, counting)
		disk := strings.Replace(memory, "interval", "state: {backend: disk, dir: '"+dir+"'}, interval", 1)
		whole := strings.Replace(disk, "interval", "incremental: false, interval", 1)
		w := pipelinetest.New(t, memory)
		feed, n := w.Feed("in", 2), 0
		var parts [][2]int
		run := func(yaml string) error {
			w.Redefine(yaml)
			clicks(feed, 2, n, 100)
			parts = append(parts, [2]int{n, 100})
			n += 100
			p := w.Start()
			time.Sleep(500 * time.Millisecond)
			_, err := p.Stop()
			return err
		}
		for i, yaml := range []string{memory, disk, memory, whole, memory} {
			err := run(yaml)
			if i != 2 {
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "incremental: false") {
				t.Errorf("files of the backend disk in memory: error %v", err)
			}
		}
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, sorted(w.Target("out").Values()), wantClicks(parts...))
	})
}

func TestTheControlShowsSplitsAndSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, at(2, counting))
		w.Options.Control = &pipeline.Control{}
		feed := w.Feed("in", 2)
		p := w.Start()
		click(feed, 0, 1000, 25000, 2000)
		click(feed, 1, 26000)
		time.Sleep(time.Second)
		got := w.Options.Control.Progress()
		if got.Counts.Read != 4 || got.Counts.Late != 1 || len(got.Splits) != 2 || len(got.Steps) != 2 {
			t.Fatalf("progress is %+v", got)
		}
		for _, s := range got.Splits {
			if want := map[string]int64{"feed/000": 25000, "feed/001": 26000}[s.Split]; s.Source != "source" || s.MaxTime == nil || *s.MaxTime != want || s.Watermark != want-1000 {
				t.Errorf("split %+v", s)
			}
		}
		var keys, late int64
		for i, s := range got.Steps {
			if s.Step != "tally" || s.Subtask != i || s.Watermark != 24000 || s.Idle {
				t.Errorf("step %+v", s)
			}
			keys, late = keys+s.State.Keys, late+s.Late
		}
		if keys != 1 || late != 1 {
			t.Errorf("%d keys, %d late records", keys, late)
		}
		if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if got = w.Options.Control.Progress(); len(got.Steps) != 0 {
			t.Errorf("after the end: %+v", got)
		}
	})
}

func TestAStateDirThatCannotBeHadIsRefusedBeforeTheRunningProcessIsEnded(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		on := func(dir string) string {
			return strings.Replace(at(2, counting), "interval", "state: {backend: disk, dir: '"+dir+"'}, interval", 1)
		}
		w := pipelinetest.New(t, on(filepath.Join(dir, "state")))
		feed := w.Feed("in", 2)
		clicks(feed, 2, 0, 100)
		p := w.Start()
		time.Sleep(300 * time.Millisecond)
		w.Redefine(on(taken))
		if _, err := w.Run(); err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "checkpoint.state.dir "+taken) {
			t.Errorf("a state dir that is a file: error %v", err)
		}
		feed.End()
		if _, err := p.Wait(); err != nil {
			t.Errorf("the running process ended: %v", err)
		}
		equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 100}))
	})
}
