package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// bid is a record of the demo. Partition and Seq name it.
type bid struct {
	Partition int32  `json:"partition"`
	Seq       int    `json:"seq"`
	Price     int    `json:"price"`
	Channel   string `json:"channel"`
}

// dearerThan is the filter of the pipeline.
const dearerThan = 5000

// ledger is what was sent, by partition.
type ledger struct {
	mu    sync.Mutex
	total int
	next  [partitions]int
	dear  int
}

func (l *ledger) add(b bid) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	l.next[b.Partition]++
	if b.Price > dearerThan {
		l.dear++
	}
}

// send produces the records at their rate.
func (s *show) send(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return fmt.Errorf("connect to the embedded broker: %w", err)
	}
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < s.opts.Records; {
		var batch []*kgo.Record
		for range min(s.opts.Rate/20, s.opts.Records-i) {
			b := bid{Partition: int32(i % partitions), Seq: i / partitions, Price: i * 7919 % 10000, Channel: [...]string{"Apple", "Google", "Baidu"}[i%3]}
			value, err := json.Marshal(b)
			if err != nil {
				return err
			}
			batch = append(batch, &kgo.Record{Topic: "bids", Partition: b.Partition, Value: value})
			s.sent.add(b)
			i++
		}
		if err := cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
			return fmt.Errorf("send bids: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// progress is how far the pipeline has come, as seen from outside.
type progress struct{ sent, files, checkpoints int }

func (s *show) progress() (progress, error) {
	s.sent.mu.Lock()
	p := progress{sent: s.sent.total}
	s.sent.mu.Unlock()
	err := s.eachLine(func([]byte) error { p.files++; return nil })
	kept, globErr := filepath.Glob(filepath.Join(s.dir, "checkpoints", "demo", "*", "chk-*", "_committed"))
	p.checkpoints = len(kept)
	return p, errors.Join(err, globErr)
}

// eachLine reads the published files as any reader would: every one that is not hidden.
func (s *show) eachLine(do func(line []byte) error) error {
	names, err := filepath.Glob(filepath.Join(s.dir, "bids", "*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), ".") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a published file: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			if err := do(lines.Bytes()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// verify counts every record in the files and in the topic.
func (s *show) verify(ctx context.Context) error {
	files, dear := newCheck(), newCheck()
	if err := s.eachLine(files.line); err != nil {
		return err
	}
	if err := s.readTopic(ctx, dear); err != nil {
		return err
	}
	s.say("\n  files:           %s", files.verdict(s.sent.total))
	s.say("  topic dear-bids: %s", dear.verdict(s.sent.dear))
	if files.exact(s.sent.total) && dear.exact(s.sent.dear) {
		s.say("\nExactly once, over a kill -9.")
		return nil
	}
	return errors.New("records were lost or came twice")
}

// check counts which records have come.
type check struct {
	seen  map[[2]int]int
	twice int
}

func newCheck() *check { return &check{seen: map[[2]int]int{}} }

func (c *check) line(line []byte) error {
	var b bid
	if err := json.Unmarshal(line, &b); err != nil {
		return fmt.Errorf("a published record is no JSON: %w", err)
	}
	key := [2]int{int(b.Partition), b.Seq}
	if c.seen[key]++; c.seen[key] > 1 {
		c.twice++
	}
	return nil
}

func (c *check) exact(want int) bool { return len(c.seen) == want && c.twice == 0 }

func (c *check) verdict(want int) string {
	return fmt.Sprintf("%d of %d records, %d lost, %d twice", len(c.seen), want, want-len(c.seen), c.twice)
}

// readTopic reads what a reader of committed records sees, up to the end.
func (s *show) readTopic(ctx context.Context, c *check) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.broker), kgo.ConsumeTopics("dear-bids"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(c.seen) < s.sent.dear {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // the count says what is missing
		}
		var bad error
		f.EachRecord(func(r *kgo.Record) { bad = errors.Join(bad, c.line(r.Value)) })
		if bad != nil {
			return bad
		}
	}
	// What came twice would follow at once.
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { _ = c.line(r.Value) })
	return nil
}
