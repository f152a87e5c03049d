package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestAWaitForASlotEndsWithTheTransactionsThatHoldThem(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, func(c *SinkConfig, e *connectors.SinkEnv) {
		c.TransactionTimeout, e.Slots = connectors.TimeSpan(2*time.Second), 2
	}, out).start(1, nil)
	defer p.stop()
	for n := uint64(1); n <= 2; n++ {
		p.write(0, "no checkpoint completes")
		p.prepared(1, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := p.writers[0].Write(ctx, rowsOf("behind them"))
	wantText(t, err, "transaction_timeout")
}

func TestAnIntervalBeyondTheTransactionTimeoutIsRefused(t *testing.T) {
	_, brokers := fake(t)
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Brokers, cfg.Topic = brokers, fixedTopic(topic(t, brokers, 1, nil))
	s := newSink(cfg)
	defer s.Close()
	err := s.Open(testContext(t), connectors.SinkEnv{Pipeline: "p", Name: "s", Subtasks: 1, Slots: 2, Interval: 20 * time.Minute})
	wantText(t, err, "checkpoint.interval 20m0s", "transaction_timeout 15m0s")
	if !connectors.IsPermanent(err) {
		t.Error("the error is not permanent")
	}
}
