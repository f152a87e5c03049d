//go:build integration

package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Every 1000th of the records is no JSON.
const (
	letterRecords = 20_000
	letterEvery   = 1000
	letterBad     = letterRecords / letterEvery
)

// letterJob is a pipeline that meets poison, with a topic for it.
type letterJob struct {
	job
	in, letters string
}

func newLetterJob(t *testing.T) *letterJob {
	t.Helper()
	name := "dlq-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	j := &letterJob{job: job{name: name, dir: t.TempDir(), out: name + "-out"}, in: name + "-in", letters: name + "-letters"}
	for _, topic := range []string{j.in, j.out, j.letters} {
		createTopic(t, topic)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var all []*kgo.Record
	for i := range letterRecords {
		r := &kgo.Record{Topic: j.in, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, `{"n":%d}`, i)}
		if i%letterEvery == letterEvery-1 {
			r.Value = fmt.Appendf(nil, "\xffpoison %d", i)
			r.Headers = []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "t%d", i)}}
		}
		all = append(all, r)
	}
	if err := cl.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return j
}

// define writes the pipeline file.
func (j *letterJob) define(t *testing.T, transforms, onError, letters string) {
	t.Helper()
	list := strings.Join(brokers(t), ", ")
	text := fmt.Sprintf(`pipeline: %s
on_error: %s
source:
  kafka: {brokers: [%s], topics: [%s], until: latest}
transforms: %s
sinks:
  out: {from: last, kafka: {brokers: [%s], topic: %s}}
%scheckpoint: {storage: "file://%s/checkpoints", interval: %v}
`, j.name, onError, list, j.in, transforms, list, j.out, letters, j.dir, interval)
	j.file = filepath.Join(j.dir, "pipeline.yaml")
	if err := os.WriteFile(j.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// committed reads the committed records of a topic.
func committed(t *testing.T, topic string) (out []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("reading %s: %d partitions are not at their end", topic, len(left))
		}
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if end, ok := left[r.Partition]; ok && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// once checks that a topic has each of so many keys once. The broker says that a
// transaction is committed before all of its partitions show it.
func once(t *testing.T, topic string, want int) {
	t.Helper()
	seen := map[string]int{}
	var twice int
	for deadline := time.Now().Add(patience); ; {
		clear(seen)
		twice = 0
		for _, r := range committed(t, topic) {
			if seen[string(r.Key)]++; seen[string(r.Key)] > 1 {
				twice++
			}
		}
		if len(seen) >= want || time.Now().After(deadline) {
			break
		}
	}
	if len(seen) != want || twice > 0 {
		t.Fatalf("%s has %d of %d records, and %d of them again", topic, len(seen), want, twice)
	}
}

func TestPoisonIsKeptAndBroughtInOnceOverKills(t *testing.T) {
	j := newLetterJob(t)
	const doubled, asIs = `[{name: last, set: {double: n * 2}}]`, `[{throttle: {records_per_second: 10}}, {name: last, filter: meta.offset >= 0}]`
	letters := fmt.Sprintf("  letters: {kafka: {brokers: [%s], topic: %s}, on_error: fail}\n", strings.Join(brokers(t), ", "), j.letters)

	j.define(t, doubled, "fail", "")
	p := j.start(t)
	p.wait(patience, 3)
	if text := p.tail(); !strings.Contains(text, "record "+j.in+"/3@249: step source: ") {
		t.Fatalf("the record that stopped the pipeline is not named:\n%s", text)
	}

	j.define(t, doubled, "{dead_letter: letters}", letters)
	j.start(t).wait(patience, 0)
	once(t, j.out, letterRecords-letterBad)
	keptWhole(t, j)

	j.define(t, asIs, "{dead_letter: letters}", letters)
	replay := func(env ...string) *process { return j.startCommand(t, []string{"dlq", "replay", j.file}, env...) }
	for i, point := range []string{"before-metadata=2", "after-metadata=1", "before-commit=1"} {
		if p := replay("SLUICE_FAILPOINT=" + point); !killedWithin(p, patience) {
			t.Fatalf("kill %d, at %s: it ended with exit code %d\n%s", i+1, point, p.code, p.tail())
		}
	}
	// And one at any moment, in the middle of those that are left.
	replay().killAfter(500 * time.Millisecond)
	replay().wait(patience, 0)
	once(t, j.out, letterRecords)
	replay().wait(patience, 0)
	once(t, j.out, letterRecords)
}

// killedWithin waits for the process to be killed by its crash point.
func killedWithin(p *process, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.code == killed
	case <-timer.C:
		return false
	}
}

// keptWhole checks the dead letters: bytes, headers and coordinates.
func keptWhole(t *testing.T, j *letterJob) {
	t.Helper()
	once(t, j.letters, letterBad)
	all := committed(t, j.letters)
	if len(all) != letterBad {
		t.Fatalf("%d dead letters, want %d", len(all), letterBad)
	}
	for _, r := range all {
		got := map[string]string{}
		for _, h := range r.Headers {
			got[h.Key] = string(h.Value)
		}
		i, err := strconv.Atoi(strings.TrimPrefix(string(r.Key), "k"))
		if err != nil || string(r.Value) != fmt.Sprintf("\xffpoison %d", i) || got["trace"] != fmt.Sprintf("t%d", i) || got["dead_letter.topic"] != j.in ||
			got["dead_letter.partition"] != strconv.Itoa(i%partitions) || got["dead_letter.offset"] != strconv.Itoa(i/partitions) ||
			got["dead_letter.step"] != "source" || got["dead_letter.reason"] == "" || got["dead_letter.time"] == "" {
			t.Errorf("dead letter %q %q %v", r.Key, r.Value, got)
		}
	}
}
