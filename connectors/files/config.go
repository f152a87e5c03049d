package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/storage"
)

// SinkConfig is the block of a sink.
type SinkConfig struct {
	kind kind

	Path         string                  `key:"path" doc:"The folder that files appear in: a plain path for file, s3://bucket/prefix for s3, hdfs://namenode:port/folder for hdfs." required:"true"`
	PartitionBy  connectors.Template     `key:"partition_by" doc:"The folder below path that a row's file is in, a text with expressions, such as dt={format_time(ts, '%Y-%m-%d')}/region={region}. Values are escaped as Hive does."`
	MaxOpenFiles int                     `key:"max_open_files" doc:"Files in the making at once, for each subtask; beyond that the one that was not written to for longest is completed."`
	Format       connectors.FormatConfig `key:"format" doc:"How records are written: json is one JSON document a line; csv, avro, parquet and raw are the others."`
	Compression  string                  `key:"compression" doc:"How files are compressed; auto is none for lines and snappy within avro and parquet files. deflate is of avro only." enum:"auto|none|gzip|zstd|snappy|lz4|deflate"`
	Roll         Roll                    `key:"roll" doc:"When a file ends and the next one begins."`
	Manifest     bool                    `key:"manifest" doc:"Writes a file _manifests/… for each checkpoint that publishes files, which lists them with their sizes and records."`
	SuccessFile  string                  `key:"success_file" doc:"The name of an empty file, such as _SUCCESS, that is written into path once a bounded input is published to its end."`
	Changelog    bool                    `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete."`
}

// Roll says when a file is complete. It then appears with the next checkpoint.
type Roll struct {
	Size       connectors.ByteSize `key:"size" doc:"Bytes in the file, after compression; of parquet files as estimated by those before."`
	Age        connectors.TimeSpan `key:"age" doc:"Time since the file's first record. A file appears with the last checkpoint within this time, with the next one where the interval is longer. 0 is 1m, or no limit beside roll.watermark."`
	Records    int64               `key:"records" doc:"Records in the file; 0 for any number."`
	Inactivity connectors.TimeSpan `key:"inactivity" doc:"Time since the file's last record; 0 for any."`
	Watermark  connectors.Expr     `key:"watermark" doc:"A point in time of each row, such as the end of its partition's hour: a file is complete once the watermark has passed those of all its rows."`
}

// The formats' and compressions' names and what files of them are called.
const (
	formatJSON    = "json"
	formatRaw     = "raw"
	formatText    = "text"
	formatCSV     = "csv"
	formatAvro    = "avro"
	formatParquet = "parquet"

	compressionAuto    = "auto"
	compressionNone    = compress.None
	compressionGzip    = compress.Gzip
	compressionSnappy  = compress.Snappy
	compressionDeflate = "deflate"

	extPlain = "jsonl"
	extGzip  = "jsonl.gz"
)

const (
	// minRoll keeps a typing error from making a file of each record.
	minRoll = 1 << 10
	// defaultAge is how old a file gets where nothing else completes it in time.
	defaultAge = time.Minute

	defaultOpenFiles = 100
	mostOpenFiles    = 10000
)

func newSinkConfig(k kind) any {
	return &SinkConfig{
		kind:         k,
		MaxOpenFiles: defaultOpenFiles,
		Format:       connectors.FormatConfig{Name: formatJSON},
		Compression:  compressionAuto,
		Roll:         Roll{Size: 128 << 20},
	}
}

// RecordFormat is what the rows come as: those that this package lays out itself are JSON.
func (c *SinkConfig) RecordFormat() connectors.FormatConfig { return recordFormat(c.Format) }

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	var f faults
	f.path(c.kind, c.Path)
	f.partition(&c.PartitionBy)
	f.sinkFormat(c)
	if c.MaxOpenFiles < 1 || c.MaxOpenFiles > mostOpenFiles {
		f.add("max_open_files", fmt.Sprintf("is not between 1 and %d", mostOpenFiles), "")
	}
	if c.SuccessFile != "" && (storage.CheckName(c.SuccessFile) != nil || strings.Contains(c.SuccessFile, "/") || !hidden(c.SuccessFile)) {
		f.add("success_file", fmt.Sprintf("%q is no name that readers of the folder pass over", c.SuccessFile), "write _SUCCESS")
	}
	c.Roll.validate(&f)
	return errors.Join(f...)
}

func (r *Roll) validate(f *faults) {
	if r.Size < minRoll {
		f.add("roll.size", fmt.Sprintf("%s is too small", r.Size), "write at least 1KiB; the default is 128MiB")
	}
	if r.Age < 0 {
		f.add("roll.age", "cannot be negative", "the default is 1m")
	}
	if r.Records < 0 {
		f.add("roll.records", "cannot be negative", "")
	}
	if r.Inactivity < 0 {
		f.add("roll.inactivity", "cannot be negative", "")
	}
}

// maxAge is how old a file may get; ok is false where it may get any.
func (r *Roll) maxAge() (age time.Duration, ok bool) {
	switch {
	case r.Age > 0:
		return time.Duration(r.Age), true
	case r.Watermark.Set():
		return 0, false
	}
	return defaultAge, true
}

// SourceConfig is the block of a file source.
type SourceConfig struct {
	kind kind

	Path        string                  `key:"path" doc:"A file, a folder (all files below it), or a pattern such as /data/*/part-*.jsonl; for s3 and hdfs with s3://bucket or hdfs://namenode:port in front." required:"true"`
	Format      connectors.FormatConfig `key:"format" doc:"How records are read: json is one JSON document a line."`
	Compression string                  `key:"compression" doc:"How files are compressed; auto goes by the endings .gz, .zst, .sz (snappy) and .lz4." enum:"auto|none|gzip|zstd|snappy|lz4"`
	MaxLine     connectors.ByteSize     `key:"max_line" doc:"Longest line that is read, and longest record of other files; a longer one stops the pipeline."`
	MaxSize     connectors.ByteSize     `key:"max_size" doc:"Most bytes that may come out of one compressed file of lines; more stops the pipeline."`
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
		Compression: compressionAuto,
		MaxLine:     16 << 20,
		MaxSize:     1 << 40,
	}
}

// RecordFormat is what the records come as: this package makes JSON of those that it
// takes apart itself.
func (c *SourceConfig) RecordFormat() connectors.FormatConfig { return recordFormat(c.Format) }

// Validate reports every key that is out of its range.
func (c *SourceConfig) Validate() error {
	var f faults
	f.path(c.kind, c.Path)
	f.sourceFormat(c)
	if c.Compression != compressionAuto && !slices.Contains(compress.Names, c.Compression) {
		f.add("compression", fmt.Sprintf("there is no %q", c.Compression), "write auto, "+strings.Join(compress.Names, ", "))
	}
	if c.MaxSize < 1 {
		f.add("max_size", "must be more than nothing", "")
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
