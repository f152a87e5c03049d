//go:build integration

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// crashBeforeCommit runs the process until it dies with a complete checkpoint that is not committed.
func (j *job) crashBeforeCommit(t *testing.T) {
	t.Helper()
	j.start(t, "SLUICE_FAILPOINT=kafka.endtxn.before=3").wait(patience, killed)
}

// transactions are those of the pipeline that are in one of the states.
func (j *job) transactions(t *testing.T, states ...string) []kadm.DescribedTransaction {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(cl)
	defer admin.Close()
	listed, err := admin.ListTransactions(t.Context(), nil, states)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, l := range listed {
		if strings.HasPrefix(l.TxnID, j.name) {
			ids = append(ids, l.TxnID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	described, err := admin.DescribeTransactions(t.Context(), ids...)
	if err != nil {
		t.Fatal(err)
	}
	return described.Sorted()
}

// limit gives the pipeline's transactions little time, and says what is done about a lost one.
func (j *job) limit(t *testing.T, onLost string) {
	t.Helper()
	j.rewrite(t, "topic: "+j.out+"}", "topic: "+j.out+", transaction_timeout: 5s}")
	j.rewrite(t, fmt.Sprintf("interval: %v}", interval), fmt.Sprintf("interval: %v, on_lost_commit: %s}", interval, onLost))
}

// runOut ends the process before a commit and waits until the broker has aborted its transactions.
func (j *job) runOut(t *testing.T) {
	t.Helper()
	j.crashBeforeCommit(t)
	if len(j.transactions(t, "Ongoing")) == 0 {
		t.Fatal("no transaction is open between prepare and commit")
	}
	eventually(t, patience, "the broker has aborted the transactions", func() bool {
		return len(j.transactions(t, "Ongoing", "PrepareAbort")) == 0 && len(j.transactions(t, "CompleteAbort")) > 0
	})
}

func TestATransactionRunsOutWhileTheProcessIsDown(t *testing.T) {
	t.Parallel()
	j := newJob(t, "kafka", "")
	j.limit(t, "fail")
	stop := j.ledger.feed(t, 2000, 1<<30)
	j.runOut(t)
	p := j.start(t)
	p.wait(patience, 3)
	for _, text := range []string{"lost", "transaction_timeout"} {
		if !strings.Contains(p.tail(), text) {
			t.Errorf("the error does not tell of %q\n%s", text, p.tail())
		}
	}
	j.rewrite(t, "on_lost_commit: fail", "on_lost_commit: rewind")
	stop()
	j.drain(t, j.start(t))
}

// The rest is wanted: no record twice, and only those of the one checkpoint lost.
func TestALostCommitIsAccepted(t *testing.T) {
	t.Parallel()
	j := newJob(t, "kafka", "")
	j.limit(t, "accept_loss")
	stop := j.ledger.feed(t, 2000, 1<<30)
	j.runOut(t)
	stop()
	w := newWatch(t, j.out)
	if err := j.ledger.write(t.Context(), partitions); err != nil {
		t.Fatal(err)
	}
	j.finish(t, j.start(t), w)
	c := j.ledger.check()
	c.readTopicOnce(t, j.out, 10*time.Second)
	if lost := c.lost(); lost == 0 || c.duplicated+c.disordered+c.alien > 0 {
		t.Fatalf("%d lost, %d duplicated, %d out of order, %d that were never written; want some lost and nothing else (%s)",
			lost, c.duplicated, c.disordered, c.alien, c.example)
	}
}

// endedTxn is what etl txn says of a transaction.
type endedTxn struct {
	Status     string `json:"status"`
	State      string `json:"state"`
	Records    int64  `json:"records"`
	Referenced bool   `json:"referenced"` // else one that the process was writing when it died
}

// txn runs etl txn on a checkpoint and returns what it says of those it refers to.
func (j *job) txn(t *testing.T, verb, path string, flags ...string) []endedTxn {
	t.Helper()
	cmd := exec.Command(etl, append([]string{"txn", verb, path, "-f", j.file, "--format", "json"}, flags...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("etl txn %s: %v\n%s", verb, err, out)
	}
	var report struct{ Transactions []endedTxn }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return slices.DeleteFunc(report.Transactions, func(x endedTxn) bool { return !x.Referenced || x.Status == "empty" })
}

func TestTransactionsAreEndedByHand(t *testing.T) {
	for verb, want := range map[string]string{"commit": "committed", "abort": "aborted"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, "kafka", "")
			stop := j.ledger.feed(t, 2000, 1<<30)
			j.crashBeforeCommit(t)
			stop()
			found := j.checkpoints(t)
			path := found[len(found)-1]
			before := visible(t, j.out)
			open := j.txn(t, "list", path)
			var prepared int64
			for _, x := range open {
				prepared += x.Records
				if x.Status != "open" || x.State != "Ongoing" {
					t.Errorf("a transaction before its commit is listed as %+v", x)
				}
			}
			if prepared == 0 {
				t.Fatalf("nothing was prepared: %+v", open)
			}
			for _, x := range append(j.txn(t, verb, path, "--yes"), j.txn(t, "list", path)...) {
				if x.Status != want {
					t.Errorf("a transaction after %s is %+v", verb, x)
				}
			}
			if verb == "commit" {
				eventually(t, patience, "what was prepared is visible", func() bool { return visible(t, j.out) == before+prepared })
			}
			j.drain(t, j.start(t)) // after abort it goes back, and writes again
		})
	}
}

// visible counts the records of a topic that a reader of committed ones gets to now.
// Aborted ones must not be the last that there are: the client tells of none of them.
func visible(t *testing.T, topic string) (n int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(left) > 0 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return n
}
