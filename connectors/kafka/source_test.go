package kafka

import "testing"

func TestSource(t *testing.T) {
	for _, c := range sourceCases {
		t.Run(c.name, func(t *testing.T) {
			_, brokers := fake(t)
			c.run(t, brokers)
		})
	}
}
