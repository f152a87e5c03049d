package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-etl/sluice/connectors"
)

// sourceCounts are what a source's policies did since it was made.
type sourceCounts struct {
	partitionsFound, topicsFound, topicsGone, topicsRecreated atomic.Int64
	offsetsMissing, recordsMissed, recordsLost                atomic.Int64
}

// Counts implements connectors.Counter.
func (s *source) Counts() map[string]int64 {
	c := &s.counts
	return map[string]int64{
		"partitions_found": c.partitionsFound.Load(), // of known topics
		"topics_found":     c.topicsFound.Load(),
		"topics_gone":      c.topicsGone.Load(), // times that one was not there any more
		"topics_recreated": c.topicsRecreated.Load(),
		"offsets_missing":  c.offsetsMissing.Load(), // positions that were moved or refused by on_missing_offset
		"records_missed":   c.recordsMissed.Load(),  // offsets that were left out by it
		"log_truncated":    c.recordsLost.Load(),    // times that brokers lost what had been read
	}
}

// CheckPositions implements connectors.PositionChecker.
func (s *source) CheckPositions(ctx context.Context, splits []connectors.Split) ([]connectors.Availability, error) {
	adm, err := s.admin()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, sp := range splits {
		topic, _, _ := parseSplitID(sp.ID)
		names[topic] = true
	}
	var topics kadm.TopicDetails
	err = s.conn.ask(ctx, s.dials, "look up topics", func(ctx context.Context) error {
		var err error
		topics, err = adm.ListTopics(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	for name := range names {
		t, there := topics[name]
		if there && t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return nil, s.conn.explain(s.dials, "look up topic "+name, t.Err)
		}
		if !there || t.Err != nil {
			delete(names, name)
		}
	}
	ranges, err := s.ranges(ctx, adm, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	out := make([]connectors.Availability, len(splits))
	for i, sp := range splits {
		if err := ranges.fault(sp); err != nil {
			return nil, s.conn.explain(s.dials, "list the offsets of "+sp.ID, err)
		}
		out[i] = s.check(sp, topics, ranges)
	}
	return out, nil
}

// Move implements connectors.Mover.
func (s *source) Move(sp connectors.Split, to int64) connectors.Split {
	d := splitDetail(sp)
	d.Epoch = -1 // it is of the record before the old position
	sp.Offset, sp.Detail = to, d.encode()
	return sp
}

// offsetRanges are the offsets of partitions: where they begin and end, and up to
// where records can be read.
type offsetRanges struct{ starts, ends, readable kadm.ListedOffsets }

// fault is why the offsets of a split are not known, such as a partition without a
// leader; nil where they are, or where there is no such partition.
func (r *offsetRanges) fault(sp connectors.Split) error {
	topic, partition, _ := parseSplitID(sp.ID)
	for _, of := range []kadm.ListedOffsets{r.starts, r.ends, r.readable} {
		if o, ok := of.Lookup(topic, partition); ok && o.Err != nil && !errors.Is(o.Err, kerr.UnknownTopicOrPartition) {
			return o.Err
		}
	}
	return nil
}

func (s *source) ranges(ctx context.Context, adm *kadm.Client, topics []string) (r offsetRanges, err error) {
	if len(topics) == 0 {
		return r, nil
	}
	err = s.conn.ask(ctx, s.dials, "list offsets", func(ctx context.Context) (err error) {
		if r.starts, err = adm.ListStartOffsets(ctx, topics...); err != nil {
			return err
		}
		if r.ends, err = adm.ListEndOffsets(ctx, topics...); err != nil {
			return err
		}
		r.readable = r.ends
		if s.cfg.Isolation != readUncommitted {
			r.readable, err = adm.ListCommittedOffsets(ctx, topics...)
		}
		return err
	})
	return r, err
}

// check tells what has become of one split.
func (s *source) check(sp connectors.Split, topics kadm.TopicDetails, r offsetRanges) connectors.Availability {
	topic, partition, _ := parseSplitID(sp.ID)
	a := connectors.Availability{Next: sp.Offset}
	t, there := topics[topic]
	if was, is := splitDetail(sp).TopicID, t.ID; there && was != "" && is != (kadm.TopicID{}) && was != is.String() {
		a.Err = recreated(topic, was, is.String())
		return a
	}
	first, okFirst := r.starts.Lookup(topic, partition)
	end, okEnd := r.ends.Lookup(topic, partition)
	readable, okReadable := r.readable.Lookup(topic, partition)
	if !okFirst || !okEnd || !okReadable || first.Err != nil || end.Err != nil || readable.Err != nil {
		a.Gone = true
		return a
	}
	a.First, a.End = first.Offset, readable.Offset
	if sp.Until >= 0 && sp.Offset >= sp.Until || sp.Offset >= first.Offset && sp.Offset <= end.Offset {
		return a
	}
	a.Next, a.Err = s.cfg.elsewhere(topic, partition, sp.Offset, first.Offset, end.Offset)
	return a
}
