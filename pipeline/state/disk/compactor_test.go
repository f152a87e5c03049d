package disk

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// slicesOf are the ranges that a compactor asks Pebble to merge.
func slicesOf(c *compactor) (all []span) {
	for range len(c.cuts) + 1 {
		c.credit = 1
		start, end, ok := c.take()
		if !ok {
			break
		}
		all = append(all, span{start, end})
	}
	return all
}

func TestEverySliceHoldsSomething(t *testing.T) {
	key := func(ns int64, k string) []byte { return append(appendPrefix(nil, 3, 0, ns), k...) }
	for name, begins := range map[string][][]byte{
		"files that begin with the same key": {key(1, "a"), key(1, "a"), key(1, "a"), key(2, "b"), key(2, "b")},
		"keys of nothing but zeros":          {appendPrefix(nil, 0, 0, state.MinTime), appendPrefix(nil, 0, 0, state.MinTime), key(2, "b")},
		"a file of the names of tables":      {key(1, "a"), key(2, "b"), key(3, "c"), nameKey(0)},
		"a key that ends in zeros":           {key(1, "a"), key(1, "a\x00"), key(1, "a\x00\x00"), key(1, "b")},
	} {
		t.Run(name, func(t *testing.T) {
			var level []pebble.SSTableInfo
			var total int64
			for _, b := range begins {
				var f pebble.SSTableInfo
				f.Smallest.UserKey, f.Size = b, sliceBytes*sliceCount
				level, total = append(level, f), total+int64(f.Size)
			}
			c := &compactor{}
			for range 2 { // the second time there are cuts to be kept
				c.slice([][]pebble.SSTableInfo{level}, total)
				all := slicesOf(c)
				if len(all) < 2 {
					t.Fatalf("%d slices", len(all))
				}
				for _, s := range all {
					if bytes.Compare(s.start, s.end) >= 0 {
						t.Errorf("a slice from %x to %x", s.start, s.end)
					}
				}
			}
		})
	}
}

// TestSmallStateTakesFewFiles writes namespaces that live for two checkpoints.
func TestSmallStateTakesFewFiles(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), nil)
	files := &connectortest.Files{}
	for n := range 40 {
		tab := s.Table("windows")
		for i := range 50 {
			tab.Append(int64(n), keyOf(i), make([]byte, 20))
		}
		tab.Drop(int64(n - 2))
		p := checkpointOf(t, s, files, uint64(n+1))
		tables := 0
		for _, f := range p {
			if isTable(f.Name) {
				tables++
			}
		}
		if tables > smallFiles+4 {
			t.Fatalf("checkpoint %d has %d files of the database", n, tables)
		}
		retain(files, p)
	}
}
