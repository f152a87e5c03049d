package generate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func config(change func(*Config)) Config {
	spec, _ := connectors.LookupSource("generate")
	c := *spec.NewConfig().(*Config)
	change(&c)
	return c
}

// open makes a reader of all splits, which go on from restored where that is set.
func open(t *testing.T, c Config, restored []connectors.Split) (connectors.Reader, []connectors.Split) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	splits, err := s.Splits(context.Background(), restored)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Batches: connectors.NewBatchPool(4)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	return r, splits
}

type made struct {
	partition int32
	offset    int64
}

// drain reads to the end and returns the values by where they are from.
func drain(t *testing.T, r connectors.Reader) map[made]string {
	t.Helper()
	out := map[made]string{}
	for {
		b, err := r.Poll(context.Background())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Records {
			rec := &b.Records[i]
			out[made{rec.Origin.Partition, rec.Offset}] = string(rec.Key) + "|" + string(rec.Value)
		}
		b.Recycle()
	}
}

func TestBoundedCountIsSharedOutAndEnds(t *testing.T) {
	r, splits := open(t, config(func(c *Config) { c.Count, c.Partitions = 5003, 4 }), nil)
	if len(splits) != 4 || splits[0].Until != 1251 || splits[3].Until != 1250 {
		t.Fatalf("splits %+v", splits)
	}
	got := drain(t, r)
	if len(got) != 5003 {
		t.Fatalf("%d records, want 5003", len(got))
	}
	seen := map[int64]bool{}
	for at, v := range got {
		var rec struct{ Seq, Partition int64 }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(v, "|")), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Partition != int64(at.partition) || seen[rec.Seq] || rec.Seq >= 5004 {
			t.Fatalf("record %+v at %+v", rec, at)
		}
		seen[rec.Seq] = true
	}
}

func TestRestoredReaderMakesTheSameRecords(t *testing.T) {
	for _, kind := range []string{"sequence", "bid"} {
		t.Run(kind, func(t *testing.T) {
			c := config(func(c *Config) { c.Kind, c.Count, c.Partitions = kind, 6000, 2 })
			r, _ := open(t, c, nil)
			whole := drain(t, r)

			r, splits := open(t, c, nil)
			part := map[made]string{}
			for range 3 {
				b, err := r.Poll(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				for i := range b.Records {
					rec := &b.Records[i]
					part[made{rec.Origin.Partition, rec.Offset}] = string(rec.Key) + "|" + string(rec.Value)
				}
				splits[b.Split] = r.Position(b.Split, b.Next)
				b.Recycle()
			}
			r, _ = open(t, c, splits)
			for at, v := range drain(t, r) {
				if _, twice := part[at]; twice {
					t.Fatalf("record %+v came twice", at)
				}
				part[at] = v
			}
			if len(part) != len(whole) {
				t.Fatalf("%d records, want %d", len(part), len(whole))
			}
			for at, v := range whole {
				if part[at] != v {
					t.Fatalf("record %+v is %q, was %q", at, part[at], v)
				}
			}
		})
	}
}

func TestBidsAreValidAndAboutTwoHundredBytes(t *testing.T) {
	r, _ := open(t, config(func(c *Config) { c.Kind, c.Count = "bid", 3000 }), nil)
	total := 0
	got := drain(t, r)
	for at, kv := range got {
		key, v, _ := strings.Cut(kv, "|")
		total += len(v)
		var bid struct {
			Auction             json.Number
			Bidder, Price       int64
			Channel, URL, Extra string
			DateTime            int64 `json:"date_time"`
		}
		if err := json.Unmarshal([]byte(v), &bid); err != nil {
			t.Fatalf("%+v: %v in %s", at, err, v)
		}
		if bid.Auction.String() != key || bid.Bidder < 1000 || bid.Price < 100 || bid.DateTime != 1767225600000+at.offset {
			t.Fatalf("bid %s with key %s", v, key)
		}
	}
	if mean := total / len(got); mean < 180 || mean > 230 {
		t.Errorf("bids have %d bytes on average", mean)
	}
}

func TestRateIsKeptOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, config(func(c *Config) { c.Rate, c.Partitions = 10_000, 3 }), nil)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n := 0
		for {
			b, err := r.Poll(ctx)
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				break
			}
			n += len(b.Records)
			b.Recycle()
		}
		if n < 99_000 || n > 101_000 {
			t.Errorf("%d records in 10 s at 10000/s", n)
		}
	})
}

func TestOtherNumberOfPartitionsIsRefused(t *testing.T) {
	_, splits := open(t, config(func(c *Config) { c.Partitions = 2 }), nil)
	s, err := New(config(func(c *Config) { c.Partitions = 3 }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Splits(context.Background(), splits); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "partitions: 2") {
		t.Errorf("got %v", err)
	}
}

func TestWrongKeysAreAllReported(t *testing.T) {
	c := config(func(c *Config) { c.Kind, c.Count, c.Rate, c.Partitions, c.StartTime = "x", -1, -1, 0, "now" })
	err := c.Validate()
	for _, key := range []string{"kind", "count", "rate", "partitions", "start_time"} {
		if err == nil || !strings.Contains(err.Error(), key+":") {
			t.Errorf("%s is not reported in %v", key, err)
		}
	}
}

func TestPollDoesNotAllocate(t *testing.T) {
	r, _ := open(t, config(func(c *Config) { c.Kind = "bid" }), nil)
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		b, err := r.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Recycle()
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestGenerateKeepsTheContract(t *testing.T) {
	c := config(func(c *Config) { c.Count, c.Partitions = 9001, 3 })
	want := map[string][]string{}
	r, splits := open(t, c, nil)
	for at, v := range drain(t, r) {
		id := splits[at.partition].ID
		if want[id] == nil {
			want[id] = make([]string, splits[at.partition].Until)
		}
		want[id][at.offset] = strings.TrimPrefix(v, "|")
	}
	connectortest.TestSource(t, func(*testing.T) connectortest.Source {
		return connectortest.Source{New: func() (connectors.Source, error) { return New(c) }, Want: want}
	})
}
