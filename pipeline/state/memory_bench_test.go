package state_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

const benchGroups = 128

// counter has a table of n int keys with a count each.
type counter struct {
	store state.Store
	table state.Table
	buf   []byte
	n     uint64
	rng   *rand.PCG
}

func newCounter(tb testing.TB, n int) *counter {
	tb.Helper()
	s, err := state.OpenMemory(tb.Context(), state.Options{Last: benchGroups - 1, Groups: benchGroups})
	if err != nil {
		tb.Fatal(err)
	}
	c := &counter{store: s, table: s.Table("counts"), n: uint64(n), rng: rand.NewPCG(1, 2)}
	for i := range n {
		c.add(int64(i))
	}
	return c
}

// add counts a key.
func (c *counter) add(i int64) {
	c.buf = state.AppendKey(c.buf[:0], connectors.IntValue(i))
	v, _ := c.table.Upsert(0, state.MakeKey(c.buf, benchGroups), 8)
	binary.LittleEndian.PutUint64(v, binary.LittleEndian.Uint64(v)+1)
}

func (c *counter) random() int64 { return int64(c.rng.Uint64() % c.n) }

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCounter(b, n)
			b.ReportAllocs()
			for b.Loop() {
				c.add(c.random())
			}
			u := c.store.Usage()
			b.ReportMetric(float64(u.Memory)/float64(u.Keys), "B/key")
			_ = c.store.Close()
		})
	}
}

// BenchmarkInsert is what a key costs that is new.
func BenchmarkInsert(b *testing.B) {
	c := newCounter(b, 0)
	i := int64(0)
	for b.Loop() {
		c.add(i)
		i++
	}
	_ = c.store.Close()
}

// BenchmarkSlidingUpdate spreads records of few keys over 60 open panes.
func BenchmarkSlidingUpdate(b *testing.B) {
	c := newCounter(b, 0)
	key := state.MakeKey(state.AppendKey(nil, connectors.IntValue(7)), benchGroups)
	i := int64(0)
	for b.Loop() {
		v, _ := c.table.Upsert(i%60*60_000, key, 8)
		v[0]++
		i++
	}
	_ = c.store.Close()
}

// BenchmarkFork is the pause of a barrier, and the updates that follow it at once.
func BenchmarkFork(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCounter(b, n)
			for b.Loop() {
				snap, err := c.store.Fork(1)
				if err != nil {
					b.Fatal(err)
				}
				snap.Release()
			}
			_ = c.store.Close()
		})
	}
}

// BenchmarkUpdateWhileASnapshotIsWritten tells the longest that 100 updates take, and the
// most memory that is in use.
func BenchmarkUpdateWhileASnapshotIsWritten(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCounter(b, n)
			longest, most, updates := time.Duration(0), int64(0), 0
			for b.Loop() {
				snap, err := c.store.Fork(1)
				if err != nil {
					b.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					_, err := snap.Write(b.Context(), nowhere{}, state.Form{Compression: "zstd"})
					done <- err
				}()
				for writing := true; writing; updates += 100 {
					start := time.Now()
					for range 100 {
						c.add(c.random())
					}
					longest, most = max(longest, time.Since(start)), max(most, c.store.Usage().Memory)
					select {
					case err := <-done:
						if err != nil {
							b.Fatal(err)
						}
						writing = false
					default:
					}
				}
			}
			b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
			b.ReportMetric(float64(most)/float64(n), "most-B/key")
			b.ReportMetric(float64(updates)/float64(b.N), "updates/op")
			_ = c.store.Close()
		})
	}
}

// BenchmarkTimers sets a timer for each of many keys and lets it fire.
func BenchmarkTimers(b *testing.B) {
	c := newCounter(b, 0)
	timers := state.NewTimers(c.store.Table("timers"))
	i := int64(0)
	for b.Loop() {
		c.buf = state.AppendKey(c.buf[:0], connectors.IntValue(i))
		timers.Set(i+60_000, state.MakeKey(c.buf, benchGroups), nil)
		if i%1000 == 0 {
			if err := timers.Due(i, func(int64, state.Key, []byte) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		i++
	}
	_ = c.store.Close()
}

// nowhere takes files and keeps nothing.
type nowhere struct{ connectors.CheckpointFiles }

func (nowhere) Create(context.Context) (connectors.StateWriter, error) { return &dropped{}, nil }

type dropped struct{ n int64 }

func (d *dropped) Write(b []byte) (int, error)                                    { d.n += int64(len(b)); return len(b), nil }
func (d *dropped) Close() (connectors.StateFile, error)                           { return connectors.StateFile{Size: d.n}, nil }
func (*dropped) Abort()                                                           {}
func (nowhere) Open(context.Context, connectors.StateFile) (io.ReadCloser, error) { return nil, nil }

func BenchmarkWrite(b *testing.B) {
	for _, compression := range []string{"none", "zstd"} {
		b.Run(compression, func(b *testing.B) {
			const n = 1_000_000
			c := newCounter(b, n)
			size := int64(0)
			for b.Loop() {
				snap, err := c.store.Fork(1)
				if err != nil {
					b.Fatal(err)
				}
				pieces, err := snap.Write(b.Context(), nowhere{}, state.Form{Compression: compression})
				if err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, p := range pieces {
					size += p.Length
				}
			}
			b.ReportMetric(float64(size)/n, "B/key")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
			_ = c.store.Close()
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	const n = 1_000_000
	c := newCounter(b, n)
	files := &connectortest.Files{}
	snap, err := c.store.Fork(1)
	if err != nil {
		b.Fatal(err)
	}
	pieces, err := snap.Write(b.Context(), files, state.Form{Compression: "zstd"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := state.OpenMemory(b.Context(), state.Options{Last: benchGroups - 1, Groups: benchGroups, Restore: &state.Restore{Pieces: pieces, Files: files}})
		if err != nil || s.Usage().Keys != n {
			b.Fatal(err)
		}
		_ = s.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	_ = c.store.Close()
}
