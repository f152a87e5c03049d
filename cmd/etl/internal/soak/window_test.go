//go:build integration

package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The window case: a backlog in four partitions, of which the windows of many
// keys are counted with little delay. Whoever mixes partitions, goes by the wall
// clock, or forgets state at a crash counts wrong.
const (
	windowRecords = 200_000
	windowKeys    = 10_000
	windowSpan    = 20_000 // milliseconds of event time
	windowSize    = 10_000
	windowDelay   = 1_000 // and records are out of order by less
	windowBase    = 1_700_000_000_000
)

// windowCounts is what comes out: the count of each key and window.
type windowCounts map[[2]int64]int

// writeWindowCase writes the backlog, and in each partition records of a time far
// behind it, which close its windows and stay in one that no result shows.
func writeWindowCase(t *testing.T, topic string) windowCounts {
	t.Helper()
	createTopic(t, topic)
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	want := windowCounts{}
	var all []*kgo.Record
	add := func(partition int, key, at int64) {
		all = append(all, &kgo.Record{
			Partition: int32(partition),
			Value:     fmt.Appendf(nil, `{"seq":%d,"k":"k%d","ts":%d,"pad":"%060d"}`, len(all), key, at, 0),
		})
	}
	for i := range windowRecords {
		key := int64(i) * 7919 % windowKeys
		at := windowBase + int64(i)*windowSpan/windowRecords
		at = max(windowBase, at-rng.Int64N(windowDelay))
		add(i%partitions, key, at)
		want[[2]int64{key, at - at%windowSize}]++
	}
	for i := range 4 * partitions {
		add(i%partitions, windowKeys, windowBase+windowSpan+windowDelay+int64(i)*10)
	}
	if err := cl.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return want
}

// windowJob counts the backlog of a topic from the beginning. Records out of order
// are waited for by the watermark, or else as late ones by the windows.
func windowJob(t *testing.T, topic, backend string, parallelism, perSecond int, late bool) *job {
	t.Helper()
	j := &job{name: "windows", dir: t.TempDir()}
	j.out = filepath.Join(j.dir, "out")
	throttle := ""
	if perSecond > 0 {
		throttle = fmt.Sprintf("- throttle: {records_per_second: %d}\n", perSecond)
	}
	state := "{backend: memory}"
	if backend == "disk" {
		state = fmt.Sprintf("{backend: disk, dir: %q, memory: 16MiB}", filepath.Join(j.dir, "state"))
	}
	delay, lateness := windowDelay, 0
	if late {
		delay, lateness = lateness, delay
	}
	text := fmt.Sprintf(`pipeline: %s
parallelism: %d
source:
  kafka: {brokers: [%s], topics: [%s]}
  timestamp: ts
  watermark: {delay: %dms, idle_after: never}
transforms:
  %s- name: counts
    aggregate:
      by: [k]
      window: {tumbling: %dms}
      lateness: %dms
      select: {n: count()}
sink:
  file: {path: %q, roll: {age: 1ms}}
checkpoint: {storage: "file://%s/checkpoints", interval: 50ms, state: %s}
restart: none
`, j.name, parallelism, strings.Join(brokers(t), ", "), topic, delay, strings.ReplaceAll(throttle, "\n", "\n  "), windowSize, lateness, j.out, j.dir, state)
	j.file = filepath.Join(j.dir, "pipeline.yaml")
	if err := os.WriteFile(j.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return j
}

// counts reads what is visible. A window of a key that is there twice is an error.
func (j *job) counts(t *testing.T) (windowCounts, error) {
	t.Helper()
	got := windowCounts{}
	for _, line := range readLinesBelow(t, j.out) {
		var row struct {
			K          string
			Start, End int64
			N          int
		}
		row.N = -1
		text := strings.NewReplacer("window_start", "start", "window_end", "end").Replace(string(line))
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, fmt.Errorf("row %q: %w", line, err)
		}
		key, err := strconv.ParseInt(strings.TrimPrefix(row.K, "k"), 10, 64)
		if err != nil || row.End != row.Start+windowSize {
			return nil, fmt.Errorf("row %q is none of a window", line)
		}
		at := [2]int64{key, row.Start}
		if _, twice := got[at]; twice {
			return nil, fmt.Errorf("window %v is there twice", at)
		}
		got[at] = row.N
	}
	return got, nil
}

// finishWindows waits for the last window and ends the process in peace.
func (j *job) finishWindows(t *testing.T, p *process, want windowCounts) {
	t.Helper()
	p.until(patience, "all windows closed", func() bool { return len(readLinesBelow(t, j.out)) >= len(want) })
	p.signal(syscall.SIGTERM)
	p.wait(patience, 0)
	got, err := j.counts(t)
	if err != nil {
		t.Fatal(err)
	}
	wrong, records := 0, 0
	for at, n := range want {
		records += got[at]
		if got[at] != n {
			wrong++
		}
	}
	if wrong > 0 || len(got) != len(want) || records != windowRecords {
		t.Fatalf("%d windows, want %d; %d with a wrong count; %d of %d records counted", len(got), len(want), wrong, records, windowRecords)
	}
}

func TestSoakABacklogIsCountedExactlyInWindowsOfEachKey(t *testing.T) {
	rng := random(t)
	topic := "windows-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	want := writeWindowCase(t, topic)
	for _, backend := range []string{"memory", "disk"} {
		for _, parallelism := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s at parallelism %d", backend, parallelism), func(t *testing.T) {
				for how, late := range map[string]bool{"by the watermark": false, "as late records": true} {
					t.Run("undisturbed, waited for "+how, func(t *testing.T) {
						j := windowJob(t, topic, backend, parallelism, 0, late)
						j.finishWindows(t, j.start(t), want)
					})
				}
				t.Run("killed, and run again from the beginning", func(t *testing.T) {
					j := windowJob(t, topic, backend, parallelism, windowRecords/8, parallelism == 4)
					j.killOften(t, rng, want)
				})
			})
		}
	}
}

// killOften kills the process after each few checkpoints, so long as windows are open.
func (j *job) killOften(t *testing.T, rng *rand.Rand, want windowCounts) {
	t.Helper()
	open := 0 // kills while the last windows were open
	for range kills {
		p, from := j.start(t), j.newestCheckpoint(t)
		least := from + 2 + rng.IntN(5)
		p.until(patience, "a few checkpoints", func() bool { return j.newestCheckpoint(t) >= least })
		if !p.killAfter(time.Duration(rng.Int64N(int64(50 * time.Millisecond)))) {
			t.Fatalf("it ended by itself with exit code %d\n%s", p.code, p.tail())
		}
		if len(readLinesBelow(t, j.out)) < len(want) {
			open++
		}
	}
	j.finishWindows(t, j.start(t), want)
	if open < 3 {
		t.Errorf("%d of %d kills hit before the last windows were out, too few to tell anything", open, kills)
	}
	t.Logf("%d kills before the last windows were out", open)
}

func TestWindowsThatAreThereTwiceOrAlienAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		rows string
		ok   bool
	}{
		"as it should be": {`{"k":"k1","window_start":0,"window_end":10000,"n":1}` + "\n" + `{"k":"k1","window_start":10000,"window_end":20000,"n":1}`, true},
		"twice":           {`{"k":"k1","window_start":0,"window_end":10000,"n":1}` + "\n" + `{"k":"k1","window_start":0,"window_end":10000,"n":2}`, false},
		"no window":       {`{"k":"k1","window_start":0,"n":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := &job{out: t.TempDir()}
			if err := os.WriteFile(filepath.Join(j.out, "part-g1-1-0-1-abcdef.jsonl"), []byte(tc.rows+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := j.counts(t); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
