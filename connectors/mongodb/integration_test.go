//go:build integration

package mongodb

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func realURI(t *testing.T) string {
	t.Helper()
	u := os.Getenv("MONGODB_URL")
	if u == "" {
		t.Fatal("MONGODB_URL is not set: run make integration")
	}
	return u
}

var collections atomic.Int64

// realCollection is a new collection, read by a client of its own.
func realCollection(t *testing.T) *mongo.Collection {
	client, err := mongo.Connect(options.Client().ApplyURI(realURI(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := client.Database("sink_test").Collection(fmt.Sprintf("c_%d_%d", os.Getpid(), collections.Add(1)))
	t.Cleanup(func() {
		_ = c.Drop(context.Background())
		_ = client.Disconnect(context.Background())
	})
	return c
}

func documentsOf(t *testing.T, c *mongo.Collection, ids bool) (out []string) {
	t.Helper()
	cursor, err := c.Find(context.Background(), bson.D{}, options.Find().SetSort(bson.D{{Key: idField, Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.D
	if err := cursor.All(context.Background(), &docs); err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if !ids {
			d = slices.DeleteFunc(d, func(f bson.E) bool { return f.Key == idField })
		}
		text, err := bson.MarshalExtJSON(d, false, false)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

func realConfig(t *testing.T, c *mongo.Collection, change func(*Config)) func(*Config) {
	return func(cfg *Config) {
		cfg.URI, cfg.Database, cfg.Collection = realURI(t), c.Database().Name(), template(c.Name())
		if change != nil {
			change(cfg)
		}
	}
}

// TestRealServerKeepsTheContract has a proxy before the server, for outages and lost replies.
func TestRealServerKeepsTheContract(t *testing.T) {
	for _, op := range []string{opReplace, opInsert} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				c := realCollection(t)
				u, err := url.Parse(realURI(t))
				if err != nil {
					t.Fatal(err)
				}
				proxy := connectortest.NewProxy(t, u.Host)
				dial := func(change func(*Config)) func() (connectors.Sink, error) {
					return func() (connectors.Sink, error) {
						cfg := testConfig(realConfig(t, c, func(cfg *Config) {
							cfg.Operation, cfg.URI = op, "mongodb://"+proxy.Addr+"/"
							change(cfg)
						}))
						return newSink(cfg)
					}
				}
				sink := connectortest.Sink{
					New:     dial(func(*Config) {}),
					Read:    func(context.Context) ([]string, error) { return once(documentsOf(t, c, false)) },
					Timeout: 2 * time.Minute,
					Network: proxy.Network(),
					Poison:  poison,
					Without: putsNothingOff,
				}
				if op == opReplace {
					sink.Updating = &connectortest.Updating{Mode: connectors.Upserts, New: dial(byGroup), Read: sink.Read}
				}
				return sink
			})
		})
	}
}

func TestRealServerTakesWhatRecordsDo(t *testing.T) {
	s := connectors.StringValue
	c := realCollection(t)
	w := opened(t, nil, realConfig(t, c, byID))
	if err := w.Write(t.Context(), rows(row{value: `{"n":1}`, id: s("a")}, row{value: `{"n":2}`, id: s("b")}, row{value: `{"n":3}`, id: s("a")}, row{id: s("b")})); err != nil {
		t.Fatal(err)
	}
	w = opened(t, nil, realConfig(t, c, func(c *Config) { byID(c); c.Operation = opUpdate }))
	if err := w.Write(t.Context(), rows(row{value: `{"m":"x"}`, id: s("a")}, row{value: `{}`, id: s("e")})); err != nil {
		t.Fatal(err)
	}
	w = opened(t, nil, realConfig(t, c, func(c *Config) { byID(c); c.Operation = opInsert }))
	if err := w.Write(t.Context(), rows(row{value: `{"n":9}`, id: s("a")}, row{value: `{"n":4}`, id: s("d")})); err != nil {
		t.Fatal(err)
	}
	if got := documentsOf(t, c, true); !slices.Equal(got, []string{`{"_id":"a","n":3,"m":"x"}`, `{"_id":"d","n":4}`, `{"_id":"e"}`}) {
		t.Errorf("documents %v", got)
	}
}

func TestRealServerRefusesSingleRows(t *testing.T) {
	c := realCollection(t)
	if _, err := c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "u", Value: 1}}, Options: options.Index().SetUnique(true)}); err != nil {
		t.Fatal(err)
	}
	w := opened(t, nil, realConfig(t, c, func(c *Config) { c.Operation = opInsert }))
	err := w.Write(t.Context(), rows(row{value: `{"u":1}`}, row{value: `{"u":1}`}, row{value: `{"u":2}`}))
	if !slices.Equal(refusedRows(err), []int{1}) || !strings.Contains(err.Error(), "duplicate key") {
		t.Errorf("error %v", err)
	}
	if got := documentsOf(t, c, true); !slices.Equal(got, []string{`{"_id":"in-1-0","u":1}`, `{"_id":"in-1-2","u":2}`}) {
		t.Errorf("documents %v", got)
	}
}

func TestRealServerKeepsTypes(t *testing.T) {
	c := realCollection(t)
	var types columns.List
	if err := types.UnmarshalConfig([]any{map[string]any{"at": "timestamp"}, map[string]any{"raw": "bytes"}}); err != nil {
		t.Fatal(err)
	}
	w := opened(t, nil, realConfig(t, c, func(c *Config) { c.Columns = types }))
	if err := w.Write(t.Context(), rows(row{value: `{"at":"2026-01-31T23:59:59.123Z","raw":"AQI=","n":9007199254740993}`})); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		At  time.Time `bson:"at"`
		Raw []byte    `bson:"raw"`
		N   int64     `bson:"n"`
	}
	if err := c.FindOne(t.Context(), bson.D{}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.At.UnixMilli() != 1769903999123 || string(doc.Raw) != "\x01\x02" || doc.N != 9007199254740993 {
		t.Errorf("document %+v", doc)
	}
}

func TestRealServerTakesManyOfOneID(t *testing.T) {
	c := realCollection(t)
	w := opened(t, nil, realConfig(t, c, byID))
	if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
		t.Fatal(err)
	}
	got := documentsOf(t, c, true)
	for i := range 10 {
		if len(got) != 10 || got[i] != fmt.Sprintf(`{"_id":%d,"n":%d}`, i, 90+i) {
			t.Fatalf("documents %v", got)
		}
	}
}
