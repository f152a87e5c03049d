package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// target is a topic that a sink writes to, with what it takes.
type target struct {
	name      string
	maxRecord int
	limitedBy string        // the setting that maxRecord is from
	keyed     bool          // it is compacted only, and takes no record without a key
	past      time.Duration // how far from the clock a record's time may be; 0 for any
	future    time.Duration

	mu      sync.Mutex
	parts   int       // its partitions
	counted time.Time // when they were counted
}

// targets are the topics that a sink has written to, by name.
type targets struct {
	mu    sync.Mutex
	known map[string]*target

	looking sync.Mutex         // held while one is looked up, for what follows
	refused map[string]refusal // names that nothing can be written to, for a while
	waited  time.Time          // when a topic that does not exist was waited for last
	created int
}

// refusal is why rows for a topic are refused.
type refusal struct {
	connectors.RowError
	at time.Time
}

const (
	// recountEvery is how often a partition or topic that seems not to exist is looked for.
	recountEvery = 5 * time.Second
	// maxRefused bounds the names that are remembered for it.
	maxRefused = 1000
)

func newTargets() targets {
	return targets{known: map[string]*target{}, refused: map[string]refusal{}}
}

// get is a topic that was written to before, or nil.
func (t *targets) get(topic string) *target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[topic]
}

func (t *targets) add(one *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[one.name] = one
}

// any is one of the topics, the same one for the same set; empty where there is none.
func (t *targets) any() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := ""
	for name := range t.known {
		if first == "" || name < first {
			first = name
		}
	}
	return first
}

// limit is the largest batch that a topic takes.
func (t *targets) limit(topic string) int32 {
	if known := t.get(topic); known != nil {
		return int32(known.maxRecord)
	}
	return defaultMaxMessage
}

// find is the target of a row's topic. A reason says that the row is refused: its
// topic does not exist, or cannot. An error is one of the cluster.
func (s *sink) find(ctx context.Context, name string) (*target, connectors.RowError, error) {
	if t := s.targets.get(name); t != nil {
		return t, connectors.RowError{}, nil
	}
	if reason := checkTopic(name); reason != "" {
		return nil, connectors.RowError{Kind: "topic", Reason: "the topic expression gave " + reason}, nil
	}
	s.targets.looking.Lock()
	defer s.targets.looking.Unlock()
	if t := s.targets.get(name); t != nil {
		return t, connectors.RowError{}, nil
	}
	if r, ok := s.targets.refused[name]; ok && time.Since(r.at) < recountEvery {
		return nil, r.RowError, nil
	}
	t, reason, err := s.reach(ctx, name)
	switch {
	case err != nil:
		return nil, connectors.RowError{}, err
	case reason != "":
		if len(s.targets.refused) >= maxRefused {
			clear(s.targets.refused)
		}
		r := connectors.RowError{Kind: "topic", Reason: reason}
		s.targets.refused[name] = refusal{r, time.Now()}
		return nil, r, nil
	}
	s.targets.add(t)
	return t, connectors.RowError{}, nil
}

// reach looks a row's topic up, or creates it where that is asked for. While no
// broker answers it goes on trying, as the producer does for topics that it knows.
func (s *sink) reach(ctx context.Context, name string) (*target, string, error) {
	for {
		t, reason, err := s.reachOnce(ctx, name)
		if err == nil || connectors.IsPermanent(err) || ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return t, reason, err
		}
		s.log.Warn("a topic cannot be looked up, trying again", "topic", name, "err", err)
		if perr := pause(ctx, time.Second); perr != nil {
			return nil, "", err
		}
		if err := s.stream.failure(); err != nil {
			return nil, "", err
		}
	}
}

func (s *sink) reachOnce(ctx context.Context, name string) (*target, string, error) {
	// Not waited for each time: rows for topics that do not exist can be many.
	patient := time.Since(s.targets.waited) >= recountEvery
	t, err := s.lookup(ctx, name, patient)
	switch {
	case err != nil:
		return nil, "", err
	case t != nil:
		return t, "", nil
	case s.cfg.CreateTopics.Partitions == 0:
		s.targets.waited = time.Now()
		return nil, "topic " + name + " does not exist, or the user may not DESCRIBE it: create it, or set create_topics", nil
	}
	if reason, err := s.create(ctx, name); reason != "" || err != nil {
		return nil, reason, err
	}
	if t, err = s.lookup(ctx, name, true); err == nil && t == nil {
		err = fmt.Errorf("topic %s was created and is not there yet", name)
	}
	return t, "", err
}

// create makes a topic as create_topics says.
func (s *sink) create(ctx context.Context, name string) (string, error) {
	c := &s.cfg.CreateTopics
	if s.targets.created >= c.Max {
		return fmt.Sprintf("topic %s does not exist, and this process has created %d topics already, which create_topics.max allows: raise it, or create the topic", name, c.Max), nil
	}
	replication := int16(c.Replication)
	if replication == 0 {
		replication = -1 // the broker's default
	}
	var refused string
	err := s.conn.ask(ctx, s.dials, "create topic "+name, func(ctx context.Context) error {
		resp, err := kadm.NewClient(s.admin).CreateTopics(ctx, int32(c.Partitions), replication, nil, name)
		if err != nil {
			return err
		}
		err = resp[name].Err
		switch {
		case errors.Is(err, kerr.TopicAlreadyExists):
			return nil
		case errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.PolicyViolation):
			refused = fmt.Sprintf("topic %s cannot be created: %v", name, err)
			return nil
		}
		return err
	})
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		err = s.conn.lacking(kerr.TopicAuthorizationFailed, topicResource(name), kmsg.ACLOperationCreate.String())
	}
	if err == nil && refused == "" {
		s.targets.created++
		s.log.Info("topic created", "topic", name, "partitions", c.Partitions)
	}
	return refused, err
}

// lookup asks for a topic and what it takes; nil where it does not exist.
func (s *sink) lookup(ctx context.Context, name string, patient bool) (*target, error) {
	if err := s.conn.checkTopics(ctx, s.dials, s.admin, []string{name}, kmsg.ACLOperationWrite); err != nil {
		return nil, err
	}
	adm := kadm.NewClient(s.admin)
	var meta kadm.Metadata
	err := s.conn.askTopics(ctx, s.dials, "look up topic "+name, func(ctx context.Context) (unknown bool, err error) {
		meta, err = adm.Metadata(ctx, name)
		return patient && errors.Is(meta.Topics[name].Err, kerr.UnknownTopicOrPartition), err
	})
	if err != nil {
		return nil, err
	}
	d := meta.Topics[name]
	if errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if d.Err != nil {
		return nil, s.conn.explain(s.dials, "write to topic "+name, d.Err)
	}
	t := &target{name: name, parts: len(d.Partitions), counted: time.Now()}
	s.readLimits(ctx, adm, t)
	return t, nil
}

// readLimits learns which records a topic takes. A user without the right to
// ask gets Kafka's default of their size.
func (s *sink) readLimits(ctx context.Context, adm *kadm.Client, t *target) {
	t.maxRecord, t.limitedBy = defaultMaxMessage, "max.message.bytes"
	configs, err := adm.DescribeTopicConfigs(ctx, t.name)
	if err == nil {
		if c, err := configs.On(t.name, nil); err == nil && c.Err == nil {
			if n := configNumber(c, "max.message.bytes"); n > 0 {
				t.maxRecord = int(min(n, largestRecord))
			}
			t.keyed = configText(c, "cleanup.policy") == "compact"
			if configText(c, "message.timestamp.type") != "LogAppendTime" {
				t.past = configMillis(c, "message.timestamp.before.max.ms")
				t.future = configMillis(c, "message.timestamp.after.max.ms")
			}
		}
	}
	if own := int64(s.cfg.MaxRecordBytes); own > 0 {
		t.maxRecord, t.limitedBy = int(min(own, largestRecord)), "max_record_bytes"
	}
}

const (
	defaultMaxMessage = 1048588 // Kafka's default of max.message.bytes
	largestRecord     = 64 << 20
)

// partitions is how many the topic has; they are counted anew where wanted lies
// beyond, since they can have become more.
func (t *target) partitions(ctx context.Context, s *sink, wanted int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wanted < int64(t.parts) || time.Since(t.counted) < recountEvery {
		return t.parts
	}
	t.counted = time.Now()
	meta, err := kadm.NewClient(s.admin).Metadata(ctx, t.name)
	if err == nil && meta.Topics[t.name].Err == nil {
		t.parts = len(meta.Topics[t.name].Partitions)
	}
	return t.parts
}

// times are the first and the last time of a record that the topic takes, in
// milliseconds since 1970.
func (t *target) times(now time.Time) (oldest, newest int64) {
	oldest, newest = math.MinInt64, math.MaxInt64
	if t.past > 0 {
		oldest = now.Add(-t.past).UnixMilli()
	}
	if t.future > 0 {
		newest = now.Add(t.future).UnixMilli()
	}
	return oldest, newest
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

var (
	errNull      = errors.New("it is null, and a topic's name needs a value")
	errContainer = errors.New("it is a list or a map, which is no part of a topic's name")
)

// appendName appends a value to a topic's name.
func appendName(dst []byte, v connectors.Value) ([]byte, error) {
	switch v.Kind() {
	case connectors.Absent, connectors.Null:
		return dst, errNull
	case connectors.List, connectors.Map:
		return dst, errContainer
	}
	return appendValue(dst, v), nil
}
