package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// fault decides what an error of a fetched partition means. nil is to go on.
func (r *reader) fault(ctx context.Context, p kgo.FetchTopicPartition, at int, known bool) error {
	var loss *kgo.ErrDataLoss
	var large *kgo.ErrDecompressTooLarge
	where := "read"
	if p.Topic != "" {
		where = fmt.Sprintf("read topic %s, partition %d", p.Topic, p.Partition)
	}
	switch {
	case errors.Is(p.Err, kerr.OffsetOutOfRange) && known:
		return r.missing(ctx, &r.splits[at])
	case errors.As(p.Err, &loss) && known:
		return r.lost(&r.splits[at], loss)
	case errors.As(p.Err, &large):
		return connectors.Permanent(fmt.Errorf("%s: the batch at offset %d decompresses to more than %d bytes, which no broker with sane limits takes: %w", where, large.Offset, maxDecompressed, p.Err))
	case errors.Is(p.Err, kerr.UnknownTopicID):
		r.src.counts.topicsRecreated.Add(1)
		was := "unknown"
		if known {
			was = r.splits[at].detail.TopicID
		}
		return recreated(p.Topic, was, "another")
	case errors.Is(p.Err, kgo.ErrClientClosed):
		return p.Err
	}
	return r.src.conn.explain(r.dials, where, p.Err)
}

// missing acts on a position that the topic does not have.
func (r *reader) missing(ctx context.Context, s *splitState) error {
	first, end, err := r.available(ctx, s)
	if err != nil {
		return err
	}
	if s.next >= first && s.next <= end {
		// The log moved meanwhile, or a replica lagged: the position is good.
		r.jump(s, s.next)
		return nil
	}
	r.src.counts.offsetsMissing.Add(1)
	to, err := r.src.cfg.elsewhere(s.origin.Topic, s.origin.Partition, s.next, first, end)
	if err != nil {
		return err
	}
	r.src.counts.recordsMissed.Add(max(0, to-s.next))
	r.log.Warn("kafka position is missing, going on elsewhere as on_missing_offset says",
		"topic", s.origin.Topic, "partition", s.origin.Partition, "wanted", s.next, "first", first, "end", end, "next", to)
	r.place(r.index(s), to)
	if s.until >= 0 && s.next >= s.until {
		s.next = s.until
		r.finish(s)
		return nil
	}
	r.jump(s, to)
	return nil
}

// elsewhere is where a partition goes on whose position is not there, as on_missing_offset says.
func (c *SourceConfig) elsewhere(topic string, partition int32, wanted, first, end int64) (int64, error) {
	switch c.OnMissingOffset {
	case onMissingFail:
		return wanted, connectors.Permanent(fmt.Errorf(
			"topic %s, partition %d: %w: wanted %d, available %d to %d; set on_missing_offset to earliest or latest to go on with what is there, or restore another checkpoint",
			topic, partition, connectors.ErrMissingOffset, wanted, first, end))
	case "latest":
		return end, nil
	}
	return first, nil
}

// jump fetches a split from another offset on.
func (r *reader) jump(s *splitState, to int64) {
	r.client.RemoveConsumePartitions(map[string][]int32{s.origin.Topic: {s.origin.Partition}})
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{
		s.origin.Topic: {s.origin.Partition: kgo.NewOffset().At(to)},
	})
}

// lost acts on a log that was cut below what had been read from it.
func (r *reader) lost(s *splitState, loss *kgo.ErrDataLoss) error {
	r.src.counts.recordsLost.Add(1)
	if r.src.cfg.OnMissingOffset == onMissingFail {
		return connectors.Permanent(fmt.Errorf(
			"topic %s, partition %d: %w: it was read up to %d, but the brokers lost records from %d on; set on_missing_offset to go on with what is there",
			s.origin.Topic, s.origin.Partition, connectors.ErrMissingOffset, loss.ConsumedTo, loss.ResetTo))
	}
	r.log.Warn("kafka lost records that had been read, going on as on_missing_offset says",
		"topic", s.origin.Topic, "partition", s.origin.Partition, "read", loss.ConsumedTo, "next", loss.ResetTo)
	r.place(r.index(s), loss.ResetTo)
	return nil
}

func (r *reader) index(s *splitState) int {
	return r.byName[partitionName{s.origin.Topic, s.origin.Partition}]
}

// available is the range of offsets that a partition has.
func (r *reader) available(ctx context.Context, s *splitState) (first, end int64, err error) {
	what := "list offsets of partition " + s.id
	var starts, ends kadm.ListedOffsets
	err = r.src.conn.ask(ctx, r.dials, what, func(ctx context.Context) error {
		var err error
		if starts, err = r.admin().ListStartOffsets(ctx, s.origin.Topic); err == nil {
			ends, err = r.admin().ListEndOffsets(ctx, s.origin.Topic)
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	a, okA := starts.Lookup(s.origin.Topic, s.origin.Partition)
	b, okB := ends.Lookup(s.origin.Topic, s.origin.Partition)
	if err := errors.Join(a.Err, b.Err); err != nil || !okA || !okB {
		return 0, 0, r.src.conn.explain(r.dials, what, errors.Join(err, errors.New("no answer for it")))
	}
	return a.Offset, b.Offset, nil
}

// probe asks for the fetch position of bounded splits that bring nothing: the
// rest up to their end can be aborted, or compacted away, or markers, of which
// the client tells nothing.
func (r *reader) probe(ctx context.Context) error {
	now := r.src.now()
	for i := range r.splits {
		s := &r.splits[i]
		if s.done || now.Sub(s.probed) < probeAfter {
			continue
		}
		first := s.probed.IsZero()
		s.probed = now
		if first {
			continue
		}
		next, err := r.skip(ctx, partitionName{s.origin.Topic, s.origin.Partition}, s.next)
		if err != nil {
			return err
		}
		if next > s.next {
			r.place(i, min(next, s.until))
			if s.next >= s.until {
				r.finish(s)
			}
		}
	}
	return nil
}

// skip fetches once at a position by itself and returns the position after what
// holds no record, as far as it goes. It is safe for concurrent use.
func (r *reader) skip(ctx context.Context, at partitionName, from int64) (int64, error) {
	var resp *kmsg.FetchResponse
	what := "fetch partition " + splitID(at.topic, at.partition)
	err := r.src.conn.ask(ctx, r.dials, what, func(ctx context.Context) error {
		meta, err := r.admin().Metadata(ctx, at.topic)
		if err != nil {
			return err
		}
		topic := meta.Topics[at.topic]
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 0, 0
		if r.src.cfg.Isolation != readUncommitted {
			req.IsolationLevel = 1
		}
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = at.topic, topic.ID
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = at.partition, from, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		leader := topic.Partitions[at.partition].Leader
		got, err := r.client.Broker(int(leader)).RetriableRequest(ctx, req)
		if err != nil {
			return err
		}
		resp = got.(*kmsg.FetchResponse)
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return from, nil // the client's own fetch meets the same, and tells
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: from, Topic: at.topic, Partition: at.partition}
	if r.src.cfg.Isolation != readUncommitted {
		opts.IsolationLevel = kgo.ReadCommitted()
	}
	part, next := kgo.ProcessFetchPartition(opts, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if len(part.Records) > 0 {
		return part.Records[0].Offset, nil
	}
	return next, nil
}
