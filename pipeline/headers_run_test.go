package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

func TestNullAndDuplicateHeadersGoFromKafkaToKafka(t *testing.T) {
	b := newBroker(t)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{0xff, 0}}, {Key: "a", Value: []byte{}}}
	r := &kgo.Record{Topic: "in", Partition: 0, Value: []byte(`{"n":1}`), Headers: headers}
	if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w := pipelinetest.New(t, "pipeline: headers\nsource: {kafka: {brokers: [\""+b.addr+"\"], topics: [in], until: latest}}\ntransforms: [{set: {m: n + 1}}]\n"+
		"sink: {kafka: {brokers: [\""+b.addr+"\"], topic: out}}\ncheckpoint: {storage: STORAGE, interval: 1s}\n")
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DisableClientMetrics(), kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := cl.PollFetches(ctx).Records()
	same := func(a, b kgo.RecordHeader) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}
	if len(got) != 1 || string(got[0].Value) != `{"n":1,"m":2}` || !slices.EqualFunc(got[0].Headers, headers, same) {
		t.Errorf("got %+v", got)
	}
}
