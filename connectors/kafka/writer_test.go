package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// fetchAll reads whole records of partition 0.
func fetchAll(t *testing.T, brokers []string, topic string, n int) []*kgo.Record {
	t.Helper()
	cl := client(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var out []*kgo.Record
	for ctx := testContext(t); len(out) < n; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records of %d", len(out), n)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

func TestARecordKeepsItsKeyHeadersAndTime(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("v", "gone", "")
	rec := &rows.Batch.Records[0]
	rec.Key, rec.Headers = []byte("k"), []connectors.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte{}}}
	rows.Batch.Records[1].Key = []byte{}
	rows.Values[1] = nil
	if err := p.writers[0].Write(testContext(t), rows); err != nil {
		t.Fatal(err)
	}
	p.mustCommit(p.prepared(1, 1), false)
	got := fetchAll(t, brokers, out, 3)
	if r := got[0]; string(r.Key) != "k" || string(r.Value) != "v" || r.Timestamp.UnixMilli() != 1700000000000 ||
		fmt.Sprint(r.Headers) != "[{a [49]} {b []} {a []}]" || r.Headers[1].Value != nil || r.Headers[2].Value == nil {
		t.Errorf("record %+v", r)
	}
	if r := got[1]; r.Value != nil || r.Key == nil {
		t.Errorf("tombstone %+v", r)
	}
	if r := got[2]; r.Value == nil || r.Key != nil || r.Headers != nil {
		t.Errorf("empty value without key %+v", r)
	}
}

func TestExpressionsSetKeyHeadersTimeAndPartition(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 3, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := process(t, brokers, 1, func(c *SinkConfig, _ *connectors.SinkEnv) {
		c.Key = connectors.Expr{Text: "id", Slot: 0}
		c.Headers = connectors.Assignments{{Name: "a", Expr: connectors.Expr{Text: "x", Slot: 1}}, {Name: "at", Expr: connectors.Expr{Text: "y", Slot: 2}}}
		c.Timestamp = connectors.Expr{Text: "t", Slot: 2}
		c.Partition = connectors.Expr{Text: "p", Slot: 3}
	}, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("first", "second")
	rows.Batch.Records[0].Key = []byte("replaced")
	rows.Batch.Records[0].Headers = []connectors.Header{{Key: "a", Value: []byte("replaced")}, {Key: "c", Value: []byte("kept")}}
	rows.Batch.SetStride(4)
	copy(rows.Batch.Row(0), []connectors.Value{connectors.IntValue(42), connectors.StringValue("s"), connectors.TimestampValue(at), connectors.IntValue(2)})
	copy(rows.Batch.Row(1), []connectors.Value{connectors.NullValue(), connectors.NullValue(), connectors.TextValue(connectors.String, []byte("no time")), connectors.IntValue(1)})
	err := p.writers[0].Write(testContext(t), rows)
	var refused *connectors.RowsError
	if !errors.As(err, &refused) || len(refused.Rows) != 1 || refused.Rows[0].Kind != "timestamp" {
		t.Fatalf("write: %v, want the second row refused for its timestamp", err)
	}
	p.mustCommit(p.prepared(1, 1), false)
	r := fetchAll(t, brokers, out, 1)[0]
	if string(r.Key) != "42" || r.Partition != 2 || !r.Timestamp.Equal(at) {
		t.Errorf("record %+v", r)
	}
	if got := fmt.Sprintf("%s", r.Headers); got != "[{c kept} {a s} {at 2026-01-02T03:04:05Z}]" {
		t.Errorf("headers %s", got)
	}
}

func TestHeadersOfTheFormatReplaceTheRecordsOwn(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("v", "gone", "")
	for i := range rows.Batch.Records {
		rows.Batch.Records[i].Headers = []connectors.Header{{Key: "schema", Value: []byte("old")}, {Key: "a", Value: []byte("1")}, {Key: "stale", Value: []byte("x")}}
	}
	rows.Values[1] = nil
	rows.Headers = []connectors.Header{{Key: "schema", Value: []byte("new")}, {Key: "stale"}}
	if err := p.writers[0].Write(testContext(t), rows); err != nil {
		t.Fatal(err)
	}
	p.mustCommit(p.prepared(1, 1), false)
	want := []string{"[{a 1} {schema new}]", "[{a 1}]", "[{a 1} {schema new}]"} // a tombstone is of no schema
	for i, r := range fetchAll(t, brokers, out, 3) {
		if got := fmt.Sprintf("%s", r.Headers); got != want[i] {
			t.Errorf("record %d has the headers %s, want %s", i, got, want[i])
		}
	}
}

func TestADeadLetterKeepsWhatItCameWith(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, func(cfg *SinkConfig, _ *connectors.SinkEnv) {
		cfg.Key, cfg.Partition, cfg.Timestamp = connectors.Expr{Text: "k"}, connectors.Expr{Text: "p"}, connectors.Expr{Text: "t"}
		cfg.Headers = connectors.Assignments{{Name: "a", Expr: connectors.Expr{Text: "h"}}}
	}, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("not json")
	rows.Batch.Records[0].Key = []byte("key")
	rows.Batch.Records[0].Headers = []connectors.Header{{Key: "a", Value: []byte("1")}, {Key: "dead_letter.step", Value: []byte("parse")}}
	rows.DeadLetter = []*connectors.RecordError{{Step: "parse", Reason: "no number", Kind: "expression"}}
	if err := p.writers[0].Write(testContext(t), rows); err != nil {
		t.Fatal(err)
	}
	p.mustCommit(p.prepared(1, 1), false)
	got := fetchAll(t, brokers, out, 1)[0]
	if s := fmt.Sprintf("%s %s", got.Key, got.Headers); s != "key [{a 1} {dead_letter.step parse}]" {
		t.Errorf("record %s", s)
	}
}

func TestKeysGoWhereJavasClientPutsThem(t *testing.T) {
	// From Kafka's own UtilsTest.testMurmur2: toPositive(hash) % n.
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	}
	p := newPartitioner().ForTopic("t")
	for key, hash := range hashes {
		for _, n := range []int{1, 3, 12, 100} {
			want := int(hash&0x7fffffff) % n
			if got := p.Partition(&kgo.Record{Key: []byte(key), Partition: anyPartition}, n); got != want {
				t.Errorf("key %s of %d partitions: %d, want %d", key, n, got, want)
			}
		}
	}
	if got := p.Partition(&kgo.Record{Key: []byte("21"), Partition: 7}, 10); got != 7 {
		t.Errorf("a record with its partition named goes to %d", got)
	}
	if !p.RequiresConsistency(&kgo.Record{Key: []byte("21"), Partition: anyPartition}) || p.RequiresConsistency(&kgo.Record{Partition: anyPartition}) {
		t.Error("only records with a key are bound to a partition")
	}
}

func TestLargeRecordsAndSmallBudgetsArriveWhole(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, func(_ *SinkConfig, e *connectors.SinkEnv) { e.Budget = 1 }, out).start(1, nil)
	defer p.stop()
	var want []string
	for i := range 20 {
		want = append(want, string(bytes.Repeat([]byte{'a' + byte(i)}, 1+i*45_000)))
	}
	p.write(0, want...)
	p.mustCommit(p.prepared(1, 1), false)
	wantTopic(t, "topic", brokers, out, want)
}

func TestWritingAllocatesNothingForARecord(t *testing.T) {
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Topic = template(t, "events-{region}")
	s := newStream()
	s.join(1)
	w := &writer{sink: &sink{cfg: cfg, targets: newTargets()}, stream: s, iv: s.first()}
	w.pool = newChunkPool(s, 8<<20, "sink s")
	w.now, w.targets = time.Now(), map[string]*target{}
	w.sink.targets.add(&target{name: "events-eu", maxRecord: defaultMaxMessage})
	rows := rowsOf(numbers(0, 500)...)
	for i := range rows.Batch.Records {
		rows.Batch.Records[i].Key = []byte("key")
		rows.Batch.Records[i].Headers = []connectors.Header{{Key: "h", Value: []byte("v")}}
	}
	rows.Batch.SetStride(1)
	for i := range rows.Sel {
		rows.Batch.Row(i)[0] = connectors.StringValue("eu")
	}
	ctx := t.Context()
	write := func() {
		for i := range rows.Sel {
			row, reason, err := w.row(ctx, rows, i)
			if err != nil || reason.Reason != "" {
				t.Fatal(err, reason)
			}
			if err := w.room(ctx, &row); err != nil {
				t.Fatal(err)
			}
			w.fill(rows, i, &row)
		}
		c := w.chunk
		w.chunk.seal()
		w.chunk = nil
		for i := range c.records {
			c.acknowledged(&c.records[i], nil)
		}
	}
	for range 50 {
		write() // every chunk has its memory
	}
	if n := testing.AllocsPerRun(20, write); n > 0 {
		t.Errorf("%v allocations for %d records", n, rows.Len())
	}
}
