//go:build integration

package kafka

import (
	"os"
	"strings"
	"testing"
)

// real is the cluster that integration tests run on.
func real(t testing.TB) []string {
	t.Helper()
	addrs := os.Getenv("KAFKA_BROKERS")
	if addrs == "" {
		t.Fatal("set KAFKA_BROKERS to the addresses of a Kafka cluster to test on")
	}
	return strings.Split(addrs, ",")
}

func TestSinkOnKafka(t *testing.T) {
	for _, c := range sinkCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, real(t)) })
	}
}

func TestSourceOnKafka(t *testing.T) {
	for _, c := range sourceCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, real(t)) })
	}
}
