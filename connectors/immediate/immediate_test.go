package immediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func items(n int, key func(i int) string) (out []Item) {
	for i := range n {
		out = append(out, Item{Row: i, Size: 10, Key: key(i)})
	}
	return out
}

func none(int) string { return "" }

func TestRequestsAreBounded(t *testing.T) {
	tests := []struct {
		name  string
		batch Batch
		n     int
		want  []int // rows of each request, sorted
	}{
		{"nothing", Batch{Records: 5, Bytes: 1000}, 0, nil},
		{"all in one", Batch{Records: 5, Bytes: 1000}, 5, []int{5}},
		{"by count", Batch{Records: 5, Bytes: 1000}, 11, []int{3, 4, 4}},
		{"by bytes", Batch{Records: 100, Bytes: 30}, 6, []int{3, 3}},
		{"larger than a request", Batch{Records: 100, Bytes: 5}, 2, []int{1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var got []int
			err := tt.batch.Write(t.Context(), items(tt.n, none), 3, func(_ context.Context, items []Item) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, len(items))
				return nil
			})
			slices.Sort(got)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("error %v, requests of %v", err, got)
			}
		})
	}
}

func TestRowsOfAKeyNeverOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var most, now atomic.Int32
		last := map[string]int{}
		key := func(i int) string { return fmt.Sprint(i % 7) }
		b := Batch{Records: 3, Bytes: 1 << 20}
		err := b.Write(t.Context(), items(500, key), 4, func(_ context.Context, items []Item) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Duration(items[0].Row%5) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			for _, item := range items {
				if row, seen := last[item.Key]; seen && row > item.Row {
					t.Errorf("row %d comes behind row %d of key %s", item.Row, row, item.Key)
				}
				last[item.Key] = item.Row
			}
			return nil
		})
		if err != nil || most.Load() < 2 || most.Load() > 4 {
			t.Errorf("error %v, %d at a time", err, most.Load())
		}
	})
}

func TestRefusedRowsComeBackTogether(t *testing.T) {
	b := Batch{Records: 4, Bytes: 1 << 20}
	send := func(_ context.Context, items []Item) error {
		return Halve(t.Context(), items, func(_ context.Context, items []Item) error {
			for _, item := range items {
				if item.Row%10 == 3 {
					return Final(&RefusedError{Reason: "bad", Kind: "k"})
				}
			}
			return nil
		})
	}
	err := Merge([]connectors.RowError{{Row: 99}}, b.Write(t.Context(), items(40, none), 4, send))
	var rows *connectors.RowsError
	if !errors.As(err, &rows) {
		t.Fatal(err)
	}
	var got []int
	for _, r := range rows.Rows {
		got = append(got, r.Row)
	}
	if !slices.Equal(got, []int{3, 13, 23, 33, 99}) {
		t.Error(got)
	}
}

func TestAnErrorEndsAllRequests(t *testing.T) {
	down := errors.New("down")
	b := Batch{Records: 1, Bytes: 1 << 20}
	err := b.Write(t.Context(), items(100, none), 4, func(ctx context.Context, items []Item) error {
		if items[0].Row == 0 {
			return down
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, down) {
		t.Error(err)
	}
}

func TestIDsOfRows(t *testing.T) {
	var ids IDs
	a, b := &connectors.Origin{Topic: "t", Partition: 3}, &connectors.Origin{Topic: "t", Partition: 4}
	var got []string
	for _, r := range []connectors.Record{{Origin: a, Offset: 7}, {Origin: a, Offset: 7}, {Origin: a, Offset: 7}, {Origin: a, Offset: 8}, {Origin: b, Offset: 8}, {}} {
		id, ok := ids.Append(nil, &r)
		if ok != (r.Origin != nil) {
			t.Error(string(id), ok)
		}
		got = append(got, string(id))
	}
	if want := []string{"t-3-7", "t-3-7-1", "t-3-7-2", "t-3-8", "t-4-8", ""}; !slices.Equal(got, want) {
		t.Error(got)
	}
}
