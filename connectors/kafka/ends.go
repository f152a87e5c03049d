package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// endsEvery is how often the ends of partitions that bring nothing are asked for.
	endsEvery = time.Second
	// endsSeldom is how often in terms of that where they are shown and nothing goes by them.
	endsSeldom = 10
	// endsPatience bounds the asking.
	endsPatience = 5 * time.Second
	// provenFor is how long an answer of a broker counts. Once none has come for so
	// long, nobody knows whether there is more to read.
	provenFor = 3 * time.Second
)

// ends is what is known of the ends of a reader's partitions. Answers to fetches
// that bring nothing are not shown by the client, so partitions that are quiet are
// asked about in a goroutine of its own, which begins once somebody wants to know.
type ends struct {
	every     time.Duration // see endsEvery
	provenFor time.Duration // see provenFor

	mu     sync.Mutex
	splits []splitEnd
	holes  []hole // found, and not taken

	wanted atomic.Bool // event time goes by them
	start  sync.Once
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// splitEnd is the end of one partition. With read_committed it is the last stable
// offset: what lies beyond belongs to open transactions.
type splitEnd struct {
	topic     string
	partition int32
	next      int64     // position after what was handed out
	end       int64     // the end, as a broker told it
	at        time.Time // when it was asked for
	stuck     int64     // next at the last answer that told of more behind it, -1 for none
	still     bool      // it is paused or read for good: nobody wants to know
}

// hole is a stretch of a partition that has no records: what is left of aborted
// transactions, and of records that were compacted away.
type hole struct {
	split    int
	from, to int64
}

func (e *ends) add(topic string, partition int32, next int64, done bool) {
	e.mu.Lock()
	e.splits = append(e.splits, splitEnd{topic: topic, partition: partition, next: next, stuck: -1, still: done})
	e.mu.Unlock()
}

// moved tells how far a split was handed out.
func (e *ends) moved(split int, next int64) {
	e.mu.Lock()
	e.splits[split].next = next
	e.mu.Unlock()
}

// quiet tells that nobody wants to know the end of a split, or somebody does again.
func (e *ends) quiet(split int, still bool) {
	e.mu.Lock()
	e.splits[split].still = still
	e.mu.Unlock()
}

// told takes an answer of a broker.
func (e *ends) told(split int, end int64, at time.Time) {
	e.mu.Lock()
	if s := &e.splits[split]; at.After(s.at) {
		s.end, s.at = end, at
	}
	e.mu.Unlock()
}

// reached reports whether a split was handed out up to its end, as a broker told it
// lately.
func (e *ends) reached(split int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.splits[split]
	return s.next >= s.end && !s.at.IsZero() && time.Since(s.at) < e.provenFor
}

// end is where a split ended when a broker told last.
func (e *ends) end(split int) (int64, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.splits[split]
	return s.end, !s.at.IsZero()
}

// take returns a hole that begins where its split is, if there is one.
func (e *ends) take() (hole, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.holes) > 0 {
		h := e.holes[0]
		e.holes = e.holes[1:]
		if e.splits[h.split].next == h.from {
			return h, true
		}
	}
	return hole{}, false
}

func (e *ends) close() {
	e.start.Do(func() {})
	if e.stop != nil {
		e.stop()
	}
	e.done.Wait()
}

// watchEnds begins to ask for the ends of partitions that bring nothing.
func (r *reader) watchEnds() {
	r.ends.start.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		r.ends.stop = stop
		r.ends.done.Go(func() {
			tick := time.NewTicker(r.ends.every)
			defer tick.Stop()
			for n := 0; ; n++ {
				if r.ends.wanted.Load() || n%endsSeldom == 0 {
					r.askEnds(ctx)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// askEnds asks for the ends of what is quiet. What fails is asked for again the next
// time: the client's own fetches meet the same, and tell of it.
func (r *reader) askEnds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsPatience)
	defer cancel()
	at := time.Now()
	asked := r.ends.due(at)
	if len(asked) == 0 {
		return
	}
	for _, shard := range r.client.RequestSharded(ctx, r.endsRequest(asked)) {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				s, known := asked[partitionName{t.Topic, p.Partition}]
				if !known || p.ErrorCode != 0 {
					continue
				}
				r.ends.told(s.split, p.Offset, at)
				if r.ends.behind(s.split, s.from, p.Offset) && !r.src.cfg.Until.Set() {
					r.findHole(ctx, s.split, partitionName{t.Topic, p.Partition}, s.from)
				}
			}
		}
	}
}

// due lists the splits of which nothing was heard lately, with their positions.
func (e *ends) due(now time.Time) map[partitionName]hole {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out map[partitionName]hole
	for i := range e.splits {
		s := &e.splits[i]
		if s.still || now.Sub(s.at) < e.every/2 {
			continue
		}
		if out == nil {
			out = map[partitionName]hole{}
		}
		out[partitionName{s.topic, s.partition}] = hole{split: i, from: s.next}
	}
	return out
}

// behind reports whether a split has been at one position for two answers that told
// of more behind it, so that it may be that there is no record.
func (e *ends) behind(split int, from, end int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.splits[split]
	if s.next != from || from >= end {
		s.stuck = -1
		return false
	}
	again := s.stuck == from
	s.stuck = from
	return again
}

// findHole looks whether there is any record behind a position.
func (r *reader) findHole(ctx context.Context, split int, name partitionName, from int64) {
	to, err := r.skip(ctx, name, from)
	if err != nil || to <= from {
		return
	}
	r.ends.mu.Lock()
	r.ends.holes = append(r.ends.holes, hole{split, from, to})
	r.ends.mu.Unlock()
}

// endsRequest asks the leaders for the ends of partitions.
func (r *reader) endsRequest(asked map[partitionName]hole) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	if r.src.cfg.Isolation != readUncommitted {
		req.IsolationLevel = 1
	}
	byTopic := map[string][]kmsg.ListOffsetsRequestTopicPartition{}
	for name := range asked {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = name.partition, -1 // the end
		byTopic[name.topic] = append(byTopic[name.topic], p)
	}
	for topic, partitions := range byTopic {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	return req
}

// CaughtUp implements connectors.Progress.
func (r *reader) CaughtUp(split int) bool {
	if r.splits[split].done {
		return true
	}
	r.ends.wanted.Store(true)
	r.watchEnds()
	return r.ends.reached(split)
}

// End implements connectors.Ends. While nothing is read, such as since a sink is down, the
// brokers have to be asked for it.
func (r *reader) End(split int) (int64, bool) {
	r.watchEnds()
	return r.ends.end(split)
}

// Pause implements connectors.Pauser. The client does not fetch a paused partition,
// and drops what it has fetched of it and not given out.
func (r *reader) Pause(paused []int) {
	want := make([]bool, len(r.splits))
	for _, i := range paused {
		want[i] = true
	}
	stop, goOn := map[string][]int32{}, map[string][]int32{}
	for i := range r.splits {
		s := &r.splits[i]
		if s.done || want[i] == s.paused {
			continue
		}
		s.paused = want[i]
		r.ends.quiet(i, s.paused)
		if s.paused {
			stop[s.origin.Topic] = append(stop[s.origin.Topic], s.origin.Partition)
		} else {
			goOn[s.origin.Topic] = append(goOn[s.origin.Topic], s.origin.Partition)
		}
	}
	if len(stop) > 0 {
		r.client.PauseFetchPartitions(stop)
	}
	if len(goOn) > 0 {
		r.client.ResumeFetchPartitions(goOn)
	}
}

var (
	_ connectors.Progress = (*reader)(nil)
	_ connectors.Pauser   = (*reader)(nil)
)
