//go:build integration

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// kafkaScript starts and kills brokers, and runs the tools of Kafka's distribution.
var kafkaScript = filepath.Join("..", "..", "..", "..", "deploy", "services", "kafka.sh")

// Addresses of the broker that tests may kill: the plain one, one that the
// proxy stands at, and one behind it that the broker listens at for it.
const (
	ownAddress     = "127.0.0.1:19592"
	proxiedAddress = "127.0.0.1:19593"
	behindProxy    = "127.0.0.1:19594"
)

// ownKafka runs the script for that broker.
func ownKafka(args ...string) error {
	cmd := exec.Command(kafkaScript, args...)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=outage", "KAFKA_PORT=19592", "KAFKA_EXTRA="+strings.Join([]string{
		"listeners=PLAINTEXT://" + ownAddress + ",CONTROLLER://127.0.0.1:19692,PROXIED://" + behindProxy,
		"advertised.listeners=PLAINTEXT://" + ownAddress + ",CONTROLLER://127.0.0.1:19692,PROXIED://" + proxiedAddress,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
	}, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka.sh %v: %w\n%s", args, err, out)
	}
	return nil
}

var ownStarted = sync.OnceValue(func() error { return ownKafka("start") })

// ownBroker starts a broker that the test may kill, and makes it the one that
// everything else in the test uses. TestMain removes it.
func ownBroker(t *testing.T) (do func(args ...string)) {
	t.Helper()
	t.Setenv("KAFKA_BROKERS", ownAddress)
	if err := ownStarted(); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) {
		t.Helper()
		if err := ownKafka(args...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBrokerThatIsAbsentOrLostIsWaitedFor(t *testing.T) {
	broker := ownBroker(t)
	j := newJob(t, "kafka", "")
	w := newWatch(t, j.out)

	broker("kill", "1")
	p := j.start(t)
	p.until(patience, "it told of the absent broker", func() bool { return strings.Contains(p.tail(), ownAddress) })
	broker("restart", "1")
	stop := j.ledger.feed(t, 2000, 1<<30)
	p.until(patience, "output once the broker is there", func() bool { return w.count.Load() > 2000 })

	broker("kill", "1")
	broker("restart", "1")
	before := w.count.Load()
	p.until(patience, "output after the broker was lost", func() bool { return w.count.Load() > before+4000 })
	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
}

func TestMissingTopicIsNamed(t *testing.T) {
	j := newJob(t, "kafka", "")
	j.rewrite(t, "["+j.ledger.topic+"]", "[no-such-topic]")
	p := j.start(t)
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("it runs without its topic\n%s", p.tail())
	}
	if p.code != 3 || !strings.Contains(p.tail(), "no-such-topic") {
		t.Fatalf("exit code %d, want 3 and the topic's name\n%s", p.code, p.tail())
	}
}

// rewrite replaces a text in the pipeline file.
func (j *job) rewrite(t *testing.T, before, after string) {
	t.Helper()
	text, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.file, []byte(strings.ReplaceAll(string(text), before, after)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Every second end of a transaction gets lost on the way there or on the way
// back, in a process that lives on and in ones that are killed at once.
func TestLostReplyToTheCommit(t *testing.T) {
	rng := random(t)
	ownBroker(t)
	network := newProxy(t, proxiedAddress, behindProxy)
	j := newJob(t, "kafka", "")
	j.rewrite(t, ownAddress, proxiedAddress)
	w := newWatch(t, j.out)
	stop := j.ledger.feed(t, 5000, 1<<30)

	const losses = 6
	var draws atomic.Uint64
	seed := rng.Uint64()
	network.lose(func() loss { return loss(rand.New(rand.NewPCG(seed, draws.Add(1))).IntN(4) % 3) })
	happened := func(l loss) int64 { return network.lost[l].Load() }
	p := j.start(t)
	for _, l := range []loss{lossRequest, lossReply} {
		p.until(patience, "commits lost on the way", func() bool { return happened(l) >= losses })
	}
	for range losses {
		before := happened(lossReply)
		p.until(patience, "a reply lost", func() bool { return happened(lossReply) > before })
		p.signal(syscall.SIGKILL)
		<-p.exited
		p = j.start(t)
	}
	network.lose(func() loss { return lossNone })
	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
}
