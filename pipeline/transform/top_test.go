package transform_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/pipeline/transform/transformtest"
)

func descending(field string) transform.Order { return transform.Order{{Text: field, Desc: true}} }

func TestTopKeepsTheBestUpToDate(t *testing.T) {
	c := &transform.TopConfig{By: by("a"), N: 2, Order: descending("p"), Rank: "rank", Ties: "cut"}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{})
	k.Feed(0, rows(t, `{"a":1,"p":5}`, `{"a":1,"p":7}`, `{"a":1,"p":6}`, `{"a":2,"p":1.50}`)...)
	got := k.TakeJSON()
	slices.Sort(got)
	same(t, got, `{"a":1,"p":6,"rank":2}`, `{"a":1,"p":7,"rank":1}`, `{"a":2,"p":1.50,"rank":1}`)
	k.Restart()
	k.Feed(0, rows(t, `{"a":1,"p":9}`, `{"a":1,"p":6}`)...)
	same(t, k.TakeJSON(),
		`update_before {"a":1,"p":7,"rank":1}`, `update_after {"a":1,"p":9,"rank":1}`,
		`update_before {"a":1,"p":6,"rank":2}`, `update_after {"a":1,"p":7,"rank":2}`)
	k.Feed(0, transformtest.Row{JSON: `{"a":1,"p":7}`, Offset: 100})
	same(t, k.TakeJSON()) // equal in all of order, and its offset is not before the other's
}

func TestTopTakesBackWhatAnUpdateReplaces(t *testing.T) {
	c := &transform.TopConfig{N: 1, Order: descending("n"), Ties: "cut"}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{Updating: map[int][]string{0: {"id"}}})
	k.Feed(0, rows(t, `{"id":"x","n":5}`, `{"id":"y","n":3}`)...)
	same(t, k.TakeJSON(), `{"id":"x","n":5}`)
	k.Feed(0, transformtest.Row{JSON: `{"id":"x","n":5}`, Op: connectors.UpdateBefore, Time: 77}, transformtest.Row{JSON: `{"id":"x","n":1}`, Op: connectors.UpdateAfter, Time: 77})
	same(t, k.TakeJSON(), `update_before {"id":"x","n":5}`, `update_after {"id":"y","n":3}`)
	k.Feed(0, transformtest.Row{JSON: `{"id":"y","n":3}`, Op: connectors.Delete}, transformtest.Row{JSON: `{"id":"x","n":1}`, Op: connectors.Delete})
	same(t, k.TakeJSON(), `delete {"id":"y","n":3}`)
	if n := k.Store().Usage().Keys; n != 0 {
		t.Errorf("%d entries are left of a group without rows", n)
	}
}

func TestTopKeepsTiesWithOneRank(t *testing.T) {
	c := &transform.TopConfig{N: 1, Order: descending("n"), Rank: "r", Ties: "keep"}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{})
	k.Feed(0, rows(t, `{"id":1,"n":5}`, `{"id":2,"n":5.0}`, `{"id":3,"n":4}`)...)
	same(t, k.TakeJSON(), `{"id":1,"n":5,"r":1}`, `{"id":2,"n":5.0,"r":1}`)
	k.Feed(0, rows(t, `{"id":4,"n":6}`)...)
	same(t, k.TakeJSON(), `{"id":4,"n":6,"r":1}`, `delete {"id":1,"n":5,"r":1}`, `delete {"id":2,"n":5.0,"r":1}`)
}

func TestTopOfAWindowComesOnce(t *testing.T) {
	w := transform.Window{Kind: transform.SlidingWindow, Size: 10, Every: 5, Zone: time.UTC}
	c := &transform.TopConfig{By: by("a"), N: 1, Order: descending("p"), Ties: "cut", Window: w}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{Timestamped: true})
	k.Feed(0, rows(t, `{"a":1,"p":5,"t":-3}`, `{"a":1,"p":7,"t":2}`, `{"a":1,"p":6,"t":7}`)...)
	same(t, k.TakeJSON())
	k.Watermark(0)
	if out := k.Take(); len(out) != 1 || out[0].JSON != `{"a":1,"p":5,"t":-3,"window_start":-10,"window_end":0}` || out[0].Time != -1 {
		t.Errorf("got %v", out)
	}
	k.Restart()
	k.Feed(0, rows(t, `{"a":1,"p":9,"t":-4}`)...) // [-10, 0) is over, [-5, 5) is not
	k.Watermark(state.MaxTime)
	same(t, k.TakeJSON(), `{"a":1,"p":9,"t":-4,"window_start":-5,"window_end":5}`, `{"a":1,"p":7,"t":2,"window_start":0,"window_end":10}`,
		`{"a":1,"p":6,"t":7,"window_start":5,"window_end":15}`)
	if k.Late() != 0 {
		t.Error("a record that one of its windows took is counted as late")
	}
	k = transformtest.NewKeyed(t, "top", c, transformtest.Options{Timestamped: true})
	mark := int64(10)
	k.Feed(0, transformtest.Row{JSON: `{"a":1,"p":1}`, Time: -1, Mark: &mark})
	if k.Late() != 1 {
		t.Error("a record whose own partition had passed its windows is not late")
	}
	k = transformtest.NewKeyed(t, "top", c, transformtest.Options{Timestamped: true, Reads: []string{"late"}})
	k.Feed(0, transformtest.Row{JSON: `{"a":1,"p":1}`, Time: -1, Mark: &mark})
	if out := k.Take(); len(out) != 1 || out[0].Output != 1 || out[0].JSON != `{"a":1,"p":1}` {
		t.Errorf("the branch of late records has %v", out)
	}
}

// TestTopFindsARowAgainBehindAnyChange takes rows back by changes that have another time,
// other headers, and another text.
func TestTopFindsARowAgainBehindAnyChange(t *testing.T) {
	trace := func(id string) []connectors.Header {
		return []connectors.Header{{Key: "trace", Value: []byte(id)}}
	}
	c := &transform.TopConfig{N: 1, Order: descending("n"), Ties: "cut"}
	k := transformtest.NewKeyed(t, "top", c, transformtest.Options{Updating: map[int][]string{0: {"id"}}})
	k.Feed(0, transformtest.Row{JSON: `{"id":1,"n":1}`, Time: 3, Headers: trace("a")}, transformtest.Row{JSON: `{"id":2,"n":9}`, Time: 5, Headers: trace("b")})
	k.Feed(0, transformtest.Row{JSON: `{"n":9.0, "id":2}`, Op: connectors.Delete, Time: 8, Offset: 7, Key: "k", Headers: trace("c")})
	k.Restart()
	k.Feed(0, transformtest.Row{JSON: `{"id":3,"n":0}`, Time: 9})
	out := k.Take()
	same(t, []string{out[0].String(), out[1].String(), out[2].String()}, `{"id":2,"n":9}`, `update_before {"id":2,"n":9}`, `update_after {"id":1,"n":1}`)
	if out[2].Time != 3 {
		t.Errorf("the row has the time %d, want its own", out[2].Time)
	}
}

// TestTopOfManyRows changes a group of thousands of rows and compares with sorting.
func TestTopOfManyRows(t *testing.T) {
	for _, ties := range []string{"cut", "keep"} {
		rng := rand.New(rand.NewPCG(1, 2))
		c := &transform.TopConfig{N: 5, Order: descending("p"), Ties: ties}
		k := transformtest.NewKeyed(t, "top", c, transformtest.Options{Updating: map[int][]string{0: nil}})
		row := func(p int) string { return fmt.Sprintf(`{"p":%d}`, p) }
		var live []int
		table := map[string]int{}
		check := func(when string) {
			t.Helper()
			sorted := slices.Sorted(slices.Values(live))
			slices.Reverse(sorted)
			want := map[string]int{}
			for i, p := range sorted {
				if i < c.N || ties == "keep" && p == sorted[c.N-1] {
					want[row(p)]++
				}
			}
			if !maps.Equal(table, want) {
				t.Fatalf("%s of %d rows: got %v, want %v", when, len(live), table, want)
			}
		}
		for phase, share := range []int{90, 50, 2} { // it grows, churns and shrinks
			for round := range 400 {
				var batch []transformtest.Row
				for range 10 {
					if len(live) == 0 || rng.IntN(100) < share {
						p := rng.IntN(3000)
						if rng.IntN(4) == 0 {
							p = rng.IntN(3) // many that are equal
						}
						live = append(live, p)
						batch = append(batch, transformtest.Row{JSON: row(p), Time: int64(round)})
						continue
					}
					i := rng.IntN(len(live))
					batch = append(batch, transformtest.Row{JSON: row(live[i]), Op: connectors.Delete})
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
				}
				k.Feed(0, batch...)
				for _, o := range k.Take() {
					n := 1
					if o.Op.Retracts() {
						n = -1
					}
					if table[o.JSON] += n; table[o.JSON] == 0 {
						delete(table, o.JSON)
					}
				}
				if round%50 == 0 {
					k.Restart()
				}
				check(fmt.Sprintf("phase %d round %d", phase, round))
			}
		}
		for _, p := range live {
			k.Feed(0, transformtest.Row{JSON: row(p), Op: connectors.Delete})
		}
		if n := k.Store().Usage().Keys; n != 0 {
			t.Errorf("%d entries are left of a group without rows", n)
		}
	}
}

func TestTopFaultsAreNamed(t *testing.T) {
	c := &transform.TopConfig{By: by("a"), N: 1, Order: transform.Order{{Text: "meta.timestamp"}}, Rank: "a", Ties: "cut"}
	faults := strings.Join(transformtest.Faults("top", c, transformtest.Options{Updating: map[int][]string{0: nil}}), "\n")
	for _, want := range []string{"by has a field of this name", "`meta.timestamp` is not the same for a row"} {
		if !strings.Contains(faults, want) {
			t.Errorf("the faults are %q, want one with %q", faults, want)
		}
	}
}

// TestTopAgreesWithSorting applies what comes out to a table, in batches of any
// size, and compares it with the best of all records.
func TestTopAgreesWithSorting(t *testing.T) {
	type item struct {
		A, P, ID int
	}
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := &transform.TopConfig{By: by("A"), N: 1 + rng.IntN(4), Order: descending("P"), Ties: []string{"cut", "keep"}[rng.IntN(2)]}
		if rng.IntN(2) == 0 {
			c.Rank = "rank"
		}
		updating := rng.IntN(2) == 0
		opts := transformtest.Options{}
		if updating {
			opts.Updating = map[int][]string{0: {"ID"}}
		}
		k := transformtest.NewKeyed(t, "top", c, opts)
		table := map[string]int{}
		var live []item
		for id := range 200 {
			var batch []transformtest.Row
			for range 1 + rng.IntN(5) {
				if updating && len(live) > 0 && rng.IntN(3) == 0 {
					i := rng.IntN(len(live))
					batch = append(batch, transformtest.Row{JSON: text(live[i]), Op: connectors.Delete})
					live = slices.Delete(live, i, i+1)
					continue
				}
				it := item{rng.IntN(2), rng.IntN(10), id*10 + len(batch)}
				live = append(live, it)
				batch = append(batch, transformtest.Row{JSON: text(it), Offset: int64(it.ID)})
			}
			k.Feed(0, batch...)
			for _, o := range k.Take() {
				n := 1
				if o.Op.Retracts() {
					n = -1
				}
				if table[o.JSON] += n; table[o.JSON] == 0 {
					delete(table, o.JSON)
				}
			}
		}
		var want []string
		for a := range 2 {
			var group []item
			for _, it := range live {
				if it.A == a {
					group = append(group, it)
				}
			}
			slices.SortFunc(group, func(x, y item) int {
				if x.P != y.P {
					return y.P - x.P
				}
				if updating { // by their bytes
					return strings.Compare(text(x), text(y))
				}
				return x.ID - y.ID
			})
			rank := 1
			for i, it := range group {
				if i >= c.N && (c.Ties == "cut" || it.P != group[c.N-1].P) {
					break
				}
				if c.Ties == "cut" || i == 0 || it.P != group[i-1].P {
					rank = i + 1
				}
				row := text(it)
				if c.Rank != "" {
					row = strings.TrimSuffix(row, "}") + fmt.Sprintf(`,"rank":%d}`, rank)
				}
				want = append(want, row)
			}
		}
		var got []string
		for row, n := range table {
			if n != 1 {
				t.Fatalf("seed %d: %s is there %d times", seed, row, n)
			}
			got = append(got, row)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d (%+v): got\n  %s\nwant\n  %s", seed, c, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
