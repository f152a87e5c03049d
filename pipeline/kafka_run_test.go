package pipeline_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	_ "github.com/sluice-etl/sluice/connectors/files"
	_ "github.com/sluice-etl/sluice/connectors/kafka"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// broker is a Kafka cluster of one in the process, with topics in and out.
type broker struct {
	t      *testing.T
	addr   string
	client *kgo.Client
	sent   int
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(rand.Text()), kfake.SeedTopics(2, "in", "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &broker{t: t, addr: c.ListenAddrs()[0], client: cl}
}

func value(i int) string { return fmt.Sprintf(`{"n":%d}`, i) }

// rowsBetween are the values of records from first up to last, in no order.
func rowsBetween(first, last int) (out []string) {
	for i := first; i < last; i++ {
		out = append(out, value(i))
	}
	return sorted(out)
}

// send appends the next n records.
func (b *broker) send(n int) {
	b.t.Helper()
	for range n {
		r := &kgo.Record{Topic: "in", Partition: int32(b.sent % 2), Value: []byte(value(b.sent))}
		if err := b.client.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
			b.t.Fatal(err)
		}
		b.sent++
	}
}

// out are the committed values of the topic out.
func (b *broker) out() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(b.client).ListCommittedOffsets(ctx, "out")
	if err != nil {
		b.t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DisableClientMetrics(), kgo.ConsumeTopics("out"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	var out []string
	for len(left) > 0 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, string(r.Value))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return sorted(out)
}

// awaitAborted waits until the broker has given up all open transactions.
func (b *broker) awaitAborted() {
	b.t.Helper()
	adm := kadm.NewClient(b.client)
	eventually(b.t, "transactions expire", func() bool {
		listed, err := adm.ListTransactions(b.t.Context(), nil, []string{"Ongoing", "PrepareAbort"})
		return err == nil && len(listed) == 0
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// linesIn are the lines of all files of a folder.
func linesIn(t *testing.T, address string) (out []string) {
	t.Helper()
	f, err := storage.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := f.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		r, err := f.Open(t.Context(), info.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Fields(string(data))...)
	}
	return sorted(out)
}

// session runs a world's pipeline whose checkpoints are taken by hand.
type session struct {
	*pipelinetest.Process
	t       *testing.T
	control *pipeline.Control
}

// begin starts the pipeline and waits until it runs, or has ended.
func begin(t *testing.T, w *pipelinetest.World) session {
	t.Helper()
	w.Options.Control = &pipeline.Control{}
	runs := make(chan struct{}, 10)
	w.Options.Running = func() { runs <- struct{}{} }
	s := session{Process: w.Start(), t: t, control: w.Options.Control}
	ended := make(chan struct{})
	go func() {
		_, _ = s.Wait()
		close(ended)
	}()
	select {
	case <-runs:
	case <-ended:
		_, err := s.Wait()
		t.Fatalf("it does not run: %v", err)
	}
	return s
}

// written waits until its sinks were given n rows.
func (s session) written(n int) session {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d rows are written", n), func() bool { return s.control.Progress().Counts.Written >= int64(n) })
	return s
}

// checkpoint takes one and returns its path.
func (s session) checkpoint() string {
	s.t.Helper()
	taken, err := s.control.Checkpoint(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return taken.Path
}

// crashAt crashes the run within a checkpoint, at the nth time it comes to a point.
func crashAt(w *pipelinetest.World, s session, point *atomic.Pointer[func(string)], at string) {
	reached, crashed := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	stop := func(name string) {
		if name == at && once.CompareAndSwap(false, true) {
			close(reached)
			<-crashed
		}
	}
	point.Store(&stop)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	go func() { _, _ = s.control.Checkpoint(ctx) }()
	<-reached
	done := make(chan struct{})
	go func() {
		s.Crash()
		close(done)
	}()
	// The process must not get beyond the point before it has crashed.
	time.AfterFunc(50*time.Millisecond, func() { close(crashed) })
	<-done
	point.Store(nil)
}

// failpoints makes the world's runs call what point holds.
func failpoints(w *pipelinetest.World) *atomic.Pointer[func(string)] {
	var point atomic.Pointer[func(string)]
	w.Options.Failpoint = func(name string) {
		if f := point.Load(); f != nil {
			(*f)(name)
		}
	}
	return &point
}

const topicAndFiles = `
pipeline: both
parallelism: 2
source: {kafka: {brokers: [BROKER], topics: [in]}}
sinks:
  topic: {kafka: {brokers: [BROKER], topic: out, transaction_timeout: TIMEOUT}}
  files: {file: {path: "mem://FEED-files"}}
checkpoint: {storage: STORAGE, interval: 1s, min_pause: 1h, retained: 7}
`

func TestATransactionThatExpiredWhileDownGoesBackForAllSinks(t *testing.T) {
	b := newBroker(t)
	yaml := strings.NewReplacer("BROKER", b.addr, "TIMEOUT", "2s").Replace(topicAndFiles)
	w := pipelinetest.New(t, strings.ReplaceAll(yaml, "FEED-files", t.Name()))
	point := failpoints(w)
	s := begin(t, w)
	b.send(10)
	s.written(20).checkpoint()
	b.send(10)
	crashAt(w, s.written(40), point, "before-commit")
	b.awaitAborted()
	s = begin(t, w)
	b.send(10)
	s.written(40).checkpoint() // the second and third ten
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	equal(t, b.out(), rowsBetween(0, 30))
	equal(t, linesIn(t, "mem://"+t.Name()), rowsBetween(0, 30))
}

func TestATransactionThatExpiredBesideAClusterThatHasCommitted(t *testing.T) {
	a, b := newBroker(t), newBroker(t)
	w := pipelinetest.New(t, strings.NewReplacer("BROKER", a.addr, "SECOND", b.addr).Replace(`
pipeline: both
parallelism: 1
source: {kafka: {brokers: [BROKER], topics: [in]}}
sinks:
  first: {kafka: {brokers: [BROKER], topic: out, transaction_timeout: 2s}}
  second: {kafka: {brokers: [SECOND], topic: out, transaction_timeout: 2s}}
checkpoint: {storage: STORAGE, interval: 1s, min_pause: 1h, retained: 7}
`))
	point := failpoints(w)
	s := begin(t, w)
	a.send(10)
	s.written(20).checkpoint()
	a.send(10)
	crashAt(w, s.written(40), point, "kafka.endtxn.after")
	a.awaitAborted()
	b.awaitAborted()
	_, err := w.Run()
	if !connectors.IsPermanent(err) {
		t.Fatalf("error %v", err)
	}
	wantTexts(t, err.Error(), "commit of 10 records of checkpoint 3", "has published checkpoint 3", "checkpoint 2", "--accept-duplicates")
	w.Options.AcceptDuplicates = true
	s = begin(t, w)
	s.written(20).checkpoint()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	one, two := a.out(), b.out()
	if len(one) > len(two) {
		one, two = two, one
	}
	equal(t, one, rowsBetween(0, 20))
	equal(t, two, sorted(append(rowsBetween(0, 20), rowsBetween(10, 20)...)))
}

func TestCommitsAfterARollbackAreToldFromThoseOfTheOldRun(t *testing.T) {
	b := newBroker(t)
	yaml := strings.NewReplacer("BROKER", b.addr, "TIMEOUT", "10m").Replace(topicAndFiles)
	w := pipelinetest.New(t, strings.ReplaceAll(yaml, "FEED-files", t.Name()))
	point := failpoints(w)
	s := begin(t, w)
	var paths []string
	for i := range 6 { // checkpoints 2 to 7, of ten records each
		b.send(10)
		paths = append(paths, s.written(20*(i+1)).checkpoint())
	}
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	equal(t, b.out(), rowsBetween(0, 60))

	// Back to the third, whose records are the first twenty.
	w.Options.From = paths[1]
	log := logTo(w)
	s = begin(t, w)
	wantTexts(t, log.String(), "published again", "file/files", "kafka/", "rows from before the checkpoint", `checkpoints="4 to `)
	w.Options.From = ""
	s.written(80).checkpoint() // twenty to sixty again
	again := rowsBetween(20, 60)
	equal(t, b.out(), sorted(append(rowsBetween(0, 60), again...)))
	// Its next number is one that the old run has committed too.
	b.send(10)
	crashAt(w, s.written(100), point, "before-commit")
	s = begin(t, w)
	equal(t, b.out(), sorted(append(rowsBetween(0, 70), again...)))
	for i := range 4 { // and beyond the old run's numbers
		b.send(10)
		s.written(20 * (i + 1)).checkpoint()
	}
	b.send(10)
	crashAt(w, s.written(100), point, "kafka.endtxn.after")
	s = begin(t, w)
	b.send(10)
	s.written(20).checkpoint()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	equal(t, b.out(), sorted(append(rowsBetween(0, 130), again...)))
	// The third checkpoint held the first twenty in a file in the making, which the old
	// run has published since.
	equal(t, linesIn(t, "mem://"+t.Name()), sorted(append(rowsBetween(0, 130), rowsBetween(0, 60)...)))

	o, err := checkpoint.Inspect(t.Context(), s.last(w))
	if err != nil || o.Meta.Number <= 7 {
		t.Errorf("the last checkpoint is %+v, %v", o, err)
	}
}

// last is the path of the newest checkpoint of the run's job.
func (s session) last(w *pipelinetest.World) string {
	s.t.Helper()
	store, err := checkpoint.NewStore(w.Storage(), w.Plan().Spec.Name, checkpoint.StoreOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	survey, err := store.Survey(s.t.Context())
	if err != nil || len(survey.Checkpoints) == 0 {
		s.t.Fatalf("no checkpoint: %v", err)
	}
	return survey.Checkpoints[0].Path
}
