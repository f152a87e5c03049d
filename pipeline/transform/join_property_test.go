package transform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// multiset counts equal rows of a table.
type multiset map[string]int

// apply applies a changelog and demands that it can be.
func (m multiset) apply(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, out []transformtest.Out) {
	t.Helper()
	for i, o := range out {
		if o.Op == connectors.UpdateBefore && (i+1 == len(out) || out[i+1].Op != connectors.UpdateAfter) {
			t.Fatalf("the new row of an update does not follow: %v", out)
		}
		if o.Op == connectors.UpdateAfter && (i == 0 || out[i-1].Op != connectors.UpdateBefore) {
			t.Fatalf("the old row of an update is missing: %v", out)
		}
		if o.Op.Retracts() {
			if m[o.JSON]--; m[o.JSON] < 0 {
				t.Fatalf("%v takes back what is not there: %v", o, out)
			}
			continue
		}
		m[o.JSON]++
	}
}

func (m multiset) list() (out []string) {
	for json, n := range m {
		for range n {
			out = append(out, json)
		}
	}
	return sorted(out)
}

func (m multiset) String() string { return fmt.Sprint(strings.Join(m.list(), " ")) }

var _ testing.TB
