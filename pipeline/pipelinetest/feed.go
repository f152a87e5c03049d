package pipelinetest

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// Feed is what sources of kind feed read: partitions that a test appends to. It
// outlives crashes, as a broker would.
type Feed struct {
	mu         sync.Mutex
	partitions [][]connectors.Record
	bounded    bool
	latest     bool
	away       bool
	changed    chan struct{} // closed and made anew at each change
	failNext   error

	// BeforeRead runs before each look for records; nil for nothing.
	BeforeRead func()
}

// Record is one record that a test feeds in.
type Record struct {
	Value   string
	Key     string
	Null    bool // a tombstone; Value is not used
	Headers []connectors.Header
	Time    int64
}

func newFeed(partitions int) *Feed {
	return &Feed{partitions: make([][]connectors.Record, partitions), changed: make(chan struct{})}
}

// Append adds values to a partition.
func (f *Feed) Append(partition int, values ...string) {
	for _, v := range values {
		f.Add(partition, Record{Value: v})
	}
}

// Add adds a record to a partition, which is made if it is the next new one.
func (f *Feed) Add(partition int, r Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if partition == len(f.partitions) {
		f.partitions = append(f.partitions, nil)
	}
	rec := connectors.Record{
		Value: []byte(r.Value), Headers: r.Headers, Time: r.Time, Offset: int64(len(f.partitions[partition])),
		Origin: &connectors.Origin{Topic: "feed", Partition: int32(partition)},
	}
	if r.Null {
		rec.Value = nil
	}
	if r.Key != "" {
		rec.Key = []byte(r.Key)
	}
	f.partitions[partition] = append(f.partitions[partition], rec)
	f.notify()
}

// StartAtLatest makes partitions that are found from now on begin at their end.
func (f *Feed) StartAtLatest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest = true
}

// End makes the feed bounded: readers end once they have read what is there.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bounded = true
	f.notify()
}

// Away makes the feed what a broker is that does not answer: nothing is read, and
// nobody knows whether there is more. Back ends that.
func (f *Feed) Away() { f.setAway(true) }

// Back ends Away.
func (f *Feed) Back() { f.setAway(false) }

func (f *Feed) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
	f.notify()
}

// FailNext makes the next read fail.
func (f *Feed) FailNext(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failNext = err
	f.notify()
}

func (f *Feed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// feedConfig is the block of a feed source.
type feedConfig struct {
	Name   string                  `key:"name" doc:"The test's name of the feed." required:"true"`
	Batch  int64                   `key:"batch" doc:"Most records of a batch."`
	Fixed  bool                    `key:"fixed" doc:"Whether nobody can look up and move positions."`
	Plain  bool                    `key:"plain" doc:"Whether readers tell nothing of their progress and cannot pause single partitions."`
	Format connectors.FormatConfig `key:"format" doc:"Format of the values."`
}

func init() {
	connectors.RegisterSource(connectors.SourceSpec{
		Name: "feed", Doc: "Reads what a test appends.", Moves: true,
		NewConfig: func() any { return &feedConfig{Batch: 7} },
		New: func(config any) (connectors.Source, error) {
			c := config.(*feedConfig)
			s := &feedSource{config: *c, feed: feedOf(c.Name)}
			if c.Fixed {
				return struct{ connectors.Source }{s}, nil
			}
			return s, nil
		},
		Bounded: func(any) bool { return false },
	})
}

type feedSource struct {
	config feedConfig
	feed   *Feed
}

func splitOf(partition int) connectors.Split {
	return connectors.Split{ID: fmt.Sprintf("feed/%03d", partition), Until: -1}
}

func (s *feedSource) Splits(_ context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	added, err := s.Discover(context.Background(), restored)
	return append(restored[:len(restored):len(restored)], added...), err
}

func (s *feedSource) Discover(_ context.Context, known []connectors.Split) ([]connectors.Split, error) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	var added []connectors.Split
	for i := len(known); i < len(s.feed.partitions); i++ {
		sp := splitOf(i)
		if s.feed.latest {
			sp.Offset = int64(len(s.feed.partitions[i]))
		}
		added = append(added, sp)
	}
	return added, nil
}

// CheckPositions implements connectors.PositionChecker.
func (s *feedSource) CheckPositions(_ context.Context, splits []connectors.Split) ([]connectors.Availability, error) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	out := make([]connectors.Availability, len(splits))
	for i, sp := range splits {
		n, err := strconv.Atoi(sp.ID[len("feed/"):])
		if err != nil {
			return nil, err
		}
		out[i] = connectors.Availability{End: int64(len(s.feed.partitions[n])), Next: sp.Offset}
	}
	return out, nil
}

// Move implements connectors.Mover.
func (s *feedSource) Move(sp connectors.Split, to int64) connectors.Split {
	sp.Offset = to
	return sp
}

func (s *feedSource) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	r := &feedReader{source: s, pool: env.Batches}
	if s.config.Plain {
		return struct{ connectors.Reader }{r}, r.Add(splits)
	}
	return r, r.Add(splits)
}

func (s *feedSource) Committed(context.Context, []connectors.Split) error { return nil }
func (s *feedSource) Close() error                                        { return nil }

type feedReader struct {
	source *feedSource
	pool   *connectors.BatchPool
	splits []connectors.Split
	part   []int
	next   []int64
	paused []bool
	turn   int
}

func (r *feedReader) Add(splits []connectors.Split) error {
	for _, s := range splits {
		n, err := strconv.Atoi(s.ID[len("feed/"):])
		if err != nil {
			return err
		}
		r.splits, r.part, r.next = append(r.splits, s), append(r.part, n), append(r.next, s.Offset)
		r.paused = append(r.paused, false)
	}
	return nil
}

// CaughtUp implements connectors.Progress.
func (r *feedReader) CaughtUp(split int) bool {
	f := r.source.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.away && r.next[split] >= int64(len(f.partitions[r.part[split]]))
}

// Pause implements connectors.Pauser.
func (r *feedReader) Pause(paused []int) {
	clear(r.paused)
	for _, i := range paused {
		r.paused[i] = true
	}
}

func (r *feedReader) Poll(ctx context.Context) (*connectors.Batch, error) {
	for {
		if before := r.source.feed.BeforeRead; before != nil {
			before()
		}
		b, changed, err := r.try()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *feedReader) try() (*connectors.Batch, chan struct{}, error) {
	f := r.source.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failNext; err != nil {
		f.failNext = nil
		return nil, nil, err
	}
	if f.away {
		return nil, f.changed, nil
	}
	more := false
	for range r.splits {
		i := r.turn % len(r.splits)
		r.turn++
		records := f.partitions[r.part[i]]
		if r.next[i] >= int64(len(records)) {
			continue
		}
		if more = true; r.paused[i] {
			continue
		}
		n := min(int64(len(records))-r.next[i], r.source.config.Batch)
		b := r.pool.Get()
		b.Records = append(b.Records, records[r.next[i]:r.next[i]+n]...)
		r.next[i] += n
		b.Split, b.Next = i, r.next[i]
		return b, nil, nil
	}
	if f.bounded && !more {
		return nil, nil, io.EOF
	}
	return nil, f.changed, nil
}

func (r *feedReader) Position(split int, next int64) connectors.Split {
	s := r.splits[split]
	s.Offset = next
	return s
}

func (r *feedReader) Close() error { return nil }
