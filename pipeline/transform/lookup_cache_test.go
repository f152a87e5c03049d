package transform

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

// The cache gives what was put last and is not too old, and never takes more memory
// than it may.
func TestTheCacheOfALookupIsBoundedAndGivesWhatWasPut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newLookupCache(LookupCache{Size: 3000, TTL: connectors.TimeSpan(10 * time.Second), MissingTTL: connectors.TimeSpan(3 * time.Second)})
		now := time.Unix(0, 0)
		type put struct {
			row string
			at  time.Time
		}
		last := map[string]put{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "key"))
			now = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "put") {
				row := rapid.StringN(0, 1000, 1000).Draw(t, "row")
				var bytes []byte
				if row != "" {
					bytes = []byte(row)
				}
				c.put(key, bytes, now)
				last[key] = put{row, now}
			}
			if row, ok := c.get([]byte(key), now); ok {
				want, life := last[key], 10*time.Second
				if want.row == "" {
					life = 3 * time.Second
				}
				if string(row) != want.row || now.Sub(want.at) >= life {
					t.Fatalf("key %s at %s: %q, put at %s: %q", key, now, row, want.at, want.row)
				}
			}
			sum, n := 0, 0
			for e := c.oldest; e != nil; e = e.newer {
				sum, n = sum+e.cost(), n+1
			}
			if sum != c.bytes || sum > 3000 || n != len(c.byKey) {
				t.Fatalf("%d bytes in %d entries, counted %d and %d", sum, n, c.bytes, len(c.byKey))
			}
		}
	})
}

func TestTheCacheOfALookupKeepsWhatIsUsed(t *testing.T) {
	c := newLookupCache(LookupCache{Size: 100 * (cachedOverhead + 8), TTL: connectors.TimeSpan(time.Hour)})
	now := time.Unix(0, 0)
	for i := range 10_000 {
		c.put(fmt.Sprintf("%04d", i), []byte("{  }"), now)
		for hot := range 10 {
			if _, ok := c.get(fmt.Appendf(nil, "%04d", hot), now); !ok && i > hot {
				t.Fatalf("the row %d, used all the time, is gone after %d", hot, i)
			}
		}
	}
	if n := len(c.byKey); n != 100 {
		t.Errorf("%d entries", n)
	}
}

func TestTheCacheOfALookupIsSharedByManyReaders(t *testing.T) {
	c := newLookupCache(LookupCache{Size: 4000, TTL: connectors.TimeSpan(time.Hour)})
	var tasks sync.WaitGroup
	for range 4 {
		tasks.Go(func() {
			for i := range 2000 {
				key := fmt.Sprint(i % 50)
				c.mu.RLock()
				row, ok := c.get([]byte(key), time.Unix(0, 0))
				c.mu.RUnlock()
				if ok && string(row) != key {
					t.Errorf("row %s of key %s", row, key)
				}
				c.mu.Lock()
				c.put(key, []byte(key), time.Unix(0, 0))
				c.mu.Unlock()
			}
		})
	}
	tasks.Wait()
}
