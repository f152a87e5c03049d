package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	_ "github.com/sluice-etl/sluice/connectors/format/avro"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// committed are records of a topic, of which there must be one at least.
func (b *broker) committed(topic string) []*kgo.Record {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	return cl.PollFetches(ctx).Records()
}

func TestTheMarkOfASchemaInAHeaderIsOfTheValueThatItComesWith(t *testing.T) {
	const schema = `{"type":"record","name":"row","fields":[{"name":"n","type":"int"}]}`
	const mark = "__value_schema_id"
	for _, tt := range []struct{ name, sink, value, headers string }{
		{"written by header", "{avro: {registry: {url: URL, subject: in-value, mark: header}}}", "\x04", "[{a 1} {" + mark + " \x01GUID}]"},
		{"written in front", "{avro: {registry: {url: URL, subject: in-value}}}", "\x00\x00\x00\x00\x01\x04", "[{a 1}]"},
		{"written without a schema", "json", `{"n":2}`, "[{a 1}]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBroker(t)
			if _, err := kadm.NewClient(b.client).CreateTopic(t.Context(), 1, 1, nil, "bad"); err != nil {
				t.Fatal(err)
			}
			reg := srfake.New()
			t.Cleanup(reg.Close)
			reg.SeedSchema("in-value", 1, 1, sr.Schema{Schema: schema})
			own := []kgo.RecordHeader{{Key: mark, Value: []byte("\x00\x00\x00\x00\x01")}, {Key: "a", Value: []byte("1")}}
			for _, v := range []string{"\x02", "\xff"} {
				r := &kgo.Record{Topic: "in", Value: []byte(v), Headers: own}
				if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			text := "pipeline: marks\nsource: {kafka: {brokers: [BROKER], topics: [in], until: latest, format: {avro: {registry: {url: URL}}}}}\n" +
				"transforms: [{set: {n: n + 1}}]\non_error: {dead_letter: bad}\n" +
				"sinks: {main: {kafka: {brokers: [BROKER], topic: out, format: " + tt.sink + "}}, bad: {kafka: {brokers: [BROKER], topic: bad}}}\n" +
				"checkpoint: {storage: STORAGE, interval: 1s}\n"
			text = strings.NewReplacer("BROKER", `"`+b.addr+`"`, "URL", `"`+reg.URL()+`"`).Replace(text)
			if _, err := pipelinetest.New(t, text).Run(); err != nil {
				t.Fatal(err)
			}
			got := b.committed("out")
			if len(got) != 1 || string(got[0].Value) != tt.value {
				t.Fatalf("got %+v", got)
			}
			guid, _ := reg.GetSchema("in-value", 1)
			want := strings.Replace(tt.headers, "GUID", string(unhex(t, guid.GUID)), 1)
			if headers := fmt.Sprintf("%s", got[0].Headers); headers != want {
				t.Errorf("headers %q, want %q", headers, want)
			}
			// A dead letter is as it came, so that it can be read again.
			letters := b.committed("bad")
			if len(letters) != 1 || string(letters[0].Value) != "\xff" || fmt.Sprint(letters[0].Headers[:2]) != fmt.Sprint(own) {
				t.Errorf("dead letters %+v", letters)
			}
		})
	}
}

// unhex reads a GUID.
func unhex(t *testing.T, guid string) (out []byte) {
	t.Helper()
	if _, err := fmt.Sscanf(strings.ReplaceAll(guid, "-", ""), "%x", &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMarksInHeadersWantASinkWithHeaders(t *testing.T) {
	const format = "{avro: {registry: {url: 'http://localhost:8081', mark: header}}}"
	for want, text := range map[string]string{
		"records of this sink have no headers": "sink: {collect: {name: x, format: " + format + "}}",
		"a field has no headers":               "transforms: [{encode: {field: a, format: " + format + "}}]\nsink: {collect: {name: x}}",
	} {
		p, _ := spec.Parse("p.yaml", []byte("pipeline: p\nsource: {feed: {name: x}}\n"+text+"\ncheckpoint: {storage: 'mem://x', interval: 1s}\n"), spec.Options{})
		pipeline.NewPlan(p)
		if said := fmt.Sprint(p.Diagnostics()); !strings.Contains(said, want) {
			t.Errorf("%s, want %q", said, want)
		}
	}
}
