//go:build integration

package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

const benchRecords = 1_000_000

// bid is a record of about 210 bytes, as the project's reference workload has.
func bid(r *rand.Rand, i int) []byte {
	tail := make([]byte, 60)
	for j := range tail {
		tail[j] = 'a' + byte(r.IntN(26))
	}
	return fmt.Appendf(nil, `{"auction":%d,"bidder":%d,"price":%d,"channel":"%s","url":"https://www.example.com/item.htm?query=%d","dateTime":%d,"extra":"%s"}`,
		1000+r.IntN(5000), r.IntN(100000), 100+r.IntN(1000000), []string{"Google", "Apple", "Baidu", "channel-123"}[r.IntN(4)], r.IntN(1000), 1700000000000+i, tail)
}

// bids is a topic of four partitions that holds benchRecords bids.
func bids(b *testing.B, codec kgo.CompressionCodec) string {
	brokers := cluster(b)
	name := topic(b, brokers, 4, nil)
	cl := client(b, brokers, kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(100_000), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r := rand.New(rand.NewPCG(1, 1))
	for i := range benchRecords {
		cl.Produce(context.Background(), &kgo.Record{Topic: name, Partition: int32(i % 4), Value: bid(r, i)}, nil)
	}
	if err := cl.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	return name
}

// cpu is the processor time of this process so far, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// measure runs f again and again and reports what it costs for each of its n
// records.
func measure(b *testing.B, n int, f func()) {
	var before, after runtime.MemStats
	total := 0
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := cpu()
	for b.Loop() {
		f()
		total += n
	}
	used := cpu() - start
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(used)/float64(total), "cpu-ns/rec")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(total), "allocs/rec")
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e6, "M-rec/s")
}

// plainPool is the pools that a franz-go program would write.
type plainPool struct{ bytes, records sync.Pool }

func (p *plainPool) GetDecompressBytes(src []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 4*len(src))
}
func (p *plainPool) PutDecompressBytes(b []byte) { p.bytes.Put(&b) }
func (p *plainPool) GetRecords(n int) []kgo.Record {
	if r, ok := p.records.Get().(*[]kgo.Record); ok && cap(*r) >= n {
		return (*r)[:n]
	}
	return make([]kgo.Record, n)
}
func (p *plainPool) PutRecords(r []kgo.Record) { p.records.Put(&r) }

func readBare(b *testing.B, brokers []string, topic string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.WithPools(&plainPool{}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableClientMetrics())
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	for n := 0; n < benchRecords; {
		cl.PollFetches(context.Background()).EachPartition(func(p kgo.FetchTopicPartition) {
			n += len(p.Records)
			for _, r := range p.Records {
				r.Recycle()
			}
		})
	}
}

func readOurs(b *testing.B, brokers []string, topic string) {
	cfg := newSourceConfig().(*SourceConfig)
	cfg.Brokers, cfg.Topics, cfg.Until = brokers, []string{topic}, Until{kind: startLatest}
	s, err := newSource(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	splits, err := s.Splits(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Budget: 64 << 20, Batches: connectors.NewBatchPool(8)}, splits)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	n := 0
	for {
		batch, err := r.Poll(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		n += len(batch.Records)
		batch.Recycle()
	}
	if n != benchRecords {
		b.Fatalf("read %d records", n)
	}
}

func BenchmarkRead(b *testing.B) {
	brokers := cluster(b)
	for _, codec := range []string{"lz4", "none"} {
		name := bids(b, map[string]kgo.CompressionCodec{"lz4": kgo.Lz4Compression(), "none": kgo.NoCompression()}[codec])
		for _, way := range []struct {
			name string
			read func(*testing.B, []string, string)
		}{{"franz-go", readBare}, {"ours", readOurs}} {
			b.Run(codec+"/"+way.name, func(b *testing.B) {
				measure(b, benchRecords, func() { way.read(b, brokers, name) })
			})
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	brokers := cluster(b)
	r := rand.New(rand.NewPCG(1, 1))
	var values []string
	for i := range 1024 {
		values = append(values, string(bid(r, i)))
	}
	rows := rowsOf(values...)
	const n = 500 * 1024
	b.Run("franz-go", func(b *testing.B) {
		name := topic(b, brokers, 4, nil)
		measure(b, n, func() {
			cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableClientMetrics())
			if err != nil {
				b.Fatal(err)
			}
			defer cl.Close()
			for range n / 1024 {
				for _, v := range rows.Values {
					cl.Produce(context.Background(), &kgo.Record{Topic: name, Value: []byte(strings.Clone(string(v)))}, nil)
				}
			}
			if err := cl.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		b.Run("ours/"+delivery, func(b *testing.B) {
			name := topic(b, brokers, 4, nil)
			measure(b, n, func() {
				p := process(b, brokers, 1, func(c *SinkConfig, _ *connectors.SinkEnv) { c.Delivery = delivery }, name).start(1, nil)
				defer p.stop()
				for i := range n / 1024 {
					if err := p.writers[0].Write(context.Background(), rows); err != nil {
						b.Fatal(err)
					}
					if i%100 == 99 {
						cs := p.prepared(1, uint64(i))
						for _, c := range cs {
							p.mustCommit([]connectors.Committable{c}, false)
							p.commit.Done(c.Checkpoint)
						}
					}
				}
			})
		})
	}
}
