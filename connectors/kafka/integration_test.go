//go:build integration

package kafka

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// cluster is the cluster that integration tests run on.
func cluster(t testing.TB) []string {
	t.Helper()
	addrs := os.Getenv("KAFKA_BROKERS")
	if addrs == "" {
		t.Fatal("set KAFKA_BROKERS to the addresses of a Kafka cluster to test on")
	}
	return strings.Split(addrs, ",")
}

func TestSinkOnKafka(t *testing.T) {
	for _, c := range sinkCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, cluster(t)) })
	}
}

func TestSourceOnKafka(t *testing.T) {
	for _, c := range sourceCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, cluster(t)) })
	}
}

func TestProgressOnKafka(t *testing.T) {
	for _, c := range progressCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, cluster(t)) })
	}
}

func TestAnExpiredTransactionIsLost(t *testing.T) {
	brokers := cluster(t)
	out := topic(t, brokers, 1, nil)
	short := func(c *SinkConfig, _ *connectors.SinkEnv) { c.TransactionTimeout = connectors.TimeSpan(time.Second) }
	a := process(t, brokers, 1, short, out).start(1, nil)
	a.write(0, "kept")
	kept := a.prepared(1, 1)
	a.mustCommit(kept, false)
	a.commit.Done(kept[0].Checkpoint)
	a.write(0, "lost")
	cs := a.prepared(1, 2)
	// The broker looks for expired transactions every 10 seconds by default.
	ctx := testContext(t)
	adm := kadm.NewClient(client(t, brokers))
	for id := dataOf(t, cs[0]).TransactionalID; ; {
		got, err := adm.DescribeTransactions(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if got[id].State == "CompleteAbort" {
			break
		}
	}
	if err := a.commit.Commit(ctx, cs[0], false); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("commit in the process: %v, want ErrLost", err)
	}
	a.stop()
	b := process(t, brokers, 1, short, out)
	defer b.stop()
	err := b.commit.Commit(ctx, cs[0], true)
	if !errors.Is(err, connectors.ErrLost) {
		t.Errorf("commit after a restart: %v, want ErrLost", err)
	}
	wantText(t, err, "transaction_timeout", "checkpoint 1 of generation 1")
	b.mustCommit(kept, true)
	b.start(1, kept)
	if err := b.commit.Commit(ctx, cs[0], true); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("commit after the id was used on: %v, want ErrLost", err)
	}
	wantTopic(t, "topic", brokers, out, []string{"kept"})
}

func TestACompactedEndDoesNotHangABoundedRead(t *testing.T) {
	brokers := cluster(t)
	set := func(s string) *string { return &s }
	in := topic(t, brokers, 1, map[string]*string{
		"cleanup.policy": set("compact"), "segment.ms": set("100"), "min.cleanable.dirty.ratio": set("0.01"),
		"delete.retention.ms": set("0"), "min.compaction.lag.ms": set("0"), "max.compaction.lag.ms": set("100"),
	})
	cl := manual(t, brokers)
	ctx := testContext(t)
	put := func(key, value string) {
		t.Helper()
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: in, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		put("k"+strconv.Itoa(i%5), strconv.Itoa(i))
	}
	// Later records replace all before them and roll the segment.
	end := int64(50)
	for gone := false; !gone; {
		for i := range 5 {
			put("k"+strconv.Itoa(i), "later")
		}
		got := stored(t, brokers, in, kgo.ReadCommitted())
		gone = !slices.ContainsFunc(got, func(v string) bool { return v != "later" })
		if ctx.Err() != nil {
			t.Fatal("the cleaner did not run")
		}
	}
	got := readBounded(t, brokers, func(c *SourceConfig) {
		c.Until = Until{kind: startOffsets, offsets: map[string]int64{splitID(in, 0): end}}
	}, in)
	if len(got) != 0 {
		t.Errorf("read %v below the end, where all is compacted away", got)
	}
}

func TestCrashesOnKafka(t *testing.T) { tell(t, cluster(t)) }
