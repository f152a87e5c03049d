package main

import (
	"context"
	"os"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

func topicOf(run string) string { return "bench-" + run }

func placeTopic(ctx context.Context, o options, run string, _ int64) (func(context.Context) error, error) {
	b, err := newBroker(o.brokers)
	if err != nil {
		return nil, err
	}
	if err := b.createTopic(ctx, topicOf(run)); err != nil {
		b.close()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer b.close()
		return b.deleteTopic(ctx, topicOf(run))
	}, nil
}

// bareKafka produces in transactions, one an interval, with the settings of the kafka sink.
func bareKafka(ctx context.Context, l *sinkLoop) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BROKERS"), ",")...), kgo.DefaultProduceTopic(topicOf(l.run)),
		kgo.TransactionalID("bench-"+l.run), kgo.ProducerBatchCompression(sinkCodec()), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed atomic.Pointer[error]
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Store(&err)
		}
	}
	return l.eachInterval(func(from int64, more func(int64) bool) error {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		for i := from; more(i); i++ {
			value, err := l.value(i)
			if err != nil {
				return err
			}
			cl.Produce(ctx, &kgo.Record{Key: l.key(i), Value: value}, acknowledged)
		}
		if err := cl.Flush(ctx); err != nil {
			return err
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		return cl.EndTransaction(ctx, kgo.TryCommit)
	})
}
