package files

import (
	"context"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
	"github.com/sluice-etl/sluice/storage/s3/s3test"
)

// storeTarget is a sink whose path leads to the store itself.
func storeTarget(k kind, path string, change func(*SinkConfig)) connectortest.Sink {
	return connectortest.Sink{
		New: func() (connectors.Sink, error) {
			c := *newSinkConfig(k).(*SinkConfig)
			c.Path = path
			if change != nil {
				change(&c)
			}
			return NewSink(c)
		},
		Read: func(ctx context.Context) ([]string, error) {
			f, err := storage.Open(path)
			if err != nil {
				return nil, err
			}
			return readStore(ctx, f)
		},
		Ordered: true,
	}
}

func TestS3SinkKeepsTheContract(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*SinkConfig)
	}{
		{"with segments", nil},
		{"with many small files", func(c *SinkConfig) { c.Roll.Size = 8 << 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				s3test.New(s3test.Behaviour{}).Serve(t, "bucket", s3.NewConfig())
				return storeTarget(kindS3, "s3://bucket/out", c.change)
			})
		})
	}
}
