package disk

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// counter counts the records of keys of 15 bytes, as an aggregate does.
type counter struct {
	s   *store
	t   state.Table
	key [15]byte
	// pause is the longest that a Fork took.
	pause time.Duration
}

func newCounter(b *testing.B, memory int64) *counter {
	b.Helper()
	s, err := open(b.Context(), state.Options{Last: 127, Groups: 128, Dir: b.TempDir() + "/state", Memory: memory}, vfs.Default)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return &counter{s: s, t: s.Table("count")}
}

func (c *counter) add(n uint64) {
	copy(c.key[:], "user:")
	binary.BigEndian.PutUint64(c.key[7:], n*0x9E3779B97F4A7C15)
	v, _ := c.t.Upsert(0, state.MakeKey(c.key[:], 128), 16)
	binary.LittleEndian.PutUint64(v, binary.LittleEndian.Uint64(v)+1)
	binary.LittleEndian.PutUint64(v[8:], binary.LittleEndian.Uint64(v[8:])+n%1000)
}

func (c *counter) checkpoint(b *testing.B, number uint64) []state.Piece {
	b.Helper()
	began := time.Now()
	f, err := c.s.Fork(number)
	c.pause = max(c.pause, time.Since(began))
	if err != nil {
		b.Fatal(err)
	}
	p, err := f.Write(b.Context(), &droppedFiles{}, state.Form{})
	if err != nil {
		b.Fatal(err)
	}
	c.s.Complete(number)
	return p
}

func BenchmarkUpdate(b *testing.B) {
	for name, keys := range map[string]uint64{"in cache": 100_000, "beyond cache": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			c := newCounter(b, 64<<20)
			for i := range keys {
				c.add(i)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.add(rand.Uint64N(keys))
			}
		})
	}
}

// BenchmarkCheckpoint is one after touching 1 % of the keys: what they upload on
// average and at most, and the longest pause at a barrier.
func BenchmarkCheckpoint(b *testing.B) {
	for _, keys := range []uint64{200_000, 1_000_000, 10_000_000} {
		b.Run(strconv.FormatUint(keys, 10), func(b *testing.B) {
			c := newCounter(b, 256<<20)
			for i := range keys {
				c.add(i)
			}
			last := c.checkpoint(b, 1)
			sum, most, count := 0.0, 0.0, 0.0
			for n := uint64(2); b.Loop(); n++ {
				for range keys / 100 {
					c.add(rand.Uint64N(keys))
				}
				p := c.checkpoint(b, n)
				up, _ := newBytes(p, last)
				share := 100 * float64(up) / float64(pieceBytes(p))
				sum, most, count, last = sum+share, max(most, share), count+1, p
			}
			b.ReportMetric(sum/count, "%uploaded")
			b.ReportMetric(most, "%most-uploaded")
			b.ReportMetric(float64(c.pause.Microseconds()), "longest-pause-µs")
		})
	}
}

// droppedFiles are written and not kept.
type droppedFiles struct{}

func (*droppedFiles) Create(context.Context) (connectors.StateWriter, error) {
	return &droppedFile{}, nil
}

func (*droppedFiles) Open(context.Context, connectors.StateFile) (io.ReadCloser, error) {
	return nil, os.ErrNotExist
}

type droppedFile struct{ n int64 }

func (w *droppedFile) Write(p []byte) (int, error) { w.n += int64(len(p)); return len(p), nil }
func (w *droppedFile) Abort()                      {}
func (w *droppedFile) Close() (connectors.StateFile, error) {
	return connectors.StateFile{Path: strconv.FormatUint(rand.Uint64(), 16), Size: w.n}, nil
}
