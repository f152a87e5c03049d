package elasticsearch

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/retry"
)

func init() {
	for _, s := range []struct{ name, product string }{{"elasticsearch", "Elasticsearch"}, {"opensearch", "OpenSearch"}} {
		connectors.RegisterSink(connectors.SinkSpec{
			Name:           s.name,
			Doc:            "Writes documents to " + s.product + ", by ids that are the same when a record is written again. Each document that the cluster refuses is told from the others.",
			NewConfig:      newConfig,
			New:            func(c any) (connectors.Sink, error) { return newSink(c.(*Config)) },
			Changes:        func(c any) connectors.Changes { return c.(*Config).changes() },
			DeadLetterRows: true,
			Example:        s.name + ":\n  addresses: [https://localhost:9200]\n  index: orders\n  id: string(order_id)\n",
		})
	}
}

// sink implements connectors.Sink.
type sink struct {
	retry.Watch

	cfg    *Config
	env    connectors.SinkEnv
	client *client
}

var (
	_ connectors.Sink         = (*sink)(nil)
	_ connectors.OutageTeller = (*sink)(nil)
)

func newSink(c *Config) (*sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &sink{cfg: c, client: newClient(c)}, nil
}

// Guarantee is effectively_once: a document that is written again replaces itself.
func (s *sink) Guarantee() connectors.Guarantee { return connectors.EffectivelyOnce }

// Open asks a node who it is.
func (s *sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	s.env = env
	if err := s.client.open(s.cfg, max(1, env.Subtasks)*s.cfg.Concurrency); err != nil {
		return err
	}
	if err := s.client.ping(ctx); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// Start has nothing to go on from.
func (s *sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer.
func (s *sink) Writer(int) (connectors.Writer, error) { return &writer{sink: s}, nil }

// Close closes idle connections.
func (s *sink) Close() error {
	s.client.close()
	return nil
}

func (s *sink) failpoint(name string) {
	if s.env.Failpoint != nil {
		s.env.Failpoint(name)
	}
}
