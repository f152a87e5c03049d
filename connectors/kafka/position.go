package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-etl/sluice/connectors"
)

// position is a place in a topic in the words of the configuration.
type position struct {
	kind    startKind
	millis  int64
	offsets map[string]int64
}

// place resolves a position to a number for each split and hands it to set.
// Partitions that the position does not name are at their beginning, and those
// of a group without an offset for them too.
func (s *source) place(ctx context.Context, adm *kadm.Client, splits []connectors.Split, at position, set func(*connectors.Split, int64)) error {
	if len(splits) == 0 {
		return nil
	}
	topics := map[string]bool{}
	for _, sp := range splits {
		t, _, _ := parseSplitID(sp.ID)
		topics[t] = true
	}
	names := slices.Sorted(maps.Keys(topics))
	group, err := s.groupOffsets(ctx, adm, at.kind, names)
	if err != nil {
		return err
	}
	list := s.lister(adm, at)
	var listed kadm.ListedOffsets
	err = s.conn.ask(ctx, s.dials, "list offsets", func(ctx context.Context) error {
		var err error
		listed, err = list(ctx, names...)
		return err
	})
	if err != nil {
		return err
	}
	for i := range splits {
		sp := &splits[i]
		topic, partition, _ := parseSplitID(sp.ID)
		if n, ok := at.offsets[sp.ID]; ok {
			set(sp, n)
			continue
		}
		if o, ok := group.Lookup(topic, partition); ok && o.At >= 0 {
			set(sp, o.At)
			continue
		}
		o, ok := listed.Lookup(topic, partition)
		if !ok {
			o.Err = errors.New("the brokers gave no answer for it")
		}
		if o.Err != nil {
			return s.conn.explain(s.dials, "list offsets of partition "+sp.ID, o.Err)
		}
		set(sp, o.Offset)
	}
	return nil
}

// lister is the request that answers a position. With read_committed the end is
// the last stable offset: what lies beyond belongs to open transactions.
func (s *source) lister(adm *kadm.Client, at position) func(context.Context, ...string) (kadm.ListedOffsets, error) {
	end := adm.ListCommittedOffsets
	if s.cfg.Isolation == readUncommitted {
		end = adm.ListEndOffsets
	}
	switch at.kind {
	case startLatest:
		return end
	case startTimestamp:
		return func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return adm.ListOffsetsAfterMilli(ctx, at.millis, topics...)
		}
	}
	return adm.ListStartOffsets
}

func (s *source) groupOffsets(ctx context.Context, adm *kadm.Client, kind startKind, topics []string) (kadm.Offsets, error) {
	if kind != startGroup {
		return nil, nil
	}
	var out kadm.Offsets
	err := s.conn.ask(ctx, s.dials, "fetch offsets of group "+s.cfg.Group, func(ctx context.Context) error {
		got, err := adm.FetchOffsetsForTopics(ctx, s.cfg.Group, topics...)
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil // nothing committed yet
		}
		if err == nil {
			err = got.Error()
		}
		out = got.Offsets()
		return err
	})
	return out, err
}

// unknownTopic is the error for a topic that does not exist, with the name that
// was probably meant.
func unknownTopic(topic string, conn *connection, all kadm.TopicDetails) error {
	hint := "create it, or correct the name"
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return errors.Is(all[name].Err, kerr.UnknownTopicOrPartition) // asked for and not there either
	})
	near := connectors.Nearest(topic, others)
	switch near {
	case "":
	case topic:
		hint = "it has been created meanwhile: start again"
	default:
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return connectors.Permanent(connectors.Advise("", fmt.Errorf("topic %s %w at kafka %v, or the user may not DESCRIBE it", topic, errNoTopic, conn.brokers), hint))
}

var errNoTopic = errors.New("does not exist")
