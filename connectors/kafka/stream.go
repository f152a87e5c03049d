package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// stream is the records of several writers on their way to one cluster, divided
// by barriers into intervals.
type stream struct {
	mu      sync.Mutex
	writers int
	head    *interval     // the oldest that some writer may still write to
	err     error         // what broke the stream for good
	broken  chan struct{} // closed with err
}

func newStream() *stream {
	return &stream{head: newInterval(), broken: make(chan struct{})}
}

// interval is what all writers of a stream take between two barriers.
type interval struct {
	id     connectors.CheckpointID // of the barrier that ends it
	next   *interval
	left   int           // writers that have passed its end
	asked  int           // of them, those whose Prepare was called
	flying int           // chunks that are filled or sent and not acknowledged
	sent   bool          // it has records
	count  int64         // of those that are acknowledged
	idle   chan struct{} // closed once it is ended and nothing flies

	client  *kgo.Client
	opening sync.Mutex // held by the writer that makes client

	// Of an exactly-once stream:
	slot        *slot
	begun       time.Time
	committable *connectors.Committable // once prepared
	ended       bool                    // EndTransaction was tried
	committed   bool
}

func newInterval() *interval { return &interval{idle: make(chan struct{})} }

// fail breaks the stream: records are missing from it that its writers were told
// are taken, so that only a restart from a checkpoint brings them back.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.broken)
	}
}

// failure is what broke the stream, or nil.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// join adds writers.
func (s *stream) join(writers int) {
	s.mu.Lock()
	s.writers += writers
	s.mu.Unlock()
}

// first is the interval that a new writer begins with.
func (s *stream) first() *interval {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// pass takes one writer over the barrier id at the end of iv.
func (s *stream) pass(iv *interval, id connectors.CheckpointID) (*interval, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if iv.left == 0 {
		iv.id = id
		if iv.next == nil {
			iv.next = newInterval()
		}
	} else if iv.id != id {
		return nil, fmt.Errorf("barrier %d reached a kafka sink that is at barrier %d", id.Number, iv.id.Number)
	}
	iv.left++
	s.settle(iv)
	return iv.next, nil
}

// ask counts a Prepare and reports whether it is the last of its interval.
func (s *stream) ask(iv *interval) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	iv.asked++
	return iv.asked == s.writers
}

func (s *stream) settle(iv *interval) {
	if iv.left == s.writers && iv.flying == 0 {
		close(iv.idle)
	}
}

// hasRecords reports whether something was written in an interval.
func (s *stream) hasRecords(iv *interval) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return iv.sent
}

// records is how many of an interval are acknowledged.
func (s *stream) records(iv *interval) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return iv.count
}

func (s *stream) takeOff(iv *interval) {
	s.mu.Lock()
	iv.flying++
	iv.sent = true
	s.mu.Unlock()
}

func (s *stream) land(iv *interval, records int) {
	s.mu.Lock()
	iv.flying--
	iv.count += int64(records)
	s.settle(iv)
	s.mu.Unlock()
}

// drain waits until every record of iv is acknowledged.
func (s *stream) drain(ctx context.Context, iv *interval) error {
	select {
	case <-iv.idle:
		return s.failure()
	case <-s.broken:
		return s.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	chunkBytes   = 256 << 10
	chunkRecords = 1024
	chunkWeight  = chunkBytes + chunkRecords*192 // with its records, about
	minChunks    = 2
	maxChunks    = 256
)

// chunk holds the bytes of records that are being sent, and their records.
type chunk struct {
	home    *chunkPool
	buf     []byte
	records []kgo.Record
	headers []kgo.RecordHeader
	iv      *interval
	left    countdown
	promise func(*kgo.Record, error)
}

// chunkPool is the chunks of one writer: their number is its memory budget.
type chunkPool struct {
	stream *stream
	free   chan *chunk
	where  string // for errors
}

func newChunkPool(s *stream, budget int64, where string) *chunkPool {
	n := min(max(budget/chunkWeight, minChunks), maxChunks)
	p := &chunkPool{stream: s, free: make(chan *chunk, n), where: where}
	for range n {
		c := &chunk{home: p}
		c.promise = c.acknowledged
		p.free <- c
	}
	return p
}

// get waits for a free chunk.
func (p *chunkPool) get(ctx context.Context, iv *interval) (*chunk, error) {
	var c *chunk
	select {
	case c = <-p.free:
	default:
		select {
		case c = <-p.free:
		case <-p.stream.broken:
			return nil, p.stream.failure()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.records == nil {
		c.buf = make([]byte, 0, chunkBytes)
		c.records = make([]kgo.Record, 0, chunkRecords)
	}
	c.iv = iv
	c.left.start()
	p.stream.takeOff(iv)
	return c, nil
}

// landed waits until every record that was filled into the pool's chunks is
// acknowledged, all of them being sealed.
func (p *chunkPool) landed(ctx context.Context) error {
	back := make([]*chunk, 0, cap(p.free))
	defer func() {
		for _, c := range back {
			p.free <- c
		}
	}()
	for len(back) < cap(back) {
		select {
		case c := <-p.free:
			back = append(back, c)
		case <-p.stream.broken:
			return p.stream.failure()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// fits reports whether a record of n bytes can be added. An empty chunk takes any.
func (c *chunk) fits(n int) bool {
	if len(c.records) == 0 {
		if n > cap(c.buf) {
			c.buf = make([]byte, 0, n)
		}
		return true
	}
	return len(c.records) < cap(c.records) && cap(c.buf)-len(c.buf) >= n
}

// copy puts b into the chunk; nil stays nil.
func (c *chunk) copy(b []byte) []byte {
	if b == nil {
		return nil
	}
	at := len(c.buf)
	c.buf = append(c.buf, b...)
	return c.buf[at:len(c.buf):len(c.buf)]
}

// seal ends the filling.
func (c *chunk) seal() {
	if c.left.seal(len(c.records)) {
		c.release()
	}
}

func (c *chunk) acknowledged(r *kgo.Record, err error) {
	if err != nil {
		c.home.stream.fail(produceError(c.home.where, r.Topic, err))
	}
	if c.left.done() {
		c.release()
	}
}

func (c *chunk) release() {
	iv, n := c.iv, len(c.records)
	clear(c.records)
	c.records = c.records[:0]
	clear(c.headers)
	c.headers = c.headers[:0]
	c.buf = c.buf[:0]
	if cap(c.buf) > chunkBytes {
		c.buf = make([]byte, 0, chunkBytes)
	}
	c.iv = nil
	c.home.free <- c
	c.home.stream.land(iv, n)
}

// refusals are answers that a record gets whenever it is sent.
var refusals = []error{kerr.InvalidTimestamp, kerr.InvalidRecord, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.PolicyViolation}

func produceError(where, topic string, err error) error {
	if auth, help := denied(err); auth {
		return connectors.Permanent(fmt.Errorf("%s: write to topic %s: %w (%s)", where, topic, err, help))
	}
	if fenced(err) {
		return fmt.Errorf("%s: write to topic %s: %w: %w", where, topic, connectors.ErrFenced, err)
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			// The same records come again after a restart, and are refused again.
			return connectors.Permanent(fmt.Errorf("%s: write to topic %s: %w (the topic's configuration refuses a record: change it, or filter such records out)", where, topic, err))
		}
	}
	if errors.Is(err, kgo.ErrClientClosed) {
		return fmt.Errorf("%s: write to topic %s: the sink was closed with records unsent", where, topic)
	}
	return fmt.Errorf("%s: write to topic %s: %w", where, topic, err)
}

// text puts s into the chunk.
func (c *chunk) text(s string) string {
	if s == "" {
		return ""
	}
	at := len(c.buf)
	c.buf = append(c.buf, s...)
	return unsafe.String(&c.buf[at], len(s))
}

// advance lets go of iv, which every writer has passed, if it is the oldest.
func (s *stream) advance(iv *interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == iv {
		s.head = iv.next
	}
}
