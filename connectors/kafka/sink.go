package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      "kafka",
		Doc:       "Writes to a topic of Kafka, exactly once by default: readers with isolation read_committed see each checkpoint's records when it is complete.",
		NewConfig: newSinkConfig,
		New:       func(c any) (connectors.Sink, error) { return newSink(c.(*SinkConfig)), nil },
		Changes:   func(c any) connectors.Changes { return c.(*SinkConfig).changes() },
	})
}

// newSink makes the sink that the configured delivery needs.
func newSink(c *SinkConfig) connectors.Sink {
	s := &sink{cfg: c, letters: SinkConfig{Topic: c.Topic}, conn: connection{brokers: c.Brokers, tls: c.TLS, sasl: c.SASL, client: c.Client, dial: c.dial}, maxRecord: defaultMaxMessage}
	if c.Delivery == atLeastOnce {
		return s
	}
	return &txnSink{s}
}

// sink implements connectors.Sink for both deliveries.
type sink struct {
	cfg     *SinkConfig
	letters SinkConfig // cfg without expressions
	conn    connection
	env     connectors.SinkEnv
	log     *slog.Logger
	dials   *dialWatch

	admin     *kgo.Client // of the control path; at_least_once writes by it too
	stream    *stream
	set       *txnSet // exactly_once only
	maxRecord int
	keyed     bool          // the topic is compacted only, and takes no record without a key
	past      time.Duration // how far from the clock a record's time may be; 0 for any
	future    time.Duration

	mu      sync.Mutex
	parts   int       // partitions of the topic
	counted time.Time // when they were counted
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

// defaultMaxMessage is Kafka's default of max.message.bytes.
const defaultMaxMessage = 1048588

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
	if s.admin, err = s.conn.newClient(s.dials, s.produceOptions(func(string) int32 { return int32(s.maxRecord) })...); err != nil {
		return err
	}
	cluster, err := s.checkTopic(ctx)
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

// checkTopic makes sure that the topic can be written to, learns its limits, and
// returns the cluster's id.
func (s *sink) checkTopic(ctx context.Context) (cluster string, err error) {
	adm := kadm.NewClient(s.admin)
	var meta kadm.Metadata
	err = s.conn.askTopics(ctx, s.dials, "look up topic "+s.cfg.Topic, func(ctx context.Context) (unknown bool, err error) {
		meta, err = adm.Metadata(ctx, s.cfg.Topic)
		return errors.Is(meta.Topics[s.cfg.Topic].Err, kerr.UnknownTopicOrPartition), err
	})
	if err != nil {
		return "", err
	}
	t := meta.Topics[s.cfg.Topic]
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		all, listErr := adm.ListTopics(ctx)
		if listErr != nil {
			all = nil
		}
		return "", unknownTopic(s.cfg.Topic, &s.conn, all)
	case t.Err != nil:
		return "", s.conn.explain(s.dials, "write to topic "+s.cfg.Topic, t.Err)
	}
	s.mu.Lock()
	s.parts, s.counted = len(t.Partitions), time.Now()
	s.mu.Unlock()
	s.readLimits(ctx, adm)
	return meta.Cluster, nil
}

// readLimits learns which records the topic takes. A user without the right to
// ask gets Kafka's default of their size.
func (s *sink) readLimits(ctx context.Context, adm *kadm.Client) {
	limit := defaultMaxMessage
	configs, err := adm.DescribeTopicConfigs(ctx, s.cfg.Topic)
	if err == nil {
		if c, err := configs.On(s.cfg.Topic, nil); err == nil && c.Err == nil {
			if n := configNumber(c, "max.message.bytes"); n > 0 {
				limit = int(min(n, 64<<20))
			}
			s.keyed = configText(c, "cleanup.policy") == "compact"
			if configText(c, "message.timestamp.type") != "LogAppendTime" {
				s.past = configMillis(c, "message.timestamp.before.max.ms")
				s.future = configMillis(c, "message.timestamp.after.max.ms")
			}
		}
	}
	if own := int64(s.cfg.MaxRecordBytes); own > 0 {
		limit = int(min(own, 64<<20))
	}
	s.maxRecord = limit
}

// configText is the value in a described configuration, or empty.
func configText(c kadm.ResourceConfig, key string) string {
	for _, kv := range c.Configs {
		if kv.Key == key && kv.Value != nil {
			return *kv.Value
		}
	}
	return ""
}

// configNumber is the number in a described configuration, or 0.
func configNumber(c kadm.ResourceConfig, key string) int64 {
	n, err := strconv.ParseInt(configText(c, key), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// configMillis is the time in a described configuration, 0 where it is none or
// beyond all that matters.
func configMillis(c kadm.ResourceConfig, key string) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	if n := configNumber(c, key); n > 0 && n < century.Milliseconds() {
		return time.Duration(n) * time.Millisecond
	}
	return 0
}

// recountEvery is how often a partition that seems not to exist is looked for.
const recountEvery = 5 * time.Second

// partitions is how many the topic has; they are counted anew where wanted lies
// beyond, since they can have become more.
func (s *sink) partitions(ctx context.Context, wanted int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted < int64(s.parts) || time.Since(s.counted) < recountEvery {
		return s.parts
	}
	s.counted = time.Now()
	meta, err := kadm.NewClient(s.admin).Metadata(ctx, s.cfg.Topic)
	if err == nil && meta.Topics[s.cfg.Topic].Err == nil {
		s.parts = len(meta.Topics[s.cfg.Topic].Partitions)
	}
	return s.parts
}

// times are the first and the last time of a record that the topic takes, in
// milliseconds since 1970.
func (s *sink) times(now time.Time) (oldest, newest int64) {
	oldest, newest = math.MinInt64, math.MaxInt64
	if s.past > 0 {
		oldest = now.Add(-s.past).UnixMilli()
	}
	if s.future > 0 {
		newest = now.Add(s.future).UnixMilli()
	}
	return oldest, newest
}

// rules are what rows are made into records by. Dead letters keep what they came
// with: the expressions are for other records.
func (s *sink) rules(rows *connectors.Rows) *SinkConfig {
	if rows.DeadLetter != nil {
		return &s.letters
	}
	return s.cfg
}

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
		sink: s, stream: s.stream, iv: s.stream.first(),
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
