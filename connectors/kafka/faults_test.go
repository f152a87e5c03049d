package kafka

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/sluice-etl/sluice/connectors"
)

// refuseProduce answers produce requests with an error as long as on returns it.
func refuseProduce(c *kfake.Cluster, on func() *kerr.Error) {
	refuseProduceOf(c, func(*kmsg.ProduceRequest) *kerr.Error { return on() })
}

// refuseProduceOf is refuseProduce by the request.
func refuseProduceOf(c *kfake.Cluster, on func(*kmsg.ProduceRequest) *kerr.Error) {
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		e := on(req)
		if e == nil {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, e.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
}

func TestARecordThatFailsFailsItsCheckpointForGood(t *testing.T) {
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			c, brokers := fake(t)
			out := topic(t, brokers, 1, nil)
			p := process(t, brokers, 1, func(cfg *SinkConfig, _ *connectors.SinkEnv) { cfg.Delivery = delivery }, out).start(1, nil)
			defer p.stop()
			var mu sync.Mutex
			refused := kerr.TopicAuthorizationFailed
			refuseProduce(c, func() *kerr.Error { mu.Lock(); defer mu.Unlock(); return refused })
			p.write(0, "lost")
			if _, err := p.checkpoint(1, 1); !connectors.IsPermanent(err) {
				t.Errorf("checkpoint 1: %v, want a permanent error", err)
			}
			mu.Lock()
			refused = nil
			mu.Unlock()
			if err := p.writers[0].Write(testContext(t), rowsOf("later")); err == nil {
				t.Error("a later write is taken")
			}
			if err := p.writers[0].Tick(testContext(t), time.Now()); err == nil {
				t.Error("a tick tells nothing")
			}
			if _, err := p.checkpoint(1, 2); err == nil {
				t.Error("a later checkpoint is taken")
			}
		})
	}
}

func TestAWitnessThatCannotBeWrittenFailsOnlyItsCheckpoint(t *testing.T) {
	c, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	p.write(0, "one")
	c.ControlKey(int16(kmsg.TxnOffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.TxnOffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		st := kmsg.NewTxnOffsetCommitResponseTopic()
		st.Topic, st.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		sp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
		sp.ErrorCode = kerr.UnknownServerError.Code
		st.Partitions = append(st.Partitions, sp)
		resp.Topics = append(resp.Topics, st)
		return resp, nil, true
	})
	if _, err := p.checkpoint(1, 1); err == nil {
		t.Fatal("checkpoint 1 is prepared without its witness")
	}
	p.write(0, "two")
	cs := p.prepared(1, 2)
	if len(cs) != 2 {
		t.Fatalf("%d committables, want those of both checkpoints", len(cs))
	}
	p.mustCommit(cs, false)
	wantTopic(t, "topic", brokers, out, []string{"one", "two"})
}

func TestATransactionOlderThanItsTimeoutStopsThePipeline(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	p.write(0, "one")
	p.prepared(1, 1)
	ctx := testContext(t)
	if err := p.writers[0].Tick(ctx, time.Now().Add(14*time.Minute)); err != nil {
		t.Errorf("before the timeout: %v", err)
	}
	err := p.writers[0].Tick(ctx, time.Now().Add(16*time.Minute))
	wantText(t, err, "transaction_timeout")
	if connectors.IsPermanent(err) {
		t.Error("the error is permanent: a restart mends it")
	}
	if err := p.writers[0].Write(ctx, rowsOf("two")); err == nil {
		t.Error("writes are taken")
	}
}

func TestOldTransactionsAreCommittedByTheirRules(t *testing.T) {
	// A cluster before transactions of version 2: a commit leaves the epoch as it
	// is, so that a repeated one would end whatever came after it.
	for _, c := range sinkCases {
		t.Run(c.name, func(t *testing.T) {
			_, brokers := fake(t, kfake.MaxVersions(kversion.V3_7_0()))
			c.run(t, brokers)
		})
	}
}

func TestRowsThatTheTopicCannotTakeAreRefusedOneByOne(t *testing.T) {
	_, brokers := fake(t)
	limit := "2000"
	out := topic(t, brokers, 2, map[string]*string{"max.message.bytes": &limit})
	p := process(t, brokers, 1, func(c *SinkConfig, _ *connectors.SinkEnv) { c.Partition = connectors.Expr{Text: "p", Slot: 0} }, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("a", strings.Repeat("x", 2000), "c", "d", "e")
	rows.Batch.SetStride(1)
	for i, v := range []connectors.Value{
		connectors.IntValue(1), connectors.IntValue(0), connectors.IntValue(2), connectors.StringValue("1"), connectors.IntValue(0),
	} {
		rows.Batch.Row(i)[0] = v
	}
	err := p.writers[0].Write(testContext(t), rows)
	var refused *connectors.RowsError
	if !errors.As(err, &refused) || len(refused.Rows) != 3 {
		t.Fatalf("write: %v, want rows 1, 2 and 3 refused", err)
	}
	for i, kind := range []string{"too_large", "partition", "partition"} {
		if r := refused.Rows[i]; r.Row != i+1 || r.Kind != kind {
			t.Errorf("refused %+v, want row %d for %s", r, i+1, kind)
		}
	}
	p.mustCommit(p.prepared(1, 1), false)
	wantTopic(t, "topic", brokers, out, []string{"a", "e"})
}

func TestOpeningASinkTellsWhatIsWrong(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	for _, c := range []struct {
		name   string
		change func(*SinkConfig)
		texts  []string
	}{
		{"topic", func(c *SinkConfig) { c.Topic = fixedTopic(out + "x") }, []string{out + "x", "does not exist", "did you mean " + out}},
		{"timeout", func(c *SinkConfig) { c.TransactionTimeout = connectors.TimeSpan(time.Hour) }, []string{"transaction_timeout 1h0m0s", "transaction.max.timeout.ms = 900000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := newSinkConfig().(*SinkConfig)
			cfg.Brokers, cfg.Topic = brokers, fixedTopic(out)
			c.change(cfg)
			s := newSink(cfg)
			defer s.Close()
			err := s.Open(testContext(t), connectors.SinkEnv{Pipeline: "p", Name: "s", Subtasks: 1, Slots: 2})
			if !connectors.IsPermanent(err) {
				t.Errorf("open: %v, want a permanent error", err)
			}
			wantText(t, err, c.texts...)
		})
	}
}

func TestACommitThatWasGivenUpFreesItsSlot(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, func(_ *SinkConfig, e *connectors.SinkEnv) { e.Slots = 2 }, out).start(1, nil)
	defer p.stop()
	for n := uint64(1); n <= 4; n++ {
		p.write(0, "given up")
		cs := p.prepared(1, n)
		p.commit.Done(cs[0].Checkpoint)
	}
	p.write(0, "kept")
	p.mustCommit(p.prepared(1, 5), false)
	wantTopic(t, "topic", brokers, out, []string{"kept"})
}

func TestExactlyOnceIsRefusedWhereTransactionsCannotBeDescribed(t *testing.T) {
	_, brokers := fake(t, kfake.MaxVersions(kversion.V2_7_0()), kfake.SeedTopics(1, "t"))
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Brokers, cfg.Topic = brokers, fixedTopic("t")
	s := newSink(cfg)
	defer s.Close()
	err := s.Open(testContext(t), connectors.SinkEnv{Pipeline: "p", Name: "s", Subtasks: 1, Slots: 2})
	if !connectors.IsPermanent(err) {
		t.Errorf("open: %v, want a permanent error", err)
	}
	wantText(t, err, "Kafka 3.0", "at_least_once")
}

func TestSinksThatShareATransactionMustAgree(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out)
	defer p.stop()
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Brokers, cfg.Topic, cfg.Compression = brokers, fixedTopic(out), "zstd"
	s := newSink(cfg)
	defer s.Close()
	err := s.Open(testContext(t), connectors.SinkEnv{Pipeline: "p-" + out, Name: "second", Subtasks: 1, Slots: 5,
		Shared: func(key string, _ func() any) any { return p.shared[key] }})
	wantText(t, err, out, "second", "compression")
}

func TestMissingRightsArePermanentErrorsThatNameThem(t *testing.T) {
	may := func(r kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: r, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	_, brokers := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "rootpw"),
		kfake.SeedTopics(1, "secret", "readable"),
		kfake.User("PLAIN", "ann", "annpw",
			may(kmsg.ACLResourceTypeTopic, "readable", kmsg.ACLOperationDescribe),
			may(kmsg.ACLResourceTypeTopic, "readable", kmsg.ACLOperationWrite)))
	ctx := testContext(t)
	login := SASLConfig{Mechanism: "PLAIN", Username: "ann", Password: "annpw"}
	source := func(topic string, sasl SASLConfig) error {
		s := newTestSource(t, brokers, func(c *SourceConfig) { c.SASL = sasl }, topic)
		splits, err := s.Splits(ctx, nil)
		if err != nil {
			return err
		}
		r := readerOf(t, s, splits)
		defer r.Close()
		_, err = r.Poll(ctx)
		return err
	}
	sink := func(topic string, sasl SASLConfig) error {
		cfg := newSinkConfig().(*SinkConfig)
		cfg.Brokers, cfg.Topic, cfg.SASL = brokers, fixedTopic(topic), sasl
		s := newSink(cfg)
		defer s.Close()
		if err := s.Open(ctx, connectors.SinkEnv{Pipeline: "p", Name: "s", Subtasks: 1, Slots: 2}); err != nil {
			return err
		}
		return s.(connectors.TwoPhaseSink).Committer().Revoke(ctx, nil)
	}
	for _, c := range []struct {
		name  string
		err   error
		texts []string
	}{
		{"describe a topic", source("secret", login), []string{"secret", "DESCRIBE"}},
		{"read a topic", source("readable", login), []string{"readable", "TOPIC_AUTHORIZATION_FAILED", "READ"}},
		{"write to a topic", sink("secret", login), []string{"secret", "DESCRIBE"}},
		{"use the group of the witness", sink("readable", login), []string{"p.witness", "READ"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !connectors.IsPermanent(c.err) {
				t.Errorf("%v, want a permanent error", c.err)
			}
			wantText(t, c.err, c.texts...)
		})
	}
	// The embedded broker hangs up on a wrong password, as one does that wants TLS.
	wantText(t, source("readable", SASLConfig{Mechanism: "PLAIN", Username: "ann", Password: "no"}), "closed the connection", "tls and sasl")
	wantText(t, source("readable", SASLConfig{}), "closed the connection", "tls and sasl")
}

func TestAnAbsentBrokerIsNamedAndNotGivenUp(t *testing.T) {
	s := newTestSource(t, []string{"127.0.0.1:1"}, nil, "t")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.Splits(ctx, nil)
	if err == nil || connectors.IsPermanent(err) {
		t.Errorf("splits: %v, want an error worth a retry", err)
	}
	wantText(t, err, "127.0.0.1:1", "refused")
}

func TestABrokerThatIsLostWhileReadingIsLoggedAndComesBack(t *testing.T) {
	c, brokers := fake(t)
	in := topic(t, brokers, 1, nil)
	cl := manual(t, brokers)
	send(t, cl, in, 0, "one")
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	var log syncBuffer
	r, err := s.Reader(connectors.ReaderEnv{Subtasks: 1, Budget: 1 << 20, Batches: connectors.NewBatchPool(2), Log: slog.New(slog.NewTextHandler(&log, nil))}, splits)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	drain(t, r, splits, 1)
	var mu sync.Mutex
	down := true
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		c.KeepControl()
		if down {
			return nil, errors.New("down"), true
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(testContext(t), 700*time.Millisecond)
	defer cancel()
	if b, err := r.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("poll while the broker is down: %v, %v", b, err)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	send(t, cl, in, 0, "two")
	values, _ := drain(t, r, []connectors.Split{r.Position(0, 1)}, 1)
	wantSet(t, "after the outage", values, []string{"two"})
	if !strings.Contains(log.String(), "cannot be reached") {
		t.Errorf("log: %s", log.String())
	}
}

// syncBuffer is a buffer that a log may be written to from many goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestASilentWitnessMeansLostOnlyAsLongAsItWouldBeKept(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, nil, out).start(1, nil)
	a.write(0, "one")
	cs := a.prepared(1, 1)
	a.stop()
	b := process(t, brokers, 1, nil, out).start(1, nil) // revokes it
	defer b.stop()
	if err := b.commit.Commit(testContext(t), cs[0], true); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("at once: %v, want ErrLost", err)
	}
	b.sinks[0].(*txnSink).set.now = func() time.Time { return time.Now().Add(7 * 24 * time.Hour) }
	if err := b.commit.Commit(testContext(t), cs[0], true); !errors.Is(err, connectors.ErrAmbiguous) {
		t.Errorf("a week later: %v, want ErrAmbiguous", err)
	}
}

func TestAForeignOffsetInTheWitnessGroupIsRefused(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out)
	defer p.stop()
	offsets := kadm.Offsets{}
	offsets.AddOffset(out, 0, 3, -1)
	if err := kadm.NewClient(client(t, brokers)).CommitAllOffsets(testContext(t), "p-"+out+".witness", offsets); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.commit.Witness(testContext(t))
	if !connectors.IsPermanent(err) {
		t.Errorf("witness: %v, want a permanent error", err)
	}
	wantText(t, err, "transactional_id_prefix")
}

func TestAtLeastOnceWritesAtOnceAndFlushesAtABarrier(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 2, nil)
	p := process(t, brokers, 2, func(c *SinkConfig, _ *connectors.SinkEnv) { c.Delivery = atLeastOnce }, out).start(2, nil)
	defer p.stop()
	if g := p.sinks[0].Guarantee(); g != connectors.AtLeastOnce {
		t.Errorf("guarantee %s", g)
	}
	p.write(0, numbers(0, 3000)...)
	p.write(1, numbers(3000, 6000)...)
	if cs := p.prepared(1, 1); len(cs) != 0 {
		t.Errorf("committables %+v", cs)
	}
	wantSet(t, "topic", stored(t, brokers, out, kgo.ReadUncommitted()), numbers(0, 6000))
}

func TestRecordsOfTwoCheckpointsKeepTheirOrderWhileTheBrokerRefusesTheFirst(t *testing.T) {
	c, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 2, nil, out).start(2, nil)
	defer p.stop()
	var refusals atomic.Int32
	refusals.Store(2)
	var id atomic.Pointer[string] // of the transaction that is refused, the first
	refuseProduceOf(c, func(r *kmsg.ProduceRequest) *kerr.Error {
		id.CompareAndSwap(nil, r.TransactionID)
		if *r.TransactionID == *id.Load() && refusals.Add(-1) >= 0 {
			return kerr.NotEnoughReplicas // which is tried again
		}
		return nil
	})
	p.write(0, "1")
	barrier := connectors.Barrier{ID: connectors.CheckpointID{Generation: 1, Number: 1}}
	first, err := p.writers[0].Barrier(testContext(t), barrier)
	if err != nil {
		t.Fatal(err)
	}
	p.write(0, "2") // the other writer has not passed the barrier, and is not waited for
	second, err := p.writers[1].Barrier(testContext(t), barrier)
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range []connectors.Prepare{first, second} {
		if _, err := prepare(testContext(t), nil); err != nil {
			t.Fatal(err)
		}
	}
	p.mustCommit(p.prepared(1, 2), false)
	p.mustCommit(p.prepared(1, 3), false) // its own, and those handed over again
	if got := stored(t, brokers, out, kgo.ReadCommitted()); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the topic holds %q", got)
	}
}

func TestAWitnessOfAnotherCheckpointStorageProvesNothing(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	from := func(origin string) func(*SinkConfig, *connectors.SinkEnv) {
		return func(_ *SinkConfig, env *connectors.SinkEnv) { env.Origin = func() string { return origin } }
	}
	a := process(t, brokers, 1, from("a"), out).start(1, nil)
	a.write(0, "a's")
	prepared := a.prepared(1, 5)
	a.stop()
	b := process(t, brokers, 1, from("b"), out).start(1, nil)
	b.write(0, "b's")
	b.mustCommit(b.prepared(1, 21), false)
	b.stop()

	again := process(t, brokers, 1, from("a"), out)
	defer again.stop()
	err := again.commit.Commit(testContext(t), prepared[0], true)
	if !errors.Is(err, connectors.ErrAmbiguous) && !errors.Is(err, connectors.ErrLost) {
		t.Errorf("the commit of what the other took away: %v", err)
	}
	wantText(t, err, "another checkpoint storage", "transactional_id_prefix")
	var foreign *connectors.ForeignWitnessError
	if _, _, err := again.commit.Witness(testContext(t)); !errors.As(err, &foreign) || foreign.Mark != "b/1/21" {
		t.Errorf("the witness: %v", err)
	}
}
