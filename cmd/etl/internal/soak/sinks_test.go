//go:build integration

package soak

import (
	"fmt"
	"testing"
	"time"
)

func TestSoakKafkaToEachSinkOverRandomKills(t *testing.T) {
	for _, sinks := range []string{"file", "s3", "hdfs", "s3-parquet", "postgres", "postgres-upsert", "mysql", "clickhouse", "iceberg", "kafka file postgres"} {
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
			if len(j.transactions(t, unfinished...)) == 0 {
				t.Fatal("no transaction was left open")
			}
			eventually(t, patience, "the broker aborted it", func() bool { return len(j.transactions(t, unfinished...)) == 0 })
			down := time.Since(began)
			p := j.start(t)
			p.until(patience, "it went back", func() bool { return p.logged("output that a checkpoint promised is lost: going back") > 0 })
			stop()
			j.drain(t, p)
			t.Logf("%d records, aborted by the broker %v after the kill: 0 lost, 0 twice", j.ledger.total(), down.Round(time.Second))
		})
	}
}

// unfinished are the states of a transaction that holds readers back.
var unfinished = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}
