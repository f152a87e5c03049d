package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	mongoopts "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The batches of the sinks, by default.
const (
	documentsAtOnce = 1000
	mongoAtOnce     = 50 // of the workload
	commandsAtOnce  = 500
	requestRecords  = 100 // of the workload
)

// send makes a request and reads its answer, which must be one of success.
func send(ctx context.Context, method, url, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, lastLines(answer))
	}
	return answer, err
}

func indexOf(run string) string { return os.Getenv("OPENSEARCH_URL") + "/bench-" + run }

func placeIndex(ctx context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
	if _, err := send(ctx, http.MethodPut, indexOf(run), "application/json", nil); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := send(ctx, http.MethodDelete, indexOf(run), "application/json", nil)
		return err
	}, nil
}

// bareElasticsearch sends bulk requests.
func bareElasticsearch(ctx context.Context, l *sinkLoop) error {
	var body []byte
	return l.batches(documentsAtOnce, func(from, to int64) error {
		body = body[:0]
		for i := from; i < to; i++ {
			value, err := l.value(i)
			if err != nil {
				return err
			}
			body = fmt.Appendf(body, "{\"index\":{\"_id\":\"generate-0-%d\"}}\n", i)
			body = append(append(body, value...), '\n')
		}
		answer, err := send(ctx, http.MethodPost, indexOf(l.run)+"/_bulk", "application/x-ndjson", body)
		if err != nil {
			return err
		}
		var refused struct{ Errors bool }
		if err := json.Unmarshal(answer, &refused); err != nil || refused.Errors {
			return fmt.Errorf("documents were refused: %s, %w", lastLines(answer), err)
		}
		return nil
	})
}

func keyOf(run string, i int64) string { return fmt.Sprintf("bench-%s:%d", run, i) }

func placeKeys(_ context.Context, _ options, run string, count int64) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
		defer func() { _ = client.Close() }()
		keys := make([]string, 0, commandsAtOnce)
		for i := range count {
			if keys = append(keys, keyOf(run, i)); len(keys) == cap(keys) || i+1 == count {
				if err := client.Unlink(ctx, keys...).Err(); err != nil {
					return err
				}
				keys = keys[:0]
			}
		}
		return nil
	}, nil
}

// bareRedis sets keys, some hundred in a round trip.
func bareRedis(ctx context.Context, l *sinkLoop) error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	defer func() { _ = client.Close() }()
	return l.batches(commandsAtOnce, func(from, to int64) error {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < to; i++ {
				value, err := l.value(i)
				if err != nil {
					return err
				}
				p.Set(ctx, keyOf(l.run, i), value, 0)
			}
			return nil
		})
		return err
	})
}

func openMongo(run string) (*mongo.Client, *mongo.Collection, error) {
	client, err := mongo.Connect(mongoopts.Client().ApplyURI(os.Getenv("MONGODB_URL")).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, nil, err
	}
	return client, client.Database("bench").Collection("bench_" + run), nil
}

func placeCollection(_ context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
	client, collection, err := openMongo(run)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := collection.Drop(ctx); err != nil {
			return err
		}
		return client.Disconnect(ctx)
	}, nil
}

// document is a bid with its id.
type document struct {
	ID  string `bson:"_id"`
	Bid *bid   `bson:",inline"`
}

// bareMongo replaces documents by bulk writes.
func bareMongo(ctx context.Context, l *sinkLoop) error {
	client, collection, err := openMongo(l.run)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	return l.batches(mongoAtOnce, func(from, to int64) error {
		var models []mongo.WriteModel
		for i := from; i < to; i++ {
			id := fmt.Sprintf("generate-0-%d", i)
			models = append(models, mongo.NewReplaceOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: id}}).SetReplacement(document{id, l.bid(i)}))
		}
		_, err := collection.BulkWrite(ctx, models)
		return err
	})
}

// discard is an HTTP service that takes everything, in the process that measures.
type discard struct {
	server *http.Server
	url    string
}

func newDiscard(ctx context.Context) (*discard, error) {
	var listen net.ListenConfig
	ln, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &discard{url: "http://" + ln.Addr().String() + "/bids", server: &http.Server{
		ReadHeaderTimeout: sinkInterval,
		Handler:           http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
	}}
	go func() { _ = d.server.Serve(ln) }() // ends with close
	return d, nil
}

func (d *discard) close() { _ = d.server.Close() }

// bareHTTP posts arrays of records.
func bareHTTP(ctx context.Context, l *sinkLoop) error {
	var body []byte
	return l.batches(requestRecords, func(from, to int64) error {
		body = append(body[:0], '[')
		for i := from; i < to; i++ {
			value, err := l.value(i)
			if err != nil {
				return err
			}
			body = append(append(body, value...), ',')
		}
		body[len(body)-1] = ']'
		_, err := send(ctx, http.MethodPost, l.url, "application/json", body)
		return err
	})
}
