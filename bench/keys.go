package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// keySplits is how many parts the source of keys has.
const keySplits = 4

// keyLoad is what the source of keys and the sink behind it share with who measures.
var keyLoad struct {
	made    atomic.Int64 // records given out
	paused  atomic.Bool
	rows    atomic.Int64 // that came to the sink
	barrier atomic.Int64 // gap within the first second of a checkpoint
	gap     atomic.Int64 // longest time between two batches that a writer was given, since zeroed
}

type keysConfig struct {
	Keys int64 `key:"keys" doc:"Each of them comes once, and then any of them, without end." required:"true"`
}

func init() {
	connectors.RegisterSource(connectors.SourceSpec{
		Name: "bench_keys", Doc: "Makes records of many keys as fast as they are taken.",
		NewConfig: func() any { return &keysConfig{} },
		New:       func(config any) (connectors.Source, error) { return &keySource{config.(*keysConfig).Keys}, nil },
		Bounded:   func(any) bool { return false },
	})
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "bench_gaps", Doc: "Measures how evenly rows come.",
		NewConfig: func() any { return &struct{}{} },
		New:       func(any) (connectors.Sink, error) { return gapSink{}, nil },
		Changes:   func(any) connectors.Changes { return connectors.Changes{Mode: connectors.AllChanges} },
	})
}

type keySource struct{ keys int64 }

func (s *keySource) Splits(_ context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	if restored != nil {
		return restored, nil
	}
	var out []connectors.Split
	for i := range keySplits {
		out = append(out, connectors.Split{ID: strconv.Itoa(i), Until: -1})
	}
	return out, nil
}

func (s *keySource) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}
func (s *keySource) Committed(context.Context, []connectors.Split) error { return nil }
func (s *keySource) Close() error                                        { return nil }

func (s *keySource) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	r := &keyReader{source: s, pool: env.Batches}
	return r, r.Add(splits)
}

type keyReader struct {
	source *keySource
	pool   *connectors.BatchPool
	splits []connectors.Split
	parts  []int64
	turn   int
}

func (r *keyReader) Add(splits []connectors.Split) error {
	for _, s := range splits {
		part, err := strconv.ParseInt(s.ID, 10, 64)
		if err != nil {
			return fmt.Errorf("split %q: %w", s.ID, err)
		}
		r.splits, r.parts = append(r.splits, s), append(r.parts, part)
	}
	return nil
}

func (r *keyReader) Position(split int, next int64) connectors.Split {
	s := r.splits[split]
	s.Offset = next
	return s
}

func (r *keyReader) Close() error { return nil }

// Poll gives a batch of one split; while the load is paused it waits.
func (r *keyReader) Poll(ctx context.Context) (*connectors.Batch, error) {
	for keyLoad.paused.Load() || len(r.splits) == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	i := r.turn % len(r.splits)
	r.turn++
	b := r.pool.Get()
	s := &r.splits[i]
	var text []byte
	for range connectors.MaxBatch {
		text = r.source.record(text[:0], r.parts[i]+s.Offset*keySplits)
		b.Records = append(b.Records, connectors.Record{Value: b.Arena.Copy(text), Offset: s.Offset})
		s.Offset++
	}
	b.Split, b.Next = i, s.Offset
	keyLoad.made.Add(connectors.MaxBatch)
	return b, nil
}

// record is the n-th record of all: first each key once, then any of them. With its
// counter, key and table, a key of it is about keyBytes of state.
func (s *keySource) record(text []byte, n int64) []byte {
	key := n
	if n >= s.keys {
		key = int64(mix(uint64(n)) % uint64(s.keys))
	}
	text = append(text, `{"k":`...)
	text = strconv.AppendInt(text, key, 10)
	text = append(text, `,"pad":"`...)
	var pad [8]byte
	for i := range uint64(6) {
		x := mix(uint64(key)*6 + i)
		for j := range pad {
			pad[j] = byte(x >> (8 * j))
		}
		text = hex.AppendEncode(text, pad[:])
	}
	return append(text, `"}`...)
}

// keyBytes is how many bytes of state a key has: its pad of 96 letters, its counter, itself.
const keyBytes = 128

// mix makes a number of another that looks like any.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// gapSink takes rows, and notes the longest time without any.
type gapSink struct{}

func (gapSink) Guarantee() connectors.Guarantee                  { return connectors.AtLeastOnce }
func (gapSink) Open(context.Context, connectors.SinkEnv) error   { return nil }
func (gapSink) Start(context.Context, connectors.Restored) error { return nil }
func (gapSink) Writer(int) (connectors.Writer, error)            { return &gapWriter{}, nil }
func (gapSink) Close() error                                     { return nil }

type gapWriter struct{ last time.Time }

func (w *gapWriter) Write(_ context.Context, rows *connectors.Rows) error {
	now := time.Now()
	if !w.last.IsZero() && !keyLoad.paused.Load() {
		for gap := int64(now.Sub(w.last)); ; {
			longest := keyLoad.gap.Load()
			if gap <= longest || keyLoad.gap.CompareAndSwap(longest, gap) {
				break
			}
		}
	}
	w.last = now
	keyLoad.rows.Add(int64(rows.Len()))
	return nil
}

func (w *gapWriter) Tick(context.Context, time.Time) error { return nil }
func (w *gapWriter) Close() error                          { return nil }
func (w *gapWriter) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return func(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
		return connectors.Prepared{}, nil
	}, nil
}

// noise is bytes that no compression makes smaller.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{7})
	b := make([]byte, n)
	_, _ = r.Read(b) // never fails
	return b
}

// keysPipeline is the pipeline whose checkpoints are measured.
func keysPipeline(backend, storage, dir string, keys int64) string {
	state := "{backend: memory}"
	if backend == "disk" {
		state = fmt.Sprintf("{backend: disk, dir: %q}", dir)
	}
	return strings.NewReplacer("KEYS", strconv.FormatInt(keys, 10), "STORAGE", strconv.Quote(storage), "STATE", state).Replace(`
pipeline: checkpoint
source: {bench_keys: {keys: KEYS}}
transforms:
  - {name: per-key, aggregate: {by: [k], select: {n: count(), pad: max(pad)}}}
sink: {bench_gaps: {}}
checkpoint: {storage: STORAGE, interval: 1h, timeout: 1h, state: STATE}
`)
}
