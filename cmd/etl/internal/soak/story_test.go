//go:build integration

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTheCountGoesOnFromTheCheckpoint tells what checkpoints are for: the count of
// "hello" is 5 when a checkpoint completes; two more hellos arrive; the process is
// killed; and the next one goes on from 5, at the Kafka offsets of 5, and ends right.
func TestTheCountGoesOnFromTheCheckpoint(t *testing.T) {
	for _, store := range checkpointStores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			for !tellOfHello(t, store) {
				t.Log("a checkpoint came between the two hellos and the kill: once more")
			}
		})
	}
}

// tellOfHello reports false where a checkpoint completed before the process was killed,
// so that there was nothing to fall back from.
func tellOfHello(t *testing.T, store checkpointStore) bool {
	w := newWords(t, store, "INTERVAL=3s")

	// Five hellos arrive, spread over the partitions, among other words.
	w.say("hello world", "hello there world", "well hello", "Hello again", "so hello it is")
	p := w.start(t)
	var n kept
	p.until(patience, "a checkpoint has the count of 5", func() bool {
		list := w.committed(t)
		if len(list) == 0 || list[0] == n {
			return false
		}
		n = list[0]
		return w.state(t, n.Path, "count", "word")["hello"] == 5
	})
	w.same(w.state(t, n.Path, "count", "word"), w.truth())
	atFive := w.offsets(t, n.Path)
	w.positions(atFive)

	// Two more arrive and are counted; nobody who waits for commits sees them.
	w.say("hello", "oh hello")
	p.until(patience, "hello was counted twice more", func() bool { return w.uncommitted.count("hello") == 7 })
	p.signal(syscall.SIGKILL)
	<-p.exited
	if w.committed(t)[0].Number != n.Number {
		return false
	}
	if seen := w.committedCounts.count("hello"); seen != 5 {
		t.Fatalf("%d hellos are committed, where the newest checkpoint has 5", seen)
	}

	// After the restart the count goes on from 5, with the offsets of 5, and ends right.
	p = w.start(t)
	p.until(patience, "it had begun", p.begun)
	if want := fmt.Sprintf("number=%d ", n.Number); !strings.Contains(p.tail(), "msg=restoring") || !strings.Contains(p.tail(), want) {
		t.Fatalf("it did not restore checkpoint %d\n%s", n.Number, p.tail())
	}
	p.until(patience, "seven hellos are committed", func() bool { return w.committedCounts.count("hello") == 7 })
	p.signal(syscall.SIGTERM)
	p.wait(patience, 0)
	last := w.committed(t)[0]
	w.same(w.state(t, last.Path, "count", "word"), w.truth())
	w.positions(w.offsets(t, last.Path))
	if maps.Equal(atFive, w.offsets(t, last.Path)) {
		t.Error("the offsets did not move")
	}

	// What an independent reader finds: each word's counts rise, none comes twice.
	w.verify()
	return true
}

// TestAnyRetainedCheckpointCanBeGoneBackTo runs to five retained checkpoints and more,
// stops, and starts from the third: a new job, with state and offsets of the third, that
// counts its checkpoints on from there.
func TestAnyRetainedCheckpointCanBeGoneBackTo(t *testing.T) {
	for _, store := range checkpointStores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			w := newWords(t, store, "INTERVAL=300ms")
			p := w.start(t)
			number := func() int {
				if list := w.committed(t); len(list) > 0 {
					return list[0].Number
				}
				return 0
			}
			for i := range 6 { // each checkpoint has a word of its own
				before := number()
				w.say(fmt.Sprintf("hello word%d", i))
				p.until(patience, "a checkpoint with it", func() bool {
					return number() > before && w.state(t, w.committed(t)[0].Path, "count", "word")["hello"] == i+1
				})
			}
			p.signal(syscall.SIGTERM)
			p.wait(patience, 0)
			old := w.committed(t)
			if len(old) < 5 {
				t.Fatalf("only %d checkpoints are retained: %v", len(old), old)
			}
			at := old[len(old)-1]
			for _, k := range old {
				if k.Number == 3 || at.Number < 3 && k.Number > 3 && k.Number < at.Number {
					at = k
				}
			}
			state, offsets := w.state(t, at.Path, "count", "word"), w.offsets(t, at.Path)

			p = w.start(t, "-s", at.Path+"/_metadata")
			p.until(patience, "it had begun", p.begun)
			first := func() kept {
				list := w.committed(t)
				if len(list) == 0 || list[0].Job == at.Job {
					return kept{}
				}
				return list[len(list)-1]
			}
			p.until(patience, "the new job's first checkpoint", func() bool { return first().Number > 0 })
			begun := first()
			if begun.Number != at.Number+1 || begun.Kind != "initial" || begun.Job == at.Job {
				t.Fatalf("the new job begins with %v, behind checkpoint %v", begun, at)
			}
			if got := w.offsets(t, begun.Path); !maps.Equal(got, offsets) {
				t.Errorf("it begins at %v, and checkpoint %d is at %v", got, at.Number, offsets)
			}
			w.same(w.state(t, begun.Path, "count", "word"), state)
			p.until(patience, "it has counted again what came since", func() bool {
				list := w.committed(t)
				return maps.Equal(w.state(t, list[0].Path, "count", "word"), w.truth())
			})
			p.signal(syscall.SIGTERM)
			p.wait(patience, 0)
			// The old job's checkpoints are left alone.
			w.same(w.state(t, at.Path, "count", "word"), state)
		})
	}
}

// words is the pipeline that counts words, with what was said to it.
type words struct {
	*job
	t      *testing.T
	lines  *kgo.Client
	topic  string
	counts string
	said   []string
	// What those see who wait for commits, and who do not.
	committedCounts, uncommitted *follower
}

func newWords(t *testing.T, store checkpointStore, variables ...string) *words {
	t.Helper()
	w := &words{t: t, topic: unique() + "-lines", counts: unique() + "-counts"}
	createTopic(t, w.topic)
	createTopic(t, w.counts)
	w.job = newPipeline(t, "words.yaml", store, append(variables, "LINES="+w.topic, "COUNTS="+w.counts)...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.DefaultProduceTopic(w.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w.lines = cl
	w.committedCounts, w.uncommitted = follow(t, w.counts, kgo.ReadCommitted()), follow(t, w.counts, kgo.ReadUncommitted())
	return w
}

// say writes lines, each into the next partition.
func (w *words) say(lines ...string) {
	w.t.Helper()
	for _, l := range lines {
		text, err := json.Marshal(map[string]string{"text": l})
		if err != nil {
			w.t.Fatal(err)
		}
		r := &kgo.Record{Partition: int32(len(w.said) % partitions), Value: text}
		if err := w.lines.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
		w.said = append(w.said, l)
	}
}

// truth is the count of each word that was said.
func (w *words) truth() map[string]int {
	counts := map[string]int{}
	for _, l := range w.said {
		for _, word := range strings.Fields(strings.ToLower(l)) {
			counts[word]++
		}
	}
	return counts
}

// same compares counts.
func (w *words) same(got, want map[string]int) {
	w.t.Helper()
	if !maps.Equal(got, want) {
		w.t.Errorf("counted %v, want %v", got, want)
	}
}

// positions wants those behind all that was said.
func (w *words) positions(at map[string]int64) {
	w.t.Helper()
	want := map[string]int64{}
	for i := range partitions {
		want[fmt.Sprintf("%s/%d", w.topic, i)] = int64((len(w.said) + partitions - 1 - i) / partitions)
	}
	if !maps.Equal(at, want) {
		w.t.Errorf("the offsets are %v, want %v", at, want)
	}
}

// verify reads all that was published with the consumer of Kafka's own distribution: of
// each word the counts rise, and end right.
func (w *words) verify() {
	w.t.Helper()
	var last map[string]int
	var faults []string
	readCounts(w.t, w.counts, "word", func(rows []countRow) bool {
		last, faults = map[string]int{}, nil
		for _, row := range rows {
			if row.n <= last[row.key] {
				faults = append(faults, fmt.Sprintf("%s has the count %d after %d", row.key, row.n, last[row.key]))
			}
			last[row.key] = row.n
		}
		return maps.Equal(last, w.truth())
	})
	if len(faults) > 0 {
		w.t.Error(faults)
	}
	w.same(last, w.truth())
}

// follower follows the counts of a topic.
type follower struct {
	mu     sync.Mutex
	counts map[string]int
}

func follow(t *testing.T, topic string, level kgo.IsolationLevel) *follower {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{counts: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				var row struct{ N int }
				if json.Unmarshal(r.Value, &row) != nil {
					return
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				f.counts[string(r.Key)] = row.N
			})
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		cl.Close()
	})
	return f
}

func (f *follower) count(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key]
}
