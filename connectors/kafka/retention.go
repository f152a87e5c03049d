package kafka

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// retentionEvery is how often it is asked for how long topics keep records.
	retentionEvery = time.Minute
	// retentionPatience bounds the asking.
	retentionPatience = 10 * time.Second
)

// retention is how long topics keep records, as the brokers said last.
type retention struct {
	mu    sync.Mutex
	asked time.Time
	kept  map[string]time.Duration // by topic; without those that keep them for good
}

// due lists the topics of splits, once in a while.
func (r *retention) due(now time.Time, known []connectors.Split) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && now.Sub(r.asked) < retentionEvery {
		return nil
	}
	r.asked = now
	topics := map[string]bool{}
	for _, sp := range known {
		if topic, _, ok := parseSplitID(sp.ID); ok {
			topics[topic] = true
		}
	}
	return slices.Collect(maps.Keys(topics))
}

// askRetention asks from time to time for how long topics keep records. It serves
// monitoring only: what cannot be learned, such as for the lack of a right, is not known.
func (s *source) askRetention(ctx context.Context, known []connectors.Split) {
	topics := s.kept.due(s.now(), known)
	if len(topics) == 0 {
		return
	}
	adm, err := s.admin()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retentionPatience)
	defer cancel()
	answers, err := adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil && len(answers) == 0 {
		return
	}
	kept := map[string]time.Duration{}
	for _, a := range answers {
		if a.Err != nil || !strings.Contains(configText(a, "cleanup.policy"), "delete") {
			continue
		}
		if d := configMillis(a, "retention.ms"); d > 0 {
			kept[a.Name] = d
		}
	}
	s.kept.mu.Lock()
	s.kept.kept = kept
	s.kept.mu.Unlock()
}

// Keeps implements connectors.Keeper.
func (s *source) Keeps(split string) (time.Duration, bool) {
	topic, _, ok := parseSplitID(split)
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	d, known := s.kept.kept[topic]
	return d, ok && known
}

var _ connectors.Keeper = (*source)(nil)
