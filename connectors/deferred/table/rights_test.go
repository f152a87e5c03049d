package table

import (
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// A right that nobody asked for is missed at the first refused row.
func TestRefusedRowsThatAreHandedOverAreDeleted(t *testing.T) {
	for action, want := range map[connectors.RowAction]string{connectors.RowDeadLetter: "DELETE", connectors.RowSkip: "DELETE", connectors.RowFail: "UPDATE"} {
		got := Rights(Insert, action, "t", "c", "r")["r"]
		if !slices.Equal(got, []string{"SELECT", "INSERT", want}) {
			t.Errorf("%v: %v", action, got)
		}
	}
}
