//go:build integration

// Package soak kills the program while it works and counts what comes out: all
// of it, once, and in order. `make integration` runs it short, `make soak` long.
package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// job is a pipeline with its ledger, over all the lives of its process.
type job struct {
	name   string // of the pipeline, and the beginning of its topics' names
	dir    string
	file   string
	out    string // topic or folder
	ledger *ledger
	// outputs are where its sinks write, by their kinds, for one of newJob.
	outputs map[string]output
	lives   int
	// storage is where its checkpoints are, and env the variables that its file has, for
	// one of newPipeline.
	storage string
	env     []string
}

const (
	interval = 200 * time.Millisecond
	patience = 90 * time.Second
)

// newJob makes topics, and a pipeline file with the steps given and sinks of the kinds
// given, with a space between them.
func newJob(t *testing.T, sinks, until string, steps ...string) *job {
	t.Helper()
	j := &job{name: "soak-" + strconv.FormatInt(time.Now().UnixNano(), 36), dir: t.TempDir()}
	j.ledger = newLedger(t, j.name+"-in")
	j.outputs = map[string]output{}
	block := ""
	for _, kind := range strings.Fields(sinks) {
		o := j.place(t, kind)
		j.outputs[kind] = o
		block += fmt.Sprintf("\n  %s: {from: last, %s}", kind, o.block)
		if o.more != "" {
			block += "\n  " + o.more
		}
	}
	steps = slices.Concat([]string{"filter: n >= 0"}, steps, []string{"name: last\n    set: {seen: n + 1}"})
	text := fmt.Sprintf(`pipeline: %s
source:
  kafka: {brokers: [%s], topics: [%s]%s}
transforms:
  - %s
sinks:%s
checkpoint: {storage: "file://%s/checkpoints", interval: %v}
restart: {exponential: {max: 5s}}
`, j.name, strings.Join(brokers(t), ", "), j.ledger.topic, until, strings.Join(steps, "\n  - "), block, j.dir, interval)
	j.file = filepath.Join(j.dir, "pipeline.yaml")
	if err := os.WriteFile(j.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return j
}

// random is seeded anew each time, with the seed on view; SOAK_SEED repeats one.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SOAK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SOAK_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("SOAK_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// meanLife is how long a process lives before it is killed, on average.
const meanLife = 1200 * time.Millisecond

func randomLife(rng *rand.Rand) time.Duration {
	return 200*time.Millisecond + time.Duration(rng.Int64N(int64(2*(meanLife-200*time.Millisecond))))
}

// paced is a rate at which all records take about as long as the kills.
const paced = records * int(time.Second) / (kills + 2) / int(meanLife)

func TestSoakKafkaToKafkaOverRandomKills(t *testing.T) {
	rng := random(t)
	j := newJob(t, "kafka", "")
	w := newWatch(t, j.out)
	stop := j.ledger.feed(t, paced, records)
	var first []time.Duration
	for i := range kills {
		w.mark()
		started := time.Now()
		p := j.start(t)
		if !p.killAfter(randomLife(rng)) {
			t.Fatalf("life %d ended by itself with exit code %d\n%s", i+1, p.code, p.tail())
		}
		if at := w.first.Load(); at != 0 {
			first = append(first, time.Unix(0, at).Sub(started).Round(time.Millisecond))
		}
	}
	p := j.start(t)
	p.until(patience, "all records were written to the input", func() bool {
		n := 0
		for p := range partitions {
			n += int(w.last[p].Load())
		}
		return n == records
	})
	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
	slices.Sort(first)
	t.Logf("from start to the first new record visible, with an interval of %v, in the %d of %d lives that got so far: %v", interval, len(first), kills, first)
}

// finish waits until everything has come out and ends the process in peace.
func (j *job) finish(t *testing.T, p *process, w *watch) {
	t.Helper()
	p.until(patience, "every record was visible", func() bool { return w.complete(j.ledger) })
	// All may have come out before this life, which then has hardly begun.
	p.end()
}

func (j *job) verifyTopic(t *testing.T) {
	t.Helper()
	c := j.ledger.check()
	c.readTopic(t, j.out)
	if err := c.result(); err != nil {
		t.Fatalf("after %d lives: %v", j.lives, err)
	}
}

func TestNewerProcessTakesOver(t *testing.T) {
	for name, stopped := range map[string]bool{"from one at work": false, "from one that hung": true} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, "kafka", "")
			w := newWatch(t, j.out)
			stop := j.ledger.feed(t, 5000, 1<<30)
			older := j.start(t)
			older.until(patience, "it wrote something", func() bool { return w.count.Load() > 0 })
			if stopped {
				older.pause()
			}
			newer := j.start(t)
			if stopped {
				before := w.count.Load()
				newer.until(patience, "it wrote something", func() bool { return w.count.Load() > before+2000 })
				older.signal(syscall.SIGCONT)
			}
			older.wait(patience, 4)
			stop()
			j.finish(t, newer, w)
			j.verifyTopic(t)
		})
	}
}

func TestOlderProcessCommitsNothingAfterARestartFromAnOlderCheckpoint(t *testing.T) {
	j := newJob(t, "kafka", "")
	w := newWatch(t, j.out)
	stop := j.ledger.feed(t, 5000, 1<<30)
	older := j.start(t)
	older.until(patience, "it wrote something", func() bool { return w.count.Load() > 5000 })
	older.pause()
	newer := j.start(t, "-s", j.oldestCheckpoint(t))
	before := w.count.Load()
	newer.until(patience, "it wrote something", func() bool { return w.count.Load() > before+2000 })
	older.signal(syscall.SIGCONT)
	older.wait(patience, 4)
	stop()
	j.finish(t, newer, w)
	c := j.ledger.check()
	c.readTopic(t, j.out)
	if lost := c.lost(); lost > 0 || c.alien > 0 {
		t.Fatalf("%d lost, %d that were never written", lost, c.alien)
	}
}
