package state_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
)

const groups = 16

func keyOf(name string) state.Key { return state.MakeKey([]byte(name), groups) }

// moment is a timer as tests hold it.
type moment struct {
	at       int64
	key, tag string
}

func (m moment) compare(o moment) int {
	return cmp.Or(cmp.Compare(m.at, o.at), strings.Compare(m.key, o.key), strings.Compare(m.tag, o.tag))
}

func TestTimersFireOnceInOrderOfTime(t *testing.T) {
	times := rapid.OneOf(rapid.Int64Range(-5000, 5000), rapid.Int64Range(-20, 20), rapid.SampledFrom([]int64{state.MinTime, state.MinTime + 1, state.MaxTime - 1, state.MaxTime}))
	rapid.Check(t, func(t *rapid.T) {
		var store state.Store = statetest.NewModel(groups)
		if rapid.Bool().Draw(t, "memory") {
			store, _ = state.OpenMemory(context.Background(), state.Options{Last: groups - 1, Groups: groups})
		}
		defer func() { _ = store.Close() }()
		table := store.Table("timers")
		timers := state.NewTimers(table)
		want := map[moment]bool{}
		draw := func() moment {
			if len(want) > 0 && rapid.Bool().Draw(t, "known") {
				known := slices.SortedFunc(maps.Keys(want), moment.compare)
				return rapid.SampledFrom(known).Draw(t, "timer")
			}
			return moment{times.Draw(t, "at"), rapid.SampledFrom([]string{"a", "b", "cc"}).Draw(t, "key"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "tag")}
		}
		set := func(m moment) {
			want[m] = true
			timers.Set(m.at, keyOf(m.key), []byte(m.tag))
		}
		fire := func(wm int64, more int) {
			err := timers.Due(wm, func(at int64, k state.Key, tag []byte) error {
				m := moment{at, string(k.Bytes), string(tag)}
				first := slices.MinFunc(slices.Collect(maps.Keys(want)), moment.compare)
				if m != first || m.at > wm {
					t.Fatalf("at %d fires %v, not %v", wm, m, first)
				}
				delete(want, m)
				if more > 0 {
					more--
					if next := draw(); next.compare(m) > 0 {
						set(next)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for m := range want {
				if m.at <= wm {
					t.Fatalf("%v did not fire at %d", m, wm)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(*rapid.T) { set(draw()) },
			"clear": func(*rapid.T) {
				m := draw()
				delete(want, m)
				timers.Clear(m.at, keyOf(m.key), []byte(m.tag))
			},
			"due":     func(t *rapid.T) { fire(times.Draw(t, "wm"), rapid.IntRange(0, 3).Draw(t, "more")) },
			"restore": func(*rapid.T) { timers = state.NewTimers(table) },
			"next": func(*rapid.T) {
				at, ok := timers.Next()
				if ok != (len(want) > 0) || ok && at != slices.MinFunc(slices.Collect(maps.Keys(want)), moment.compare).at {
					t.Fatalf("next is %d, %v of %v", at, ok, want)
				}
			},
		})
		fire(state.MaxTime, 0)
		if spaces := table.Namespaces(nil, state.MinTime, state.MaxTime); len(spaces) > 0 {
			t.Fatalf("left behind: %v", spaces)
		}
	})
}

// countingTable counts what is read of a table.
type countingTable struct {
	state.Table
	scans, lists int
}

func (c *countingTable) Namespaces(dst []int64, from, to int64) []int64 {
	c.lists++
	return c.Table.Namespaces(dst, from, to)
}

func (c *countingTable) Scan(ns int64, visit func(state.Key, []byte) bool) {
	c.scans++
	c.Table.Scan(ns, visit)
}

func TestABucketThatTimeIsInsideOfIsReadOnce(t *testing.T) {
	table := &countingTable{Table: statetest.NewModel(groups).Table("timers")}
	timers := state.NewTimers(table)
	for i := range int64(1000) {
		timers.Set(i, keyOf("a"), nil)
	}
	fired := 0
	for wm := range int64(1000) {
		if err := timers.Due(wm, func(at int64, k state.Key, _ []byte) error {
			fired++
			timers.Set(at+1000, k, nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if fired != 1000 || table.scans != 1 || table.lists != 1 {
		t.Errorf("%d fired, %d scans, %d lists of namespaces", fired, table.scans, table.lists)
	}
}

func TestATimerIsRemovedBeforeItFiresAndAnErrorEndsDue(t *testing.T) {
	timers := state.NewTimers(statetest.NewModel(groups).Table("timers"))
	timers.Set(1, keyOf("a"), nil)
	timers.Set(2, keyOf("b"), nil)
	failure := errors.New("no")
	var fired []string
	fire := func(_ int64, k state.Key, _ []byte) error {
		fired = append(fired, string(k.Bytes))
		if len(fired) == 1 {
			return failure
		}
		return nil
	}
	if err := timers.Due(5, fire); !errors.Is(err, failure) {
		t.Fatal(err)
	}
	if err := timers.Due(5, fire); err != nil || !slices.Equal(fired, []string{"a", "b"}) {
		t.Errorf("fired %v, %v", fired, err)
	}
}

func TestStateExpiresWhenItWasNotTouchedForItsTime(t *testing.T) {
	store := statetest.NewModel(groups)
	values := store.Table("values")
	timers := &countingTimers{Table: store.Table("timers")}
	clock := state.NewTimers(timers)
	ttl := state.NewTTL(clock, time.Second, []byte("ttl"))
	touch := func(name string, now int64) {
		v, fresh := values.Upsert(0, keyOf(name), state.StampSize)
		ttl.Touch(keyOf(name), v, fresh, now)
	}
	var gone []string
	advance := func(wm int64) {
		if err := clock.Due(wm, func(at int64, k state.Key, tag []byte) error {
			v, _ := values.Get(0, k)
			if ttl.Fire(at, k, v) {
				gone = append(gone, fmt.Sprintf("%s@%d", k.Bytes, wm))
				values.Delete(0, k)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	touch("once", 0)
	for now := range int64(3000) {
		touch("often", now)
	}
	touch("often", 5) // late: the stamp does not go back
	if timers.appends != 2 {
		t.Errorf("%d timers were set for 2 keys", timers.appends)
	}
	v, _ := values.Get(0, keyOf("once"))
	if ttl.Expired(v, 999) || !ttl.Expired(v, 1000) {
		t.Error("it expires at another time than 1000")
	}
	for wm := int64(0); wm <= 5000; wm += 5 {
		advance(wm)
	}
	if want := []string{"once@1005", "often@4005"}; !slices.Equal(gone, want) {
		t.Errorf("gone are %v, want %v", gone, want)
	}
	touch("again", 10000)
	advance(state.MaxTime)
	if _, ok := clock.Next(); ok || len(gone) != 3 {
		t.Errorf("at the end of time %v are gone, and there is a timer: %v", gone, ok)
	}
}

// countingTimers counts what is appended to a table.
type countingTimers struct {
	state.Table
	appends int
}

func (c *countingTimers) Append(ns int64, k state.Key, tail []byte) {
	c.appends++
	c.Table.Append(ns, k, tail)
}
