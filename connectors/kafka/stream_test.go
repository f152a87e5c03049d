package kafka

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestCheckpointsOfBothDeliveriesLeaveNothingBehind(t *testing.T) {
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			_, brokers := fake(t)
			p := process(t, brokers, 2, func(c *SinkConfig, _ *connectors.SinkEnv) { c.Delivery = delivery }, topic(t, brokers, 1, nil)).start(2, nil)
			defer p.stop()
			for n := uint64(1); n <= 3; n++ {
				p.write(0, "one")
				cs := p.prepared(1, n)
				p.mustCommit(cs, false)
				if p.commit != nil {
					p.commit.Done(connectors.CheckpointID{Generation: 1, Number: n})
				}
			}
			w := p.writers[0].(*writer)
			if w.stream.first() != w.iv {
				t.Error("the intervals of earlier checkpoints are held on to")
			}
		})
	}
}
