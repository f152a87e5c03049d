package disk

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// counter counts the records of keys of 15 bytes, as an aggregate does.
type counter struct {
	s   *store
	t   state.Table
	key [15]byte
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
	f, err := c.s.Fork(number)
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

// BenchmarkCheckpoint is one after touching 1 % of the keys.
func BenchmarkCheckpoint(b *testing.B) {
	const keys = 200_000
	c := newCounter(b, 128<<20)
	for i := range uint64(keys) {
		c.add(i)
	}
	last := c.checkpoint(b, 1)
	var sent, full int64
	for n := uint64(2); b.Loop(); n++ {
		for range keys / 100 {
			c.add(rand.Uint64N(keys))
		}
		p := c.checkpoint(b, n)
		up, _ := newBytes(p, last)
		sent, full, last = sent+up, full+pieceBytes(p), p
	}
	b.ReportMetric(100*float64(sent)/float64(full), "%uploaded")
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
