//go:build integration

package postgres

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

// benchRows is how many rows one checkpoint of the benchmark has.
const benchRows = 100_000

func benchRow(i int) []byte {
	return fmt.Appendf(nil, `{"auction": %d, "bidder": %d, "price": %d.%02d, "channel": "channel-%d", "url": "https://www.example.com/item.htm?query=%d", "at": "2026-01-01T10:%02d:%02d.123Z"}`,
		1000+i%7919, 2000+i%104729, i%100000, i%100, i%10000, i, i/60%60, i%60)
}

const benchTable = `CREATE TABLE @.rows (auction bigint, bidder bigint, price numeric(12,2), channel text, url text, at timestamptz)`

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func measured(b *testing.B, f func()) {
	b.Helper()
	f() // warm
	began := cpu()
	n := 0
	for b.Loop() {
		f()
		n++
	}
	b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(n*benchRows), "cpu-ns/row")
}

func benchURL(b *testing.B) string {
	b.Helper()
	url := os.Getenv("POSTGRES_URL")
	if url == "" {
		b.Fatal("POSTGRES_URL is not set: run make integration")
	}
	return url
}

func benchSchema(b *testing.B) string {
	b.Helper()
	name := "sink_bench"
	url := benchURL(b)
	if _, err := list(b.Context(), url, "SELECT 'x'"); err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(b.Context()) }()
	if _, err := conn.Exec(b.Context(), in(name, "DROP SCHEMA IF EXISTS @ CASCADE; CREATE SCHEMA @; "+benchTable)); err != nil {
		b.Fatal(err)
	}
	return name
}

// BenchmarkSink takes JSON rows to the commit of their checkpoint.
func BenchmarkSink(b *testing.B) {
	schema := benchSchema(b)
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Table, c.Schema = benchURL(b), schema+".rows", schema
	s, err := newTestSink(*c)
	if err != nil {
		b.Fatal(err)
	}
	files := &connectortest.Files{}
	if err := s.Open(b.Context(), deferredtest.Env(files, 1)); err != nil {
		b.Fatal(err)
	}
	w, err := s.Writer(0)
	if err != nil {
		b.Fatal(err)
	}
	var batches []*connectors.Rows
	for at := 0; at < benchRows; {
		n := min(connectors.MaxBatch, benchRows-at)
		batch := new(connectors.Batch)
		batch.Size(n, 0)
		rows := &connectors.Rows{Batch: batch, Layout: &connectors.Layout{}}
		for i := range n {
			v := benchRow(at + i)
			batch.Records[i] = connectors.Record{Value: v, Origin: &connectors.Origin{Topic: "in"}, Offset: int64(at + i)}
			rows.Sel, rows.Values = append(rows.Sel, uint16(i)), append(rows.Values, v)
		}
		batches = append(batches, rows)
		at += n
	}
	id := connectors.CheckpointID{Generation: 1}
	measured(b, func() {
		for _, rows := range batches {
			if err := w.Write(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
		}
		id.Number++
		prepare, err := w.Barrier(b.Context(), connectors.Barrier{ID: id})
		if err != nil {
			b.Fatal(err)
		}
		got, err := prepare(b.Context(), files)
		if err != nil {
			b.Fatal(err)
		}
		for _, com := range got.Committables {
			if err := s.Committer().Commit(b.Context(), com, false); err != nil {
				b.Fatal(err)
			}
		}
		s.Committer().Done(id)
		files.Retain(nil)
	})
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBare does what a short program would: it reads the same JSON with the standard
// library, into a struct with the right types, and copies it with pgx.
func BenchmarkBare(b *testing.B) {
	schema := benchSchema(b)
	conn, err := pgx.Connect(b.Context(), benchURL(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(b.Context()) }()
	var values [][]byte
	for i := range benchRows {
		values = append(values, benchRow(i))
	}
	measured(b, func() {
		_, err := conn.CopyFrom(b.Context(), pgx.Identifier{schema, "rows"}, []string{"auction", "bidder", "price", "channel", "url", "at"},
			pgx.CopyFromSlice(len(values), func(i int) ([]any, error) {
				var row struct {
					Auction, Bidder int64
					Price           json.Number
					Channel, URL    string
					At              time.Time
				}
				if err := json.Unmarshal(values[i], &row); err != nil {
					return nil, err
				}
				return []any{row.Auction, row.Bidder, row.Price.String(), row.Channel, row.URL, row.At}, nil
			}))
		if err != nil {
			b.Fatal(err)
		}
	})
}
