package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func TestSourceContract(t *testing.T) {
	connectortest.TestSource(t, func(t *testing.T) connectortest.Source {
		_, brokers := fake(t)
		in := topic(t, brokers, 3, nil)
		want := map[string][]string{splitID(in, 0): numbers(0, 700), splitID(in, 1): numbers(700, 701), splitID(in, 2): nil}
		cl := manual(t, brokers)
		for p := range int32(3) {
			for _, v := range want[splitID(in, p)] {
				cl.Produce(context.Background(), &kgo.Record{Topic: in, Partition: p, Value: []byte(v)}, nil)
			}
		}
		if err := cl.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
		return connectortest.Source{
			Want: want,
			New: func() (connectors.Source, error) {
				return newSource(config(brokers, func(c *SourceConfig) { c.Until = Until{kind: startLatest} }, in))
			},
		}
	})
}

// sinkTarget is a topic for the sink's contract.
func sinkTarget(t *testing.T, brokers []string, change func(*SinkConfig)) connectortest.Sink {
	out := topic(t, brokers, 1, nil)
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Brokers, cfg.Topic = brokers, fixedTopic(out)
	isolation := kgo.ReadCommitted()
	change(cfg)
	if cfg.Delivery == atLeastOnce {
		isolation = kgo.ReadUncommitted()
	}
	return connectortest.Sink{
		New: func() (connectors.Sink, error) { return newSink(cfg), nil },
		Read: func(context.Context) ([]string, error) {
			return stored(t, brokers, out, isolation), nil
		},
	}
}

func TestSinkContract(t *testing.T) {
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				_, brokers := fake(t)
				return sinkTarget(t, brokers, func(c *SinkConfig) { c.Delivery = delivery })
			})
		})
	}
}

func TestSinkContractUnderFaults(t *testing.T) {
	connectortest.TestSinkChaos(t, 4, func(t *testing.T, _ uint64) connectortest.Chaos {
		_, brokers := fake(t)
		net := &faultyNet{}
		return connectortest.Chaos{
			Sink: sinkTarget(t, brokers, func(c *SinkConfig) { c.dial = net.dial }),
			Faults: func(on bool) {
				net.mu.Lock()
				defer net.mu.Unlock()
				net.requests, net.replies, net.cycle = 0, 0, 0
				if on {
					net.cycle = 1
				}
			},
		}
	})
}
