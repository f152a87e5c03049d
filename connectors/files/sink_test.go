package files

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"

	_ "github.com/sluice-etl/sluice/storage/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kept...) }

// kept are goroutines that clients of stores keep for the life of the process.
var kept []goleak.Option

func sinkConfig(path string, change func(*SinkConfig)) SinkConfig {
	c := *newSinkConfig(kindFile).(*SinkConfig)
	c.Path = path
	if change != nil {
		change(&c)
	}
	return c
}

// readFolder reads all visible files as an ordinary program would.
func readFolder(dir string) ([]string, error) {
	var lines []string
	names, err := visibleFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		more, err := readLines(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// visibleFiles lists a folder in the order of generation, checkpoint and sequence.
func visibleFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	sortNames(names)
	return names, err
}

func sortNames(names []string) {
	slices.SortFunc(names, func(a, b string) int {
		x, y := nameOrder(a), nameOrder(b)
		return slices.Compare(x[:], y[:])
	})
}

var nameParts = regexp.MustCompile(`-g(\d+)-(\d+)-(\d+)-(\d+)-`)

func nameOrder(name string) (key [4]int) {
	m := nameParts.FindStringSubmatch(name)
	for i, at := range []int{1, 2, 4, 3} {
		if m != nil {
			key[i], _ = strconv.Atoi(m[at])
		}
	}
	return key
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := decompressed(path, f)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), nil
}

func decompressed(name string, r io.Reader) ([]byte, error) {
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	}
	return io.ReadAll(r)
}

func TestFileSinkKeepsTheContract(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*SinkConfig)
	}{
		{"with segments", func(*SinkConfig) {}},
		{"with a file of each checkpoint", func(c *SinkConfig) { c.Roll.Age = 1 }},
		{"compressed", func(c *SinkConfig) { c.Compression = compressionGzip; c.Roll.Size = 16 << 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				dir := filepath.Join(t.TempDir(), "out")
				return connectortest.Sink{
					New:     func() (connectors.Sink, error) { return NewSink(sinkConfig(dir, c.change)) },
					Read:    func(context.Context) ([]string, error) { return readFolder(dir) },
					Ordered: true,
				}
			})
		})
	}
}

// memTarget is a sink over a store in memory, which cannot read back what it
// stages, so that files come through a spool; wrap may put faults around it.
func memTarget(store *mem.FS, wrap func(storage.FS) storage.FS, change func(*SinkConfig)) connectortest.Sink {
	return connectortest.Sink{
		New: func() (connectors.Sink, error) {
			s, err := NewSink(sinkConfig("mem://x", change))
			if err == nil {
				s.fs = wrap(store)
			}
			return s, err
		},
		Read:    func(ctx context.Context) ([]string, error) { return readStore(ctx, store) },
		Ordered: true,
	}
}

func readStore(ctx context.Context, store storage.FS) ([]string, error) {
	infos, err := store.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var names, lines []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	sortNames(names)
	for _, name := range names {
		data, err := storage.ReadFile(ctx, store, name, 1<<30)
		if err != nil {
			return nil, err
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")...)
	}
	return lines, nil
}

func plain(f storage.FS) storage.FS { return f }

// readable makes a store's staged files readable while they are written.
type readable struct{ storage.FS }

func (f readable) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	w, err := f.FS.Stage(ctx, name)
	if err != nil {
		return nil, err
	}
	return &readableWriter{StagedWriter: w}, nil
}

type readableWriter struct {
	storage.StagedWriter
	mu     sync.Mutex
	all    []byte
	closed bool
}

func (w *readableWriter) Close() (storage.Staged, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.StagedWriter.Close()
}

func (w *readableWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.StagedWriter.Write(b)
	w.all = append(w.all, b[:n]...)
	return n, err
}

func (w *readableWriter) ReadAt(b []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, fs.ErrClosed
	}
	return bytes.NewReader(w.all).ReadAt(b, off)
}

func TestFileSinkKeepsTheContractInMemory(t *testing.T) {
	direct := func(f storage.FS) storage.FS { return readable{f} }
	for _, c := range []struct {
		name   string
		wrap   func(storage.FS) storage.FS
		change func(*SinkConfig)
	}{
		{"spooled, with many small files", plain, func(c *SinkConfig) { c.Roll.Size = 8 << 10 }},
		{"spooled, with segments", plain, nil},
		{"direct, with many small files", direct, func(c *SinkConfig) { c.Roll.Size = 8 << 10 }},
		{"direct, with a file of each record count", direct, func(c *SinkConfig) { c.Roll.Records = 97 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSink(t, func(*testing.T) connectortest.Sink { return memTarget(mem.New(), c.wrap, c.change) })
		})
	}
}

func TestFileSinkIsExactUnderFaultsOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(storage.FS) storage.FS
	}{
		{"spooled", plain},
		{"direct", func(f storage.FS) storage.FS { return readable{f} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSinkChaos(t, 10, func(_ *testing.T, seed uint64) connectortest.Chaos {
				store := mem.New()
				faulty := storagetest.Faulty(store, seed)
				return connectortest.Chaos{
					Sink: memTarget(store, func(storage.FS) storage.FS { return c.wrap(faulty) }, func(c *SinkConfig) { c.Roll.Size = minRoll }),
					Faults: func(on bool) {
						faulty.Set()
						if on {
							faulty.Set(
								storagetest.Rule{Probability: 0.02, Effect: storagetest.FailBefore},
								storagetest.Rule{Probability: 0.02, Effect: storagetest.FailAfter},
								storagetest.Rule{Op: storagetest.OpWrite, Probability: 0.02, Effect: storagetest.Partial},
							)
						}
					},
				}
			})
		})
	}
}
