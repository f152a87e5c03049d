package kafka

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// sourceCases hold on the embedded broker and on a real one.
var sourceCases = []struct {
	name string
	run  func(t *testing.T, brokers []string)
}{
	{"all records with key, headers, time and position", allRecords},
	{"positions continue where a reader stopped", continued},
	{"until latest ends before what comes later", untilLatest},
	{"aborted records and markers at the end do not hang a bounded read", trailingMarkers},
	{"only markers and aborted records end at once", onlyAborted},
	{"read_uncommitted sees aborted records", uncommittedRead},
	{"start by timestamp, offsets, latest and group", starts},
	{"a missing offset is an error that names the range", missingOffset},
	{"a missing offset goes on where the policy says", missingOffsetPolicy},
	{"a topic that was created anew is refused", topicRecreated},
	{"a topic that was created anew while running is refused", topicRecreatedWhileRunning},
	{"new partitions are found and read from their beginning", newPartitions},
	{"a topic that does not exist is refused with the nearest name", topicUnknown},
	{"a known topic that is gone keeps its positions", knownTopicGone},
	{"a topic that the configuration names no more is left", topicRemoved},
	{"positions are checked without reading", positionsChecked},
	{"what changes under a source is counted", changesCounted},
	{"a pattern finds topics", patternFinds},
	{"a reader without splits waits for some", noSplitsYet},
	{"a cancelled poll loses nothing", cancelledPoll},
	{"an empty topic ends at once", emptyTopic},
	{"committed offsets stand in the group", groupOffsets},
	{"every codec is read", codecs},
}

func config(brokers []string, change func(*SourceConfig), topics ...string) *SourceConfig {
	c := newSourceConfig().(*SourceConfig)
	c.Brokers, c.Topics = brokers, topics
	if change != nil {
		change(c)
	}
	return c
}

func splitsOf(t testing.TB, s connectors.Source, restored []connectors.Split) []connectors.Split {
	t.Helper()
	splits, err := s.Splits(testContext(t), restored)
	if err != nil {
		t.Fatalf("splits: %v", err)
	}
	return splits
}

func readerOf(t testing.TB, s connectors.Source, splits []connectors.Split) connectors.Reader {
	t.Helper()
	r, err := s.Reader(connectors.ReaderEnv{Subtasks: 1, Budget: 64 << 20, Batches: connectors.NewBatchPool(8)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newTestSource(t testing.TB, brokers []string, change func(*SourceConfig), topics ...string) *source {
	s, err := newSource(config(brokers, change, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// drain reads until n values have come, or to the end where n is negative, and
// returns them with the positions after them.
func drain(t testing.TB, r connectors.Reader, splits []connectors.Split, n int) (values []string, at []connectors.Split) {
	t.Helper()
	ctx := testContext(t)
	next := make([]int64, len(splits))
	for i := range splits {
		next[i] = splits[i].Offset
	}
	for n < 0 || len(values) < n {
		b, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) && n < 0 {
			break
		}
		if err != nil {
			t.Fatalf("poll: %v, after %d values", err, len(values))
		}
		for i := range b.Records {
			values = append(values, string(b.Records[i].Value))
		}
		if b.Next < next[b.Split] {
			t.Fatalf("position of split %d went back from %d to %d", b.Split, next[b.Split], b.Next)
		}
		next[b.Split] = b.Next
		b.Recycle()
	}
	for i := range next {
		at = append(at, r.Position(i, next[i]))
	}
	return values, at
}

// readBounded reads a source with until: latest to its end.
func readBounded(t testing.TB, brokers []string, change func(*SourceConfig), topics ...string) []string {
	t.Helper()
	s := newTestSource(t, brokers, func(c *SourceConfig) {
		c.Until = Until{kind: startLatest}
		if change != nil {
			change(c)
		}
	}, topics...)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	defer r.Close()
	values, at := drain(t, r, splits, -1)
	for _, sp := range at {
		if sp.Offset != sp.Until {
			t.Errorf("split %s ended at %d, not at %d", sp.ID, sp.Offset, sp.Until)
		}
	}
	return values
}

func allRecords(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	at := time.UnixMilli(1700000000123)
	records := []*kgo.Record{
		{Topic: in, Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}}},
		{Topic: in, Timestamp: at},
		{Topic: in, Key: []byte{}, Value: []byte{}, Timestamp: at},
	}
	if err := client(t, brokers).ProduceSync(testContext(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	defer r.Close()
	var got []connectors.Record
	for len(got) < len(records) {
		b, err := r.Poll(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Records...) // not recycled: still read below
	}
	first, tombstone, empty := got[0], got[1], got[2]
	if string(first.Key) != "k" || string(first.Value) != "v" || first.Time != at.UnixMilli() || first.Offset != 0 ||
		first.Origin.Topic != in || first.Origin.Partition != 0 {
		t.Errorf("record %+v of %+v", first, first.Origin)
	}
	if len(first.Headers) != 2 || first.Headers[0].Key != "a" || string(first.Headers[0].Value) != "1" || first.Headers[1].Value != nil {
		t.Errorf("headers %+v", first.Headers)
	}
	if !tombstone.Tombstone() || tombstone.Key != nil || tombstone.Offset != 1 {
		t.Errorf("tombstone %+v", tombstone)
	}
	if empty.Tombstone() || len(empty.Value) != 0 || empty.Key == nil {
		t.Errorf("empty value %+v", empty)
	}
}

func continued(t *testing.T, brokers []string) {
	in := topic(t, brokers, 2, nil)
	cl := manual(t, brokers)
	send(t, cl, in, 0, numbers(0, 3000)...)
	send(t, cl, in, 1, numbers(3000, 6000)...)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	first, at := drain(t, r, splits, 2500)
	r.Close()

	later := newTestSource(t, brokers, nil, in)
	splits = splitsOf(t, later, at)
	r = readerOf(t, later, splits)
	defer r.Close()
	second, _ := drain(t, r, splits, 6000-len(first))
	wantSet(t, "both readers", append(first, second...), numbers(0, 6000))
}

func untilLatest(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	cl := manual(t, brokers)
	send(t, cl, in, 0, numbers(0, 10)...)
	s := newTestSource(t, brokers, func(c *SourceConfig) { c.Until = Until{kind: startLatest} }, in)
	splits := splitsOf(t, s, nil)
	send(t, cl, in, 0, numbers(10, 20)...)
	splits = splitsOf(t, s, splits) // a restart keeps the end
	r := readerOf(t, s, splits)
	defer r.Close()
	values, at := drain(t, r, splits, -1)
	wantSet(t, "values", values, numbers(0, 10))
	if at[0].Offset != 10 {
		t.Errorf("ended at %d, want 10", at[0].Offset)
	}
}

// transact writes values in a transaction of their own.
func transact(t testing.TB, brokers []string, topic string, how kgo.TransactionEndTry, values ...string) {
	t.Helper()
	cl := manual(t, brokers, kgo.TransactionalID("tx-"+topic))
	ctx := testContext(t)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	send(t, cl, topic, 0, values...)
	if err := cl.EndTransaction(ctx, how); err != nil {
		t.Fatal(err)
	}
	// The end is answered before its markers are written.
	adm := kadm.NewClient(cl)
	for ctx.Err() == nil {
		ends, err := adm.ListEndOffsets(ctx, topic)
		stable, serr := adm.ListCommittedOffsets(ctx, topic)
		a, _ := ends.Lookup(topic, 0)
		b, _ := stable.Lookup(topic, 0)
		if err == nil && serr == nil && a.Offset == b.Offset {
			return
		}
	}
	t.Fatal("the markers were not written")
}

func trailingMarkers(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	transact(t, brokers, in, kgo.TryCommit, numbers(0, 5)...)
	transact(t, brokers, in, kgo.TryAbort, "x", "y")
	transact(t, brokers, in, kgo.TryCommit, numbers(5, 9)...)
	transact(t, brokers, in, kgo.TryAbort, "z")
	wantSet(t, "values", readBounded(t, brokers, nil, in), numbers(0, 9))
}

func onlyAborted(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	transact(t, brokers, in, kgo.TryAbort, "x", "y")
	if got := readBounded(t, brokers, nil, in); len(got) != 0 {
		t.Errorf("values %v", got)
	}
	// An end in the middle of aborted records.
	got := readBounded(t, brokers, func(c *SourceConfig) {
		c.Until = Until{kind: startOffsets, offsets: map[string]int64{splitID(in, 0): 1}}
	}, in)
	if len(got) != 0 {
		t.Errorf("values %v", got)
	}
}

func uncommittedRead(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	transact(t, brokers, in, kgo.TryAbort, "x", "y")
	got := readBounded(t, brokers, func(c *SourceConfig) { c.Isolation = readUncommitted }, in)
	wantSet(t, "values", got, []string{"x", "y"})
}

func starts(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	cl := client(t, brokers)
	ctx := testContext(t)
	for i := range 10 {
		r := &kgo.Record{Topic: in, Value: []byte("v"), Timestamp: time.UnixMilli(1700000000000 + int64(i)*1000)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(in, 0, 4, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, "g-"+in, offsets); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		start any
		group string
		want  int64
	}{
		{"earliest", "earliest", "", 0},
		{"latest", "latest", "", 10},
		{"timestamp", map[string]any{"timestamp": "2023-11-14T22:13:23Z"}, "", 3},
		{"timestamp beyond the end", map[string]any{"timestamp": int64(1900000000000)}, "", 10},
		{"offsets", map[string]any{"offsets": map[string]any{in + "/0": int64(7)}}, "", 7},
		{"group", "group", "g-" + in, 4},
		{"group without offsets", "group", "none-" + in, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestSource(t, brokers, func(cfg *SourceConfig) {
				cfg.Group = c.group
				if err := cfg.Start.UnmarshalConfig(c.start); err != nil {
					t.Fatal(err)
				}
			}, in)
			splits := splitsOf(t, s, nil)
			if len(splits) != 1 || splits[0].Offset != c.want || splits[0].Until != -1 {
				t.Errorf("splits %+v, want one at %d", splits, c.want)
			}
		})
	}
	s := newTestSource(t, brokers, func(c *SourceConfig) {
		c.Start = Start{kind: startOffsets, offsets: map[string]int64{in + "/9": 1}}
	}, in)
	if _, err := s.Splits(ctx, nil); !connectors.IsPermanent(err) {
		t.Errorf("start at a partition that does not exist: %v", err)
	}
}

func cancelledPoll(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	defer r.Close()
	cl := manual(t, brokers)
	var got []string
	for n := 0; len(got) < 200; n++ {
		if n < 200 {
			send(t, cl, in, 0, numbers(n, n+1)...)
		}
		ctx, cancel := context.WithTimeout(testContext(t), time.Duration(n%5)*time.Millisecond)
		b, err := r.Poll(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			continue
		}
		for i := range b.Records {
			got = append(got, string(b.Records[i].Value))
		}
		b.Recycle()
	}
	wantSet(t, "values", got, numbers(0, 200))
}

func emptyTopic(t *testing.T, brokers []string) {
	if got := readBounded(t, brokers, nil, topic(t, brokers, 2, nil)); len(got) != 0 {
		t.Errorf("values %v", got)
	}
}

func groupOffsets(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, numbers(0, 5)...)
	s := newTestSource(t, brokers, func(c *SourceConfig) { c.Group = "lag-" + in }, in)
	splits := splitsOf(t, s, nil)
	splits[0].Offset = 5
	ctx := testContext(t)
	if err := s.Committed(ctx, splits); err != nil {
		t.Fatal(err)
	}
	got, err := kadm.NewClient(client(t, brokers)).FetchOffsets(ctx, "lag-"+in)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup(in, 0); o.At != 5 {
		t.Errorf("group is at %d, want 5", o.At)
	}
}

func codecs(t *testing.T, brokers []string) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			in := topic(t, brokers, 1, nil)
			send(t, manual(t, brokers, kgo.ProducerBatchCompression(codec)), in, 0, numbers(0, 5000)...)
			wantSet(t, "values", readBounded(t, brokers, nil, in), numbers(0, 5000))
		})
	}
}
