package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// txnSet is the transactions of a pipeline on one cluster, which all its
// exactly-once sinks there share: each interval between two barriers is one
// transaction in one slot, a transactional id with its client. A slot is free
// again once its last transaction is known to be committed. It is what stands
// behind the committers of the sinks.
type txnSet struct {
	id      string
	prefix  string
	conn    connection
	log     *slog.Logger
	dials   *dialWatch
	admin   *kgo.Client // without transactional id
	legacy  *kgo.Client // the same for clusters below transaction.version 2
	first   *sink       // whose settings all agree with
	stream  *stream
	now     func() time.Time
	crash   func(string)
	claimed time.Duration // transaction_timeout as configured; 0 for the default

	joins    sync.Mutex // held while a sink joins
	prepares sync.Mutex // held while an interval is prepared
	commits  sync.Mutex // held while one is committed

	mu       sync.Mutex
	sinks    int
	members  []*sink
	slots    []*slot
	freed    chan struct{} // closed when a slot becomes free
	timeout  time.Duration
	version  int16         // of the cluster's transactions
	keeps    time.Duration // how long a group's offsets outlive it
	place    witnessPlace
	witness  witness                   // the newest that is known to be committed
	through  []connectors.CheckpointID // what this process and those before it resolved at their start
	pending  []*interval               // ended and not done, in order
	preparer *interval                 // the oldest that is not prepared
}

// slot is one transactional id.
type slot struct {
	id      string
	client  *kgo.Client
	version int16 // of the transactions that the client makes
	busy    bool
}

func newTxnSet(id, prefix string, s *sink) *txnSet {
	t := &txnSet{
		id: id, prefix: prefix, conn: s.conn, log: s.log, first: s, stream: newStream(),
		now: time.Now, crash: s.env.Failpoint, claimed: time.Duration(s.cfg.TransactionTimeout),
		freed: make(chan struct{}),
	}
	if t.crash == nil {
		t.crash = func(string) {}
	}
	t.preparer = t.stream.head
	t.dials = newDialWatch(s.log)
	for i := range max(s.env.Slots, 2) {
		t.slots = append(t.slots, &slot{id: slotID(prefix, i)})
	}
	return t
}

// join adds a sink and its writers.
func (t *txnSet) join(ctx context.Context, s *sink, prefix string) error {
	if prefix != t.prefix || s.agreement() != t.first.agreement() {
		return connectors.Permanent(fmt.Errorf(
			"sinks %s and %s write to one kafka cluster in one transaction, so they must agree in tls, sasl, client, compression, transactional_id_prefix and transaction_timeout",
			t.first.env.Name, s.env.Name))
	}
	t.joins.Lock()
	defer t.joins.Unlock()
	t.mu.Lock()
	t.sinks++
	t.members = append(t.members, s)
	if t.place.Topic == "" {
		t.place.Topic = s.topic
	}
	connected := t.admin != nil
	t.mu.Unlock()
	t.stream.join(s.env.Subtasks)
	if connected {
		return nil
	}
	return t.connect(ctx, s)
}

// connect opens the clients of the control path and learns the cluster's limits.
func (t *txnSet) connect(ctx context.Context, s *sink) error {
	admin, err := t.conn.newClient(t.dials, kgo.RequestTimeoutOverhead(answerPatience))
	if err != nil {
		return err
	}
	legacy, err := t.conn.newClient(t.dials, kgo.RequestTimeoutOverhead(answerPatience), kgo.MaxVersions(oldTransactions()))
	if err != nil {
		admin.Close()
		return err
	}
	t.mu.Lock()
	t.admin, t.legacy = admin, legacy
	t.mu.Unlock()
	if err := t.readFeatures(ctx); err != nil {
		return err
	}
	if err := t.readTimeouts(ctx); err != nil {
		return err
	}
	if !s.env.ReadOnly {
		if err := t.conn.checkGroup(ctx, t.admin, t.group()); err != nil {
			return err
		}
	}
	every := s.env.Interval
	if every >= t.timeout {
		return connectors.Permanent(fmt.Errorf(
			"checkpoint.interval %v is not below transaction_timeout %v: the broker would abort each transaction before its checkpoint; shorten the one, or lengthen the other, up to the broker's transaction.max.timeout.ms",
			every, t.timeout))
	}
	if every > 0 && t.timeout < 3*every {
		t.log.Warn("transaction_timeout is short against the checkpoint interval: a slow checkpoint or a longer downtime makes the pipeline rewind",
			"transaction_timeout", t.timeout, "interval", every)
	}
	return nil
}

// leave closes the clients with the last sink. It ends no transaction: a
// checkpoint may refer to it.
func (t *txnSet) leave() {
	t.mu.Lock()
	t.sinks--
	last := t.sinks == 0
	t.mu.Unlock()
	if !last {
		return
	}
	t.stream.fail(errors.New("the sink is closed"))
	for _, s := range t.slots {
		if s.client != nil {
			s.client.Close()
			s.client = nil
		}
	}
	if t.admin != nil {
		t.admin.Close()
		t.legacy.Close()
	}
}

// clientOf is the client of an interval's transaction, which its first record
// begins.
func (t *txnSet) clientOf(ctx context.Context, iv *interval) (*kgo.Client, error) {
	t.mu.Lock()
	client := iv.client
	t.mu.Unlock()
	if client != nil {
		return client, nil
	}
	iv.opening.Lock()
	defer iv.opening.Unlock()
	t.mu.Lock()
	client = iv.client
	t.mu.Unlock()
	if client != nil {
		return client, nil
	}
	s, err := t.takeSlot(ctx)
	if err != nil {
		return nil, err
	}
	begun := t.now()
	if err := t.open(ctx, s); err != nil {
		t.release(s)
		return nil, err
	}
	if err := s.client.BeginTransaction(); err != nil {
		t.discard(s)
		t.release(s)
		return nil, t.explainProducer(s, err)
	}
	t.mu.Lock()
	iv.slot, iv.client, iv.begun = s, s.client, begun
	t.mu.Unlock()
	return s.client, nil
}

// ageEvery is how often a wait for a slot looks at the age of the transactions.
const ageEvery = time.Second

// takeSlot waits for a free slot. Where all are held by what no checkpoint has
// completed, none comes free, as the next barrier is behind the writer that waits:
// then the wait ends when the first of them is too old.
func (t *txnSet) takeSlot(ctx context.Context) (*slot, error) {
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	for {
		t.mu.Lock()
		for _, s := range t.slots {
			if !s.busy {
				s.busy = true
				t.mu.Unlock()
				return s, nil
			}
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-tick.C:
			if err := t.checkAge(t.now()); err != nil {
				return nil, err
			}
		case <-t.stream.broken:
			return nil, t.stream.failure()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *txnSet) release(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy = false
	close(t.freed)
	t.freed = make(chan struct{})
}

// discard closes a slot's client, whose producer id is used up or unknown.
func (t *txnSet) discard(s *slot) {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// open makes sure that a slot has a client with a producer id.
func (t *txnSet) open(ctx context.Context, s *slot) error {
	if s.client == nil {
		opts := append(t.first.produceOptions(t.limit),
			kgo.TransactionalID(s.id), kgo.TransactionTimeout(t.timeout))
		cl, err := t.conn.newClient(t.dials, opts...)
		if err != nil {
			return err
		}
		s.client, s.version = cl, t.version
	}
	if _, _, err := s.client.ProducerID(ctx); err != nil {
		t.discard(s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return t.explainProducer(s, err)
	}
	return nil
}

// limit is the largest batch that a topic takes.
func (t *txnSet) limit(topic string) int32 {
	t.mu.Lock()
	members := t.members
	t.mu.Unlock()
	for _, s := range members {
		if known := s.targets.get(topic); known != nil {
			return int32(known.maxRecord)
		}
	}
	return defaultMaxMessage
}

func (t *txnSet) explainProducer(s *slot, err error) error {
	what := "open transactional id " + s.id
	switch {
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return connectors.Permanent(fmt.Errorf("%s: transaction_timeout %v is above the broker's transaction.max.timeout.ms: lower the one or raise the other: %w", what, t.timeout, err))
	case fenced(err):
		return fmt.Errorf("%s: %w: %w", what, connectors.ErrFenced, err)
	}
	return t.conn.explain(t.dials, what, err)
}

// txnData is the Data of a committable.
type txnData struct {
	TransactionalID string `json:"transactional_id"`
	ProducerID      int64  `json:"producer_id"`
	Epoch           int16  `json:"epoch"`
	// Version is the cluster's transaction.version when it was prepared.
	Version int16        `json:"transaction_version"`
	Group   string       `json:"witness_group"`
	Place   witnessPlace `json:"witness"`
	// Prepared and WitnessKept tell until when a missing witness proves that the
	// transaction was never committed.
	Prepared    time.Time     `json:"prepared"`
	WitnessKept time.Duration `json:"witness_kept"`
	// WitnessOnly says that it holds no records.
	WitnessOnly bool `json:"witness_only,omitempty"`
}

// txnState is the State that each writer leaves in a checkpoint.
type txnState struct {
	Witness witnessPlace `json:"witness"`
}

// prepare takes part in a checkpoint. The last writer prepares the interval and
// those before it that failed checkpoints left, and hands all of them over.
func (t *txnSet) prepare(ctx context.Context, iv *interval) (connectors.Prepared, error) {
	t.mu.Lock()
	state, err := json.Marshal(txnState{t.place})
	t.mu.Unlock()
	if err != nil {
		return connectors.Prepared{}, fmt.Errorf("encode the kafka sink's state: %w", err)
	}
	out := connectors.Prepared{State: state}
	if !t.stream.ask(iv) {
		return out, nil
	}
	t.prepares.Lock()
	defer t.prepares.Unlock()
	for iv.committable == nil {
		t.mu.Lock()
		p := t.preparer
		t.mu.Unlock()
		if err := t.prepareOne(ctx, p); err != nil {
			return connectors.Prepared{}, err
		}
		t.mu.Lock()
		t.pending = append(t.pending, p)
		t.preparer = p.next
		t.mu.Unlock()
		t.stream.advance(p)
	}
	// What the broker has aborted by now must not get into a checkpoint.
	if err := t.checkAge(t.now()); err != nil {
		return connectors.Prepared{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending {
		out.Committables = append(out.Committables, *p.committable)
	}
	return out, nil
}

// prepareOne makes the records of an ended interval durable and their
// transaction one that any process can commit.
func (t *txnSet) prepareOne(ctx context.Context, iv *interval) error {
	t.crash("kafka.flush.before")
	if err := t.stream.drain(ctx, iv); err != nil {
		return err
	}
	t.crash("kafka.flush.after")
	c := connectors.Committable{Committer: t.id, Checkpoint: iv.id}
	only := iv.slot == nil
	if only {
		if !t.witnessIsOld() {
			c.Empty = true
			iv.committable = &c
			return nil
		}
		s, err := t.takeSlot(ctx)
		if err != nil {
			return err
		}
		t.discard(s) // so that no witness of an attempt that failed is in it
		if err := t.open(ctx, s); err != nil {
			t.release(s)
			return err
		}
		t.mu.Lock()
		iv.slot, iv.begun = s, t.now()
		t.mu.Unlock()
	}
	data, err := t.seal(ctx, iv)
	if err != nil {
		if only {
			t.discard(iv.slot)
			t.release(iv.slot)
			t.mu.Lock()
			iv.slot = nil
			t.mu.Unlock()
		}
		return err
	}
	data.WitnessOnly = only
	c.Expires, c.Records = iv.begun.Add(t.timeout), t.stream.records(iv)
	if c.Data, err = json.Marshal(data); err != nil {
		return fmt.Errorf("encode a kafka transaction: %w", err)
	}
	iv.committable = &c
	return nil
}

// seal adds the witness to an interval's transaction and notes what it takes to
// commit it.
func (t *txnSet) seal(ctx context.Context, iv *interval) (txnData, error) {
	s := iv.slot
	pid, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return txnData{}, t.explainProducer(s, err)
	}
	t.mu.Lock()
	if t.place.Topic == "" {
		t.place.Topic = t.written()
	}
	d := txnData{
		TransactionalID: s.id, ProducerID: pid, Epoch: epoch, Version: s.version,
		Group: t.group(), Place: t.place, Prepared: t.now(), WitnessKept: t.keeps,
	}
	w := witness{
		CheckpointID: iv.id, Origin: t.origin(), Pipeline: t.first.env.Pipeline,
		At: t.now().Unix(), Through: slices.Clone(t.through),
	}
	t.mu.Unlock()
	t.crash("kafka.witness.before")
	if err := t.writeWitness(ctx, &d, w); err != nil {
		err = t.explainProducer(s, fmt.Errorf("add the witness for topic %s in group %s: %w", d.Place.Topic, d.Group, err))
		if errors.Is(err, connectors.ErrFenced) {
			t.stream.fail(err)
		}
		return txnData{}, err
	}
	t.crash("kafka.witness.after")
	return d, nil
}

// written is a topic that records went to: the witness is kept for it where no
// sink's topic is fixed.
func (t *txnSet) written() string {
	for _, s := range t.members {
		if name := s.targets.any(); name != "" {
			return name
		}
	}
	return ""
}

// checkAge breaks the stream where a transaction is older than its timeout and
// not committed: the broker has aborted it, and only a restart from a checkpoint
// brings its records back.
func (t *txnSet) checkAge(now time.Time) error {
	expired := ""
	t.stream.mu.Lock() // for next
	t.mu.Lock()
	iv := t.preparer
	if len(t.pending) > 0 {
		iv = t.pending[0]
	}
	for ; iv != nil && expired == ""; iv = iv.next {
		if iv.slot != nil && !iv.committed && now.After(iv.begun.Add(t.timeout)) {
			expired = iv.slot.id
		}
	}
	t.mu.Unlock()
	t.stream.mu.Unlock()
	if expired == "" {
		return nil
	}
	err := fmt.Errorf("transaction %s was open for longer than transaction_timeout (%v) and no checkpoint with it was committed: the broker aborts it, its records are read again", expired, t.timeout)
	t.stream.fail(err)
	return err
}
