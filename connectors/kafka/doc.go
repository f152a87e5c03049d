// Package kafka reads topics of Kafka with positions that the checkpoint keeps,
// and writes to them exactly once: one transaction for each checkpoint, which a
// later process can finish, with a witness inside the cluster that tells what
// was published.
package kafka
