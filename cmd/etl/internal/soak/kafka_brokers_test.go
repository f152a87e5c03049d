//go:build integration && soak

package soak

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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

func TestSoakThreeBrokers(t *testing.T) {
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
		t.Cleanup(func() { broker(t, "restart", node+1) }) // also where this fails
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
	t.Cleanup(func() { broker(t, "restart", node) })
	p := j.start(t)
	p.until(patience, "checkpoints after the commit by another coordinator", func() bool { return j.newestCheckpoint(t) > number+2 })
	broker(t, "restart", node)
	p.signal(syscall.SIGKILL)
	<-p.exited
	stop()
	j.drain(t, j.start(t))
}
