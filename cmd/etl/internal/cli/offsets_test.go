package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/pipeline"
)

func TestFlagsOfPositions(t *testing.T) {
	f := runFlags{setOffsets: []string{"orders/0=1200", "orders.eu/12=earliest", "in:orders/1=latest"}, skip: []string{"a@b/0@7"}}
	offsets, skip, err := f.moves()
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int64{"orders/0": 1200, "orders.eu/12": pipeline.Earliest, "in:orders/1": pipeline.Latest}; !maps.Equal(offsets, want) {
		t.Errorf("offsets are %v", offsets)
	}
	if want := []pipeline.Coordinates{{Split: "a@b/0", Offset: 7}}; !slices.Equal(skip, want) {
		t.Errorf("records to skip are %v", skip)
	}
	for _, c := range []struct {
		f    runFlags
		want string
	}{
		{runFlags{setOffsets: []string{"orders=1"}}, "write topic/partition=offset"},
		{runFlags{setOffsets: []string{"orders/0"}}, "write topic/partition=offset"},
		{runFlags{setOffsets: []string{"orders/0=-1"}}, "-1 is no offset"},
		{runFlags{setOffsets: []string{"orders/0=soon"}}, "soon is no offset"},
		{runFlags{setOffsets: []string{"orders/0=1", "orders/0=2"}}, "twice"},
		{runFlags{skip: []string{"orders/0"}}, "write topic/partition@offset"},
		{runFlags{skip: []string{"orders@1"}}, "write topic/partition@offset"},
		{runFlags{skip: []string{"orders/0@x"}}, "x is no offset"},
	} {
		if _, _, err := c.f.moves(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: error %v, want %q", c.f.setOffsets, c.f.skip, err, c.want)
		}
	}
}
