package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// SinkConfig is the block of a file sink.
type SinkConfig struct {
	kind kind

	Path        string                  `key:"path" doc:"The folder that files appear in: a plain path for file, s3://bucket/prefix for s3, hdfs://namenode:port/folder for hdfs." required:"true"`
	Format      connectors.FormatConfig `key:"format" doc:"How records are written: json is one JSON document a line."`
	Compression string                  `key:"compression" doc:"How files are compressed." enum:"none|gzip"`
	Roll        Roll                    `key:"roll" doc:"When a file ends and the next one begins."`
	Changelog   bool                    `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete."`
}

// Roll says when a file is complete. It then appears with the next checkpoint.
type Roll struct {
	Size       connectors.ByteSize `key:"size" doc:"Bytes in the file, after compression."`
	Age        connectors.TimeSpan `key:"age" doc:"Time since the file's first record. A file appears with the last checkpoint within this time, with the next one where the interval is longer."`
	Records    int64               `key:"records" doc:"Records in the file; 0 for any number."`
	Inactivity connectors.TimeSpan `key:"inactivity" doc:"Time since the file's last record; 0 for any."`
}

// The formats' and compressions' names and what files of them are called.
const (
	formatJSON      = "json"
	compressionNone = "none"
	compressionGzip = "gzip"

	extPlain = "jsonl"
	extGzip  = "jsonl.gz"
)

// minRoll keeps a typing error from making a file of each record.
const minRoll = 1 << 10

func newSinkConfig(k kind) any {
	return &SinkConfig{
		kind:        k,
		Format:      connectors.FormatConfig{Name: formatJSON},
		Compression: compressionNone,
		Roll:        Roll{Size: 128 << 20, Age: connectors.TimeSpan(time.Minute)},
	}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	var f faults
	f.path(c.kind, c.Path)
	f.format(c.Format)
	if c.Compression != compressionNone && c.Compression != compressionGzip {
		f.add("compression", fmt.Sprintf("%q is neither none nor gzip", c.Compression), "")
	}
	if c.Roll.Size < minRoll {
		f.add("roll.size", fmt.Sprintf("%s is too small", c.Roll.Size), "write at least 1KiB; the default is 128MiB")
	}
	if c.Roll.Age <= 0 {
		f.add("roll.age", "must be more than nothing", "the default is 1m")
	}
	if c.Roll.Records < 0 {
		f.add("roll.records", "cannot be negative", "")
	}
	if c.Roll.Inactivity < 0 {
		f.add("roll.inactivity", "cannot be negative", "")
	}
	return errors.Join(f...)
}

func (c *SinkConfig) ext() string {
	if c.Compression == compressionGzip {
		return extGzip
	}
	return extPlain
}

// SourceConfig is the block of a file source.
type SourceConfig struct {
	kind kind

	Path        string                  `key:"path" doc:"A file, a folder (all files below it), or a pattern such as /data/*/part-*.jsonl; for s3 and hdfs with s3://bucket or hdfs://namenode:port in front." required:"true"`
	Format      connectors.FormatConfig `key:"format" doc:"How records are read: json is one JSON document a line."`
	Compression string                  `key:"compression" doc:"How files are compressed; auto goes by the ending .gz." enum:"auto|none|gzip"`
	MaxLine     connectors.ByteSize     `key:"max_line" doc:"Longest line that is read; a longer one stops the pipeline."`
}

// The bounds of max_line: a line is held in memory whole.
const (
	minMaxLine = 1 << 10
	maxMaxLine = 1 << 30
)

func newSourceConfig(k kind) any {
	return &SourceConfig{
		kind:        k,
		Format:      connectors.FormatConfig{Name: formatJSON},
		Compression: "auto",
		MaxLine:     16 << 20,
	}
}

// Validate reports every key that is out of its range.
func (c *SourceConfig) Validate() error {
	var f faults
	f.path(c.kind, c.Path)
	f.format(c.Format)
	if c.Compression != "auto" && c.Compression != compressionNone && c.Compression != compressionGzip {
		f.add("compression", fmt.Sprintf("%q is neither auto, none nor gzip", c.Compression), "")
	}
	if c.MaxLine < minMaxLine || c.MaxLine > maxMaxLine {
		f.add("max_line", fmt.Sprintf("%s is not between 1KiB and 1GiB", c.MaxLine), "")
	}
	return errors.Join(f...)
}

type faults []error

func (f *faults) add(key, msg, help string) {
	*f = append(*f, &connectors.FieldError{Key: key, Msg: msg, Help: help})
}

// path takes addresses of the block's own scheme; mem is for tests.
func (f *faults) path(k kind, p string) {
	if p == "" {
		f.add("path", "is missing", "write a path such as "+k.place())
		return
	}
	scheme, _, isURL := strings.Cut(p, "://")
	if !isURL {
		scheme = string(kindFile)
	}
	switch {
	case scheme != string(k) && slices.Contains(kinds, kind(scheme)):
		f.add("path", fmt.Sprintf("%q is no path of %s", p, k), fmt.Sprintf("the block of such paths is %s:", scheme))
	case scheme != string(k) && scheme != "mem":
		f.add("path", fmt.Sprintf("%q is no path of %s", p, k), "write a path such as "+k.place())
	default:
		if _, err := storage.Parse(p); err != nil {
			f.add("path", err.Error(), "")
		}
	}
}

func (f *faults) format(c connectors.FormatConfig) {
	if c.Name != formatJSON {
		f.add("format", fmt.Sprintf("%q is no format of files", c.Name), "write json")
	}
}
