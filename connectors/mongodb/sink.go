package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/retry"
)

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:           "mongodb",
		Doc:            "Writes documents to MongoDB, by ids that are the same when a record is written again.",
		NewConfig:      newConfig,
		New:            func(c any) (connectors.Sink, error) { return newSink(c.(*Config)) },
		Changes:        func(c any) connectors.Changes { return c.(*Config).changes() },
		DeadLetterRows: true,
		Example:        "mongodb:\n  uri: mongodb://localhost:27017/\n  database: shop\n  collection: orders\n  id: order_id\n",
	})
}

// sink implements connectors.Sink.
type sink struct {
	retry.Watch

	cfg    *Config
	env    connectors.SinkEnv
	docs   *documents
	client *mongo.Client
	db     *mongo.Database
	dialer options.ContextDialer // instead of the network, in tests
}

var (
	_ connectors.Sink         = (*sink)(nil)
	_ connectors.OutageTeller = (*sink)(nil)
)

func newSink(c *Config) (*sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &sink{cfg: c}, nil
}

// Guarantee is effectively_once: a document that is written again replaces itself.
func (s *sink) Guarantee() connectors.Guarantee { return connectors.EffectivelyOnce }

const (
	dialTimeout   = 5 * time.Second
	selectTimeout = 10 * time.Second
)

// Open connects.
func (s *sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	s.env = env
	cols := []connectors.Column(s.cfg.Columns)
	if len(cols) == 0 {
		cols = env.Columns
	}
	s.docs = newDocuments(cols, s.cfg.ObjectIDs)
	opts, err := s.options()
	if err != nil {
		return err
	}
	if s.client, err = mongo.Connect(opts); err != nil {
		return connectors.Permanent(errors.New("uri and username cannot be used together as they are: check the connection string"))
	}
	s.db = s.client.Database(s.cfg.Database)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	if err := s.client.Ping(ctx, nil); err != nil {
		if denied(err) {
			return connectors.Permanent(fmt.Errorf("open: %w", err))
		}
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

func (s *sink) options() (*options.ClientOptions, error) {
	c := s.cfg
	opts := options.Client().ApplyURI(c.URI).SetAppName("sluice").SetConnectTimeout(dialTimeout).
		SetServerSelectionTimeout(min(selectTimeout, time.Duration(c.Timeout))).
		SetMaxPoolSize(uint64(max(1, s.env.Subtasks)*c.Concurrency) + 1)
	concern := writeconcern.Majority()
	if c.WriteConcern != concernMajority {
		concern = writeconcern.W1()
	}
	opts.SetWriteConcern(concern)
	if c.Username != "" {
		opts.SetAuth(options.Credential{Username: c.Username, Password: c.Password, PasswordSet: true, AuthSource: c.AuthSource})
	}
	if c.TLS.CA != "" || c.TLS.Cert != "" || c.TLS.ServerName != "" || c.TLS.InsecureSkipVerify {
		tls, err := c.TLS.Build()
		if err != nil {
			return nil, err
		}
		opts.SetTLSConfig(tls)
	}
	if s.dialer != nil {
		opts.SetDialer(s.dialer)
	}
	return opts, nil
}

// Start has nothing to go on from.
func (s *sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer.
func (s *sink) Writer(int) (connectors.Writer, error) { return &writer{sink: s}, nil }

const closeTimeout = 5 * time.Second

// Close closes all connections.
func (s *sink) Close() error {
	if s.client == nil {
		return nil
	}
	// No deadline: until one, the driver would wait, busily, for connections in use, and there is
	// nothing under way any more.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(closeTimeout, cancel).Stop()
	if err := s.client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

func (s *sink) failpoint(name string) {
	if s.env.Failpoint != nil {
		s.env.Failpoint(name)
	}
}
