package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// anyPartition in a record leaves its partition to the partitioner.
const anyPartition = -1

// partitioner takes the partition that a record names, else the one of its key
// by Java's murmur2, and spreads records without a key over all, batch by batch.
type partitioner struct{ byKey kgo.Partitioner }

func newPartitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

// ForTopic implements kgo.Partitioner.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	t := topicPartitioner{byKey: p.byKey.ForTopic(topic)}
	t.onBatch, _ = t.byKey.(kgo.TopicPartitionerOnNewBatch)
	return t
}

type topicPartitioner struct {
	byKey   kgo.TopicPartitioner
	onBatch kgo.TopicPartitionerOnNewBatch
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (t topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != anyPartition || t.byKey.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner.
func (t topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition != anyPartition {
		return int(r.Partition)
	}
	return t.byKey.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (t topicPartitioner) OnNewBatch() {
	if t.onBatch != nil {
		t.onBatch.OnNewBatch()
	}
}
