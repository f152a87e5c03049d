package transform_test

import (
	"fmt"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// TestTheLatestOfRowsThatStepsMadeHangsOnNoOrder has two rows of one time and no place.
func TestTheLatestOfRowsThatStepsMadeHangsOnNoOrder(t *testing.T) {
	made := func(v int) transformtest.Row {
		return transformtest.Row{JSON: fmt.Sprintf(`{"k":1,"v":%d}`, v), Time: 5, Made: true}
	}
	for _, order := range [][]transformtest.Row{{made(1), made(2)}, {made(2), made(1)}} {
		k := transformtest.NewKeyed(t, "join", joining("inner", latest), transformtest.Options{})
		k.Feed(right, order...)
		k.Feed(left, row(`{"k":1,"v":"l"}`, 6))
		k.Watermark(10)
		same(t, k.TakeJSON(), `{"l":"l","r":2}`)
	}
	k := transformtest.NewKeyed(t, "join", joining("inner", latest), transformtest.Options{Updating: map[int][]string{right: {"k"}}})
	k.Feed(right, made(2))
	before, after := made(2), made(1)
	before.Op, after.Op = connectors.UpdateBefore, connectors.UpdateAfter
	k.Feed(right, before, after)
	k.Feed(left, row(`{"k":1,"v":"l"}`, 6))
	k.Watermark(10)
	same(t, k.TakeJSON(), `{"l":"l","r":1}`)
}
