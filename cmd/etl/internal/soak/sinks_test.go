//go:build integration

package soak

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestSoakKafkaToEachSinkOverRandomKills(t *testing.T) {
	for _, sinks := range []string{"file", "s3", "hdfs", "s3-parquet", "postgres", "postgres-upsert", "mysql", "kafka file postgres"} {
		t.Run(sinks, func(t *testing.T) {
			rng := random(t)
			j := newJob(t, sinks, ", until: latest", fmt.Sprintf("throttle: {records_per_second: %d}", paced))
			if err := j.ledger.write(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for i := range kills {
				if p := j.start(t); !p.killAfter(randomLife(rng)) {
					t.Fatalf("life %d ended by itself with exit code %d\n%s", i+1, p.code, p.tail())
				}
			}
			j.start(t).wait(patience+2*meanLife*kills, 0)
			took := time.Since(began)
			j.verify(t)
			t.Logf("%d records, %d kills: 0 lost, 0 twice, in %v", records, kills, took.Round(100*time.Millisecond))
		})
	}
}

// A Kafka transaction that a complete checkpoint promised is aborted by the broker while
// the process is down: the other sinks, which had their part of it and had not published
// it, go back together with Kafka's.
func TestALostKafkaCommitTakesAllSinksBackTogether(t *testing.T) {
	for _, point := range []string{"after-metadata", "before-commit", "kafka.endtxn.before"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, "kafka file postgres", "")
			j.rewrite(t, "topic: "+j.out, "topic: "+j.out+", transaction_timeout: 5s")
			stop := j.ledger.feed(t, 2000, 1<<30)
			j.start(t, "SLUICE_FAILPOINT="+point+"=8").wait(patience, killed)
			began := time.Now()
			if open := j.transactions(t); open == 0 {
				t.Fatal("no transaction was left open")
			}
			eventually(t, patience, "the broker aborted it", func() bool { return j.transactions(t) == 0 })
			down := time.Since(began)
			p := j.start(t)
			p.until(patience, "it went back", func() bool { return p.logged("output that a checkpoint promised is lost: going back") > 0 })
			stop()
			j.drain(t, p)
			t.Logf("%d records, aborted by the broker %v after the kill: 0 lost, 0 twice", j.ledger.total(), down.Round(time.Second))
		})
	}
}

// transactions is how many of the pipeline's are not at their end, as the broker says.
func (j *job) transactions(t *testing.T) (open int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	listed, err := admin.ListTransactions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, id := range listed.TransactionalIDs() {
		if strings.HasPrefix(id, j.name) {
			ids = append(ids, id)
		}
	}
	described, err := admin.DescribeTransactions(t.Context(), ids...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range described {
		if d.Err != nil {
			t.Fatal(d.Err)
		}
		switch d.State {
		case "Empty", "CompleteAbort", "CompleteCommit", "Dead":
		default:
			open++
		}
	}
	return open
}
