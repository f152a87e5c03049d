package connectors_test

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestTheErrorOfARecordSaysWhichItIs(t *testing.T) {
	for want, e := range map[string]connectors.RecordError{
		"record bids/2@17: step a: it is late in `x + 1`": {Origin: &connectors.Origin{Topic: "bids", Partition: 2}, Offset: 17, Step: "a", Reason: "it is late", Expr: "x + 1"},
		"record made by a step: step a: too large":        {Step: "a", Reason: "too large"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
