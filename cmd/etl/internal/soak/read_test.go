//go:build integration

package soak

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// result is one record as it came out.
type result struct {
	P    int `json:"p"`
	N    int `json:"n"`
	Seen int `json:"seen"`
}

// takeLines gives every line of r to the check: a JSON object each, with
// where it stands before it or else the place given.
func (c *check) takeLines(r io.Reader, place string) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		where, text, found := strings.Cut(lines.Text(), "{")
		if !found {
			return fmt.Errorf("line %q holds no object", lines.Text())
		}
		got := result{P: -1}
		if err := json.Unmarshal([]byte("{"+text), &got); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if where == "" {
			where = place + " line " + strconv.Itoa(n)
		}
		c.take(got.P, got.N, got.Seen, where)
	}
	return lines.Err()
}

// readTopic reads a topic with the console consumer of Kafka's own
// distribution, committed records only. The consumer ends when nothing has come for a
// while: where that was not enough for all to come, it is given longer.
func (c *check) readTopic(t *testing.T, topic string) {
	t.Helper()
	for idle := 5 * time.Second; ; idle *= 2 {
		again := c.blank()
		again.readTopicOnce(t, topic, idle)
		if again.lost() == 0 || idle > 30*time.Second {
			*c = *again
			return
		}
	}
}

func (c *check) readTopicOnce(t *testing.T, topic string, idle time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kafkaScript, "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", strings.Join(brokers(t), ","), "--topic", topic, "--from-beginning",
		"--isolation-level", "read_committed", "--timeout-ms", strconv.FormatInt(idle.Milliseconds(), 10),
		"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	readErr := c.takeLines(out, topic)
	// Its exit code tells of the time-out that ends every reading.
	_ = cmd.Wait()
	if readErr != nil || !strings.Contains(errs.String(), "Processed a total of") {
		t.Fatalf("read %s: %v\n%s", topic, readErr, errs.String())
	}
}

var fileName = regexp.MustCompile(`-g(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]{6}\.[a-z]+$`)

// readFiles reads all visible files below dir in the order of their names'
// generation, checkpoint, subtask and sequence.
func (c *check) readFiles(t *testing.T, dir string) {
	t.Helper()
	files := visibleFiles(t, dir)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		err = c.takeLines(f, filepath.Base(name))
		_ = f.Close()
		if err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
	}
}

// visibleFiles are the files of a folder that a reader is to see, in that order.
func visibleFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.ContainsAny(filepath.Base(f)[:1], "._") })
	slices.SortFunc(files, func(a, b string) int { return slices.Compare(fileOrder(t, a), fileOrder(t, b)) })
	return files
}

func fileOrder(t *testing.T, name string) []int {
	t.Helper()
	m := fileName.FindStringSubmatch(name)
	if m == nil {
		t.Fatalf("unexpected file %s", name)
	}
	order := make([]int, 4)
	for i := range order {
		order[i], _ = strconv.Atoi(m[i+1])
	}
	return order
}

// watch follows the committed records of a topic, for the progress of a run;
// it judges nothing.
type watch struct {
	count atomic.Int64
	last  [partitions]atomic.Int64 // highest number seen of each partition, plus one
	first atomic.Int64             // when the first new number after mark came, Unix nanoseconds; 0 for not yet
}

func newWatch(t *testing.T, topic string) *watch {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w, done := &watch{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(w.take)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		cl.Close()
	})
	return w
}

func (w *watch) take(r *kgo.Record) {
	var got result
	if json.Unmarshal(r.Value, &got) != nil || got.P < 0 || got.P >= partitions {
		return
	}
	if n := int64(got.N) + 1; n > w.last[got.P].Load() {
		w.last[got.P].Store(n)
		w.first.CompareAndSwap(0, time.Now().UnixNano())
	}
	w.count.Add(1)
}

// mark forgets when a new record came first.
func (w *watch) mark() { w.first.Store(0) }

// complete reports whether the last record of each partition has come.
func (w *watch) complete(l *ledger) bool {
	for p := range partitions {
		if w.last[p].Load() < int64(l.counts[p]) {
			return false
		}
	}
	return true
}

// oldestCheckpoint is the path of the oldest complete checkpoint that the
// pipeline's jobs hold.
func (j *job) oldestCheckpoint(t *testing.T) string {
	t.Helper()
	found := j.checkpoints(t)
	if len(found) == 0 {
		t.Fatalf("no checkpoint of %s", j.name)
	}
	return found[0]
}

// checkpoints are the paths of the complete checkpoints that the pipeline's jobs
// hold, by number.
func (j *job) checkpoints(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(j.dir, "checkpoints", j.name, "*", "chk-*", "_metadata"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		found[i] = filepath.Dir(f)
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(checkpointNumber(a), checkpointNumber(b)) })
	return found
}

// newestCheckpoint is the number of the newest complete checkpoint, 0 for none.
func (j *job) newestCheckpoint(t *testing.T) int {
	t.Helper()
	found := j.checkpoints(t)
	if len(found) == 0 {
		return 0
	}
	return checkpointNumber(found[len(found)-1])
}

func checkpointNumber(path string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "chk-"))
	return n
}
