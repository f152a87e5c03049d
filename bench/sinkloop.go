package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/generate"
)

// sinkCommand is the hidden subcommand that writes records with a client library alone,
// in a process of its own.
const sinkCommand = "bare-sink"

// bid is a record as a program that writes it with a library alone would have it.
type bid struct {
	Auction  int64  `json:"auction" parquet:"auction" bson:"auction"`
	Bidder   int64  `json:"bidder" parquet:"bidder" bson:"bidder"`
	Price    int64  `json:"price" parquet:"price" bson:"price"`
	Channel  string `json:"channel" parquet:"channel" bson:"channel"`
	URL      string `json:"url" parquet:"url" bson:"url"`
	DateTime int64  `json:"date_time" parquet:"date_time" bson:"date_time"`
	Extra    string `json:"extra" parquet:"extra" bson:"extra"`
}

// bidColumns are the names of its fields.
var bidColumns = []string{"auction", "bidder", "price", "channel", "url", "date_time", "extra"}

// values are the fields, in the order of the columns.
func (b *bid) values() []any {
	return []any{b.Auction, b.Bidder, b.Price, b.Channel, b.URL, b.DateTime, b.Extra}
}

// distinctBids is how many different records a bare loop writes, over and over: making
// them costs it nothing.
const distinctBids = 1 << 14

// sinkLoop is a loop that writes records with a library alone.
type sinkLoop struct {
	count    int64
	run, dir string
	url      string // of the HTTP service
	asText   bool   // records come as JSON: it is given on as it is, or decoded

	bids  []bid
	texts [][]byte
	keys  [][]byte
	since time.Time
}

func sinkMain(args []string) error {
	flags := flag.NewFlagSet(sinkCommand, flag.ContinueOnError)
	l := &sinkLoop{}
	name := flags.String("sink", "", "which one")
	flags.Int64Var(&l.count, "count", 0, "records to write")
	flags.StringVar(&l.run, "run", "", "name of the run")
	flags.StringVar(&l.dir, "dir", "", "folder of the run")
	flags.StringVar(&l.url, "url", "", "address of the HTTP service")
	flags.BoolVar(&l.asText, "text", false, "have the records as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at := slices.IndexFunc(sinkBenches, func(s sinkBench) bool { return s.name == *name })
	if at < 0 || sinkBenches[at].bare == nil {
		return fmt.Errorf("there is no bare loop %q", *name)
	}
	ctx := context.Background()
	if err := l.fill(ctx); err != nil {
		return fmt.Errorf("make records: %w", err)
	}
	made := cpuTime()
	start := time.Now()
	l.since = start
	if err := sinkBenches[at].bare(ctx, l); err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return json.NewEncoder(os.Stdout).Encode(summary{
		Read: l.count, Written: l.count, Seconds: time.Since(start).Seconds(), Mallocs: mem.Mallocs, PeakRSS: peakRSS(), Before: made,
	})
}

// fill makes the records, the first ones that the pipelines' source makes.
func (l *sinkLoop) fill(ctx context.Context) error {
	source, err := generate.New(generate.Config{Kind: "bid", Count: distinctBids, Partitions: 1, StartTime: "2026-01-01T00:00:00Z"})
	if err != nil {
		return err
	}
	splits, err := source.Splits(ctx, nil)
	if err != nil {
		return err
	}
	reader, err := source.Reader(connectors.ReaderEnv{Batches: connectors.NewBatchPool(1)}, splits)
	if err != nil {
		return err
	}
	for len(l.bids) < distinctBids {
		batch, err := reader.Poll(ctx)
		if err != nil {
			return err
		}
		for _, r := range batch.Records {
			var b bid
			if err := json.Unmarshal(r.Value, &b); err != nil {
				return err
			}
			l.bids = append(l.bids, b)
			l.texts, l.keys = append(l.texts, slices.Clone(r.Value)), append(l.keys, slices.Clone(r.Key))
		}
	}
	return nil
}

// bid is record i as a Go value.
func (l *sinkLoop) bid(i int64) *bid {
	if !l.asText {
		return &l.bids[i%distinctBids]
	}
	b := new(bid)
	_ = json.Unmarshal(l.texts[i%distinctBids], b) // fill has done the same
	return b
}

func (l *sinkLoop) key(i int64) []byte { return l.keys[i%distinctBids] }

// value is record i as JSON.
func (l *sinkLoop) value(i int64) ([]byte, error) {
	if l.asText {
		return l.texts[i%distinctBids], nil
	}
	return json.Marshal(l.bid(i))
}

// due tells whether record i is the last one to be published with those before it,
// because the interval is over or because it is the last of all. The clock is read at
// few records.
func (l *sinkLoop) due(i int64) bool {
	if i+1 == l.count {
		return true
	}
	if i%256 != 255 || time.Since(l.since) < sinkInterval {
		return false
	}
	l.since = time.Now()
	return true
}

// eachInterval calls publish for the records from up to to of each interval, until all
// are written. It asks more of the records one at a time.
func (l *sinkLoop) eachInterval(publish func(from int64, more func(i int64) bool) error) error {
	for from := int64(0); from < l.count; {
		over := false
		next := from
		more := func(i int64) bool {
			if over || i >= l.count {
				return false
			}
			over = l.due(i)
			next = i + 1
			return true
		}
		if err := publish(from, more); err != nil {
			return err
		}
		if next == from {
			return errors.New("the loop took no record")
		}
		from = next
	}
	return nil
}

// batches calls write for one batch of records after the other.
func (l *sinkLoop) batches(size int64, write func(from, to int64) error) error {
	for from := int64(0); from < l.count; from += size {
		if err := write(from, min(from+size, l.count)); err != nil {
			return err
		}
	}
	return nil
}
