package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// witness is the mark that each transaction leaves in the cluster, atomically
// with its records: the metadata of an offset committed within it.
type witness struct {
	connectors.CheckpointID
	// Origin and Pipeline say whose it is.
	Origin   string `json:"origin,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	// At is when it was written, in seconds since 1970.
	At int64 `json:"at"`
	// Through is what the writing process and those before it restored and found
	// or made committed: the newest of each generation.
	Through []connectors.CheckpointID `json:"through,omitempty"`

	foreign bool // of another origin than the reader's: it proves nothing
}

// maxThrough bounds the generations that a witness names, as the metadata of an
// offset is bounded (4096 bytes by default).
const maxThrough = 32

// witnessEvery is how old the newest witness may become before a transaction
// without records renews it, so that it does not expire with its group.
const witnessEvery = 24 * time.Hour

// proves reports whether the witness proves that checkpoint n was committed.
func (w *witness) proves(n connectors.CheckpointID) bool {
	if w.foreign {
		return false
	}
	if w.Generation == n.Generation {
		return w.Number >= n.Number
	}
	for _, r := range w.Through {
		if r.Generation == n.Generation && r.Number >= n.Number {
			return true
		}
	}
	return false
}

// resolved adds to through that n was found or made committed.
func resolved(through []connectors.CheckpointID, n connectors.CheckpointID) []connectors.CheckpointID {
	for i := range through {
		if through[i].Generation == n.Generation {
			through[i].Number = max(through[i].Number, n.Number)
			return through
		}
	}
	through = append(through, n)
	if len(through) > maxThrough {
		through = through[len(through)-maxThrough:]
	}
	return through
}

// compareIDs orders checkpoints by generation and number.
func compareIDs(a, b connectors.CheckpointID) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Number, b.Number))
}

// witnessPlace is the partition that witnesses are committed for. Nothing is
// written to it: an offset needs one that exists.
type witnessPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (t *txnSet) group() string { return t.prefix + ".witness" }

// origin tells whose witnesses are this pipeline's.
func (t *txnSet) origin() string {
	if t.first.env.Origin == nil {
		return ""
	}
	return t.first.env.Origin()
}

// placeWitness settles where witnesses are kept: where the newest one is, else
// where the restored checkpoint says, else at the first sink's topic.
func (t *txnSet) placeWitness(ctx context.Context, restored witnessPlace) error {
	w, place, ok, err := t.readWitness(ctx, t.group())
	if err != nil {
		return err
	}
	if !ok {
		place = restored
	}
	if place.Topic != "" {
		meta, err := kadm.NewClient(t.admin).Metadata(ctx, place.Topic)
		if err != nil {
			return err
		}
		if errors.Is(meta.Topics[place.Topic].Err, kerr.UnknownTopicOrPartition) {
			t.log.Warn("the topic that the kafka witness was kept for is gone, a new witness begins", "topic", place.Topic)
			place.Topic = ""
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if place.Topic != "" {
		t.place = place
	}
	if ok && !w.foreign {
		// What the newest witness proves stays proven when ours takes its place.
		through := resolved(slices.Clone(w.Through), w.CheckpointID)
		for _, n := range t.through {
			through = resolved(through, n)
		}
		t.witness, t.through = w, through
	}
	return nil
}

// readWitness asks for the newest witness in a group and its place. Offsets of
// open transactions do not count, and do not hide what was committed before.
func (t *txnSet) readWitness(ctx context.Context, group string) (newest witness, place witnessPlace, ok bool, err error) {
	got, err := kadm.NewClient(t.admin).FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return newest, place, false, nil
	}
	if err != nil {
		return newest, place, false, err
	}
	for topic, partitions := range got {
		for partition, o := range partitions {
			if o.Err != nil {
				return newest, place, false, o.Err
			}
			if o.At < 0 {
				continue
			}
			var w witness
			if err := json.Unmarshal([]byte(o.Metadata), &w); err != nil || w.Number != uint64(o.At) {
				return newest, place, false, connectors.Permanent(fmt.Errorf(
					"the offset in group %s for %s/%d is no witness of this program: the group must belong to the pipeline alone; set another transactional_id_prefix", group, topic, partition))
			}
			w.foreign = w.Origin != t.origin()
			if !ok || compareIDs(w.CheckpointID, newest.CheckpointID) > 0 {
				newest, place, ok = w, witnessPlace{topic, partition}, true
			}
		}
	}
	return newest, place, ok, nil
}

// writeWitness commits w as an offset within the transaction of d.
func (t *txnSet) writeWitness(ctx context.Context, d *txnData, w witness) error {
	metadata, err := json.Marshal(w)
	if err != nil {
		return err
	}
	meta, err := kadm.NewClient(t.admin).Metadata(ctx, d.Place.Topic)
	if err != nil {
		return err
	}
	topic := meta.Topics[d.Place.Topic]
	if topic.Err != nil {
		return topic.Err
	}
	if d.Version < transactionsV2 {
		if err := t.addGroup(ctx, d); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = d.TransactionalID, d.Group
	req.ProducerID, req.ProducerEpoch, req.Generation = d.ProducerID, d.Epoch, -1
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = d.Place.Topic, topic.ID // from version 6 on only the id counts
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = d.Place.Partition, int64(w.Number), -1
	rp.Metadata = kmsg.StringPtr(string(metadata))
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return t.retryConcurrent(ctx, func() error {
		resp, err := req.RequestWith(ctx, t.raw(d.Version))
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return errors.New("the broker answered for other partitions")
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}

// addGroup makes the group's offsets part of a transaction of the old kind.
func (t *txnSet) addGroup(ctx context.Context, d *txnData) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.Group = d.TransactionalID, d.Group
	req.ProducerID, req.ProducerEpoch = d.ProducerID, d.Epoch
	return t.retryConcurrent(ctx, func() error {
		resp, err := req.RequestWith(ctx, t.raw(d.Version))
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// retryConcurrent repeats f, which can be repeated, while the coordinator still ends
// an earlier transaction of the id, or moves, or the connection breaks.
func (t *txnSet) retryConcurrent(ctx context.Context, f func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f()
		broken := isDial(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if !kerr.IsRetriable(err) && !broken {
			return err
		}
		if perr := pause(ctx, wait); perr != nil {
			return errors.Join(err, perr)
		}
	}
}

// witnessIsOld reports whether the newest witness should be renewed.
func (t *txnSet) witnessIsOld() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.witness.At != 0 && t.now().Sub(time.Unix(t.witness.At, 0)) >= witnessEvery
}
