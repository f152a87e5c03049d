//go:build integration

package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4

// ledger is an input topic of which it is known what is in it: in each
// partition p the records {"p": p, "n": 0}, {"p": p, "n": 1} and so on, with a
// key of the partition's own, so that a keyed topic keeps them in one partition.
type ledger struct {
	topic  string
	client *kgo.Client
	failed atomic.Pointer[error]
	counts [partitions]int // records written; read it only while nothing is being written
}

func brokers(t *testing.T) []string {
	t.Helper()
	list := os.Getenv("KAFKA_BROKERS")
	if list == "" {
		t.Fatal("KAFKA_BROKERS is not set: run `make integration`, which starts a broker")
	}
	return strings.Split(list, ",")
}

func newLedger(t *testing.T, topic string) *ledger {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	createTopic(t, topic)
	return &ledger{topic: topic, client: cl}
}

func createTopic(t *testing.T, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(cl)
	// Records have the times of their data, which may be years ago.
	forever := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
	if _, err := admin.CreateTopic(t.Context(), partitions, -1, forever, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	// The controller answers before the brokers know.
	eventually(t, patience, "a leader for each partition", func() bool {
		topics, err := admin.ListTopics(t.Context(), topic)
		return err == nil && topics[topic].Err == nil && len(topics[topic].Partitions.Numbers()) == partitions
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := admin.DeleteTopic(ctx, topic); err != nil {
			t.Errorf("delete topic %s: %v", topic, err)
		}
		admin.Close()
	})
}

// write appends n records, dealt to the partitions in turn.
func (l *ledger) write(ctx context.Context, n int) error {
	for i := range n {
		p := i % partitions
		r := &kgo.Record{
			Partition: int32(p), Key: []byte("key-" + strconv.Itoa(p)),
			Value: fmt.Appendf(nil, `{"p":%d,"n":%d,"text":"a record that was written once"}`, p, l.counts[p]),
		}
		l.counts[p]++
		l.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				l.failed.Store(&err)
			}
		})
	}
	if err := l.client.Flush(ctx); err != nil {
		return err
	}
	if err := l.failed.Load(); err != nil {
		return fmt.Errorf("write to %s: %w", l.topic, *err)
	}
	return nil
}

// total is how many records there are; ask only while nothing is being written.
func (l *ledger) total() (n int) {
	for _, c := range l.counts {
		n += c
	}
	return n
}

// feed writes records at a rate until there are total of them, or until stop is
// called, which waits for the last one to be acknowledged.
func (l *ledger) feed(t *testing.T, perSecond, total int) (stop func()) {
	t.Helper()
	const tick = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for left := total; left > 0; {
			n := min(left, perSecond*int(tick)/int(time.Second))
			if err := l.write(context.WithoutCancel(ctx), n); err != nil {
				done <- err
				return
			}
			left -= n
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-ticker.C:
			}
		}
		done <- nil
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// check compares what came out with a ledger: every record once, and those of
// one partition in order.
type check struct {
	have                          [partitions][]bool
	last                          [partitions]int
	at                            [partitions]string // where the last one stood
	duplicated, disordered, alien int
	example                       string
}

func (l *ledger) check() *check {
	c := &check{}
	for p, n := range l.counts {
		c.have[p] = make([]bool, n)
		c.last[p] = -1
	}
	return c
}

// blank is a check of the same ledger that has taken nothing.
func (c *check) blank() *check {
	b := &check{}
	for p := range c.have {
		b.have[p] = make([]bool, len(c.have[p]))
		b.last[p] = -1
	}
	return b
}

// take notes one record that came out at a place, where seen is what the pipeline made of it.
func (c *check) take(p, n, seen int, place string) {
	switch {
	case p < 0 || p >= partitions || n < 0 || n >= len(c.have[p]) || seen != n+1:
		c.alien++
		c.note("no such record", p, n, place)
		return
	case c.have[p][n]:
		c.duplicated++
		c.note("twice", p, n, place)
		return
	case n < c.last[p]:
		c.disordered++
		c.note("out of order", p, n, fmt.Sprintf("%s, after number %d at %s", place, c.last[p], c.at[p]))
	}
	c.have[p][n] = true
	if n > c.last[p] {
		c.last[p], c.at[p] = n, place
	}
}

func (c *check) note(what string, p, n int, place string) {
	if c.example == "" {
		c.example = strings.TrimSpace(fmt.Sprintf("%s: partition %d, number %d %s", what, p, n, place))
	}
}

func (c *check) lost() int {
	lost := 0
	for p, have := range c.have {
		for n, there := range have {
			if !there {
				lost++
				c.note("lost", p, n, "")
			}
		}
	}
	return lost
}

// result is nil when everything came out exactly once and in order.
func (c *check) result() error {
	lost := c.lost()
	if lost+c.duplicated+c.disordered+c.alien == 0 {
		return nil
	}
	return fmt.Errorf("%d lost, %d duplicated, %d out of order, %d that were never written (%s)",
		lost, c.duplicated, c.disordered, c.alien, c.example)
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	l := &ledger{counts: [partitions]int{2, 1, 0, 0}}
	type record struct{ p, n, seen int }
	for name, tc := range map[string]struct {
		out  []record
		want error
	}{
		"everything once": {[]record{{0, 0, 1}, {1, 0, 1}, {0, 1, 2}}, nil},
		"lost":            {[]record{{0, 0, 1}, {1, 0, 1}}, errors.New("1 lost, 0 duplicated, 0 out of order, 0 that were never written (lost: partition 0, number 1)")},
		"twice":           {[]record{{0, 0, 1}, {0, 0, 1}, {1, 0, 1}, {0, 1, 2}}, errors.New("0 lost, 1 duplicated, 0 out of order, 0 that were never written (twice: partition 0, number 0)")},
		"out of order":    {[]record{{0, 1, 2}, {0, 0, 1}, {1, 0, 1}}, errors.New("0 lost, 0 duplicated, 1 out of order, 0 that were never written (out of order: partition 0, number 0 , after number 1 at)")},
		"never written":   {[]record{{0, 0, 1}, {0, 1, 2}, {1, 0, 1}, {2, 0, 1}}, errors.New("0 lost, 0 duplicated, 0 out of order, 1 that were never written (no such record: partition 2, number 0)")},
		"wrongly changed": {[]record{{0, 0, 1}, {0, 1, 1}, {1, 0, 1}}, errors.New("1 lost, 0 duplicated, 0 out of order, 1 that were never written (no such record: partition 0, number 1)")},
	} {
		t.Run(name, func(t *testing.T) {
			c := l.check()
			for _, r := range tc.out {
				c.take(r.p, r.n, r.seen, "")
			}
			if got := c.result(); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
		})
	}
}
