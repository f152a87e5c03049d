package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// poisoned is a Kafka cluster with a topic in which every 1000th value is no JSON.
type poisoned struct {
	*broker
	storage string
}

const poisonEvery = 1000

func newPoisoned(t *testing.T, records int) *poisoned {
	b := newBroker(t)
	adm := kadm.NewClient(b.client)
	for _, topic := range []string{"letters", "other"} {
		if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	var batch []*kgo.Record
	for i := range records {
		r := &kgo.Record{
			Topic: "in", Partition: int32(i % 2), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, `{"n":%d}`, i),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "t%d", i)}}, Timestamp: time.UnixMilli(1700000000000 + int64(i)),
		}
		if i%poisonEvery == poisonEvery-1 {
			r.Value = fmt.Appendf(nil, "\xffbroken %d", i)
		}
		batch = append(batch, r)
	}
	if err := b.client.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return &poisoned{b, "file://" + t.TempDir()}
}

// file is the pipeline with its steps and what becomes of errors.
func (p *poisoned) file(transforms, onError string) string {
	return `
pipeline: orders
parallelism: 2
on_error: ` + onError + `
source: {kafka: {brokers: [` + p.addr + `], topics: [in], until: latest}}
transforms: ` + transforms + `
sinks:
  out: {kafka: {brokers: [` + p.addr + `], topic: out}, from: REST}
  other: {kafka: {brokers: [` + p.addr + `], topic: other}, from: source}
  letters: {kafka: {brokers: [` + p.addr + `], topic: letters}, on_error: fail}
checkpoint: {storage: "` + p.storage + `", interval: 50ms}
`
}

const (
	doubled = `[{name: double, set: {double: n * 2}}]`
	asIs    = `[{name: double, filter: meta.offset >= 0}]`
)

func (p *poisoned) spec(transforms, onError string) *spec.Pipeline {
	p.t.Helper()
	text := strings.Replace(p.file(transforms, onError), "REST", "double", 1)
	if !strings.Contains(onError, "letters") {
		text = strings.Replace(text, "  letters: {kafka: {brokers: ["+p.addr+"], topic: letters}, on_error: fail}\n", "", 1)
	}
	s, _ := spec.Parse("test.yaml", []byte(text), spec.Options{})
	if faults := s.Diagnostics(); faults.HasErrors() {
		var b strings.Builder
		_ = faults.Print(&b, false)
		p.t.Fatal(b.String())
	}
	return s
}

func run(ctx context.Context, o pipeline.Options) (*pipeline.Summary, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return pipeline.Run(ctx, o)
}

// replay brings dead letters in as the command does; crash ends it when it is come to.
func (p *poisoned) replay(s *spec.Pipeline, o pipeline.ReplayOptions, crash string) (*pipeline.Summary, error) {
	p.t.Helper()
	plan, err := pipeline.Replay(s, o)
	if err != nil {
		p.t.Fatal(err)
	}
	from, _, err := pipeline.ReadOn(p.t.Context(), s)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	var hits atomic.Int64
	return run(ctx, pipeline.Options{Plan: plan, From: from, AllowDrained: true, AllowNonRestoredState: true, Failpoint: func(name string) {
		if crash != "" && name == crash && hits.Add(1) == 1 {
			cancel()
		}
	}})
}

// committed are the committed records of a topic.
func (p *poisoned) committed(topic string) (out []*kgo.Record) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(p.client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		p.t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.addr), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		p.t.Fatal(err)
	}
	defer cl.Close()
	for len(left) > 0 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return "-"
}

// once checks that a topic has each key once.
func (p *poisoned) once(topic string, want int) {
	p.t.Helper()
	seen := map[string]int{}
	for _, r := range p.committed(topic) {
		seen[string(r.Key)]++
		if seen[string(r.Key)] > 1 {
			p.t.Errorf("%s: %s is there %d times", topic, r.Key, seen[string(r.Key)])
		}
		if header(r, "dead_letter.step") != "-" {
			p.t.Errorf("%s: %s has headers of a dead letter", topic, r.Key)
		}
	}
	if len(seen) != want {
		p.t.Errorf("%s has %d records, want %d", topic, len(seen), want)
	}
}

func TestPoisonStopsThePipelineOrIsKeptAndBroughtInOnce(t *testing.T) {
	const records, bad = 20_000, 20
	p := newPoisoned(t, records)
	_, err := run(t.Context(), pipeline.Options{Plan: pipeline.NewPlan(p.spec(doubled, "fail"))})
	if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "in/1@499") {
		t.Fatalf("by default the error is %v", err)
	}
	s, err := run(t.Context(), pipeline.Options{Plan: pipeline.NewPlan(p.spec(doubled, "{dead_letter: letters}"))})
	if err != nil || s.Counts.Dead != bad {
		t.Fatalf("with dead letters: %d of them, error %v", s.Counts.Dead, err)
	}
	p.once("out", records-bad)
	p.keptWhole(bad, "1")

	// The definition is not mended yet: they fail again, and say so.
	if s, err = p.replay(p.spec(doubled, "{dead_letter: letters}"), pipeline.ReplayOptions{}, ""); err != nil || s.Counts.Dead != bad {
		t.Fatalf("a replay that mends nothing: %d dead letters, error %v", s.Counts.Dead, err)
	}
	p.keptWhole(bad, "2")

	fixed := p.spec(asIs, "{dead_letter: letters}")
	left := 0
	if err := pipeline.Letters(t.Context(), fixed, pipeline.ReplayOptions{}, false, func(*pipeline.Letter) { left++ }); err != nil || left != bad {
		t.Fatalf("%d letters are listed, error %v", left, err)
	}
	// A part is chosen, and the rest later; one of them is killed.
	some := pipeline.ReplayOptions{Filter: pipeline.LetterFilter{Where: `meta.headers["trace"] < "t15" and meta.partition == 1`}}
	if s, err = p.replay(fixed, some, ""); err != nil || s.Counts.Read == 0 || s.Counts.Read == bad {
		t.Fatalf("a part of the letters: %d read, error %v", s.Counts.Read, err)
	}
	if _, err = p.replay(fixed, pipeline.ReplayOptions{}, "after-metadata"); err == nil {
		t.Fatal("the replay was not killed")
	}
	for range 3 {
		if _, err = p.replay(fixed, pipeline.ReplayOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	p.once("out", records)
	p.once("other", records)
	left = 0
	if err := pipeline.Letters(t.Context(), fixed, pipeline.ReplayOptions{}, false, func(*pipeline.Letter) { left++ }); err != nil || left != 0 {
		t.Errorf("%d letters are left, error %v", left, err)
	}
}

// keptWhole checks the dead letters of an attempt.
func (p *poisoned) keptWhole(want int, attempt string) {
	p.t.Helper()
	n := 0
	for _, r := range p.committed("letters") {
		if header(r, "dead_letter.attempt") != attempt {
			continue
		}
		n++
		i := strings.TrimPrefix(string(r.Key), "k")
		if string(r.Value) != "\xffbroken "+i || header(r, "trace") != "t"+i || header(r, "dead_letter.topic") != "in" ||
			header(r, "dead_letter.partition") != "1" || header(r, "dead_letter.step") != "source" || header(r, "dead_letter.kind") != "decode" ||
			header(r, "dead_letter.reason") == "-" || header(r, "dead_letter.offset") == "-" || r.Timestamp.UnixMilli() < 1700000000000 || r.Timestamp.UnixMilli() > 1700000020000 {
			p.t.Errorf("dead letter %+v", r)
		}
	}
	if n != want {
		p.t.Errorf("%d dead letters of attempt %s, want %d", n, attempt, want)
	}
}

func TestDeadLettersGoBackToTheTopicTheyCameFrom(t *testing.T) {
	p := newPoisoned(t, 3000)
	s := p.spec(doubled, "{dead_letter: letters}")
	if _, err := run(t.Context(), pipeline.Options{Plan: pipeline.NewPlan(s)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.replay(s, pipeline.ReplayOptions{ToSource: true}, ""); err != nil {
			t.Fatal(err)
		}
	}
	var back []string
	for _, r := range p.committed("in") {
		if r.Offset >= 1500 {
			back = append(back, fmt.Sprintf("%d %s %q %s", r.Partition, r.Key, r.Value, header(r, "trace")))
		}
	}
	slices.Sort(back)
	want := []string{`1 k1999 "\xffbroken 1999" t1999`, `1 k2999 "\xffbroken 2999" t2999`, `1 k999 "\xffbroken 999" t999`}
	if !slices.Equal(back, want) {
		t.Errorf("what came back is\n%s", strings.Join(back, "\n"))
	}
}

func TestADeadLetterIsBroughtOnlyToTheSinksThatLackIt(t *testing.T) {
	p := newPoisoned(t, 100)
	for i := range 4 {
		r := &kgo.Record{Topic: "in", Partition: 0, Key: fmt.Appendf(nil, "text%d", i), Value: []byte(`{"n":"many"}`)}
		if err := p.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := run(t.Context(), pipeline.Options{Plan: pipeline.NewPlan(p.spec(doubled, "{dead_letter: letters}"))})
	if err != nil || s.Counts.Dead != 4 {
		t.Fatalf("%d dead letters, error %v", s.Counts.Dead, err)
	}
	p.once("out", 100)
	p.once("other", 104)
	var listed []string
	fixed := p.spec(`[{name: double, set: {double: '"2"'}}]`, "{dead_letter: letters}")
	err = pipeline.Letters(t.Context(), fixed, pipeline.ReplayOptions{}, false, func(l *pipeline.Letter) {
		listed = append(listed, fmt.Sprint(l.Step, " ", l.Expression, " ", *l.Topic, " ", l.Attempt))
	})
	if err != nil || len(listed) != 4 || listed[0] != "double n * 2 in 1" {
		t.Fatalf("the letters are %q, error %v", listed, err)
	}
	if _, err := p.replay(fixed, pipeline.ReplayOptions{Filter: pipeline.LetterFilter{Steps: []string{"double"}}}, ""); err != nil {
		t.Fatal(err)
	}
	p.once("out", 104)
	p.once("other", 104)
}

func TestAReplaySaysWhatItCannotDo(t *testing.T) {
	const head = "pipeline: p\ncheckpoint: {storage: 'mem://replay'}\non_error: {dead_letter: letters}\nsource: {feed: {name: a}}\n"
	const sinks = "sinks:\n  out: {collect: {name: b}, from: REST}\n  letters: {kafka: {brokers: [b:1], topic: t}, on_error: fail}\n"
	for _, c := range []struct {
		name, file, want string
		opts             pipeline.ReplayOptions
	}{
		{"keyed state", head + "transforms: [{name: sum, aggregate: {by: [k], select: {n: count()}, ttl: forever}}]\n" + strings.Replace(sinks, "REST", "sum", 1),
			"step sum keeps state, which belongs to the running pipeline and cannot be added to from beside it", pipeline.ReplayOptions{}},
		{"no way back", head + strings.Replace(sinks, "REST", "source", 1), "nothing can be written back to source source", pipeline.ReplayOptions{ToSource: true}},
		{"no storage", strings.Replace(head, "checkpoint: {storage: 'mem://replay'}\n", "", 1) + strings.Replace(sinks, "REST", "source", 1), "no checkpoint.storage", pipeline.ReplayOptions{}},
		{"no dead letters", "pipeline: p\nsource: {feed: {name: a}}\nsink: {collect: {name: b}}\n", "sends no dead letters anywhere", pipeline.ReplayOptions{}},
		{"another sink", head + strings.Replace(sinks, "REST", "source", 1), "sink out gets no dead letters; there is letters", pipeline.ReplayOptions{Sink: "out"}},
		{"a condition that is none", head + strings.Replace(sinks, "REST", "source", 1), "--where", pipeline.ReplayOptions{Filter: pipeline.LetterFilter{Where: "1 +"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := spec.Parse("test.yaml", []byte(c.file), spec.Options{})
			if s.Diagnostics().HasErrors() {
				t.Fatal(faultsOf(t, c.file))
			}
			if _, err := pipeline.Replay(s, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
