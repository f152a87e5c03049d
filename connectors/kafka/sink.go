package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      "kafka",
		Headers:   true,
		Example:   "kafka:\n  brokers: [localhost:9092]\n  topic: results\n  key: string(id)\n",
		Doc:       "Writes to a topic of Kafka, exactly once by default: readers with isolation read_committed see each checkpoint's records when it is complete.",
		NewConfig: newSinkConfig,
		New:       func(c any) (connectors.Sink, error) { return newSink(c.(*SinkConfig)), nil },
		Changes:   func(c any) connectors.Changes { return c.(*SinkConfig).changes() },
		Letters:   func(c any) (connectors.ReadBack, error) { return c.(*SinkConfig).letters() },
		Beside:    func(c any, suffix string) any { return c.(*SinkConfig).beside(suffix) },
	})
}

// newSink makes the sink that the configured delivery needs.
func newSink(c *SinkConfig) connectors.Sink {
	s := &sink{
		cfg: c, conn: connection{brokers: c.Brokers, tls: c.TLS, login: &login{cfg: &c.SASL}, client: c.Client, dial: c.dial},
		targets: newTargets(),
	}
	s.topic, _ = c.Topic.Fixed()
	if c.Delivery == atLeastOnce {
		return s
	}
	return &txnSink{s}
}

// sink implements connectors.Sink for both deliveries.
type sink struct {
	cfg   *SinkConfig
	conn  connection
	env   connectors.SinkEnv
	log   *slog.Logger
	dials *dialWatch

	admin   *kgo.Client // of the control path; at_least_once writes by it too
	stream  *stream
	set     *txnSet // exactly_once only
	topic   string  // that all records go to; empty where each names its own
	fixed   *target // of it
	targets targets
}

// txnSink is the sink with exactly-once delivery.
type txnSink struct{ *sink }

// Committer implements connectors.TwoPhaseSink. It can be used once the sink is open.
func (s *txnSink) Committer() connectors.Committer { return committer{s.sink} }

// committer is the sink's transactions, which it shares with the other sinks on
// its cluster and finds when it is opened.
type committer struct{ s *sink }

func (c committer) ID() string    { return c.s.set.ID() }
func (c committer) Expires() bool { return true }

func (c committer) Commit(ctx context.Context, one connectors.Committable, restored bool) error {
	return c.s.set.Commit(ctx, one, restored)
}

func (c committer) Witness(ctx context.Context) (connectors.CheckpointID, bool, error) {
	return c.s.set.Witness(ctx)
}

func (c committer) Revoke(ctx context.Context, keep []connectors.Committable) error {
	return c.s.set.Revoke(ctx, keep)
}

func (c committer) Done(n connectors.CheckpointID) { c.s.set.Done(n) }

// Guarantee implements connectors.Sink.
func (s *sink) Guarantee() connectors.Guarantee {
	if s.cfg.Delivery == atLeastOnce {
		return connectors.AtLeastOnce
	}
	return connectors.ExactlyOnce
}

// Open implements connectors.Sink.
func (s *sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	s.env, s.log = env, env.Log
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.dials = newDialWatch(s.log)
	var err error
	if s.admin, err = s.conn.newClient(s.dials, s.produceOptions(s.targets.limit)...); err != nil {
		return err
	}
	cluster, err := s.checkTarget(ctx)
	if err != nil {
		return err
	}
	if s.cfg.Delivery == atLeastOnce {
		s.stream = newStream()
		s.stream.join(env.Subtasks)
		return nil
	}
	return s.joinSet(ctx, cluster)
}

// produceOptions are those of every client that writes.
func (s *sink) produceOptions(limit func(topic string) int32) []kgo.Opt {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[s.cfg.Compression]
	return []kgo.Opt{
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(time.Duration(s.cfg.Client.Linger)),
		kgo.RecordPartitioner(newPartitioner()),
		kgo.ProducerBatchMaxBytesFn(limit),
		// What is buffered is bounded by the writers' chunks.
		kgo.MaxBufferedRecords(1 << 30),
	}
}

// checkTarget makes sure that the topic can be written to, learns its limits, and
// returns the cluster's id. Topics that rows name are looked up with the first row.
func (s *sink) checkTarget(ctx context.Context) (cluster string, err error) {
	adm := kadm.NewClient(s.admin)
	var meta kadm.Metadata
	err = s.conn.ask(ctx, s.dials, "reach the cluster", func(ctx context.Context) (err error) {
		meta, err = adm.BrokerMetadata(ctx)
		return err
	})
	if err != nil || s.topic == "" {
		return meta.Cluster, err
	}
	t, err := s.lookup(ctx, s.topic, true)
	if err != nil {
		return "", err
	}
	if t == nil {
		all, err := adm.ListTopics(ctx)
		if err != nil {
			all = nil
		}
		return "", unknownTopic(s.topic, &s.conn, all)
	}
	s.fixed = t
	s.targets.add(t)
	return meta.Cluster, nil
}

// rules are what rows are made into records by. Dead letters keep what they came
// with: the expressions are for other records.
func (s *sink) rules(rows *connectors.Rows) *SinkConfig {
	if rows.DeadLetter != nil {
		return &letters
	}
	return s.cfg
}

// letters are the rules without expressions.
var letters SinkConfig

// setsHeader reports whether an expression gives a header of that name.
func (c *SinkConfig) setsHeader(name string) bool {
	for i := range c.Headers {
		if c.Headers[i].Name == name {
			return true
		}
	}
	return false
}

// joinSet makes the sink part of the pipeline's transactions on its cluster.
func (s *sink) joinSet(ctx context.Context, cluster string) error {
	prefix := s.cfg.TransactionalIDPrefix
	if prefix == "" {
		prefix = s.env.Pipeline
	}
	key := "kafka/" + cluster
	made := func() any { return newTxnSet("kafka/"+cluster+"/"+prefix, prefix, s) }
	if s.env.Shared != nil {
		s.set = s.env.Shared(key, made).(*txnSet)
	} else {
		s.set = made().(*txnSet)
	}
	s.stream = s.set.stream
	return s.set.join(ctx, s, prefix)
}

// agreement is what sinks in one transaction must have in common.
func (s *sink) agreement() string {
	return fmt.Sprint(s.cfg.TLS, s.cfg.SASL, s.cfg.Client, s.cfg.Compression, s.cfg.TransactionTimeout)
}

// Start implements connectors.Sink.
func (s *sink) Start(ctx context.Context, restored connectors.Restored) error {
	if s.set == nil {
		return nil
	}
	return s.set.begin(ctx, restored)
}

// Writer implements connectors.Sink.
func (s *sink) Writer(int) (connectors.Writer, error) {
	budget := s.env.Budget / int64(max(s.env.Subtasks, 1))
	return &writer{
		sink: s, stream: s.stream, iv: s.stream.first(), targets: map[string]*target{},
		pool: newChunkPool(s.stream, budget, "sink "+s.env.Name),
	}, nil
}

// clientOf is the client that the records of an interval go through.
func (s *sink) clientOf(ctx context.Context, iv *interval) (*kgo.Client, error) {
	if s.set == nil {
		return s.admin, nil
	}
	return s.set.clientOf(ctx, iv)
}

// checkAge reports a transaction that was open for too long.
func (s *sink) checkAge(now time.Time) error {
	if s.set == nil {
		return nil
	}
	return s.set.checkAge(now)
}

// prepare implements the Prepare of a writer's barrier.
func (s *sink) prepare(ctx context.Context, iv *interval) (connectors.Prepared, error) {
	if s.set != nil {
		return s.set.prepare(ctx, iv)
	}
	// Each writer waits for all: the records of the others belong to the same checkpoint.
	if err := s.stream.drain(ctx, iv); err != nil {
		return connectors.Prepared{}, err
	}
	s.stream.advance(iv)
	return connectors.Prepared{}, nil
}

// Close implements connectors.Sink.
func (s *sink) Close() error {
	if s.set != nil {
		s.set.leave()
	}
	if s.admin != nil {
		s.admin.Close()
	}
	return nil
}

// fenced reports whether a broker refused a producer since a newer one has its id.
func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// slotID is the transactional id of a slot.
func slotID(prefix string, slot int) string { return prefix + "." + strconv.Itoa(slot) }

// slotOf is the slot that a transactional id with the prefix names.
func slotOf(prefix, id string) (int, bool) {
	rest, ok := strings.CutPrefix(id, prefix+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == rest
}
