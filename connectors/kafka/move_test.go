package kafka

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// The epoch is that of the record before the old position: at another one the brokers would
// say that the log was cut.
func TestAMovedPositionHasNoEpochAndTheSameTopic(t *testing.T) {
	was := connectors.Split{ID: "orders/0", Offset: 90, Until: 200, Detail: detail{TopicID: "abc", Epoch: 7}.encode()}
	got := (&source{}).Move(was, 120)
	if d := splitDetail(got); got.ID != was.ID || got.Offset != 120 || got.Until != 200 || d != (detail{TopicID: "abc", Epoch: -1}) {
		t.Errorf("got %+v with %+v", got, d)
	}
}
