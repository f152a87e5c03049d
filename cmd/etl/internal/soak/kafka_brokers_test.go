//go:build integration

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// threeBrokers runs the script for the cluster of three brokers that tests may kill one
// by one. It misses a broker after three seconds, not nine, and looks for transactions that
// have run out every second, not every ten.
func threeBrokers(args ...string) ([]byte, error) {
	cmd := exec.Command(kafkaScript, args...)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=three", "NODES=3", "KAFKA_PORT=29392", "KAFKA_HEAP=384m",
		"KAFKA_EXTRA="+strings.Join([]string{
			"broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500",
			"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
		}, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kafka.sh %v: %w\n%s", args, err, out)
	}
	return out, err
}

// broker does something to one of the three.
func broker(t *testing.T, verb string, node int32) {
	t.Helper()
	if _, err := threeBrokers(verb, fmt.Sprint(node)); err != nil {
		t.Fatal(err)
	}
}

func TestThreeBrokers(t *testing.T) {
	if _, err := threeBrokers("start"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := threeBrokers("clean"); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("KAFKA_BROKERS", "127.0.0.1:29392,127.0.0.1:29393,127.0.0.1:29394")
	t.Run("each is killed in turn", eachBrokerIsKilled)
	t.Run("the coordinator is killed between prepare and commit", theCoordinatorIsKilled)
	t.Run("a transaction runs out while the process is down", aTransactionRunsOut)
	t.Run("a loss is accepted", aLossIsAccepted)
	t.Run("transactions are ended by hand", transactionsAreEndedByHand)
}

// eachBrokerIsKilled lets one process live through the loss of each broker, one after the other.
func eachBrokerIsKilled(t *testing.T) {
	j := newJob(t, "kafka", "")
	w := newWatch(t, j.out)
	stop := j.ledger.feed(t, 2000, 1<<30)
	p := j.start(t)
	for node := range int32(3) {
		before := w.count.Load()
		p.until(patience, "output before the kill", func() bool { return w.count.Load() > before+500 })
		broker(t, "kill", node+1)
		before = w.count.Load()
		p.until(patience, "output by the two that are left", func() bool { return w.count.Load() > before+4000 })
		broker(t, "restart", node+1)
	}
	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
}

// theCoordinatorIsKilled ends the process between the complete checkpoint and its
// commit, and then the broker that coordinates the transaction.
func theCoordinatorIsKilled(t *testing.T) {
	j := newJob(t, "kafka", "")
	stop := j.ledger.feed(t, 2000, 1<<30)
	j.crashBeforeCommit(t)
	open := j.transactions(t, "Ongoing")
	if len(open) == 0 {
		t.Fatal("no transaction is open between prepare and commit")
	}
	number, node := j.newestCheckpoint(t), open[0].Coordinator
	broker(t, "kill", node)
	p := j.start(t)
	p.until(patience, "checkpoints after the commit by another coordinator", func() bool { return j.newestCheckpoint(t) > number+2 })
	broker(t, "restart", node)
	p.signal(syscall.SIGKILL)
	<-p.exited
	stop()
	j.drain(t, j.start(t))
}

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

func aTransactionRunsOut(t *testing.T) {
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

// aLossIsAccepted wants the rest: no record twice, and only those of the one checkpoint lost.
func aLossIsAccepted(t *testing.T) {
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

func transactionsAreEndedByHand(t *testing.T) {
	for verb, want := range map[string]string{"commit": "committed", "abort": "aborted"} {
		t.Run(verb, func(t *testing.T) {
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
