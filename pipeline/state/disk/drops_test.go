package disk

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestDroppedNeighboursAreOneRange(t *testing.T) {
	for name, c := range map[string]struct {
		drop, write []int64 // in the epoch after 10, 20, ... 80 were written
		ranges      [][2]int64
	}{
		"a row of windows":           {drop: []int64{30, 10, 20}, ranges: [][2]int64{{10, 30}}},
		"one that stays between":     {drop: []int64{10, 20, 40, 50}, ranges: [][2]int64{{10, 20}, {40, 50}}},
		"one that is new between":    {drop: []int64{10, 20}, write: []int64{15}, ranges: [][2]int64{{10, 20}}},
		"one that is written again":  {drop: []int64{10, 20, 30}, write: []int64{20}, ranges: [][2]int64{{10, 30}}},
		"one that was never written": {drop: []int64{15}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, vfs.NewMem(), nil)
			tab := s.Table("windows")
			want := []int64{}
			for ns := int64(10); ns <= 80; ns += 10 {
				for i := range 20 * groups {
					tab.Put(ns, keyOf(i), []byte("old"))
				}
				want = append(want, ns)
			}
			s.squeeze()
			for _, ns := range c.drop {
				tab.Drop(ns)
				want = slices.DeleteFunc(want, func(n int64) bool { return n == ns })
			}
			for _, ns := range c.write {
				tab.Put(ns, keyOf(1), []byte("new"))
				want = append(want, ns)
			}
			slices.Sort(want)
			var got [][2]int64
			s.drops = s.joinDrops()
			for _, d := range s.drops {
				got = append(got, [2]int64{d.first, d.last})
			}
			if !slices.Equal(got, c.ranges) {
				t.Errorf("the ranges are %v, not %v", got, c.ranges)
			}
			if n := len(s.rangesOf(s.drops)); n != groups*len(c.ranges) {
				t.Errorf("%d ranges of the database are deleted for %d of namespaces in %d groups", n, len(c.ranges), groups)
			}
			s.squeeze()
			if ns := tab.Namespaces(nil, 0, 100); !slices.Equal(ns, want) {
				t.Errorf("namespaces %v are left, not %v", ns, want)
			}
			for _, ns := range c.write {
				if v, ok := tab.Get(ns, keyOf(1)); !ok || string(v) != "new" {
					t.Errorf("namespace %d has %q", ns, v)
				}
				if _, ok := tab.Get(ns, keyOf(2)); ok {
					t.Errorf("namespace %d has a key from before it was dropped", ns)
				}
			}
		})
	}
}
