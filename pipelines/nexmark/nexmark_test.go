// Package nexmark holds the queries of the Nexmark benchmark. Its tests run each
// of them over a small set of events and compare with results that Apache Flink
// 2.3.0 gave.
package nexmark

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	_ "github.com/sluice-etl/sluice/connectors/all"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	_ "github.com/sluice-etl/sluice/storage/all"
)

const partitions = 4

// kinds of events, each a topic of its own, and the field that is the key of its messages.
var kinds = map[string]string{"person": "id", "auction": "id", "bid": "auction"}

// query is one of the pipelines.
type query struct {
	name   string
	topics []string
	topic  bool // the result is kept up to date in a topic, not appended to files
}

var queries = []query{
	{name: "q0", topics: []string{"bid"}},
	{name: "q1", topics: []string{"bid"}},
	{name: "q2", topics: []string{"bid"}},
	{name: "q3", topics: []string{"auction", "person"}},
	{name: "q5", topics: []string{"bid"}},
	{name: "q7", topics: []string{"bid"}},
	{name: "q8", topics: []string{"auction", "person"}},
	{name: "q11", topics: []string{"bid"}},
	{name: "q12", topics: []string{"bid"}},
	{name: "q13", topics: []string{"bid"}},
	{name: "q14", topics: []string{"bid"}},
	{name: "q17", topics: []string{"bid"}},
	{name: "q19", topics: []string{"bid"}, topic: true},
	{name: "q22", topics: []string{"bid"}},
}

// setting is how a query is run: with a crash in the middle, after which it goes on
// from its last checkpoint, maybe at another parallelism.
type setting struct {
	backend       string
	before, after int // parallelism
}

var settings = []setting{
	{"memory", 1, 1}, {"memory", 2, 4}, {"memory", 4, 2},
	{"disk", 1, 2}, {"disk", 2, 2}, {"disk", 4, 1},
}

// every runs each query at each setting, which takes minutes. Otherwise it is run once with
// each backend, at settings that differ from those of its neighbours.
var every = flag.Bool("every", false, "run each query at each setting")

func TestQueriesEqualTheReferenceAcrossACrash(t *testing.T) {
	events := map[string][]event{}
	for kind := range kinds {
		events[kind] = readEvents(t, kind)
	}
	for i, q := range queries {
		for j, s := range settings {
			if !*every && j%3 != i%3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%d-%d", q.name, s.backend, s.before, s.after), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, q, events)
				w.produce(0, 0.45)
				w.crashInTheMiddle(s)
				w.produce(0.6, 1)
				w.finish(s)
				compare(t, w.result(), expected(t, q.name))
			})
		}
	}
}

// event is one message.
type event struct {
	partition  int32
	key, value []byte
	time       int64
}

func readEvents(t *testing.T, kind string) []event {
	t.Helper()
	partitioner := kgo.StickyKeyPartitioner(nil).ForTopic(kind) // that of Java's client
	var out []event
	for _, line := range readLines(t, filepath.Join("testdata/data", kind+".jsonl.gz")) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		e := event{value: line, key: fmt.Appendf(nil, "%.0f", fields[kinds[kind]]), time: int64(fields["date_time"].(float64))}
		e.partition = int32(partitioner.Partition(&kgo.Record{Key: e.key}, partitions))
		out = append(out, e)
	}
	return out
}

func readLines(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	sc := bufio.NewScanner(z)
	for sc.Scan() {
		out = append(out, bytes.Clone(sc.Bytes()))
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// world is a query with the broker that it reads from and the places that it
// writes to.
type world struct {
	t       *testing.T
	query   query
	events  map[string][]event
	brokers []string
	client  *kgo.Client
	dir     string
}

func newWorld(t *testing.T, q query, events map[string][]event) *world {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, append(slices.Clone(q.topics), "result")...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	w := &world{t: t, query: q, events: events, brokers: cluster.ListenAddrs(), dir: t.TempDir()}
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	return w
}

// produce sends the events between two shares of the whole, in order.
func (w *world) produce(from, to float64) {
	w.t.Helper()
	var records []*kgo.Record
	for _, topic := range w.query.topics {
		all := w.events[topic]
		for _, e := range all[int(from*float64(len(all))):int(to*float64(len(all)))] {
			records = append(records, &kgo.Record{Topic: topic, Partition: e.partition, Key: e.key, Value: e.value})
		}
	}
	if err := w.client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// load reads the query's file, as bounded input with results in this world.
func (w *world) load(s setting, parallelism int) *pipeline.Plan {
	w.t.Helper()
	set := []string{
		fmt.Sprintf("parallelism=%d", parallelism), "checkpoint.interval=20ms", "checkpoint.retained=1000",
		"checkpoint.state.backend=" + s.backend,
	}
	if s.backend == "disk" {
		set = append(set, "checkpoint.state.dir="+filepath.Join(w.dir, "state"), "checkpoint.state.memory=16MiB")
	}
	for _, topic := range w.query.topics {
		var ends []string
		count := make([]int, partitions)
		for _, e := range w.events[topic] {
			count[e.partition]++
		}
		for p, n := range count {
			ends = append(ends, fmt.Sprintf("%s/%d: %d", topic, p, n))
		}
		source := "source"
		if len(w.query.topics) > 1 {
			source = "sources." + topic
		}
		set = append(set, fmt.Sprintf("%s.kafka.until={offsets: {%s}}", source, strings.Join(ends, ", ")))
	}
	env := map[string]string{
		"KAFKA_BROKERS": strings.Join(w.brokers, ","), "OUT_DIR": filepath.Join(w.dir, "out"), "OUT_TOPIC": "result",
		"CHECKPOINT_DIR": filepath.Join(w.dir, "checkpoints"), "SIDE_INPUT": "side_input.jsonl",
	}
	p, _ := spec.Load(w.query.name+".yaml", spec.Options{Set: set, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	plan := pipeline.NewPlan(p)
	if d := p.Diagnostics(); d.HasErrors() {
		var text strings.Builder
		_ = d.Print(&text, false)
		w.t.Fatal(text.String())
	}
	return plan
}

func (w *world) options(plan *pipeline.Plan) pipeline.Options {
	return pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler)}
}

// crashInTheMiddle runs until checkpoints cover what is there, goes on with a little
// more input, and ends without a word.
func (w *world) crashInTheMiddle(s setting) {
	w.t.Helper()
	ctx, crash := context.WithCancel(w.t.Context())
	defer crash()
	opts := w.options(w.load(s, s.before))
	var read, more atomic.Bool
	enough := make(chan struct{})
	go func() {
		<-enough
		w.produce(0.45, 0.6)
		more.Store(true)
	}()
	// A checkpoint is complete once its metadata is there; three after the first half
	// was read, and one after more came, are past the middle of anything.
	n := 0
	opts.Failpoint = func(name string) {
		if name != "after-metadata" {
			return
		}
		n++
		if n == 5 && read.CompareAndSwap(false, true) {
			close(enough)
		}
		if n > 8 && more.Load() {
			crash()
		}
	}
	sum, err := pipeline.Run(ctx, opts)
	if err == nil || sum.Outcome == pipeline.Finished {
		w.t.Fatalf("the run before the crash ended as %s: %v", sum.Outcome, err)
	}
}

func (w *world) finish(s setting) {
	w.t.Helper()
	sum, err := pipeline.Run(w.t.Context(), w.options(w.load(s, s.after)))
	if err != nil || sum.Outcome != pipeline.Finished {
		w.t.Fatalf("the run after the crash ended as %s: %v", sum.Outcome, err)
	}
}

// result is the rows that a reader finds.
func (w *world) result() [][]byte {
	w.t.Helper()
	if w.query.topic {
		return w.latest()
	}
	var out [][]byte
	err := filepath.WalkDir(filepath.Join(w.dir, "out", w.query.name), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		data, err := os.ReadFile(path)
		for line := range bytes.Lines(data) {
			out = append(out, bytes.TrimSpace(line))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// latest is the newest value of each key of the result's topic.
func (w *world) latest() [][]byte {
	w.t.Helper()
	ends, err := kadm.NewClient(w.client).ListCommittedOffsets(w.t.Context(), "result")
	if err != nil {
		w.t.Fatal(err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ConsumeTopics("result"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	rows := map[string][]byte{}
	for len(left) > 0 {
		reader.PollFetches(w.t.Context()).EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			switch {
			case r.Attrs.IsControl():
			case r.Value == nil:
				delete(rows, string(r.Key))
			default:
				rows[string(r.Key)] = r.Value
			}
		})
	}
	return slices.Collect(maps.Values(rows))
}

func expected(t *testing.T, query string) [][]byte {
	t.Helper()
	return readLines(t, filepath.Join("testdata/expected", query+".jsonl.gz"))
}

// compare compares two multisets of JSON objects, numbers by value.
func compare(t *testing.T, got, want [][]byte) {
	t.Helper()
	count := map[string]int{}
	for _, line := range want {
		count[canonical(t, line)]++
	}
	for _, line := range got {
		count[canonical(t, line)]--
	}
	var missing, surplus []string
	for row, n := range count {
		for range n {
			missing = append(missing, row)
		}
		for range -n {
			surplus = append(surplus, row)
		}
	}
	if len(missing)+len(surplus) > 0 {
		slices.Sort(missing)
		slices.Sort(surplus)
		t.Fatalf("%d rows, want %d; %d missing such as %.3q; %d too many such as %.3q", len(got), len(want),
			len(missing), missing[:min(3, len(missing))], len(surplus), surplus[:min(3, len(surplus))])
	}
}

func canonical(t *testing.T, line []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var row map[string]any
	if err := d.Decode(&row); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	for name, v := range row {
		if n, ok := v.(json.Number); ok {
			r, ok := new(big.Rat).SetString(n.String())
			if !ok {
				t.Fatalf("%s: %q is no number", line, n)
			}
			row[name] = []string{r.RatString()} // no text is one
		}
	}
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
