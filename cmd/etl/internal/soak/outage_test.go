//go:build integration

package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kafkaScript starts and kills brokers, and runs the tools of Kafka's distribution.
var kafkaScript = filepath.Join("..", "..", "..", "..", "deploy", "services", "kafka.sh")

// ownBroker starts a broker that the test may kill, and makes it the one that
// everything else in the test uses.
func ownBroker(t *testing.T) (do func(args ...string)) {
	t.Helper()
	const port = "19592"
	do = func(args ...string) {
		t.Helper()
		cmd := exec.Command(kafkaScript, args...)
		cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=outage", "KAFKA_PORT="+port)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kafka.sh %v: %v\n%s", args, err, out)
		}
	}
	t.Setenv("KAFKA_BROKERS", "127.0.0.1:"+port)
	t.Cleanup(func() { do("clean") })
	do("start")
	return do
}

func TestBrokerThatIsAbsentOrLostIsWaitedFor(t *testing.T) {
	broker := ownBroker(t)
	j := newJob(t, "kafka", "")
	w := newWatch(t, j.out)

	broker("kill", "1")
	p := j.start(t)
	eventually(t, patience, "a word about the broker that is absent", func() bool {
		p.alive()
		return strings.Contains(p.tail(), "127.0.0.1:19592")
	})
	broker("restart", "1")
	stop := j.ledger.feed(t, 2000, 1<<30)
	eventually(t, patience, "output once the broker is there", func() bool { p.alive(); return w.count.Load() > 2000 })

	broker("kill", "1")
	broker("restart", "1")
	before := w.count.Load()
	eventually(t, patience, "output after the broker was lost", func() bool { p.alive(); return w.count.Load() > before+4000 })
	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
}

func TestMissingTopicIsNamed(t *testing.T) {
	j := newJob(t, "kafka", "")
	text, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(text), "["+j.ledger.topic+"]", "[no-such-topic]", 1)
	if err := os.WriteFile(j.file, []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
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
