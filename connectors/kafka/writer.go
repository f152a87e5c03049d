package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// writer implements connectors.Writer for both deliveries.
type writer struct {
	sink   *sink
	stream *stream
	iv     *interval
	pool   *chunkPool
	chunk  *chunk // being filled, or nil
	turned bool   // the next record is the first of an interval

	now     time.Time          // of the Write
	targets map[string]*target // of the topics that rows name
	name    []byte             // the last one
}

// Write implements connectors.Writer.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	if err := w.stream.failure(); err != nil {
		return err
	}
	var client *kgo.Client
	var refused []connectors.RowError
	w.now = time.Now()
	for i := range rows.Sel {
		row, reason, err := w.row(ctx, rows, i)
		if err != nil {
			return err
		}
		if reason.Reason != "" {
			reason.Row = i
			refused = append(refused, reason)
			continue
		}
		if client == nil {
			// Not before a record is there: a transaction is not begun for nothing.
			if client, err = w.client(ctx); err != nil {
				return err
			}
		}
		if err := w.room(ctx, &row); err != nil {
			return err
		}
		// Not ctx: a record that was taken is sent, whatever becomes of the call.
		client.Produce(context.Background(), w.fill(rows, i, &row), w.chunk.promise) //nolint:contextcheck // see above
	}
	if refused != nil {
		return &connectors.RowsError{Rows: refused}
	}
	return nil
}

// client is the one that the interval's records are sent with. Each interval has
// its own, and two send side by side: what this writer gave to the last one has to
// be in the topic first, or records of a partition would change places. The other
// writers are not waited for, as they may be waiting for this one.
func (w *writer) client(ctx context.Context) (*kgo.Client, error) {
	if w.turned {
		if err := w.pool.landed(ctx); err != nil {
			return nil, err
		}
		w.turned = false
	}
	return w.sink.clientOf(ctx, w.iv)
}

// row is what is known of a row before it is copied.
type row struct {
	target    *target
	size      int // bytes of key, value and headers
	headers   int
	partition int32
	millis    int64
}

// recordOverhead is what a record adds to its bytes in a batch of its own.
const recordOverhead = 128

// row sizes and checks a row. A reason says that it is refused.
func (w *writer) row(ctx context.Context, rows *connectors.Rows, i int) (row, connectors.RowError, error) {
	cfg, rec := w.sink.rules(rows), rows.Record(i)
	r := row{partition: anyPartition, millis: rec.Time}
	var reason connectors.RowError
	var err error
	if r.target, reason, err = w.target(ctx, rows, i); r.target == nil {
		return r, reason, err
	}
	r.measure(cfg, rows, i, rec)
	if limit := r.target.maxRecord; r.size+recordOverhead > limit {
		return r, connectors.RowError{Kind: "too_large", Reason: fmt.Sprintf(
			"the record has %d bytes and topic %s takes %d at most (%s)", r.size, r.target.name, limit-recordOverhead, r.target.limitedBy)}, nil
	}
	if cfg.Timestamp.Set() {
		switch v := rows.Slot(i, cfg.Timestamp.Slot); v.Kind() {
		case connectors.Timestamp:
			r.millis = v.Time().UnixMilli()
		case connectors.Int:
			r.millis = v.Int()
		default:
			return r, connectors.RowError{Kind: "timestamp", Reason: "the timestamp expression gave " + v.Kind().String() + ", not a timestamp or milliseconds"}, nil
		}
	}
	if reason := w.untaken(cfg, rows, i, &r); reason.Reason != "" {
		return r, reason, nil
	}
	if cfg.Partition.Set() {
		v := rows.Slot(i, cfg.Partition.Slot)
		if v.Kind() != connectors.Int {
			return r, connectors.RowError{Kind: "partition", Reason: "the partition expression gave " + v.Kind().String() + ", not an integer"}, nil
		}
		if n := r.target.partitions(ctx, w.sink, v.Int()); v.Int() < 0 || v.Int() >= int64(n) {
			return r, connectors.RowError{Kind: "partition", Reason: fmt.Sprintf("the partition expression gave %d, and topic %s has %d partitions", v.Int(), r.target.name, n)}, nil
		}
		r.partition = int32(v.Int())
	}
	return r, connectors.RowError{}, nil
}

// target is the topic that a row goes to.
func (w *writer) target(ctx context.Context, rows *connectors.Rows, i int) (*target, connectors.RowError, error) {
	if t := w.sink.fixed; t != nil {
		return t, connectors.RowError{}, nil
	}
	if rows.DeadLetter != nil {
		return nil, connectors.RowError{Kind: "topic", Reason: "a dead letter names no topic: give the sink of dead letters a fixed one"}, nil
	}
	name, fault := w.sink.cfg.Topic.Append(w.name[:0], rows, i, appendName)
	if w.name = name; fault != nil {
		return nil, connectors.RowError{Kind: "topic", Reason: fault.Error()}, nil //nolint:nilerr // it is the row's
	}
	if t := w.targets[string(w.name)]; t != nil {
		return t, connectors.RowError{}, nil
	}
	t, reason, err := w.sink.find(ctx, string(w.name))
	if t != nil {
		w.targets[t.name] = t
	}
	return t, reason, err
}

// measure adds up the bytes of a row.
func (r *row) measure(cfg *SinkConfig, rows *connectors.Rows, i int, rec *connectors.Record) {
	r.size = len(rows.Values[i])
	if cfg.Key.Set() {
		r.size += valueBytes(rows.Slot(i, cfg.Key.Slot))
	} else {
		r.size += len(rec.Key)
	}
	for h := range rec.Headers {
		r.size += len(rec.Headers[h].Key) + len(rec.Headers[h].Value) + 10
	}
	for _, h := range cfg.Headers {
		r.size += len(h.Name) + valueBytes(rows.Slot(i, h.Expr.Slot)) + 10
	}
	for h := range rows.Headers {
		r.size += len(rows.Headers[h].Key) + len(rows.Headers[h].Value) + 10
	}
	r.headers = len(rec.Headers) + len(cfg.Headers) + len(rows.Headers)
}

// untaken tells why the broker would refuse a row, and every other one that is
// sent along with it.
func (w *writer) untaken(cfg *SinkConfig, rows *connectors.Rows, i int, r *row) connectors.RowError {
	oldest, newest := r.target.times(w.now)
	if rows.DeadLetter != nil {
		// Its time may be what the record was refused for.
		r.millis = max(oldest, min(r.millis, newest))
	}
	switch {
	case r.millis < oldest || r.millis > newest:
		return connectors.RowError{Kind: "timestamp", Reason: fmt.Sprintf(
			"the record's time is %s and topic %s takes none so far from the clock (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
			time.UnixMilli(r.millis).UTC().Format(time.RFC3339), r.target.name)}
	case r.target.keyed && (!cfg.Key.Set() && rows.Record(i).Key == nil || cfg.Key.Set() && rows.Slot(i, cfg.Key.Slot).IsNull()):
		return connectors.RowError{Kind: "key", Reason: "the record has no key, which topic " + r.target.name + " needs, since it is compacted"}
	}
	return connectors.RowError{}
}

// room makes sure that the chunk takes one more row.
func (w *writer) room(ctx context.Context, r *row) (err error) {
	if w.chunk != nil && w.chunk.fits(r.size) {
		return nil
	}
	if w.chunk != nil {
		w.chunk.seal()
	}
	if w.chunk, err = w.pool.get(ctx, w.iv); err != nil {
		return err
	}
	w.chunk.fits(r.size)
	return nil
}

// fill copies a row into the chunk and makes it a record to send.
func (w *writer) fill(rows *connectors.Rows, i int, r *row) *kgo.Record {
	c, cfg, rec := w.chunk, w.sink.rules(rows), rows.Record(i)
	c.records = c.records[:len(c.records)+1]
	kr := &c.records[len(c.records)-1]
	kr.Value = c.copy(rows.Values[i])
	kr.Key = w.key(cfg, rows, i, rec)
	if r.headers > 0 {
		kr.Headers = w.headers(cfg, rows, i, rec)
	}
	kr.Topic, kr.Partition = r.target.name, r.partition
	kr.Timestamp = time.UnixMilli(r.millis)
	return kr
}

func (w *writer) key(cfg *SinkConfig, rows *connectors.Rows, i int, rec *connectors.Record) []byte {
	if !cfg.Key.Set() {
		return w.chunk.copy(rec.Key)
	}
	return w.chunk.value(rows.Slot(i, cfg.Key.Slot))
}

// value puts the text of v into the chunk; null is nil.
func (c *chunk) value(v connectors.Value) []byte {
	if v.IsNull() {
		return nil
	}
	at := len(c.buf)
	c.buf = appendValue(c.buf, v)
	return c.buf[at:len(c.buf):len(c.buf)]
}

// headers collects a row's headers: the record's own but for those that the format or
// an expression sets, then these.
func (w *writer) headers(cfg *SinkConfig, rows *connectors.Rows, i int, rec *connectors.Record) []kgo.RecordHeader {
	c := w.chunk
	at := len(c.headers)
	for h := range rec.Headers {
		if own := &rec.Headers[h]; !cfg.setsHeader(own.Key) && !rows.Replaces(own.Key) {
			c.headers = append(c.headers, kgo.RecordHeader{Key: c.text(own.Key), Value: c.copy(own.Value)})
		}
	}
	for _, h := range rows.Headers {
		if h.Value != nil && rows.Values[i] != nil && !cfg.setsHeader(h.Key) {
			c.headers = append(c.headers, kgo.RecordHeader{Key: h.Key, Value: c.copy(h.Value)})
		}
	}
	for _, h := range cfg.Headers {
		c.headers = append(c.headers, kgo.RecordHeader{Key: h.Name, Value: c.value(rows.Slot(i, h.Expr.Slot))})
	}
	return c.headers[at:len(c.headers):len(c.headers)]
}

// Tick implements connectors.Writer.
func (w *writer) Tick(_ context.Context, now time.Time) error {
	if err := w.stream.failure(); err != nil {
		return err
	}
	return w.sink.checkAge(now)
}

// Barrier implements connectors.Writer.
func (w *writer) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	if w.chunk != nil {
		w.chunk.seal()
		w.chunk = nil
	}
	iv := w.iv
	next, err := w.stream.pass(iv, b.ID)
	if err != nil {
		return nil, err
	}
	w.iv, w.turned = next, w.sink.set != nil
	return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
		return w.sink.prepare(ctx, iv)
	}, nil
}

// Close implements connectors.Writer.
func (w *writer) Close() error {
	if w.chunk != nil {
		w.chunk.seal()
		w.chunk = nil
	}
	return nil
}
