package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake starts a cluster of one broker in the process.
func fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, []string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, c.ListenAddrs()
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// topic creates a topic and returns its name.
func topic(t testing.TB, brokers []string, partitions int32, configs map[string]*string) string {
	t.Helper()
	name := strings.Map(topicRune, t.Name()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	create(t, brokers, name, partitions, configs)
	return name
}

func create(t testing.TB, brokers []string, name string, partitions int32, configs map[string]*string) {
	t.Helper()
	if _, set := configs["cleanup.policy"]; !set {
		// Records of tests have times long ago, which retention would remove.
		forever := "-1"
		configs = maps.Clone(configs)
		if configs == nil {
			configs = map[string]*string{}
		}
		configs["retention.ms"] = &forever
	}
	adm := kadm.NewClient(client(t, brokers))
	if _, err := adm.CreateTopic(testContext(t), partitions, 1, configs, name); err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
}

// send writes records with the given values to a partition, one after the other.
func send(t testing.TB, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)})
	}
	if err := cl.ProduceSync(testContext(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func manual(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	return client(t, brokers, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// stored reads what a topic holds, by another way than the code under test.
func stored(t testing.TB, brokers []string, topic string, isolation kgo.IsolationLevel) []string {
	t.Helper()
	ctx := testContext(t)
	adm := kadm.NewClient(client(t, brokers))
	list := adm.ListEndOffsets
	if isolation == kgo.ReadCommitted() {
		list = adm.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	cl := client(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	var out []string
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading %s: %v; have %d values", topic, ctx.Err(), len(out))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, string(r.Value))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// wantSet fails unless got has exactly the values of want, in any order.
func wantSet(t testing.TB, what string, got, want []string) {
	t.Helper()
	g, w := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(g, w) {
		t.Errorf("%s: %d values, %d wanted: %s", what, len(g), len(w), difference(g, w))
	}
}

// wantTopic waits until a reader of committed records finds exactly want: the
// broker answers a commit before its markers are written.
func wantTopic(t testing.TB, what string, brokers []string, topic string, want []string) {
	t.Helper()
	got := stored(t, brokers, topic, kgo.ReadCommitted())
	for deadline := time.Now().Add(5 * time.Second); len(got) < len(want) && time.Now().Before(deadline); {
		got = stored(t, brokers, topic, kgo.ReadCommitted())
	}
	wantSet(t, what, got, want)
}

func difference(got, want []string) string {
	count := map[string]int{}
	for _, v := range want {
		count[v]++
	}
	for _, v := range got {
		count[v]--
	}
	var out []string
	for v, n := range count {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s %+d", v, -n))
		}
	}
	slices.Sort(out)
	return strings.Join(out[:min(len(out), 10)], ", ")
}

// run is the sinks of one process on a cluster.
type run struct {
	t       testing.TB
	sinks   []connectors.Sink
	writers []connectors.Writer
	commit  connectors.Committer
	shared  map[string]any
}

// process opens one exactly-once sink for each topic, as a pipeline's process does
// before it owns anything.
func process(t testing.TB, brokers []string, subtasks int, change func(*SinkConfig, *connectors.SinkEnv), topics ...string) *run {
	t.Helper()
	r := &run{t: t, shared: map[string]any{}}
	for _, name := range topics {
		cfg := newSinkConfig().(*SinkConfig)
		cfg.Brokers, cfg.Topic = brokers, fixedTopic(name)
		env := connectors.SinkEnv{
			Pipeline: "p-" + topics[0], Name: name, Subtasks: subtasks, Slots: 5, Budget: 16 << 20,
			Shared: func(key string, made func() any) any {
				if r.shared[key] == nil {
					r.shared[key] = made()
				}
				return r.shared[key]
			},
		}
		if change != nil {
			change(cfg, &env)
		}
		s := newSink(cfg)
		if err := s.Open(testContext(t), env); err != nil {
			t.Fatalf("open the sink: %v", err)
		}
		r.sinks = append(r.sinks, s)
	}
	if two, ok := r.sinks[0].(connectors.TwoPhaseSink); ok {
		r.commit = two.Committer()
	}
	return r
}

// start revokes, starts the sinks and makes their writers.
func (r *run) start(subtasks int, keep []connectors.Committable, restored ...connectors.Prepared) *run {
	r.t.Helper()
	ctx := testContext(r.t)
	if r.commit != nil {
		if err := r.commit.Revoke(ctx, keep); err != nil {
			r.t.Fatalf("revoke: %v", err)
		}
	}
	for _, s := range r.sinks {
		if err := s.Start(ctx, connectors.Restored{Subtasks: restored}); err != nil {
			r.t.Fatalf("start: %v", err)
		}
		for i := range subtasks {
			w, err := s.Writer(i)
			if err != nil {
				r.t.Fatal(err)
			}
			r.writers = append(r.writers, w)
		}
	}
	return r
}

// stop closes everything without ending a transaction, as a crash would leave it.
func (r *run) stop() {
	for _, w := range r.writers {
		if err := w.Close(); err != nil {
			r.t.Error(err)
		}
	}
	for _, s := range r.sinks {
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *run) write(writer int, values ...string) {
	r.t.Helper()
	if err := r.writers[writer].Write(testContext(r.t), rowsOf(values...)); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

// checkpoint takes checkpoint n of a generation through prepare.
func (r *run) checkpoint(generation, n uint64) ([]connectors.Prepared, error) {
	ctx := testContext(r.t)
	var prepares []connectors.Prepare
	for _, w := range r.writers {
		p, err := w.Barrier(ctx, connectors.Barrier{ID: connectors.CheckpointID{Generation: generation, Number: n}})
		if err != nil {
			return nil, err
		}
		prepares = append(prepares, p)
	}
	var out []connectors.Prepared
	for _, p := range prepares {
		got, err := p(ctx, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, got)
	}
	return out, nil
}

// prepared takes a checkpoint and returns its committables.
func (r *run) prepared(generation, n uint64) []connectors.Committable {
	r.t.Helper()
	got, err := r.checkpoint(generation, n)
	if err != nil {
		r.t.Fatalf("checkpoint %d: %v", n, err)
	}
	return committables(got)
}

func committables(prepared []connectors.Prepared) []connectors.Committable {
	var out []connectors.Committable
	for _, p := range prepared {
		out = append(out, p.Committables...)
	}
	return out
}

func (r *run) mustCommit(cs []connectors.Committable, restored bool) {
	r.t.Helper()
	for _, c := range cs {
		if err := r.commit.Commit(testContext(r.t), c, restored); err != nil {
			r.t.Fatalf("commit %d: %v", c.Checkpoint.Number, err)
		}
	}
}

// fixedTopic is the template of a fixed topic.
func fixedTopic(name string) connectors.Template {
	return connectors.Template{Text: name, Parts: []connectors.TemplatePart{{Literal: name}}}
}

// template is a topic's template, whose expressions are the slots in their order.
func template(t testing.TB, s string) (out connectors.Template) {
	t.Helper()
	if err := out.UnmarshalConfig(s); err != nil {
		t.Fatal(err)
	}
	slot := 0
	for i := range out.Parts {
		if out.Parts[i].Literal == "" {
			out.Parts[i].Expr.Slot = slot
			slot++
		}
	}
	return out
}

// rowsOf makes rows of a batch with these values, all of them reached.
func rowsOf(values ...string) *connectors.Rows {
	b := connectors.NewBatchPool(1).Get()
	b.Size(len(values), 0)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i, v := range values {
		b.Records[i].Value = []byte(v)
		b.Records[i].Time = 1700000000000
		rows.Sel = append(rows.Sel, uint16(i))
		rows.Values = append(rows.Values, []byte(v))
	}
	return rows
}

func dataOf(t testing.TB, c connectors.Committable) (d txnData) {
	t.Helper()
	if err := json.Unmarshal(c.Data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func topicRune(r rune) rune {
	if topicName.MatchString(string(r)) {
		return r
	}
	return '-'
}

// wantText fails unless the message holds each of the texts.
func wantText(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}
