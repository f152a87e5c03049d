package kafka

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// reader implements connectors.Reader: one client that fetches the partitions of
// one subtask, whose answers are handed out batch by batch.
type reader struct {
	src     *source
	env     connectors.ReaderEnv
	log     *slog.Logger
	dials   *dialWatch
	end     context.CancelFunc // of what the client does
	client  *kgo.Client
	decoder *decompressor

	splits []splitState
	byName map[partitionName]int
	open   int // splits that are not read to their end

	queue  []fetched // of the last poll; those before at are handed out
	at     int
	err    error // what the last poll met; told after its records
	leases leasePool
	size   fetchSize
	ends   ends
}

type partitionName struct {
	topic     string
	partition int32
}

// splitState is a split and how far it has been handed out.
type splitState struct {
	id     string
	origin connectors.Origin
	next   int64
	until  int64 // -1 for none
	done   bool
	paused bool
	detail detail
	probed time.Time // when its fetch position was last asked for
	moved  bool      // next moved without records, and nobody was told yet
}

// fetched is the part of a poll that belongs to one split.
type fetched struct {
	split   int
	records []*kgo.Record
}

// Reader implements connectors.Source.
func (s *source) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	log := env.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	pool := newFetchPool(env.Budget)
	r := &reader{
		src: s, env: env, log: log, dials: newDialWatch(log),
		decoder: newDecompressor(pool), byName: map[partitionName]int{},
		ends: ends{every: endsEvery, provenFor: provenFor},
	}
	r.size.limit(env.Budget, &s.cfg.Client)
	life, end := context.WithCancel(context.Background())
	cl, err := s.conn.newClient(r.dials, append(r.fetchOptions(pool), kgo.WithContext(life))...)
	if err != nil {
		end()
		return nil, err
	}
	r.client, r.end = cl, end
	if err := r.Add(splits); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// fetchOptions are those of a client that reads.
func (r *reader) fetchOptions(pool *fetchPool) []kgo.Opt {
	c := &r.src.cfg.Client
	whole, part := r.size.get()
	opts := []kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(whole),
		kgo.FetchMaxPartitionBytes(part),
		kgo.FetchMaxWait(time.Duration(c.FetchMaxWait)),
		kgo.WithHooks(&r.size),
		kgo.MaxDecompressBatchBytes(maxDecompressed),
		kgo.WithPools(pool),
		kgo.WithDecompressor(r.decoder),
	}
	if r.src.cfg.Isolation == readUncommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	} else {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack))
	}
	return opts
}

// Add implements connectors.Reader.
func (r *reader) Add(splits []connectors.Split) error {
	assign := map[string]map[int32]kgo.Offset{}
	for _, sp := range splits {
		topic, partition, ok := parseSplitID(sp.ID)
		if !ok {
			return connectors.Permanent(errors.New("split " + sp.ID + " is no topic/partition"))
		}
		st := splitState{
			id: sp.ID, origin: connectors.Origin{Topic: topic, Partition: partition},
			next: sp.Offset, until: sp.Until, detail: splitDetail(sp),
		}
		st.done = st.until >= 0 && st.next >= st.until
		r.byName[partitionName{topic, partition}] = len(r.splits)
		r.splits = append(r.splits, st)
		r.ends.add(topic, partition, st.next, st.done)
		if st.done {
			continue
		}
		r.open++
		if assign[topic] == nil {
			assign[topic] = map[int32]kgo.Offset{}
		}
		assign[topic][partition] = kgo.NewOffset().At(sp.Offset).WithEpoch(st.detail.Epoch)
	}
	if len(assign) > 0 {
		r.client.AddConsumePartitions(assign)
	}
	return nil
}

// Position implements connectors.Reader.
func (r *reader) Position(split int, next int64) connectors.Split {
	s := &r.splits[split]
	return connectors.Split{ID: s.id, Offset: next, Until: s.until, Detail: s.detail.encode()}
}

// Poll implements connectors.Reader.
func (r *reader) Poll(ctx context.Context) (*connectors.Batch, error) {
	for {
		if b := r.handOut(); b != nil {
			return b, nil
		}
		if r.passHole() {
			continue
		}
		if err := r.err; err != nil {
			r.err = nil
			return nil, err
		}
		if r.open == 0 && r.src.cfg.Until.Set() {
			return nil, io.EOF
		}
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
	}
}

// passHole goes on behind a stretch that has no records.
func (r *reader) passHole() bool {
	h, ok := r.ends.take()
	if ok {
		r.place(h.split, h.to)
	}
	return ok
}

// place notes that a split is read up to next, where nothing came of what is before.
func (r *reader) place(split int, next int64) {
	s := &r.splits[split]
	s.next, s.moved = next, true
	r.ends.moved(split, next)
}

// handOut makes a batch of what the last poll brought, or nil.
func (r *reader) handOut() *connectors.Batch {
	for ; r.at < len(r.queue); r.at++ {
		q := &r.queue[r.at]
		if b := r.batch(q); b != nil {
			return b
		}
		q.records = nil
	}
	for i := range r.splits {
		if s := &r.splits[i]; s.moved {
			s.moved = false
			b := r.env.Batches.Get()
			b.Split, b.Next = i, s.next
			return b
		}
	}
	return nil
}

// batch takes the next records of q, up to a batch and to the split's end.
func (r *reader) batch(q *fetched) *connectors.Batch {
	s := &r.splits[q.split]
	if len(q.records) == 0 {
		return nil
	}
	if s.done {
		recycle(q.records)
		return nil
	}
	take := q.records[:min(len(q.records), connectors.MaxBatch)]
	q.records = q.records[len(take):]
	b := r.env.Batches.Get()
	b.Size(len(take), 0)
	n, last := 0, s.next
	for i, kr := range take {
		if s.until >= 0 && kr.Offset >= s.until {
			last = s.until
			recycle(take[i:])
			take = take[:i]
			break
		}
		last = kr.Offset + 1
		s.detail.Epoch = kr.LeaderEpoch
		if kr.Attrs.IsControl() {
			continue
		}
		fill(&b.Records[n], kr, &s.origin)
		n++
	}
	b.Records = b.Records[:n]
	b.Split, b.Next = q.split, last
	s.next, s.moved = last, false
	r.ends.moved(q.split, last)
	b.Hold(r.leases.get(take))
	if s.until >= 0 && last >= s.until {
		r.finish(s)
	}
	return b
}

// fill makes rec of a fetched record. Everything is borrowed.
func fill(rec *connectors.Record, kr *kgo.Record, origin *connectors.Origin) {
	rec.Value, rec.Key = kr.Value, kr.Key
	rec.Headers = headers(kr.Headers)
	rec.Origin = origin
	rec.Offset = kr.Offset
	rec.Time = kr.Timestamp.UnixMilli()
}

// headers takes the client's headers as ours: the two types have the same fields.
func headers(h []kgo.RecordHeader) []connectors.Header {
	if len(h) == 0 {
		return nil
	}
	return unsafe.Slice((*connectors.Header)(unsafe.Pointer(unsafe.SliceData(h))), len(h))
}

var _ = connectors.Header(kgo.RecordHeader{})

// finish ends a split that is read to its end.
func (r *reader) finish(s *splitState) {
	s.done = true
	r.ends.quiet(r.index(s), true)
	r.open--
	r.client.RemoveConsumePartitions(map[string][]int32{s.origin.Topic: {s.origin.Partition}})
}

// probeAfter is how long a bounded split may bring nothing before its fetch
// position is asked for.
const probeAfter = 200 * time.Millisecond

// fetch waits for what the client has next.
func (r *reader) fetch(ctx context.Context) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if r.src.cfg.Until.Set() {
		wait, cancel = context.WithTimeout(ctx, probeAfter)
	}
	fetches := r.client.PollFetches(wait)
	now := time.Now()
	cancel()
	if whole, part, changed := r.size.adapt(min(len(r.client.DiscoveredBrokers()), r.open)); changed {
		r.client.UpdateFetchMaxBytes(whole, part)
	}
	r.queue, r.at = r.queue[:0], 0
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if errors.Is(p.Err, context.DeadlineExceeded) || errors.Is(p.Err, context.Canceled) {
			return
		}
		at, known := r.byName[partitionName{p.Topic, p.Partition}]
		if p.Err != nil {
			r.err = errors.Join(r.err, r.fault(ctx, p, at, known))
		}
		if known && p.Err == nil {
			r.ends.told(at, r.stableEnd(&p), now)
		}
		if known && len(p.Records) > 0 {
			r.queue = append(r.queue, fetched{at, p.Records})
		}
	})
	if len(r.queue) > 0 || r.err != nil {
		return nil //nolint:nilerr // Poll tells it after the records
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.src.cfg.Until.Set() {
		return r.probe(ctx)
	}
	return nil
}

// stableEnd is the end of what can be read of a partition now.
func (r *reader) stableEnd(p *kgo.FetchTopicPartition) int64 {
	if r.src.cfg.Isolation == readUncommitted || p.LastStableOffset < 0 {
		return p.HighWatermark
	}
	return p.LastStableOffset
}

// Close implements connectors.Reader.
func (r *reader) Close() error {
	r.ends.close()
	r.queue = nil
	// Closing a client that fetches begins a fetch that nobody waits for, beside which it
	// looks at what that changes. One whose life has ended begins none.
	r.end()
	r.client.Close()
	return nil
}

func recycle(records []*kgo.Record) {
	for _, kr := range records {
		kr.Recycle()
	}
}

// lease holds the fetched records of one batch.
type lease struct {
	pool    *leasePool
	records []*kgo.Record
}

// Release implements connectors.Lease.
func (l *lease) Release() {
	recycle(l.records)
	l.records = nil
	l.pool.put(l)
}

// leasePool is a free list of leases. It is safe for concurrent use.
type leasePool struct {
	mu   sync.Mutex
	free []*lease
}

func (p *leasePool) get(records []*kgo.Record) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		l := p.free[n-1]
		p.free = p.free[:n-1]
		l.records = records
		return l
	}
	return &lease{p, records}
}

func (p *leasePool) put(l *lease) {
	p.mu.Lock()
	p.free = append(p.free, l)
	p.mu.Unlock()
}

// admin is the reader's way to ask about its partitions.
func (r *reader) admin() *kadm.Client { return kadm.NewClient(r.client) }
