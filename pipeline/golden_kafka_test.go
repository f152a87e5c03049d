package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	_ "github.com/sluice-etl/sluice/connectors/kafka"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const keptKafka = `
pipeline: kept
parallelism: 1
source: {feed: {name: FEED-left, batch: 5}}
sink: {kafka: {brokers: BROKERS, topic: out}}
checkpoint: {storage: STORAGE, interval: 5m}
restart: none
`

// kafkaWorld makes a world of a definition with a cluster of its own, whose topic out is empty.
func kafkaWorld(t *testing.T, definition string) (*pipelinetest.World, []string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	brokers, err := json.Marshal(c.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	w := pipelinetest.New(t, strings.ReplaceAll(definition, "BROKERS", string(brokers)))
	w.Options.Control = &pipeline.Control{}
	return w, c.ListenAddrs()
}

// writeKeptKafka keeps a checkpoint with the place of a sink's witness.
func writeKeptKafka(t *testing.T, dir string) {
	k := &kept{dir: dir, yaml: keptKafka}
	for i := range 20 {
		k.input = append(k.input, fed{Feed: "left", Partition: i % 2, Value: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	w, brokers := kafkaWorld(t, k.yaml)
	feedOn(w, k.input[:12])
	running := make(chan struct{})
	w.Options.Running = sync.OnceFunc(func() { close(running) })
	run := w.Start()
	<-running
	for len(committedIn(t, brokers, "out")) < 12 {
		if _, err := w.Options.Control.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copyOut(t, w.Storage(), "", filepath.Join(dir, "storage"))
	run.Crash()
	after := []string{}
	for _, f := range k.input[12:] {
		after = append(after, string(f.Value))
	}
	slices.Sort(after)
	k.write(t, map[string][]string{"out": after})
}

// goOnWithKafka restores a checkpoint beside a cluster that knows nothing of it.
func goOnWithKafka(t *testing.T, k *kept) {
	w, brokers := kafkaWorld(t, k.yaml)
	copyIn(t, filepath.Join(k.dir, "storage"), w.Storage())
	feedOn(w, k.input)
	w.Feed("left", 3).End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	if got := committedIn(t, brokers, "out"); !slices.Equal(got, k.after["out"]) {
		t.Errorf("published are %q, want %q", got, k.after["out"])
	}
}

// committedIn reads what is committed in a topic up to its end.
func committedIn(t *testing.T, brokers []string, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	out := []string{}
	for quiet := 0; quiet < 3; {
		poll, end := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := cl.PollFetches(poll)
		end()
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		quiet++
		fetches.EachRecord(func(r *kgo.Record) {
			out, quiet = append(out, string(r.Value)), 0
		})
	}
	slices.Sort(out)
	return out
}
