package files

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage/mem"

	_ "github.com/sluice-etl/sluice/storage/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sinkConfig(path string, change func(*SinkConfig)) SinkConfig {
	c := *newSinkConfig().(*SinkConfig)
	c.Path = path
	if change != nil {
		change(&c)
	}
	return c
}

// readFolder reads all visible files as an ordinary program would.
func readFolder(dir string) ([]string, error) {
	var lines []string
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		more, err := readLines(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		sc = bufio.NewScanner(z)
	}
	var lines []string
	for sc.Scan() {
		lines = append(lines, sc.Text())
	}
	return lines, sc.Err()
}

func TestFileSinkKeepsTheContract(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*SinkConfig)
	}{
		{"with segments", func(*SinkConfig) {}},
		{"with many small files", func(c *SinkConfig) { c.Roll.Size = 2 << 10 }},
		{"with a file of each record count", func(c *SinkConfig) { c.Roll.Records = 7 }},
		{"with a file of each checkpoint", func(c *SinkConfig) { c.Roll.Age = 1 }},
		{"compressed", func(c *SinkConfig) { c.Compression = compressionGzip; c.Roll.Size = 2 << 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				dir := filepath.Join(t.TempDir(), "out")
				return connectortest.Sink{
					New:  func() (connectors.Sink, error) { return NewSink(sinkConfig(dir, c.change)) },
					Read: func(context.Context) ([]string, error) { return readFolder(dir) },
				}
			})
		})
	}
}

// A store that cannot read back what it stages gets its files from a spool.
func TestFileSinkKeepsTheContractThroughASpool(t *testing.T) {
	connectortest.TestSink(t, func(*testing.T) connectortest.Sink {
		store := mem.New()
		return connectortest.Sink{
			New: func() (connectors.Sink, error) {
				s, err := NewSink(sinkConfig("mem://x", func(c *SinkConfig) { c.Roll.Size = 4 << 10 }))
				if err == nil {
					s.fs = store
				}
				return s, err
			},
			Read: func(ctx context.Context) ([]string, error) {
				infos, err := store.List(ctx, "")
				if err != nil {
					return nil, err
				}
				var lines []string
				for _, info := range infos {
					r, err := store.Open(ctx, info.Name)
					if err != nil {
						return nil, err
					}
					for sc := bufio.NewScanner(r); sc.Scan(); {
						lines = append(lines, sc.Text())
					}
				}
				return lines, nil
			},
		}
	})
}
