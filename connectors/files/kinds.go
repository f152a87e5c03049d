package files

import (
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

// kind is the name of a block: they differ in the storage that their paths lead to.
type kind string

const (
	kindFile kind = "file"
	kindS3   kind = "s3"
	kindHDFS kind = "hdfs"
)

var kinds = []kind{kindFile, kindS3, kindHDFS}

// place is an example of a path.
func (k kind) place() string {
	switch k {
	case kindS3:
		return "s3://bucket/orders"
	case kindHDFS:
		return "hdfs://namenode:8020/orders"
	default:
		return "/data/orders"
	}
}

// where is what the documentation calls the place.
func (k kind) where() string {
	switch k {
	case kindS3:
		return "objects below a prefix of an S3 bucket"
	case kindHDFS:
		return "files of a folder on HDFS"
	default:
		return "files of a folder"
	}
}

func init() {
	for _, k := range kinds {
		connectors.RegisterSink(sinkSpec(k))
		connectors.RegisterSource(sourceSpec(k))
	}
}

func sinkSpec(k kind) connectors.SinkSpec {
	return connectors.SinkSpec{
		Name:      string(k),
		Doc:       "Writes records into " + k.where() + ", exactly once: a file appears whole, when the checkpoint that holds it is complete.",
		Changes:   func(c any) connectors.Changes { return connectors.TakesChangelog(c.(*SinkConfig).Changelog) },
		NewConfig: func() any { return newSinkConfig(k) },
		New: func(config any) (connectors.Sink, error) {
			c, ok := config.(*SinkConfig)
			if !ok {
				return nil, fmt.Errorf("%s sink: configuration is a %T", k, config)
			}
			return NewSink(*c)
		},
		DeadLetterRows: true,
		Letters:        func(c any) (connectors.ReadBack, error) { return c.(*SinkConfig).letters() },
		Lines:          true,
		Check:          checkColumns,
		Example:        string(k) + ":\n  path: " + k.place() + "\n  roll: {size: 128MiB, age: 5m}\n",
	}
}

func sourceSpec(k kind) connectors.SourceSpec {
	return connectors.SourceSpec{
		Name:      string(k),
		Doc:       "Reads the " + k.where() + " that are there when the job begins, to the end that they have then.",
		NewConfig: func() any { return newSourceConfig(k) },
		New: func(config any) (connectors.Source, error) {
			c, ok := config.(*SourceConfig)
			if !ok {
				return nil, fmt.Errorf("%s source: configuration is a %T", k, config)
			}
			return NewSource(*c)
		},
		Bounded:   func(any) bool { return true },
		LooseTime: "the time when its file was last changed",
		Example:   string(k) + ":\n  path: " + k.place() + "/*.jsonl\n",
	}
}
