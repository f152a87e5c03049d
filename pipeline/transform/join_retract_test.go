package transform_test

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

// TestAPlainJoinFindsARowAgainBehindAnyChange takes rows back by changes that have
// another offset and time, which the results show.
func TestAPlainJoinFindsARowAgainBehindAnyChange(t *testing.T) {
	for _, kind := range []string{"inner", "semi"} {
		c := joining(kind, func(c *transform.JoinConfig) {
			forever(c)
			c.On.Text = "left.k == right.k && left.meta.offset >= 0"
			if kind == "inner" {
				c.Select = assign("l", "left.v", "at", "left.meta.offset")
			}
		})
		k := transformtest.NewKeyed(t, "join", c, transformtest.Options{Updating: map[int][]string{left: {"v"}}})
		k.Feed(right, row(`{"k":1}`, 1))
		k.Feed(left, transformtest.Row{JSON: `{"k":1,"v":1.0}`, Time: 3, Offset: 5})
		k.Restart()
		k.Take()
		k.Feed(left, transformtest.Row{JSON: `{"k":1,"v":1}`, Time: 4, Offset: 6, Op: connectors.Delete})
		want := map[string]string{"inner": `delete {"l":1,"at":5}`, "semi": `delete {"k":1,"v":1.0}`}
		same(t, k.TakeJSON(), want[kind])
	}
}

func TestAJoinByWhatChangesHaveThemselvesIsRefused(t *testing.T) {
	c := joining("inner", func(c *transform.JoinConfig) { forever(c); c.On.Text = "left.meta.timestamp == right.v" })
	if faults := transformtest.Faults("join", c, transformtest.Options{}); len(faults) > 0 {
		t.Error(faults)
	}
	faults := transformtest.Faults("join", c, transformtest.Options{Updating: map[int][]string{left: nil}})
	if len(faults) != 1 || !strings.Contains(faults[0], "is not the same for a row of an updating stream") {
		t.Errorf("the faults are %q", faults)
	}
}

// TestTheDefinitionOfAJoinHangsOnNoOrder asks for the same fields in another order.
func TestTheDefinitionOfAJoinHangsOnNoOrder(t *testing.T) {
	text := func(pairs ...string) string {
		c := joining("inner", func(c *transform.JoinConfig) { forever(c); c.Select = assign(pairs...) })
		return transformtest.NewKeyed(t, "join", c, transformtest.Options{}).Definition()
	}
	if a, b := text("a", "left.v", "b", "left.w"), text("b", "left.w", "a", "left.v"); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}
