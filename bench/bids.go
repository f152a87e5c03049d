package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4

// input is the filled topic.
type input struct {
	topic  string
	count  int64
	passed int64 // bids that the filter of the workloads lets through
}

// bids makes auction bids as JSON objects of 212 bytes on average, the same ones in every run.
type bids struct {
	rng  *rand.Rand
	made int64
}

// Bids come at the rate that the Nexmark benchmark has by default, 10,000 a second.
const (
	firstBid     = 1_700_000_000_000
	bidsPerMilli = 10
)

func newBids() *bids { return &bids{rng: rand.New(rand.NewPCG(1, 2))} }

var bigChannels = []string{"Google", "Facebook", "Baidu", "Apple"}

// next appends a bid and tells whether `price > 5000 && channel != "Apple"`
// holds of it, which it does for 7 in 10.
func (g *bids) next(buf []byte) (bid []byte, passes bool) {
	price := 1 + g.rng.Int64N(22_500)
	channel := "channel-" + strconv.Itoa(g.rng.IntN(10_000))
	if g.rng.IntN(10) < 4 {
		channel = bigChannels[g.rng.IntN(len(bigChannels))]
	}
	g.made++
	at := firstBid + g.made/bidsPerMilli
	buf = fmt.Appendf(buf, `{"auction":%d,"bidder":%d,"price":%d,"channel":"%s","url":"https://www.nexmark.com/`,
		1000+g.rng.IntN(100_000), 1000+g.rng.IntN(50_000), price, channel)
	buf = g.letters(buf, 6)
	buf = fmt.Appendf(buf, `/item.htm?query=1","date_time":%d,"extra":"`, at)
	buf = g.letters(buf, 44+g.rng.IntN(17))
	buf = append(buf, `"}`...)
	return buf, price > 5000 && channel != "Apple"
}

func (g *bids) letters(buf []byte, n int) []byte {
	for range n {
		buf = append(buf, byte('a'+g.rng.IntN(26)))
	}
	return buf
}

// broker is the Kafka cluster that the run uses.
type broker struct {
	seeds []string
	admin *kadm.Client
}

func newBroker(seeds []string) (*broker, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", seeds, err)
	}
	return &broker{seeds: seeds, admin: kadm.NewClient(cl)}, nil
}

func (b *broker) close() { b.admin.Close() }

// createTopic makes an empty topic that nothing expires from.
func (b *broker) createTopic(ctx context.Context, topic string) error {
	forever, large := "-1", "1073741824"
	_, err := b.admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &forever, "segment.bytes": &large}, topic)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	// The controller answers before the brokers know.
	for {
		all, err := b.admin.ListTopics(ctx, topic)
		if err != nil {
			return fmt.Errorf("look for topic %s: %w", topic, err)
		}
		if t := all[topic]; t.Err == nil && len(t.Partitions) == partitions {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (b *broker) deleteTopic(ctx context.Context, topic string) error {
	if _, err := b.admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}

// fillBids makes the input topic, unless an earlier run left it complete.
func (b *broker) fillBids(ctx context.Context, count int64) (input, error) {
	in := input{topic: fmt.Sprintf("bench-bids-v2-%d", count), count: count}
	ends, err := b.admin.ListEndOffsets(ctx, in.topic)
	if err != nil {
		return in, fmt.Errorf("list offsets of %s: %w", in.topic, err)
	}
	var have int64
	ends.Each(func(o kadm.ListedOffset) { have += max(o.Offset, 0) })
	write := have != count
	if write {
		if err := b.deleteTopic(ctx, in.topic); err != nil {
			return in, err
		}
		if err := b.createTopic(ctx, in.topic); err != nil {
			return in, err
		}
		fmt.Fprintf(os.Stderr, "writing %d bids to %s\n", count, in.topic)
	}
	in.passed, err = b.produceBids(ctx, in, write)
	return in, err
}

// produceBids makes all bids, writes them if asked to, and counts those that pass the filter.
func (b *broker) produceBids(ctx context.Context, in input, write bool) (passed int64, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.DefaultProduceTopic(in.topic),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(100_000),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	failed := make(chan error, 1)
	g := newBids()
	for range in.count {
		bid, passes := g.next(nil)
		if passes {
			passed++
		}
		if !write {
			continue
		}
		cl.Produce(ctx, &kgo.Record{Value: bid}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, err
	}
	select {
	case err := <-failed:
		return 0, fmt.Errorf("write to %s: %w", in.topic, err)
	default:
		return passed, nil
	}
}
