package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	connectors.RegisterSource(connectors.SourceSpec{
		Name:      "kafka",
		Example:   "kafka:\n  brokers: [localhost:9092]\n  topics: [orders]\n",
		Doc:       "Reads topics of Kafka. Positions are kept in the checkpoint, one for each partition.",
		NewConfig: newSourceConfig,
		New:       func(c any) (connectors.Source, error) { return newSource(c.(*SourceConfig)) },
		Bounded:   func(c any) bool { return c.(*SourceConfig).Until.Set() },
		Moves:     true,
		Back:      func(c any) ([]connectors.Back, error) { return c.(*SourceConfig).back() },
	})
}

// source implements connectors.Source.
type source struct {
	cfg     *SourceConfig
	conn    connection
	now     func() time.Time
	pattern *regexp.Regexp // nil for none

	mu       sync.Mutex
	client   *kgo.Client // for the control path
	dials    *dialWatch
	searched time.Time       // when new partitions were last looked for
	away     map[string]bool // known topics that the last answer lacked

	counts sourceCounts
	kept   retention
}

func newSource(c *SourceConfig) (*source, error) {
	s := &source{
		cfg: c, now: time.Now, dials: newDialWatch(nil),
		conn: connection{brokers: c.Brokers, tls: c.TLS, login: &login{cfg: &c.SASL}, client: c.Client},
	}
	if c.TopicPattern != "" {
		pattern, err := regexp.Compile("^(?:" + c.TopicPattern + ")$")
		if err != nil {
			return nil, fmt.Errorf("compile topic_pattern: %w", err)
		}
		s.pattern = pattern
	}
	return s, nil
}

// reads reports whether the configuration names a topic.
func (s *source) reads(topic string) bool {
	return slices.Contains(s.cfg.Topics, topic) || s.pattern != nil && s.pattern.MatchString(topic)
}

// detail is what a split of Kafka keeps besides its offset.
type detail struct {
	// TopicID tells a topic from one that was created anew under its name.
	TopicID string `json:"topic_id,omitempty"`
	// Epoch is the leader epoch of the last record read, by which a log that was
	// cut and written anew is recognised; -1 for none.
	Epoch int32 `json:"epoch"`
}

func splitDetail(s connectors.Split) detail {
	d := detail{Epoch: -1}
	if len(s.Detail) > 0 && json.Unmarshal(s.Detail, &d) != nil {
		return detail{Epoch: -1}
	}
	return d
}

func (d detail) encode() json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		return nil
	}
	return b
}

// admin is the client of the control path.
func (s *source) admin() (*kadm.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		cl, err := s.conn.newClient(s.dials)
		if err != nil {
			return nil, err
		}
		s.client = cl
	}
	return kadm.NewClient(s.client), nil
}

// Splits implements connectors.Source.
func (s *source) Splits(ctx context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	adm, err := s.admin()
	if err != nil {
		return nil, err
	}
	known := map[string]connectors.Split{}
	for _, sp := range restored {
		known[sp.ID] = sp
	}
	topics, err := s.list(ctx, adm, known)
	if err == nil || errors.Is(err, kerr.TopicAuthorizationFailed) {
		// The list does not say which topic it was refused for.
		err = cmp.Or(s.checkRights(ctx, topics), err)
	}
	if err != nil {
		return nil, err
	}
	var out []connectors.Split
	for _, sp := range restored {
		if topic, _, _ := parseSplitID(sp.ID); !s.reads(topic) {
			continue // the configuration names it no more
		}
		if !s.cfg.Until.Set() {
			sp.Until = -1
		}
		out = append(out, sp)
	}
	if restored == nil || !s.cfg.Until.Set() {
		fresh, err := s.fresh(ctx, adm, topics, known)
		if err != nil {
			return nil, err
		}
		if restored != nil {
			s.countFound(fresh, known)
		}
		out = append(out, fresh...)
	}
	if err := s.setUntil(ctx, adm, out); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.searched = s.now()
	s.mu.Unlock()
	sortSplits(out)
	return out, nil
}

func sortSplits(s []connectors.Split) {
	slices.SortFunc(s, func(a, b connectors.Split) int {
		ta, pa, _ := parseSplitID(a.ID)
		tb, pb, _ := parseSplitID(b.ID)
		return cmp.Or(cmp.Compare(ta, tb), cmp.Compare(pa, pb))
	})
}

// Discover implements connectors.Source.
func (s *source) Discover(ctx context.Context, known []connectors.Split) ([]connectors.Split, error) {
	s.askRetention(ctx, known)
	every := time.Duration(s.cfg.Discover)
	s.mu.Lock()
	due := every > 0 && s.now().Sub(s.searched) >= every
	if due {
		s.searched = s.now()
	}
	s.mu.Unlock()
	if s.cfg.Until.Set() || !due {
		return nil, nil
	}
	adm, err := s.admin()
	if err != nil {
		return nil, err
	}
	byID := map[string]connectors.Split{}
	for _, sp := range known {
		byID[sp.ID] = sp
	}
	topics, err := s.list(ctx, adm, byID)
	if err != nil {
		return nil, err
	}
	fresh, err := s.fresh(ctx, adm, topics, byID)
	sortSplits(fresh)
	s.countFound(fresh, byID)
	return fresh, errors.Join(err, s.gone(topics, known))
}

// countFound counts splits that are new, by whether their topic is.
func (s *source) countFound(fresh []connectors.Split, known map[string]connectors.Split) {
	found := map[string]bool{}
	for _, sp := range fresh {
		topic, _, _ := parseSplitID(sp.ID)
		if _, seen := topicID(topic, known); seen {
			s.counts.partitionsFound.Add(1)
		} else if !found[topic] {
			found[topic] = true
			s.counts.topicsFound.Add(1)
		}
	}
}

// gone tells of topics that are known and do not exist any more.
func (s *source) gone(topics kadm.TopicDetails, known []connectors.Split) error {
	var names []string
	for _, sp := range known {
		topic, _, _ := parseSplitID(sp.ID)
		if _, there := topics[topic]; !there && !slices.Contains(names, topic) {
			names = append(names, topic)
		}
	}
	s.mu.Lock()
	before := s.away
	s.away = map[string]bool{}
	for _, name := range names {
		if s.away[name] = true; !before[name] {
			s.counts.topicsGone.Add(1)
		}
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("topic %s is not there any more, or has no leader: nothing is read from it, its positions are kept", strings.Join(names, ", "))
}

// list asks for the topics that the source reads. A topic that is known and not
// listed is left out: its partitions keep their positions.
func (s *source) list(ctx context.Context, adm *kadm.Client, known map[string]connectors.Split) (kadm.TopicDetails, error) {
	var found kadm.TopicDetails
	what := "list topics"
	if len(s.cfg.Topics) > 0 {
		what = "look up topics " + strings.Join(s.cfg.Topics, ", ")
	}
	err := s.conn.askTopics(ctx, s.dials, what, func(ctx context.Context) (unknown bool, err error) {
		if found, err = adm.ListTopics(ctx); err != nil || len(s.cfg.Topics) == 0 {
			return false, err
		}
		named, err := adm.Metadata(ctx, s.cfg.Topics...)
		found = mergeTopics(found, named.Topics)
		for _, t := range named.Topics {
			_, seen := topicID(t.Topic, known)
			unknown = unknown || !seen && errors.Is(t.Err, kerr.UnknownTopicOrPartition)
		}
		return unknown, err
	})
	if err != nil {
		return nil, err
	}
	out := kadm.TopicDetails{}
	for name, t := range found {
		if !s.reads(name) {
			continue
		}
		if err := s.checkTopic(t, found, known); err != nil {
			return nil, err
		}
		if t.Err == nil {
			out[name] = t
		}
	}
	if len(out) == 0 && len(known) == 0 {
		return nil, connectors.Permanent(fmt.Errorf("no topic at kafka %v matches topic_pattern %q; %s", s.conn.brokers, s.cfg.TopicPattern, "correct the pattern, or check that the user may DESCRIBE the topics"))
	}
	return out, nil
}

func mergeTopics(all, named kadm.TopicDetails) kadm.TopicDetails {
	for name, t := range named {
		all[name] = t
	}
	return all
}

// checkTopic reports what stops a topic from being read.
func (s *source) checkTopic(t kadm.TopicDetail, all kadm.TopicDetails, known map[string]connectors.Split) error {
	was, seen := topicID(t.Topic, known)
	switch {
	case t.Err == nil:
		if id := t.ID.String(); seen && was != "" && t.ID != (kadm.TopicID{}) && was != id {
			s.counts.topicsRecreated.Add(1)
			return recreated(t.Topic, was, id)
		}
		return nil
	case seen && errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return nil
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return unknownTopic(t.Topic, &s.conn, all)
	case slices.Contains(s.cfg.Topics, t.Topic):
		return s.conn.explain(s.dials, "read topic "+t.Topic, t.Err)
	}
	return nil
}

func recreated(topic, was, is string) error {
	return connectors.Permanent(fmt.Errorf(
		"topic %s was deleted and created anew: the checkpoint knows it by id %s, now it has %s, and the offsets kept mean nothing in it; start anew with --from none, or read it under another name", topic, was, is))
}

// topicID is the id that the known splits have for a topic, and whether there are any.
func topicID(topic string, known map[string]connectors.Split) (id string, seen bool) {
	for _, sp := range known {
		if t, _, ok := parseSplitID(sp.ID); ok && t == topic {
			seen = true
			if d := splitDetail(sp); d.TopicID != "" {
				return d.TopicID, true
			}
		}
	}
	return "", seen
}

// fresh makes splits of the partitions that are not known: those of a known
// topic from its beginning, those of another topic from start.
func (s *source) fresh(ctx context.Context, adm *kadm.Client, topics kadm.TopicDetails, known map[string]connectors.Split) ([]connectors.Split, error) {
	var grown, named []connectors.Split
	for name, t := range topics {
		_, seen := topicID(name, known)
		for p := range t.Partitions {
			id := splitID(name, p)
			if _, ok := known[id]; ok {
				continue
			}
			sp := connectors.Split{ID: id, Until: -1, Detail: detail{TopicID: t.ID.String(), Epoch: -1}.encode()}
			if seen {
				grown = append(grown, sp)
			} else {
				named = append(named, sp)
			}
		}
	}
	if err := s.place(ctx, adm, grown, position{kind: startEarliest}, setOffset); err != nil {
		return nil, err
	}
	if s.cfg.Start.kind == startOffsets && len(known) == 0 {
		if err := mustName(s.cfg.Start.offsets, named, "start"); err != nil {
			return nil, err
		}
	}
	if err := s.place(ctx, adm, named, position(s.cfg.Start), setOffset); err != nil {
		return nil, err
	}
	return append(grown, named...), nil
}

// mustName reports an entry of offsets that names no partition.
func mustName(offsets map[string]int64, splits []connectors.Split, key string) error {
	for id := range offsets {
		if !slices.ContainsFunc(splits, func(s connectors.Split) bool { return s.ID == id }) {
			return connectors.Permanent(fmt.Errorf("%s.offsets names %s, but the source reads no such partition; correct it", key, id))
		}
	}
	return nil
}

func setOffset(s *connectors.Split, n int64) { s.Offset = n }

// setUntil resolves until for the splits that have no end yet.
func (s *source) setUntil(ctx context.Context, adm *kadm.Client, splits []connectors.Split) error {
	if !s.cfg.Until.Set() {
		return nil
	}
	var open []connectors.Split
	var at []int
	for i, sp := range splits {
		if sp.Until < 0 {
			open, at = append(open, sp), append(at, i)
		}
	}
	if s.cfg.Until.kind == startOffsets {
		if err := mustName(s.cfg.Until.offsets, splits, "until"); err != nil {
			return err
		}
	}
	err := s.place(ctx, adm, open, position(s.cfg.Until), func(sp *connectors.Split, n int64) { sp.Until = n })
	for i, sp := range open {
		splits[at[i]].Until = sp.Until
	}
	return err
}

// Committed implements connectors.Source.
func (s *source) Committed(ctx context.Context, splits []connectors.Split) error {
	if s.cfg.Group == "" {
		return nil
	}
	adm, err := s.admin()
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for _, sp := range splits {
		if topic, partition, ok := parseSplitID(sp.ID); ok {
			offsets.AddOffset(topic, partition, sp.Offset, splitDetail(sp).Epoch)
		}
	}
	return s.conn.ask(ctx, s.dials, "commit offsets to group "+s.cfg.Group, func(ctx context.Context) error {
		return adm.CommitAllOffsets(ctx, s.cfg.Group, offsets)
	})
}

// Close implements connectors.Source.
func (s *source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	return nil
}
