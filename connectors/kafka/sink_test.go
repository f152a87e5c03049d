package kafka

import "testing"

func TestSink(t *testing.T) {
	for _, c := range sinkCases {
		t.Run(c.name, func(t *testing.T) {
			_, brokers := fake(t)
			c.run(t, brokers)
		})
	}
}
