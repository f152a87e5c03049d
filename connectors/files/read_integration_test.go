//go:build integration

package files

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/hdfs" // registers the scheme
)

func init() {
	for _, f := range []string{
		"github.com/colinmarc/hdfs/v2/internal/rpc.(*NamenodeConnection).renewLeases", "net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop",
	} {
		kept = append(kept, goleak.IgnoreAnyFunction(f))
	}
}

func need(t testing.TB, name, service string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf(`%s is not set: run deploy/services/%s.sh start and eval "$(deploy/services/%s.sh env)"`, name, service, service)
	}
	return v
}

func TestOtherProgramsReadFilesOfColumns(t *testing.T) {
	python := need(t, "PYTHON", "python")
	for _, c := range []struct{ format, compression string }{
		{formatParquet, "none"}, {formatParquet, "snappy"}, {formatParquet, "gzip"}, {formatParquet, "zstd"}, {formatParquet, "lz4"},
		{formatAvro, "none"}, {formatAvro, "deflate"}, {formatAvro, "snappy"}, {formatCSV, "gzip"},
	} {
		t.Run(c.format+"/"+c.compression, func(t *testing.T) {
			dir := t.TempDir()
			local, err := storage.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, local, func(k *SinkConfig) {
				k.Format, k.Compression = formatWith(c.format, goldenColumns(), nil), c.compression
			})
			b.write(goldenFull, goldenLeast)
			b.restart(b.checkpoint(false))
			b.write(goldenAbsent)
			b.checkpoint(true)
			cmd := exec.Command(python, "testdata/read.py", c.format, filepath.Join(dir, b.visible()[0]))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// On the real servers the contract is kept by one form with segments and one with files
// of columns, which come through a spool.
func TestStoresKeepTheContract(t *testing.T) {
	need(t, "S3_ENDPOINT", "s3")
	places := map[kind]string{kindS3: "s3://" + need(t, "S3_BUCKET", "s3"), kindHDFS: need(t, "HDFS_URL", "hdfs")}
	for k, place := range places {
		t.Run(string(k), func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				target := storeTarget(k, fmt.Sprintf("%s/files-test/%d", place, time.Now().UnixNano()), func(c *SinkConfig) { c.Roll.Size = 16 << 10 })
				target.Timeout = 2 * time.Minute
				return target
			})
		})
		t.Run(string(k)+" parquet", func(t *testing.T) {
			path := fmt.Sprintf("%s/files-test/%d", place, time.Now().UnixNano())
			f := formatWith(formatParquet, goldenColumns(), nil)
			c := *newSinkConfig(k).(*SinkConfig)
			c.Path, c.Format = path, f
			store, err := storage.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, store, func(n *SinkConfig) { n.Format = f })
			b.write(goldenFull, goldenLeast, goldenNulls)
			b.checkpoint(true)
			src := *newSourceConfig(k).(*SourceConfig)
			src.Path, src.Format = path+"/*.parquet", connectors.FormatConfig{Name: formatParquet}
			s, err := NewSource(src)
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if rows, err := readRows(t.Context(), s, splits); err != nil || len(rows) != 3 || rows[0] != goldenFull {
				t.Errorf("%q, %v", rows, err)
			}
		})
	}
}
