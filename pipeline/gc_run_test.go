package pipeline_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const collected = `
pipeline: collected
parallelism: 2
source: {feed: {name: FEED-in, batch: 5}}
transforms:
  - name: counts
    aggregate: {by: [k], select: {n: count()}, emit: on_change}
sinks:
  out: {from: counts, collect: {name: TARGET-out, prepare_ms: 150}}
  files: {from: counts, file: {path: "mem://FEED-files", changelog: true, roll: {age: 1h}}}
checkpoint: {storage: STORAGE, interval: 100ms, retained: 3CONCURRENT, state: {backend: disk, dir: DIR, memory: 16MiB}}
restart: none
`

// TestGarbageIsRemovedBesideARunningPipeline removes garbage without any grace, and old
// checkpoints, beside a pipeline that takes checkpoints all the time, crashes, and
// begins new jobs: every checkpoint that is listed stays whole, the next ones
// complete, and the results are right.
func TestGarbageIsRemovedBesideARunningPipeline(t *testing.T) {
	for name, concurrent := range map[string]string{"one at a time": "", "three at a time": ", max_concurrent: 3"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { collectBeside(t, concurrent) })
		})
	}
}

func collectBeside(t *testing.T, concurrent string) {
	y := strings.NewReplacer("CONCURRENT", concurrent, "DIR", t.TempDir()).Replace(collected)
	w := pipelinetest.New(t, y)
	feed := w.Feed("in", 2)
	s, err := checkpoint.NewStore(w.Storage(), "collected", checkpoint.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	counts, removed := map[string]int{}, 0
	for round := range 6 {
		w.Options.From = ""
		if round%3 == 2 {
			w.Options.From = someCheckpoint(t, s, rnd)
		}
		p := w.Start()
		t.Cleanup(p.Crash)
		for range 12 {
			for range 20 {
				k := strconv.Itoa(rnd.IntN(1000))
				counts[k]++
				feed.Append(rnd.IntN(2), `{"k":`+k+`}`)
			}
			time.Sleep(time.Duration(rnd.IntN(90)) * time.Millisecond)
			removed += collectOnce(t, s, rnd)
		}
		before := newestNumber(t, s)
		time.Sleep(300 * time.Millisecond)
		if after := newestNumber(t, s); after <= before {
			t.Fatalf("no checkpoint became complete after %d", before)
		}
		if round%2 == 0 {
			p.Crash()
		} else if _, err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		removed += collectOnce(t, s, rnd)
	}
	if removed == 0 {
		t.Error("nothing was ever removed")
	}
	w.Options.From = ""
	feed.End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	// A key's last result is the right one, whatever was published again.
	got := map[string]int{}
	for _, row := range w.Target("out").Values() {
		var r struct{ K, N int }
		if err := json.Unmarshal([]byte(row), &r); err != nil {
			t.Fatal(err)
		}
		got[strconv.Itoa(r.K)] = r.N
	}
	if !maps.Equal(got, counts) {
		t.Errorf("the results are not those of the records: %d keys of %d", len(got), len(counts))
	}
}

// collectOnce removes what there is, sometimes a checkpoint too, and verifies the rest.
func collectOnce(t *testing.T, s *checkpoint.Store, rnd *rand.Rand) int {
	t.Helper()
	n := 0
	g, err := s.Garbage(t.Context(), checkpoint.GCOptions{})
	if err == nil {
		err = s.RemoveGarbage(t.Context(), g, func(checkpoint.GarbageItem) { n++ })
	}
	if err != nil && !errors.Is(err, checkpoint.ErrStarted) {
		t.Fatal(err)
	}
	if rnd.IntN(3) == 0 {
		_, err := checkpoint.Remove(t.Context(), someCheckpoint(t, s, rnd), rnd.IntN(2) == 0)
		var refused *checkpoint.RefusedError
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, checkpoint.ErrStarted) {
			t.Fatal(err)
		}
	}
	jobs, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		for _, c := range j.Checkpoints {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
			if c.Meta == nil {
				continue
			}
			r, err := checkpoint.Verify(t.Context(), c.Path)
			if err != nil || len(r.Faults) > 0 {
				t.Fatalf("checkpoint %s: %v, %+v", c.Path, err, r)
			}
		}
	}
	return n
}

func someCheckpoint(t *testing.T, s *checkpoint.Store, rnd *rand.Rand) string {
	t.Helper()
	jobs, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, j := range jobs {
		for _, c := range j.Checkpoints {
			if c.Meta != nil && c.Committed {
				paths = append(paths, c.Path)
			}
		}
	}
	return paths[rnd.IntN(len(paths))]
}

func newestNumber(t *testing.T, s *checkpoint.Store) uint64 {
	t.Helper()
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range sv.Checkpoints {
		if c.Committed {
			return c.Number
		}
	}
	return 0
}
