package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bareCommand is the hidden subcommand that runs a bare loop, in a process of
// its own so that its CPU time is measured alone.
const bareCommand = "bare-loop"

// bareMain reads a topic to its end with the client alone, its pools and its own
// decompressors, and writes a share of the records to another topic if there is one.
func bareMain(args []string) error {
	flags := flag.NewFlagSet(bareCommand, flag.ContinueOnError)
	brokers := flags.String("brokers", "", "addresses")
	from := flags.String("from", "", "topic to read")
	to := flags.String("to", "", "topic to write; empty for none")
	tenths := flags.Int64("tenths", 10, "how many of ten records to write")
	extra := flags.Int("extra", 0, "bytes to add to each record written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l := &bareLoop{to: *to, tenths: *tenths, tail: []byte(strings.Repeat("x", *extra))}
	start := time.Now()
	if err := l.run(context.Background(), strings.Split(*brokers, ","), *from); err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return json.NewEncoder(os.Stdout).Encode(summary{
		Read: l.read, Written: l.written, Seconds: time.Since(start).Seconds(), Mallocs: mem.Mallocs, PeakRSS: peakRSS(),
	})
}

type bareLoop struct {
	to     string
	tenths int64
	tail   []byte

	client  *kgo.Client
	read    int64
	written int64
	failed  atomic.Pointer[error]
}

func (l *bareLoop) run(ctx context.Context, brokers []string, from string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.WithPools(newPools()), kgo.MaxBufferedRecords(200_000), kgo.ProducerBatchCompression(sinkCodec()))
	if err != nil {
		return err
	}
	defer cl.Close()
	l.client = cl
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, from)
	if err != nil {
		return err
	}
	var left int64
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			left -= int64(len(p.Records))
			l.take(ctx, p.Records)
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if failed := l.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// take counts the records, and writes its share of them. The memory of a fetch
// is given back when the last record written from it is acknowledged.
func (l *bareLoop) take(ctx context.Context, records []*kgo.Record) {
	l.read += int64(len(records))
	if l.to == "" {
		for _, r := range records {
			r.Recycle()
		}
		return
	}
	out := make([]kgo.Record, len(records))
	var chunk []byte
	var pending atomic.Int64
	pending.Store(1)
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			l.failed.Store(&err)
		}
		if pending.Add(-1) == 0 {
			for _, r := range records {
				r.Recycle()
			}
		}
	}
	for i, r := range records {
		if r.Offset%10 >= l.tenths {
			continue
		}
		value := r.Value
		if len(l.tail) > 0 {
			value, chunk = l.lengthen(value, chunk)
		}
		out[i] = kgo.Record{Topic: l.to, Value: value, Timestamp: r.Timestamp}
		pending.Add(1)
		l.written++
		l.client.Produce(ctx, &out[i], done)
	}
	done(nil, nil)
}

// lengthen copies value into the chunk with the tail behind it.
func (l *bareLoop) lengthen(value, chunk []byte) (longer, rest []byte) {
	n := len(value) + len(l.tail)
	if cap(chunk)-len(chunk) < n {
		chunk = make([]byte, 0, max(256<<10, n))
	}
	at := len(chunk)
	chunk = append(append(chunk, value...), l.tail...)
	return chunk[at:len(chunk):len(chunk)], chunk
}

// sinkCodec is what the kafka sink compresses with by default.
func sinkCodec() kgo.CompressionCodec { return kgo.NoCompression() }

// pools reuse what the client decodes into.
type pools struct{ bytes, records sync.Pool }

func newPools() *pools { return &pools{} }

// GetDecompressBytes returns memory to decompress a batch into.
func (p *pools) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok {
		return *b
	}
	// What the client makes of a batch at most, by its default. A larger one would
	// only be zeroed up to its end whenever it is given back.
	return make([]byte, 0, 1<<20)
}

// PutDecompressBytes takes it back.
func (p *pools) PutDecompressBytes(b []byte) { p.bytes.Put(&b) }

// GetRecords returns room for n records.
func (p *pools) GetRecords(n int) []kgo.Record {
	if r, ok := p.records.Get().(*[]kgo.Record); ok && cap(*r) >= n {
		return *r
	}
	return make([]kgo.Record, 0, max(n, 1<<14))
}

// PutRecords takes it back.
func (p *pools) PutRecords(r []kgo.Record) { p.records.Put(&r) }

// peakRSS is the most memory that this process has held, in bytes; 0 where the
// system does not tell.
func peakRSS() int64 { return rss("VmHWM") }

// rss is a line of what the system tells of this process's memory, in bytes.
func rss(line string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(l, line+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
