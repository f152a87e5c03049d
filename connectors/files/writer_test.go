package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// bench is a sink with one writer, driven by hand.
type bench struct {
	t      *testing.T
	sink   *Sink
	writer connectors.Writer
	files  connectortest.Files
	number uint64
	clock  time.Time
	logged bytes.Buffer
	points []string
	mu     sync.Mutex
}

func newBench(t *testing.T, store storage.FS, change func(*SinkConfig)) *bench {
	t.Helper()
	s, err := NewSink(sinkConfig("mem://x", change))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, sink: s, clock: time.Unix(1700000000, 0)}
	s.fs, s.now = store, func() time.Time { return b.clock }
	s.run = "0a1b2c"
	if err := s.Open(t.Context(), connectors.SinkEnv{
		Log: slog.New(slog.NewTextHandler(&b.logged, nil)), Pipeline: "p", Name: "s", Subtasks: 1,
		Generation: func() uint64 { return 5 }, Interval: 10 * time.Second,
		Failpoint: func(name string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.points = append(b.points, name)
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context(), connectors.Restored{}); err != nil {
		t.Fatal(err)
	}
	if b.writer, err = s.Writer(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.writer.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func rowsOf(values ...[]byte) *connectors.Rows {
	rows := &connectors.Rows{Batch: new(connectors.Batch), Values: values}
	rows.Batch.Size(len(values), 0)
	for i := range values {
		rows.Sel = append(rows.Sel, uint16(i))
	}
	return rows
}

func (b *bench) write(values ...string) {
	b.t.Helper()
	var raw [][]byte
	for _, v := range values {
		raw = append(raw, []byte(v))
	}
	if err := b.writer.Write(b.t.Context(), rowsOf(raw...)); err != nil {
		b.t.Fatal(err)
	}
}

// prepare runs a barrier and its Prepare.
func (b *bench) prepare(roll bool) (connectors.Prepared, error) {
	b.number++
	id := connectors.CheckpointID{Generation: 5, Number: b.number}
	prepare, err := b.writer.Barrier(b.t.Context(), connectors.Barrier{ID: id, Roll: roll})
	if err != nil {
		return connectors.Prepared{}, err
	}
	return prepare(b.t.Context(), &b.files)
}

// checkpoint runs one from barrier to proof and returns what it held.
func (b *bench) checkpoint(roll bool) connectors.Prepared {
	b.t.Helper()
	p, err := b.prepare(roll)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range p.Committables {
		if err := b.sink.Committer().Commit(b.t.Context(), c, false); err != nil {
			b.t.Fatal(err)
		}
	}
	b.sink.Committer().Done(connectors.CheckpointID{Generation: 5, Number: b.number})
	return p
}

func (b *bench) visible() []string {
	b.t.Helper()
	infos, err := b.sink.fs.List(b.t.Context(), "")
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names
}

func (b *bench) lines() []string {
	b.t.Helper()
	lines, err := readStore(b.t.Context(), b.sink.fs)
	if err != nil {
		b.t.Fatal(err)
	}
	return lines
}

func TestFileAppearsWithTheLastCheckpointWithinItsAge(t *testing.T) {
	b := newBench(t, mem.New(), nil) // age 1m, interval 10s
	b.clock = b.clock.Add(5 * time.Second)
	b.write(`{"a":1}`)
	for at := 10; at <= 60; at += 10 {
		b.clock = time.Unix(1700000000+int64(at), 0)
		b.checkpoint(false)
		if got := len(b.visible()); got != map[bool]int{true: 1}[at >= 60] {
			t.Fatalf("%d files after %d s", got, at)
		}
	}
	if name := b.visible()[0]; name != "p-s-g5-1-0-1-0a1b2c.jsonl" {
		t.Errorf("it is called %s", name)
	}
}

func TestFileRollsByInactivityAndOnRequest(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) {
		c.Roll.Age = connectors.TimeSpan(time.Hour)
		c.Roll.Inactivity = connectors.TimeSpan(15 * time.Second)
	})
	b.write("1")
	b.clock = b.clock.Add(10 * time.Second)
	b.write("2")
	b.clock = b.clock.Add(10 * time.Second)
	if b.checkpoint(false); len(b.visible()) != 0 {
		t.Error("a file appeared 10 s after its last record")
	}
	b.clock = b.clock.Add(10 * time.Second)
	if b.checkpoint(false); len(b.visible()) != 1 {
		t.Error("no file appeared 20 s after its last record")
	}
	b.write("3")
	if b.checkpoint(true); len(b.visible()) != 2 {
		t.Error("no file appeared with a savepoint")
	}
	if b.checkpoint(true); len(b.visible()) != 2 {
		t.Error("a file appeared without records")
	}
	if got := b.lines(); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("lines %q", got)
	}
}

func TestSegmentsAreCarriedAndStayFew(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { c.Roll.Age = connectors.TimeSpan(24 * time.Hour) })
	var last connectors.Prepared
	written := 0
	for i := range 300 {
		b.write(strconv.Itoa(i))
		before := b.files.Len()
		last = b.checkpoint(false)
		written += b.files.Len() - before
		b.files.Retain(last.Files)
		if len(last.Files) > 12 {
			t.Fatalf("checkpoint %d holds %d segments", i, len(last.Files))
		}
	}
	if before := b.files.Len(); len(b.checkpoint(false).Files) != before || b.files.Len() != before {
		t.Error("a checkpoint without new records wrote a segment")
	}
	if written > 301 {
		t.Errorf("%d segments written in 300 checkpoints", written)
	}
	var st state
	if err := json.Unmarshal(last.State, &st); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, s := range st.Parts[0].Segments {
		size += s.Size
	}
	if want := int64(10*2 + 90*3 + 200*4); size != want {
		t.Errorf("the segments hold %d bytes, want %d", size, want)
	}
}

func TestLongValuesPassWhole(t *testing.T) {
	for _, compression := range []string{compressionNone, compressionGzip} {
		t.Run(compression, func(t *testing.T) {
			dir := t.TempDir()
			local, err := storage.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, local, func(c *SinkConfig) { c.Compression = compression })
			want := []string{"1", strings.Repeat("x", 5*bufferSize), "2", strings.Repeat("y", bufferSize), "3"}
			b.write(want...)
			b.checkpoint(true)
			var got []string
			for _, name := range b.visible() {
				data := readWhole(t, filepath.Join(dir, name))
				got = append(got, strings.Split(strings.TrimSuffix(data, "\n"), "\n")...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d lines came back changed", len(got))
			}
			if w, ok := b.writer.(*writer); !ok || len(w.free) != 1 || cap(w.free[0]) > bufferSize {
				t.Error("the buffer keeps the size of the longest value")
			}
		})
	}
}

func readWhole(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := decompressed(path, f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFilesThatFillUpAreNotCopied(t *testing.T) {
	local, err := storage.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, local, func(c *SinkConfig) { c.Roll.Size = 64 << 10 })
	if !b.sink.readable {
		t.Fatal("the local store cannot read back what it stages, so that every file goes through a spool")
	}
	for range 20 {
		b.write(strings.Repeat("x", 64<<10))
	}
	p := b.checkpoint(false)
	if b.files.Len() != 0 || len(p.Files) != 0 || len(b.visible()) != 20 {
		t.Errorf("%d segments, %d files", b.files.Len(), len(b.visible()))
	}
}

func TestAStoreThatFailsBreaksTheWriterForGood(t *testing.T) {
	for _, op := range []storagetest.Op{storagetest.OpStage, storagetest.OpClose} {
		t.Run(string(op), func(t *testing.T) {
			faulty := storagetest.Faulty(mem.New(), 1)
			b := newBench(t, faulty, nil)
			faulty.Set(storagetest.Rule{Op: op})
			b.write("1")
			if _, err := b.prepare(true); !errors.Is(err, storagetest.ErrInjected) {
				t.Fatalf("prepare says %v", err)
			}
			faulty.Set()
			if err := b.writer.Write(t.Context(), rowsOf([]byte("2"))); !errors.Is(err, storagetest.ErrInjected) {
				t.Errorf("write says %v", err)
			}
			if err := b.writer.Tick(t.Context(), b.clock); !errors.Is(err, storagetest.ErrInjected) {
				t.Errorf("tick says %v", err)
			}
			if _, err := b.prepare(true); !errors.Is(err, storagetest.ErrInjected) {
				t.Errorf("the next barrier says %v", err)
			}
		})
	}
}

func TestASegmentThatFailsLosesNothing(t *testing.T) {
	b := newBench(t, mem.New(), nil)
	b.write("1")
	b.number++
	prepare, err := b.writer.Barrier(t.Context(), connectors.Barrier{ID: connectors.CheckpointID{Generation: 5, Number: b.number}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(t.Context(), noFiles{}); err == nil {
		t.Fatal("a checkpoint without a place for segments passed")
	}
	b.write("2")
	b.checkpoint(true)
	if got := b.lines(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("lines %q", got)
	}
}

type noFiles struct{ connectors.CheckpointFiles }

func (noFiles) Create(context.Context) (connectors.StateWriter, error) {
	return nil, errors.New("no space left")
}

// stuckFiles makes no file before the call for it is given up.
type stuckFiles struct {
	connectors.CheckpointFiles
	asked chan struct{}
}

func (f stuckFiles) Create(ctx context.Context) (connectors.StateWriter, error) {
	close(f.asked)
	<-ctx.Done()
	return f.CheckpointFiles.Create(context.WithoutCancel(ctx))
}

// What a Prepare reads is not taken from under it, and a store that hangs holds up nobody.
func TestAWriterThatClosesEndsThePrepareUnderWay(t *testing.T) {
	dir, err := local.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, dir, nil)
	b.write("1")
	prepare, err := b.writer.Barrier(t.Context(), connectors.Barrier{ID: connectors.CheckpointID{Generation: 5, Number: 1}})
	if err != nil {
		t.Fatal(err)
	}
	files := stuckFiles{&b.files, make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := prepare(t.Context(), files)
		ended <- err
	}()
	<-files.asked
	if err := b.writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; errors.Is(err, fs.ErrClosed) {
		t.Errorf("the file was closed under it: %v", err)
	}
}

// Prepares of two barriers may be run in the wrong order.
func TestPreparesInAnyOrder(t *testing.T) {
	b := newBench(t, readable{mem.New()}, nil)
	var prepares []connectors.Prepare
	for i := range 3 {
		b.write(strconv.Itoa(i))
		b.number++
		p, err := b.writer.Barrier(t.Context(), connectors.Barrier{ID: connectors.CheckpointID{Generation: 5, Number: b.number}, Roll: i == 2})
		if err != nil {
			t.Fatal(err)
		}
		prepares = append(prepares, p)
	}
	var wg sync.WaitGroup
	for _, p := range slices.Backward(prepares) {
		wg.Go(func() {
			if _, err := p(t.Context(), &b.files); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.checkpoint(true)
	if got := b.lines(); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("lines %q", got)
	}
}

func TestFullFilesWaitForASlowStore(t *testing.T) {
	slow := make(chan struct{})
	faulty := storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpClose, Effect: storagetest.Slow, Delay: 1})
	faulty.SetClock(func(ctx context.Context, _ time.Duration) error {
		select {
		case <-slow:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	b := newBench(t, faulty, func(c *SinkConfig) { c.Roll.Records = 1 })
	for range maxStaging {
		b.write("1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.writer.Write(ctx, rowsOf([]byte("1"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a file beyond %d that wait for the store: %v", maxStaging, err)
	}
	close(slow)
}

func TestCrashPointsStandAroundDurableSteps(t *testing.T) {
	b := newBench(t, mem.New(), nil)
	b.write("1")
	b.checkpoint(false)
	b.checkpoint(true)
	want := []string{"segment.before", "segment.after", "stage.before", "stage.after", "publish.before", "publish.after"}
	for i := range want {
		want[i] = "file." + want[i]
	}
	if !slices.Equal(b.points, want) {
		t.Errorf("crash points %q", b.points)
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	local, err := storage.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, local, func(c *SinkConfig) { c.Roll.Size = 1 << 30 })
	values := make([][]byte, connectors.MaxBatch)
	for i := range values {
		values[i] = bytes.Repeat([]byte("x"), 200)
	}
	rows := rowsOf(values...)
	ctx := context.Background()
	write := func() {
		if err := b.writer.Write(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		write()
	}
	if n := testing.AllocsPerRun(50, write); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	s, err := NewSink(sinkConfig(b.TempDir(), nil))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if err := s.Open(ctx, connectors.SinkEnv{Pipeline: "p", Name: "s", Subtasks: 1, Interval: 10 * time.Second}); err != nil {
		b.Fatal(err)
	}
	w, err := s.Writer(0)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	values := make([][]byte, connectors.MaxBatch)
	for i := range values {
		values[i] = bytes.Repeat([]byte("x"), 211)
	}
	rows := rowsOf(values...)
	b.SetBytes(212)
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(values) {
		if err := w.Write(ctx, rows); err != nil {
			b.Fatal(err)
		}
	}
}
