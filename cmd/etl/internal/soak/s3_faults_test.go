//go:build integration

package soak

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newSteady is a pipeline that keeps its checkpoints on the S3 server, through a proxy.
func newSteady(t *testing.T, interval string, variables ...string) (*job, *storeProxy) {
	t.Helper()
	proxy := newStoreProxy(t, variable(t, "S3_ENDPOINT"), random(t))
	through := checkpointStore{"s3", func(t *testing.T) (string, []string) {
		return "s3://" + variable(t, "S3_BUCKET") + "/" + unique(), []string{"ETL_STORAGE__S3__ENDPOINT=" + proxy.address}
	}}
	return newPipeline(t, "steady.yaml", through, append(variables, "INTERVAL="+interval)...), proxy
}

// newest is the number of the newest checkpoint that is proven.
func (j *job) newest(t *testing.T) int {
	t.Helper()
	list := j.committed(t)
	if len(list) == 0 {
		return 0
	}
	return list[0].Number
}

// logged is how many lines of the log have a text.
func (p *process) logged(text string) int {
	p.t.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Count(string(log), text)
}

const failedCheckpoint = `msg="a checkpoint failed"`

// TestSoakCheckpointsOnAnS3ThatFails takes checkpoints on a real server while a share of
// all requests fails: at one in twenty they complete, and at one in five the pipeline goes
// on, which it would not after four failures in a row.
func TestSoakCheckpointsOnAnS3ThatFails(t *testing.T) {
	for _, c := range []struct {
		name        string
		share       float64
		checkpoints int
		failures    int
	}{
		{"one in twenty", 0.05, 200, 0},
		{"one in five", 0.2, 50, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, proxy := newSteady(t, "100ms")
			proxy.fail(c.share)
			p := j.start(t)
			p.poll(5*time.Minute, time.Second, "the checkpoints were taken", func() bool { return j.newest(t) >= c.checkpoints })
			p.signal(syscall.SIGTERM)
			p.wait(patience, 0)
			failed := p.logged(failedCheckpoint)
			t.Logf("%d checkpoints failed of %d; requests: %d went through, %d times 500, %d times 503, %d resets before and %d behind", failed, j.newest(t),
				proxy.through.Load(), proxy.count[faultError].Load(), proxy.count[faultSlow].Load(), proxy.count[faultBefore].Load(), proxy.count[faultAfter].Load())
			if failed > c.failures {
				t.Errorf("%d checkpoints failed, and at most %d may\n%s", failed, c.failures, p.tail())
			}
			for which := range proxy.count {
				if proxy.count[which].Load() == 0 {
					t.Errorf("fault %d never happened", which)
				}
			}
			// What is there is whole.
			proxy.fail(0)
			last := j.committed(t)[0]
			j.run(t, "checkpoint", "verify", last.Path)
			total := 0
			for _, n := range j.state(t, last.Path, "count", "k") {
				total += n
			}
			read := int64(0)
			for _, at := range j.offsets(t, last.Path) {
				read += at
			}
			if int64(total) != read || read == 0 {
				t.Errorf("checkpoint %d has counted %d records, and its sources are behind %d", last.Number, total, read)
			}
		})
	}
}

// TestSoakAnOutageOfS3 takes the store away under a running pipeline: it goes on, its
// memory stays what it was, and the first checkpoint comes soon after the store is back.
func TestSoakAnOutageOfS3(t *testing.T) {
	const interval = 2 * time.Second
	// No more than that is waited between two tries.
	const pause = 5 * time.Second
	j, proxy := newSteady(t, interval.String(), "ETL_STORAGE__S3__RETRY_TIMEOUT="+(storeOutage/2).String())
	p := j.start(t)
	p.poll(patience, time.Second, "the third checkpoint", func() bool { return j.newest(t) >= 3 })
	before := p.memory(t)

	proxy.down.Store(true)
	began := time.Now()
	most := int64(0)
	p.until(2*storeOutage, "the outage was over", func() bool {
		most = max(most, p.memory(t))
		return time.Since(began) > storeOutage
	})
	failed := p.logged(failedCheckpoint)
	proxy.down.Store(false)
	back := time.Now()
	last := j.newest(t)
	p.poll(patience, 100*time.Millisecond, "a checkpoint after the outage", func() bool { return j.newest(t) > last })
	took := time.Since(back)
	t.Logf("%v without the store: %d checkpoints failed, memory %d MiB before and up to %d MiB in it, the first checkpoint %v after it",
		storeOutage, failed, before>>20, most>>20, took.Round(100*time.Millisecond))
	if most > before+before/2+32<<20 {
		t.Errorf("memory grew from %d to %d MiB", before>>20, most>>20)
	}
	if failed == 0 {
		t.Error("no checkpoint failed, so that the outage proves little")
	}
	// A list takes a process of its own, whose time is in it.
	if took > interval+pause+5*time.Second {
		t.Errorf("the first checkpoint came %v after the outage, with an interval of %v", took, interval)
	}
	p.signal(syscall.SIGTERM)
	p.wait(patience, 0)
}
